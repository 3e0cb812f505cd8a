"""Sections that meet on one site only, by the digit of SITE_Y in their rows: a digit that a floor of a loop or of the
site moves on is none.
"""

from __future__ import annotations

import pytest

from pavane.ir.expr import at, fn
from pavane.ir.program import (
    Binding,
    Compute,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Instance,
    Items,
    Load,
    Numerics,
    Pop,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Run,
    Shape,
    Spec,
    Tensor,
    Worker,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.reject import OrderRefused
from tests.building import COL, ROW, SY, Y, items, many_sections, rect, shape_of, span, whole, window, write
from tests.checker.editing import accepted
from tests.checker.two_sections import lone
from tests.oracle.judge import judge

CHIP = lone(1, 2)
COLUMN = rect(0, 1, 0, 2)
ROWS, COLS = 12, 32
OWN = SY + 2 * Y

READ_ROWS = {
    "the same rows": (lambda row: row, True),
    "rows of whole turns further on": (lambda row: row + 2, True),
    "a row further on": (lambda row: row + 1, False),
    "rows that a floor of the row moves on": (lambda row: row + row // 4, False),
    "rows that it moves on by whole turns": (lambda row: row + 2 * (row // 4), False),
    "rows that repeat": (lambda row: row % 4, False),
}


def section(name: str, rows: int, read: Quasi, meant: Quasi) -> Shape:
    """O[r] = 2 * I[read], row after row on two sites in turn."""
    formals = (Formal("I", shape_of(ROWS, COLS), "f32", "IN"), Formal("O", shape_of(rows, COLS), "f32", "OUT"))
    spec = Spec("O", shape_of(0, 0), shape_of(rows, COLS), fn("mul", at("I", meant, "i1"), 2.0))
    op = Generic(Ref("fO"), fn("mul", at("fI", ROW, COL), 2.0), span(OWN, 1, rows), whole(COLS))
    body = (
        Reserve("fI"), Load("fI", "I", window((read, 1), (0, COLS), row=0)), Fence(), Push("fI"),
        Front("fI"), Reserve("fO"), Compute(op), Push("fO"), Pop("fI"),
        *write("fO", "O", window((OWN, 1), (0, COLS), row=0)),
    )  # fmt: skip
    return Shape(
        name, formals, (spec,), Items(quasi(rows), quasi(1), 1, COLS), Numerics(),
        processes=(Process("core", COLUMN, "core", items(rows // 2, 1, *body)),),
        fifos=(Fifo("fI", "LOCAL", 1, COLS, "f32", 1, 0), Fifo("fO", "LOCAL", 1, COLS, "f32", 1, 4096)),
    )  # fmt: skip


def program(read: Quasi, meant: Quasi) -> Program:
    """t = 2 * x, then y[r] = 2 * t[read] with nothing between them."""
    shapes = section("first", ROWS, OWN, quasi("i0")), section("second", 8, read, meant)
    tensors = (
        Tensor("x", shape_of(ROWS, COLS), "f32", "INPUT"),
        Tensor("t", shape_of(ROWS, COLS), "f32", "SCRATCH", offset=0),
        Tensor("y", shape_of(8, COLS), "f32", "OUTPUT"),
    )
    chain = (("first", "x", "t"), ("second", "t", "y"))
    instances = tuple(Instance(name, (Binding("I", i), Binding("O", o))) for name, i, o in chain)
    workers = (Worker("core", COLUMN, "core", (Run(0, "core"), Run(1, "core"))),)
    return many_sections("digits", CHIP, shapes, tensors, instances, workers)


@pytest.mark.parametrize("what", READ_ROWS)
def test_only_a_digit_in_common_orders_two_sections(what):
    rows, ordered = READ_ROWS[what]
    made = program(rows(OWN), rows(quasi("i0")))
    if ordered:
        assert judge(made, CHIP).safe
        accepted(made, CHIP)
        return
    with pytest.raises(OrderRefused, match="touches t while section 0"):
        accepted(made, CHIP)


@pytest.mark.parametrize("what", ["a row further on", "rows that a floor of the row moves on"])
def test_the_others_are_races(what):
    rows, _ = READ_ROWS[what]
    assert "race" in judge(program(rows(OWN), rows(quasi("i0"))), CHIP).fault
