"""Which cuts are undone, and which stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pavane.ir.expr import Reduce, at, fn
from pavane.ir.program import Carry, Compute, Generic, Init, MatmulTiles, Pop, Program, Ref, Shape, Span, Stage, Tree
from pavane.ir.quasi import quasi
from pavane.ir.walk import leaves, rebuild
from pavane.passes.fuse_generic import fuse_generic
from pavane.reject import OutOfRegisters
from pavane.targets.descriptor import SpatialTarget
from tests.building import COL, GEN_K, ROW
from tests.unit.passes.chains import after, require_right_answer
from tests.unit.passes.templates import chain


def fused_shape(program: Program, target: SpatialTarget) -> Shape:
    return fuse_generic(program, target).shapes[0]


def edited(program: Program, change: Callable, carries: tuple[Carry, ...] | None = None) -> Program:
    """The program with its compute stage's nodes changed."""
    shape = program.shapes[0]

    def stage(s: Stage) -> Stage:
        return replace(s, body=rebuild(s.body, change)) if s.name == "compute" else s

    groups = tuple(replace(g, stages=tuple(map(stage, g.stages))) for g in shape.groups)
    return replace(program, shapes=(replace(shape, groups=groups, carries=carries or shape.carries),))


@pytest.fixture
def before(toy: SpatialTarget) -> Program:
    return after("fuse_readers", chain(toy).program, toy)


def test_a_cut_is_undone(before: Program, toy: SpatialTarget) -> None:
    shape = fused_shape(before, toy)
    assert shape.carries == ()
    ops = [step.op for _, step in leaves(shape.groups[0].stages[2].body) if isinstance(step, Compute)]
    assert [op.dst.name for op in ops] == ["fC"]
    assert at("t", ROW, COL) not in ops[0].expr.args
    require_right_answer(fuse_generic(before, toy), chain(toy))


def with_tiles(target: SpatialTarget, count: int, narrow: int = 0, **figures: int) -> SpatialTarget:
    figures |= {"register_tiles": count, "register_tiles_16_bit": narrow}
    return replace(target, engines=tuple(replace(e, **figures) for e in target.engines))


def of_four_tiles(program: Program, dtype: str = "f32") -> Program:
    """fC = t + w after t = fA + fB: three tiles a step, four together; every buffer of a type."""
    program = edited(program, with_reader(fn("add", at("t", ROW, COL), at("w", ROW, COL))))
    shape = program.shapes[0]
    (t,) = (replace(c, dtype=dtype) for c in shape.carries)
    fifos = tuple(replace(f, dtype=dtype) for f in shape.fifos)
    numerics = replace(shape.numerics, accumulator=dtype)
    carries = (t, replace(t, name="w", cut=False))
    return replace(program, shapes=(replace(shape, carries=carries, fifos=fifos, numerics=numerics),))


def carries_left(program: Program, target: SpatialTarget) -> list[str]:
    return [c.name for c in fused_shape(program, target).carries]


def test_registers_limit_it(before: Program, toy: SpatialTarget) -> None:
    program = of_four_tiles(before)
    assert carries_left(program, with_tiles(toy, 4)) == ["w"]  # fA, fB, w and the result
    assert carries_left(program, with_tiles(toy, 3)) == ["t", "w"]
    assert carries_left(program, with_tiles(toy, 0)) == ["w"]


def test_registers_hold_more_tiles_of_16_bits(before: Program, toy: SpatialTarget) -> None:
    """Where every tile has 16 bits; one of 32 among them leaves room for 3, and so does an accumulator of 32."""
    narrow = of_four_tiles(before, "bf16")
    assert carries_left(narrow, with_tiles(toy, 3, 6)) == ["w"]
    assert carries_left(narrow, with_tiles(toy, 3)) == ["t", "w"]
    assert carries_left(of_four_tiles(before), with_tiles(toy, 3, 6)) == ["t", "w"]
    shape = narrow.shapes[0]
    mixed = replace(shape, carries=tuple(replace(c, dtype="f32") if c.name == "w" else c for c in shape.carries))
    assert carries_left(replace(narrow, shapes=(mixed,)), with_tiles(toy, 3, 6)) == ["t", "w"]

    def and_a_product(node):
        everything = Span(quasi(0), 4, quasi(4))
        product = MatmulTiles(Ref("acc"), Ref("fA"), Ref("fB"), True, *(everything,) * 3, Tree())
        return (Compute(product), node) if isinstance(node, Compute) and node.op.dst.name == "t" else (node,)

    accumulating = edited(narrow, and_a_product, (*shape.carries, Carry("acc", 4, 4, "f32")))
    assert carries_left(accumulating, with_tiles(toy, 3, 6)) == ["t", "w", "acc"]


def test_what_nothing_cuts_further_is_refused(before: Program, toy: SpatialTarget) -> None:
    with pytest.raises(OutOfRegisters) as caught:
        fused_shape(before, with_tiles(toy, 2))
    assert (caught.value.needed, caught.value.available) == ("3 tiles", "2 of engine matrix of toy")
    assert caught.value.terms == ("t (f32)", "fA (f32)", "fB (f32)")


# --- in full sync -----------------------------------------------------------------------------------------------------


def registers(shape: Shape) -> dict[str, str]:
    return {stage.name: stage.registers for group in shape.groups for stage in group.stages}


