"""A ghost turn, in which guarded ops do nothing: a product adds to what that turn has set too, or not at all."""

from __future__ import annotations

import pytest

from pavane.ir.expr import Reduce, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fifo,
    Formal,
    Front,
    Generic,
    Init,
    Items,
    Loop,
    MatmulTiles,
    Numerics,
    Pop,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Shape,
    Span,
    Spec,
    Tree,
)
from pavane.ir.quasi import quasi
from pavane.reject import BoundsRefused
from tests.building import COL, ROW, K, X, program_of, read, rect, shape_of, span, whole, window, write
from tests.checker.editing import accepted
from tests.checker.two_sections import lone
from tests.oracle.judge import judge

CHIP = lone(1, 1)
HEADS, N = 2, 8
HEAD = HEADS - X
THERE = (span(HEAD, 1, HEADS),)


def product(guard: tuple[Span, ...], blocks: bool) -> tuple[Compute | Loop, ...]:
    """c += A . B, at once or in blocks of two."""
    a, b = (Ref("fA", col=2 * K), Ref("fB", row=2 * K)) if blocks else (Ref("fA"), Ref("fB"))
    depth = span(2 * K, 2, N) if blocks else whole(N)
    step = Compute(MatmulTiles(Ref("c"), a, b, False, whole(N), whole(N), depth, Tree(), guard))
    return (Loop("LV_KBLOCK", quasi(N // 2), (step,)),) if blocks else (step,)


def heads(set_by: str, guard: tuple[Span, ...], blocks: bool) -> Program:
    """O[h] = X[h] + A . B for two heads, in three turns from head 2, which is none, to head 0."""
    whole_square = window((0, N), (0, N), row=0)
    place = window((HEAD, 1), (0, N), (0, N), row=1)
    copy = Compute(Generic(Ref("c"), at("fX", ROW, COL), whole(N), whole(N), THERE))
    start = (copy,) if set_by == "a guarded op" else (Init("c"), copy)
    out = Compute(Generic(Ref("fO"), at("c", ROW, COL), whole(N), whole(N), THERE))
    turn = (
        *read("fX", "X", place), Front("fX"), *start, *product(guard, blocks), Reserve("fO"), out, Push("fO"),
        Pop("fX"), *write("fO", "O", place),
    )  # fmt: skip
    body = (
        *read("fA", "A", whole_square), Front("fA"), *read("fB", "B", whole_square), Front("fB"),
        Loop("LV_ITEM_X", quasi(HEADS + 1), turn), Pop("fA"), Pop("fB"),
    )  # fmt: skip
    square, cube = shape_of(N, N), shape_of(HEADS, N, N)
    shapes = {"A": square, "B": square, "X": cube, "O": cube}
    total = Reduce("SUM", "k0", quasi(N), fn("mul", at("A", "i1", "k0"), at("B", "k0", "i2")))
    shape = Shape(
        "heads", tuple(Formal(name, sides, "f32", "OUT" if name == "O" else "IN") for name, sides in shapes.items()),
        (Spec("O", shape_of(0, 0, 0), cube, fn("add", at("X", "i0", "i1", "i2"), total)),),
        Items(quasi(1), quasi(1), N, N), Numerics(operands=(("A", "f32"), ("B", "f32"))),
        processes=(Process("core", rect(0, 1, 0, 1), "core", body),),
        fifos=tuple(Fifo(f"f{name}", "LOCAL", N, N, "f32", 1, 4096 * n) for n, name in enumerate(shapes)),
        carries=(Carry("c", N, N, "f32", address=4096 * len(shapes)),),
    )  # fmt: skip
    return program_of(CHIP, shape)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(("set_by", "guard"), [("a guarded op", THERE), ("an init", THERE)])
def test_what_has_been_set_is_added_to(set_by, guard, blocks):
    made = heads(set_by, guard, blocks)
    assert judge(made, CHIP).safe
    accepted(made, CHIP)


@pytest.mark.parametrize("blocks", [False, True])
def test_what_has_not_been_set_is_not(blocks):
    made = heads("a guarded op", (), blocks)
    assert "unwritten" in judge(made, CHIP).fault
    with pytest.raises(BoundsRefused, match="is read without that guard"):
        accepted(made, CHIP)
