"""What lowering decides by itself: how much of a carry is initialised, rings of bound addresses, and what it cannot
run.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.expr import Indirect, at
from pavane.ir.program import (
    Carry,
    Compute,
    Front,
    Generic,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Pop,
    Program,
    Push,
    Ref,
    Reserve,
    Tree,
)
from pavane.ir.quasi import quasi
from pavane.ir.types import Ints
from pavane.native.carries import touched
from pavane.native.cpu import Cpu, host_cpu, require_supported
from pavane.native.layout import program_layout
from pavane.native.lower import lower_program
from pavane.native.text import Code, Module, halving_sums
from pavane.reject import OutsideFragment, TargetReject
from pavane.sim import Simulator
from pavane.targets.load import load_target
from tests.building import COL, GEN_K, ROW, K, span, take, whole, window
from tests.engines.native_programs import accepted, generic_program, product_program
from tests.engines.sim_programs import edited
from tests.examples import attention_host, matmul_multicast, norm_product_host

HOST = load_target("host", 1)
SYMBOLS = frozenset({"rows", "pos"})


def product(dst: Ref, rows, cols, k=32) -> Compute:
    return Compute(MatmulTiles(dst, Ref("A"), Ref("B"), True, rows, cols, whole(k), Tree()))


def test_rows_and_columns_that_all_uses_share():
    rows, live = span(0, 32, "rows"), quasi("pos") + quasi("rows")
    body = (
        Init("S"),
        Loop("LV_KBLOCK", live.ceil(32), (product(Ref("S", quasi(0), 32 * K), rows, span(32 * K, 32, live)),)),
        Compute(Generic(Ref("P"), at("S", ROW, COL), rows, span(0, 64, live))),
    )
    assert touched(body, "S", (), SYMBOLS) == (rows, live)
    assert touched(body, "P", (), SYMBOLS) == (rows, live)


def test_uses_that_differ_touch_everything():
    rows = span(0, 32, "rows")
    body = (product(Ref("S"), rows, whole(32)), product(Ref("S"), span(0, 16, "rows"), whole(16)))
    assert touched(body, "S", (), SYMBOLS) == (None, None)
    shifted = (product(Ref("S", quasi(4)), rows, whole(32)),)
    assert touched(shifted, "S", (), SYMBOLS) == (None, quasi(32))
    other_row = (Compute(Generic(Ref("P"), at("S", 0, COL), rows, whole(32))),)
    assert touched(other_row, "S", (), SYMBOLS) == (None, quasi(32))
    assert touched((), "S", (), SYMBOLS) == (None, None)


def test_a_bound_in_a_loop_that_is_not_around_all_uses_is_not_taken():
    use = product(Ref("S"), span(32 * K, 32, 70), whole(32))
    first, second = Loop("LV_KBLOCK", quasi(3), (Init("S"), use)), Loop("LV_KBLOCK", quasi(3), (use,))
    assert touched((first,), "S", (first,), SYMBOLS)[0] == span(32 * K, 32, 70)
    assert touched((first, second), "S", (first,), SYMBOLS)[0] is None


def test_a_ring_of_bound_addresses():
    """An ALIAS FIFO of depth 2 that is always one slot ahead: the last of three blocks comes out."""
    program = generic_program(HOST, at("x", ROW, COL), {"x": ("f32", 2, 12)}, 2, 4)

    def columns(start):
        return Load("x", "x", window((0, 2), (start, 4), row=0))

    turn = quasi("LV_KBLOCK")
    add = Compute(Generic(Ref("fY"), at("x", ROW, COL), whole(2), whole(4)))
    body = (
        Reserve("fY"),
        *(Reserve("x"), columns(quasi(0)), Push("x")),
        Loop(
            "LV_KBLOCK",
            quasi(2),
            (Reserve("x"), columns(turn * 4 + 4), Push("x"), Front("x"), Pop("x")),
        ),
        *(Front("x"), add, Pop("x")),
    )
    shape = program.shapes[0]
    tail = shape.processes[0].body[-5:]
    process = replace(shape.processes[0], body=(*body, *tail))
    fifos = tuple(replace(f, depth=2) if f.name == "x" else f for f in shape.fifos)
    program = replace(program, shapes=(replace(shape, processes=(process,), fifos=fifos),))
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    with native.load(program, HOST, weights={}, accept=accepted) as ready:
        for _ in range(3):
            ready.launch({}, {"x": x})
            assert np.array_equal(ready.tensor("Y"), x[:, 8:])


@pytest.mark.parametrize("initial", [2**24 + 1, 2**31 - 1, -(2**31)])
def test_a_carry_of_integers_begins_with_one_that_no_f32_holds(initial):
    program = generic_program(HOST, at("c", ROW, COL), {"x": ("f32", 2, 5)}, 2, 19, "i32")
    shape = program.shapes[0]
    process = replace(shape.processes[0], body=(Init("c"), *shape.processes[0].body))
    carry = Carry("c", 2, 19, "i32", float(initial), address=1024)
    program = replace(program, shapes=(replace(shape, processes=(process,), carries=(carry,)),))
    given = {"x": np.zeros((2, 5), np.float32)}
    assert (Simulator(program, HOST).launch({}, given).outputs["Y"] == initial).all()
    with native.load(program, HOST, weights={}, accept=accepted) as ready:
        ready.launch({}, given)
        assert (ready.tensor("Y") == initial).all()


def test_the_module_is_a_function_of_the_program():
    for program, target in ((attention_host(HOST), HOST), (matmul_multicast(load_target("toy")), load_target("toy"))):
        layout = program_layout(program, target)
        assert lower_program(program, layout, host_cpu()) == lower_program(program, layout, host_cpu())


def test_no_flag_allows_another_order():
    """Neither fast-math nor contraction is written anywhere."""
    text = lower_program(norm_product_host(HOST), program_layout(norm_product_host(HOST), HOST), host_cpu())
    words = set(text.split())
    assert "fadd" in words
    assert not words & {"fast", "reassoc", "contract", "afn", "nnan", "ninf", "nsz", "arcp"}


@pytest.mark.parametrize(("system", "machine"), [("linux", "riscv64"), ("darwin", "arm64"), ("linux", "s390x")])
def test_other_systems_have_a_way_to_sleep(system, machine):
    """Only the text: it parks by futex where there is a number for it, by short sleeps elsewhere."""
    text = lower_program(
        norm_product_host(HOST), program_layout(norm_product_host(HOST), HOST), Cpu("generic", "", system, machine)
    )
    assert ("@syscall" in text) == (machine == "riscv64")
    assert ("@usleep" in text) == (machine != "riscv64")


def test_an_old_processor_is_refused():
    require_supported(host_cpu())
    require_supported(Cpu("generic", "", "darwin", "arm64"))
    with pytest.raises(TargetReject, match="fma, f16c"):
        require_supported(Cpu("x86-64", "+sse2", "linux", "x86_64"))


def test_an_alias_slot_is_bound_as_a_whole():
    program = generic_program(HOST, at("x", ROW, COL), {"x": ("f32", 2, 4)}, 2, 4)
    moved = edited(program, "core", lambda n: (replace(n, row=quasi(1)),) if isinstance(n, Load) else (n,))
    with pytest.raises(OutsideFragment, match="bound as a whole"):
        native.load(moved, HOST, weights={}, accept=accepted)


def test_indices_are_read_out_of_slots_that_loads_fill_alike():
    """Where they stand in a slot is its own load's to say."""
    at_index = window((Indirect("ids", (quasi(0), quasi(5)), 0, 3, via="ids"), 1), (0, 4), row=0)

    def gathered(also: tuple[Node, ...] = (), dtype: str = "i32") -> Program:
        def change(node: Node) -> tuple[Node, ...]:
            if isinstance(node, Load) and node.fifo == "x":
                return (replace(node, window=at_index),)
            return (node, *also) if isinstance(node, Pop) and node.fifo == "ids" else (node,)

        operands = {"ids": (dtype, 1, 6), "x": ("f32", 3, 4)}
        return edited(generic_program(HOST, at("x", 0, COL), operands, 1, 4), "core", change)

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    other = (*take("ids", "ids", window((0, 1), (3, 3), row=0)), Pop("ids"))
    for also in ((), other):
        with native.load(gathered(also), HOST, weights={}, accept=accepted) as ready:
            ready.launch({}, {"ids": np.array([[0, 0, 0, 0, 0, 2]], np.int32), "x": x})
            assert ready.tensor("Y").tolist() == x[2:].tolist()
    with pytest.raises(OutsideFragment, match="i32 slots"):
        native.load(gathered(dtype="f32"), HOST, weights={}, accept=accepted)


