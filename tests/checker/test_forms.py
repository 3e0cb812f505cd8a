"""The same copy in many written forms: what the checker sees through, and beside it what is wrong in that form.

O = 2 A, 8 x 32 elements in blocks of 8 x 8, by a reader, a compute engine and a writer of one site. The oracle says of
each whether it is safe.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.expr import at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Items,
    Load,
    Loop,
    Node,
    Numerics,
    Pop,
    Post,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Run,
    Shape,
    Spec,
    Store,
    Symbol,
    Wait,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.reject import BoundsRefused, CoverageRefused, NotProven, OrderRefused, OutsideFragment
from pavane.targets.load import load_target
from tests.building import COL, ROW, X, program_of, rect, shape_of, span, whole, window
from tests.checker.editing import accepted
from tests.checker.two_sections import OWN_SITE, twice_on_host
from tests.examples import norm_product_host
from tests.oracle import judge

TOY, HOST = load_target("toy"), load_target("host", 2)
SITE = rect(0, 1, 0, 1)
Body = tuple[Node, ...]


def loop(*steps: Node, extent: int = 4, var: str = "LV_ITEM_X") -> Body:
    return (Loop(var, quasi(extent), steps),)


def read(block: Quasi = X, rows: int = 8, cols: int = 8) -> Body:
    """One block into fA; a window may pass the tensor's end."""
    return Reserve("fA"), Load("fA", "A", window((0, rows), (8 * block, cols), row=0)), Fence(), Push("fA")


def double(block: Quasi = X, parts: tuple[tuple[int, int], ...] = ((0, 8),)) -> Body:
    """One block from fA to fO, by an op for each (first column, columns)."""
    ops = (
        Compute(Generic(
            Ref("fO", col=quasi(first)), fn("mul", at("fA", ROW, quasi(COL) + first), 2.0), whole(8),
            span(8 * block + first, size, 32),
        ))
        for first, size in parts
    )  # fmt: skip
    return Front("fA"), Reserve("fO"), *ops, Push("fO"), Pop("fA")


def write(block: Quasi = X) -> Body:
    return Front("fO"), Store("fO", "O", window((0, 8), (8 * block, 8), row=0)), Fence(), Pop("fO")


def two_loads(first_rows: int, second: int) -> Body:
    """One block by two loads: rows from 0 on, and rows from `second` on."""
    top = Load("fA", "A", window((0, first_rows), (8 * X, 8), row=0))
    low = Load("fA", "A", window((second, 8 - second), (8 * X, 8), row=0), quasi(second))
    return Reserve("fA"), top, low, Fence(), Push("fA")


def through_a_row(block: Quasi) -> Body:
    """All blocks into the carry, each at its place (`block` by turn), then doubled out of it in order."""
    kept = Compute(Generic(Ref("row", col=8 * block), at("fA", ROW, COL), whole(8), span(8 * block, 8, 32)))
    doubled = fn("mul", at("row", ROW, quasi(COL) + 8 * X), 2.0)
    out = Compute(Generic(Ref("fO"), doubled, whole(8), span(8 * X, 8, 32)))
    return *loop(Front("fA"), kept, Pop("fA")), *loop(Reserve("fO"), out, Push("fO"))


def program(reads: Body, computes: Body, writes: Body, depth: int = 1) -> Program:
    formals = (Formal("A", shape_of(8, 32), "f32", "IN"), Formal("O", shape_of(8, 32), "f32", "OUT"))
    spec = Spec("O", shape_of(0, 0), shape_of(8, 32), fn("mul", at("A", "i0", "i1"), 2.0))
    engines = (("read", "reader_a", reads), ("compute", "matrix", computes), ("write", "writer", writes))
    shape = Shape(
        "copy", formals, (spec,), Items(quasi(1), quasi(4), 8, 8), Numerics(),
        processes=tuple(Process(name, SITE, engine, body) for name, engine, body in engines),
        fifos=(Fifo("fA", "LOCAL", 8, 8, "f32", depth, 0), Fifo("fO", "LOCAL", 8, 8, "f32", 1, 2048)),
        carries=(Carry("row", 8, 32, "f32", address=4096),),
    )  # fmt: skip
    return program_of(TOY, shape)


def meant_at(made: Program, column: int) -> Program:
    """The same steps, for a region that begins at another column."""
    (shape,) = made.shapes
    spec = replace(shape.spec[0], origin=shape_of(0, column))
    return replace(made, shapes=(replace(shape, spec=(spec,)),))


