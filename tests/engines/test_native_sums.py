"""Which sums of products are made in their tensor, where they begin, and which must not be."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.expr import at, fn
from pavane.ir.program import Compute, Fence, Generic, Init, Load, Loop, MatmulTiles, Pop, Program, Ref, Store, Tree
from pavane.ir.quasi import quasi
from pavane.native.direct import direct_stores
from pavane.native.sums import Sums, sums_in_place
from pavane.targets.load import load_target
from tests.building import COL, ROW, span, whole, window
from tests.engines.native_programs import accepted, product_program
from tests.engines.sim_programs import edited

HOST = load_target("host", 1)
ONE_LANE = Tree(0, 1, True)


def product(dtype: str = "f32", transposed: bool = False, initial: float = 0.0) -> Program:
    tree = Tree(0, 16, True) if transposed else ONE_LANE
    return product_program(HOST, dtype, dtype, 9, 80, 64, tree, transposed, initial)


def found(program: Program) -> dict[str, Sums]:
    shape = program.shapes[0]
    process = shape.processes[0]
    return sums_in_place(program, shape, process, direct_stores(program, shape, process))


def changed(program: Program, kind: type, *steps) -> Program:
    """Other steps in the place of the first of that kind."""
    return edited(program, "core", lambda node: steps if isinstance(node, kind) else (node,))


def step(program: Program, kind: type):
    return next(node for node in program.shapes[0].processes[0].body if isinstance(node, kind))


def matmul(program: Program) -> MatmulTiles:
    body = program.shapes[0].processes[0].body
    return next(s.op for s in body if isinstance(s, Compute) and isinstance(s.op, MatmulTiles))


def with_product(program: Program, *nodes) -> Program:
    """Other nodes in the place of the product."""
    return edited(program, "core", lambda s: nodes if isinstance(s, Compute) and s.op == matmul(program) else (s,))


def in_parts(program: Program, size: int, limit: int = 64) -> Program:
    """The product in turns of a loop over its terms."""
    op, start = matmul(program), quasi("k") * size
    part = replace(op, a=replace(op.a, col=start), b=replace(op.b, row=start), k=span(start, size, limit))
    return with_product(program, Loop("k", quasi(-(-limit // size)), (Compute(part),)))


def check(program: Program, initial: float = 0.0) -> None:
    """Twice, so that what the tensor holds from the first launch would be seen."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((9, 64), (64, 80)))
    with native.load(program, HOST, weights={"B": b}, accept=accepted) as ready:
        for _ in range(2):
            ready.launch({}, {"A": a})
            assert np.array_equal(ready.tensor("Y"), initial + a @ b)


def test_a_product_begins_its_sums_in_the_tensor():
    program = product()
    assert found(program)["acc"].beginning == ()
    check(program)


def test_the_first_part_of_a_contraction_begins_them():
    for size in (16, 24, 64):
        program = in_parts(product(), size)
        assert [loop.var for loop in found(program)["acc"].beginning] == ["k"]
        check(program)


def test_other_beginnings_are_written_first():
    assert found(product(initial=0.5))["acc"].beginning is None
    check(product(initial=0.5), 0.5)
    assert found(product(transposed=True))["acc"].beginning is None
    program = product()
    op = replace(matmul(program), k=whole(32))
    rest = replace(op, a=Ref("A", col=quasi(32)), b=Ref("B", row=quasi(32)))
    twice = with_product(program, Compute(op), Compute(rest))
    assert found(twice)["acc"].beginning is None
    check(twice)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("more_rows", "more_columns"), [(0, 1), (1, 0), (3, 16)])
def test_a_carry_with_more_room_than_the_window_keeps_its_own(transposed, more_rows, more_columns):
    """Its init would write what is beside the window."""
    program = product(transposed=transposed, initial=0.5)
    assert "acc" in found(program)
    shape = program.shapes[0]
    carries = tuple(replace(c, rows=c.rows + more_rows, cols=c.cols + more_columns) for c in shape.carries)
    assert found(replace(program, shapes=(replace(shape, carries=carries),))) == {}


def test_a_sum_of_nothing_is_its_beginning():
    program = with_product(product(initial=0.5))
    assert found(program)["acc"].beginning is None
    with native.load(program, HOST, weights={"B": np.zeros((64, 80), np.float32)}, accept=accepted) as ready:
        ready.launch({}, {"A": np.ones((9, 64), np.float32)})
        assert np.array_equal(ready.tensor("Y"), np.full((9, 80), 0.5))


def test_a_loop_that_may_not_run_begins_nothing():
    program = product()
    op = replace(matmul(program), k=span(quasi("k") * 16 + 64, 16, 64))
    assert found(with_product(program, Loop("k", quasi(1), (Compute(op),))))["acc"].beginning is None


@pytest.mark.parametrize("fault", [
    "guarded", "other rows", "a fence", "another result", "a second use", "another place", "a second copy"
])  # fmt: skip
def test_sums_that_need_their_carry(fault):
    program = product()
    op, copy = matmul(program), Compute(Generic(Ref("fY"), at("acc", ROW, COL), whole(9), whole(80)))
    bad = {
        "guarded": lambda: with_product(program, Compute(replace(op, guard=(whole(1),)))),
        "other rows": lambda: with_product(program, Compute(replace(op, rows=whole(8)))),
        "another place": lambda: with_product(program, Compute(replace(op, dst=Ref("acc", row=quasi(1))))),
        "a fence": lambda: with_product(program, Compute(op), Fence()),
        "a second use": lambda: with_product(program, Compute(op), copy),
        "another result": lambda: edited(program, "core", lambda s: (_doubled(s),)),
        "a second copy": lambda: changed(program, Store, step(program, Store), step(program, Store)),
    }[fault]()
    assert found(bad) == {}


def _doubled(node):
    if isinstance(node, Compute) and isinstance(node.op, Generic):
        return Compute(replace(node.op, expr=fn("mul", at("acc", ROW, COL), 2.0)))
    return node


def test_a_tensor_that_another_step_reads_or_writes():
    program = product()
    instance = program.instances[0]
    one = tuple(replace(b, tensor="Y") if b.formal == "A" else b for b in instance.bindings)
    assert found(replace(program, instances=(replace(instance, bindings=one),))) == {}
    again = Load("A", "Y", window((0, 9), (0, 80), row=0))
    assert found(changed(program, Init, Init("acc"), again)) == {}


def test_without_an_init_nothing_is_known():
    assert found(changed(product(), Init)) == {}
    assert found(changed(product(), Pop))["acc"].beginning == ()