@pytest.mark.parametrize("inner", [quasi("n"), quasi("n") * 2 + 1])
def test_rows_as_long_as_a_symbol_says_are_refused(inner):
    program = generic_program(HOST, at("x", ROW, COL), {"x": ("f32", 2, 4)}, 2, 4)
    shape = program.shapes[0]
    formals = tuple(replace(f, shape=(f.shape[0], inner)) if f.name == "x" else f for f in shape.formals)
    with pytest.raises(OutsideFragment, match="as long as a symbol says"):
        native.load(replace(program, shapes=(replace(shape, formals=formals),)), HOST, weights={}, accept=accepted)


def test_what_would_round_an_operand_is_refused():
    program = product_program(HOST, "f32", "f32", 2, 2, 8, Tree(0, 16, True), True)
    shape = program.shapes[0]
    numerics = replace(shape.numerics, operands=(("A", "bf16"), ("B", "f32")))
    with pytest.raises(OutsideFragment, match="f32 as bf16"):
        weights = {"B": np.ones((2, 8), np.float32)}
        native.load(
            replace(program, shapes=(replace(shape, numerics=numerics),)), HOST, weights=weights, accept=accepted
        )


def test_small_integers_may_ride_as_bf16():
    program = product_program(HOST, "i8", "i8", 3, 2, 8, Tree(), False)
    shape = program.shapes[0]
    formals = tuple(replace(f, fill=Ints(-9, 9)) for f in shape.formals)
    numerics = replace(shape.numerics, operands=(("A", "bf16"), ("B", "bf16")))
    program = replace(program, shapes=(replace(shape, formals=formals, numerics=numerics),))
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 10, (3, 8)).astype(np.int8), rng.integers(-9, 10, (8, 2)).astype(np.int8)
    with native.load(program, HOST, weights={"B": b}, accept=accepted) as ready:
        ready.launch({}, {"A": a})
        assert np.array_equal(ready.tensor("Y"), a.astype(np.float32) @ b.astype(np.float32))


def test_variables_have_values():
    program = generic_program(HOST, at("x", ROW, quasi(GEN_K)), {"x": ("f32", 2, 4)}, 2, 4)
    with pytest.raises(OutsideFragment, match="has no value"):
        native.load(program, HOST, weights={}, accept=accepted)


def test_several_sums_in_a_vector_keep_their_order():
    """Lanes 0..7 and 8..15 of a register are two sums: results come in the order of registers, then halves."""
    code = Code(Module(), "f", "")
    total = halving_sums(code, ["%a", "%b"], 8, width=16)
    code.finish()
    adds = [line for line in str(code.module).splitlines() if "fadd" in line]
    assert [line.split("fadd ")[1].split(">")[0] for line in adds] == ["<16 x float", "<8 x float", "<4 x float"]
    assert total in adds[-1]