LV = quasi("LV_ITEM")
FIRST_THREE = tuple(step for n in range(3) for step in write(quasi(n)))
READ, DOUBLE, WRITE = loop(*read()), loop(*double()), loop(*write())
RIGHT = {
    "as usual": program(READ, DOUBLE, WRITE),
    "another loop variable": program(loop(*read(LV), var="LV_ITEM"), DOUBLE, WRITE),
    "a loop of one turn around the writer": program(READ, DOUBLE, loop(*WRITE, extent=1, var="LV_ITEM_Y")),
    "a reader unrolled by two": program(loop(*read(2 * X), *read(2 * X + 1), extent=2), DOUBLE, WRITE),
    "a first block before the loop": program((*read(quasi(0)), *loop(*read(X + 1), extent=3)), DOUBLE, WRITE),
    "a writer unrolled by two": program(READ, DOUBLE, loop(*write(2 * X), *write(2 * X + 1), extent=2)),
    "the last block first": program(loop(*read(3 - X)), loop(*double(3 - X)), loop(*write(3 - X))),
    "a row filled from its start": program(READ, through_a_row(X), WRITE),
    "a row filled from its end": program(loop(*read(3 - X)), through_a_row(3 - X), WRITE),
    "two loads": program(loop(*two_loads(3, 3)), DOUBLE, WRITE),
    "two ops": program(READ, loop(*double(parts=((0, 3), (3, 5)))), WRITE),
    "a window that the tensor's end clips to the slot": program(loop(*read(rows=11)), DOUBLE, WRITE),
}
WRONG = {
    "a reader unrolled by two, of one block twice": (
        program(loop(*read(2 * X), *read(2 * X), extent=2), DOUBLE, WRITE), NotProven),
    "a writer that leaves a block out": (
        program(READ, DOUBLE, loop(*write(2 * X), *write(2 * X), extent=2)), CoverageRefused),
    "a writer with a block too few": (program(READ, DOUBLE, loop(*write(), extent=3)), CoverageRefused),
    "the blocks in another order": (program(loop(*read(3 - X)), DOUBLE, WRITE), NotProven),
    "a row filled from its end with blocks from the start": (program(READ, through_a_row(3 - X), WRITE), NotProven),
    "a row filled but for its start": (
        program(loop(*read(4 - X)), through_a_row(4 - X), WRITE), NotProven),
    "two loads into the same rows": (program(loop(*two_loads(4, 3)), DOUBLE, WRITE), OrderRefused),
    "two loads with a row between": (program(loop(*two_loads(3, 4)), DOUBLE, WRITE), OrderRefused),
    "two ops with a column between": (
        program(READ, loop(*double(parts=((0, 3), (4, 4)))), WRITE), BoundsRefused),
    "a window that nothing clips to the slot": (program(loop(*read(cols=11)), DOUBLE, WRITE), BoundsRefused),
    "a last block where a symbol says": (
        replace(program(READ, DOUBLE, (*FIRST_THREE, *write(quasi("n") + 2))), symbols=(Symbol("n", 0, 1, 1),)),
        CoverageRefused),
    "blocks that all lie beyond, of a region that begins before the tensor": (
        meant_at(program(READ, DOUBLE, tuple(s for n in range(4) for s in write(quasi(n + 4)))), -32), CoverageRefused),
}  # fmt: skip


@pytest.mark.parametrize("form", RIGHT)
def test_a_right_form_is_accepted(form: str) -> None:
    assert judge(RIGHT[form], TOY).safe
    accepted(RIGHT[form], TOY)


@pytest.mark.parametrize("form", WRONG)
def test_a_wrong_form_is_refused(form: str) -> None:
    wrong, expected = WRONG[form]
    assert judge(wrong, TOY).fault
    with pytest.raises(expected):
        accepted(wrong, TOY)


# --- between sections -------------------------------------------------------------------------------------------------


def _with_turns(program: Program, *turns) -> Program:
    return replace(program, workers=(replace(program.workers[0], body=turns),))


OWN = (Run(0, "core"), Post("go.core", OWN_SITE), Wait("go.core"), Run(1, "core"))


def test_what_a_site_has_written_itself_needs_no_other_site() -> None:
    local = _with_turns(twice_on_host(HOST), *OWN)
    assert judge(local, HOST).safe
    accepted(local, HOST)


def test_what_another_site_has_written_does() -> None:
    crossed = _with_turns(twice_on_host(HOST, crossed=True), *OWN)
    assert judge(crossed, HOST).fault
    with pytest.raises(OrderRefused):
        accepted(crossed, HOST)


def test_the_extents_of_a_weight_are_constants() -> None:
    """It stays from launch to launch, and its rows would lie elsewhere."""
    symbolic = norm_product_host(HOST)
    gain = next(t for t in symbolic.tensors if t.name == "g")
    longer = replace(gain, shape=(gain.shape[0] + quasi("rows"),))
    tensors = tuple(longer if t is gain else t for t in symbolic.tensors)
    with pytest.raises(OutsideFragment, match="change from launch to launch"):
        accepted(replace(symbolic, tensors=tensors), HOST)