def test_full_sync_where_half_holds_no_op(before: Program, toy: SpatialTarget) -> None:
    """Three tiles; only the stage that computes changes, and nothing was to be compared."""
    shape = fused_shape(before, with_tiles(toy, 2, full_register_tiles=4, pack_bytes_per_cycle=16))
    assert registers(shape) == {"reader_a": "HALF", "reader_b": "HALF", "compute": "FULL", "writer": "HALF"}
    assert (shape.carries, shape.joins) == ((), before.shapes[0].joins)
    with pytest.raises(OutOfRegisters) as caught:
        fused_shape(of_four_tiles(before), with_tiles(toy, 1, full_register_tiles=2, pack_bytes_per_cycle=16))
    assert (caught.value.needed, caught.value.available) == ("3 tiles", "2 of engine matrix of toy in full sync")


@pytest.mark.parametrize(("pack_bytes_per_cycle", "sync"), [(1, "half sync"), (1 << 20, "full sync")])
def test_full_sync_for_a_cut_where_that_is_predicted_to_be_faster(
    before: Program, toy: SpatialTarget, pack_bytes_per_cycle: int, sync: str
) -> None:
    """The cut carry is set and filled, at an element a cycle; the rest of the chip hardly takes time."""
    slow = with_tiles(toy, 3, full_register_tiles=4, pack_bytes_per_cycle=pack_bytes_per_cycle)
    engines = tuple(replace(e, generic_elements_per_cycle=1) if e.name == "matrix" else e for e in slow.engines)
    target = replace(slow, engines=engines, dram=replace(toy.dram, bytes_per_cycle=1024, latency_cycles=0))
    target = replace(target, noc=replace(toy.noc, bytes_per_cycle=1024))
    program = edited(of_four_tiles(before), lambda node: (Init("t"), node) if _makes(node, "t") else (node,))
    shape = fused_shape(program, target)
    join = shape.joins[-1]
    assert (join.what, join.taken) == ("registers", sync)
    assert join.cycles < join.other_cycles
    assert [c.name for c in shape.carries] == (["w"] if sync == "full sync" else ["t", "w"])
    assert registers(shape)["compute"] == ("FULL" if sync == "full sync" else "HALF")


def _makes(node, name: str) -> bool:
    return isinstance(node, Compute) and node.op.dst.name == name


def test_only_marked_cuts(before: Program, toy: SpatialTarget) -> None:
    shape = before.shapes[0]
    unmarked = replace(shape, carries=tuple(replace(c, cut=False) for c in shape.carries))
    assert fused_shape(replace(before, shapes=(unmarked,)), toy) == unmarked


def test_a_rounding_carry_stays(before: Program, toy: SpatialTarget) -> None:
    shape = before.shapes[0]
    rounding = replace(shape, carries=tuple(replace(c, dtype="bf16") for c in shape.carries))
    assert fused_shape(replace(before, shapes=(rounding,)), toy).carries == rounding.carries


def test_an_operand_given_back_in_between_keeps_the_cut(before: Program, toy: SpatialTarget) -> None:
    def pop_early(node):
        if isinstance(node, Compute) and node.op.dst.name == "t":
            return (node, Pop("fA"))
        return () if node == Pop("fA") else (node,)

    assert len(fused_shape(edited(before, pop_early), toy).carries) == 1


def with_reader(expr) -> Callable:
    def change(node):
        if isinstance(node, Compute) and node.op.dst.name == "fC":
            return (Compute(replace(node.op, expr=expr)),)
        return (node,)

    return change


def test_a_read_at_another_point_keeps_the_cut(before: Program, toy: SpatialTarget) -> None:
    assert len(fused_shape(edited(before, with_reader(at("t", ROW, 0))), toy).carries) == 1
    inside = Reduce("SUM", GEN_K, quasi(4), at("t", ROW, GEN_K))
    assert len(fused_shape(edited(before, with_reader(inside)), toy).carries) == 1


def test_a_cheap_value_may_be_repeated_a_costly_one_not(before: Program, toy: SpatialTarget) -> None:
    twice = with_reader(fn("mul", at("t", ROW, COL), at("t", ROW, COL)))
    assert fused_shape(edited(before, twice), toy).carries == ()

    def costly(node):
        if isinstance(node, Compute) and node.op.dst.name == "t":
            return (Compute(replace(node.op, expr=fn("tanh", node.op.expr))),)
        return twice(node)

    assert len(fused_shape(edited(before, costly), toy).carries) == 1


def test_two_cuts_in_a_row_and_their_inits_go(before: Program, toy: SpatialTarget) -> None:
    shape = before.shapes[0]

    def second(node):
        if isinstance(node, Compute) and node.op.dst.name == "fC":
            middle = Generic(Ref("u"), fn("exp", at("t", ROW, COL)), node.op.rows, node.op.cols)
            last = replace(node.op, expr=fn("add", at("u", ROW, COL), at("fA", ROW, COL)))
            return (Init("u"), Compute(middle), Compute(last))
        return (node,)

    (t,) = shape.carries
    result = fused_shape(edited(before, second, (t, replace(t, name="u"))), toy)
    assert result.carries == ()
    steps = [step for _, step in leaves(result.groups[0].stages[2].body)]
    assert not any(isinstance(step, Init) for step in steps)
    assert sum(isinstance(step, Compute) for step in steps) == 1
