"""Where docs/ir.md leaves a choice, `validate` and the checker draw the same line: clipped windows, integer stores, the
lengths of lists.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.expr import Expr, at, fn
from pavane.ir.program import (
    Compute,
    Fifo,
    Formal,
    Front,
    Generic,
    Items,
    Numerics,
    Pop,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
    Tensor,
)
from pavane.ir.quasi import quasi
from pavane.ir.types import DType
from pavane.passes.verify import verify
from pavane.reject import BoundsRefused, MeaningRefused, SpatialReject
from pavane.sim import simulate
from pavane.targets.load import load_target
from pavane.validate import sane, violations
from pavane.verify.check import boxes, fragment, fragment_shape, scope
from tests.building import COL, ROW, one_section, read, rect, shape_of, span, take, window, write

TOY, HOST = load_target("toy"), load_target("host", cores=1)
ROWS, COLS = 5, 7
SITE = rect(0, 1, 0, 1)


EXPRESSIONS: dict[str, Callable[[Expr], Expr]] = {
    "double": lambda x: fn("mul", x, 2.0),
    "same": lambda x: x,
    "round": lambda x: fn("round", x),
    "compare": lambda x: fn("lt", x, 0.5),
    "cast": lambda x: fn("cast", fn("round", x), dtype="i8"),
    "sum": lambda x: fn("add", x, x),
}


def elementwise(
    slot: tuple[int, int] = (ROWS, COLS), expr: str = "double", op: str = "", dtype: DType = "f32", given: DType = "f32"
) -> Program:
    """y = expr(x), 5 x 7 elements on one site, by windows and spans of 32 through slots that may be smaller; `op`
    computes another expression than the spec says.
    """
    meant, done = EXPRESSIONS[expr](at("X", "i0", "i1")), EXPRESSIONS[op or expr](at("fX", ROW, COL))
    box = window((0, 32), (0, 32), row=0)
    generic = Generic(Ref("fY"), done, span(0, 32, ROWS), span(0, 32, COLS))
    compute = (Front("fX"), Reserve("fY"), Compute(generic), Push("fY"), Pop("fX"))
    shape = Shape(
        name="elementwise",
        formals=(Formal("X", shape_of(ROWS, COLS), given, "IN"), Formal("Y", shape_of(ROWS, COLS), dtype, "OUT")),
        spec=(Spec("Y", shape_of(0, 0), shape_of(ROWS, COLS), meant),),
        items=Items(quasi(1), quasi(1), 32, 32),
        numerics=Numerics(),
        processes=(
            Process("read", SITE, "reader_a", read("fX", "X", box)),
            Process("compute", SITE, "matrix", compute),
            Process("write", SITE, "writer", write("fY", "Y", box)),
        ),
        fifos=(Fifo("fX", "LOCAL", *slot, given, 1, 0), Fifo("fY", "LOCAL", *slot, dtype, 1, 0x1000)),
    )
    tensors = (Tensor("x", shape_of(ROWS, COLS), given, "INPUT"), Tensor("y", shape_of(ROWS, COLS), dtype, "OUTPUT"))
    return one_section(TOY, shape, tensors, {"X": "x", "Y": "y"})


def refused_by_the_checker(program: Program) -> type[SpatialReject] | None:
    try:
        verify(program, TOY)
    except SpatialReject as refused:
        return type(refused)
    return None


@pytest.mark.parametrize("slot", [(ROWS, COLS), (32, COLS), (ROWS, 32), (32, 32)])
def test_a_window_larger_than_its_slot_moves_what_the_tensor_has(slot):
    program = elementwise(slot)
    assert violations(program, TOY) == ()
    x = np.arange(ROWS * COLS, dtype=np.float32).reshape(ROWS, COLS)
    found = simulate(verify(program, TOY), TOY, tensors={"x": x})
    np.testing.assert_array_equal(found.outputs["y"], 2 * x)


@pytest.mark.parametrize("slot", [(ROWS, COLS), (ROWS, 32)])
def test_a_core_does_the_same(slot):
    """The three processes as one, compiled for this machine."""
    program = elementwise(slot)
    (shape,) = program.shapes
    _, (_, *compute), store = (process.body for process in shape.processes)
    body = (*take("fX", "X", window((0, 32), (0, 32), row=0)), *compute, *store)
    fifos = (Fifo("fX", "ALIAS", *slot, "f32", 1), replace(shape.fifos[1], address=0))
    merged = replace(shape, processes=(Process("core", SITE, "core", body),), fifos=fifos)
    program = one_section(HOST, merged, program.tensors, {"X": "x", "Y": "y"})
    assert violations(program, HOST) == ()
    x = np.arange(ROWS * COLS, dtype=np.float32).reshape(ROWS, COLS)
    with native.load(verify(program, HOST), HOST, weights={}) as ready:
        ready.launch({}, {"x": x})
        np.testing.assert_array_equal(ready.tensor("y"), 2 * x)


@pytest.mark.parametrize("slot", [(ROWS - 1, COLS), (ROWS, COLS - 1)])
def test_a_slot_that_is_smaller_than_what_comes_is_refused(slot):
    program = elementwise(slot)
    assert {v.rule for v in violations(program, TOY)} == {"window.slot"}
    assert refused_by_the_checker(program) is BoundsRefused


@pytest.mark.parametrize(
    ("expr", "given", "holds"),
    [
        ("cast", "f32", True),
        ("same", "i8", True),
        ("round", "f32", False),
        ("compare", "f32", False),
        ("same", "f32", False),
        ("same", "i32", False),
        ("sum", "i8", False),
    ],
)
def test_what_an_integer_type_is_stored_from(expr, given, holds):
    program = elementwise(expr=expr, dtype="i8", given=given)
    assert {v.rule for v in violations(program, TOY)} == (set() if holds else {"spec.integer"})
    assert refused_by_the_checker(program) is (None if holds else MeaningRefused)


@pytest.mark.parametrize("op", ["round", "compare", "double"])
def test_what_an_op_stores_is_judged_as_what_a_spec_says(op):
    program = elementwise(expr="cast", op=op, dtype="i8")
    assert {v.rule for v in violations(program, TOY)} == {"op.generic"}
    assert refused_by_the_checker(program) is MeaningRefused


def test_a_cast_rounds_and_saturates_in_the_simulator_too():
    program = verify(elementwise(expr="cast", dtype="i8"), TOY)
    x = np.zeros((ROWS, COLS), np.float32)
    x[0] = [0.5, -0.5, 1.4, 127.5, 300.0, -300.0, -128.4]
    found = simulate(program, TOY, tensors={"x": x}).outputs["y"]
    assert found[0].tolist() == [1, -1, 1, 127, 127, -128, -128]
    assert not found[1:].any()


def test_a_cast_to_another_type_is_refused():
    program = elementwise(expr="cast", dtype="i32")
    assert {v.rule for v in violations(program, TOY)} == {"spec.integer"}
    assert refused_by_the_checker(program) is MeaningRefused


def test_lists_have_the_limits_of_the_checker():
    """`validate` stands below the checker and cannot take them from it."""
    assert (sane.MAX_STEPS, sane.MAX_NAMED) == (fragment_shape.MAX_LEAVES, scope.MAX_NAMED)
    program, shape = sane.MAX_OF_A_PROGRAM, sane.MAX_OF_A_SHAPE
    assert program["tensors"] == program["instances"] == fragment.MAX_INSTANCES
    assert program["shapes"] == fragment.MAX_SHAPES
    assert shape["processes"] == fragment_shape.MAX_PROCESSES
    assert shape["sites"] == boxes.MAX_SITES
    named = ("formals", "fifos", "carries", "counters")
    assert {shape[what] for what in named} | {program["counters"], program["workers"]} == {scope.MAX_NAMED}
