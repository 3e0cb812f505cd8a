"""Rows and columns of sites at a boundary must be those of one rectangle: a column that is shorter than the grid says
nothing of the rows that it does not stand in.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.digest import graph_digest
from pavane.ir.program import Counter, Fence, Fifo, Loop, Post, Process, Program, Rect, Run, Shape, Tensor, Wait, Worker
from pavane.ir.quasi import Quasi, quasi
from pavane.reject import BalanceRefused
from pavane.targets.descriptor import target_digest
from tests.building import SX, SY, X, rect, shape_of
from tests.checker.editing import accepted
from tests.checker.test_listed_sites import lone
from tests.checker.two_sections import _instances, _parts, _shape
from tests.oracle.judge import judge

CHIP = lone(2, 3)
ROWS, COLS = 20, 150
UPPER = rect(0, 2, 0, 2)


def section(name: str, height: int, col: Quasi, turns: int) -> Shape:
    """O = 2 * I on the first `height` rows of sites."""
    read, compute, write = _parts(ROWS, COLS, col)
    steps = (*read[:2], Fence(), read[2], *compute, *write)
    fifos = (Fifo("fI", "LOCAL", 32, 32, "f32", 1, 0), Fifo("fO", "LOCAL", 32, 32, "f32", 1, 4096))
    body = (Loop("LV_ITEM_Y", quasi(1), (Loop("LV_ITEM_X", quasi(turns), steps),)),)
    return _shape(name, ROWS, COLS, (Process("core", rect(0, 2, 0, height), "core", body),), fifos)


def program(height: int) -> Program:
    """All sites make t and meet in their rows, then in columns of `height` sites; the upper two rows take all of t."""
    shapes = section("first", 3, 32 * SX + 64 * SY, 1), section("second", 2, 32 * SX + 64 * SY + 128 * X, 2)
    lines = (("row.core", rect(0, 2, 0, 3)), ("go.core", rect(0, 2, 0, height)))
    counters = tuple(
        Counter(name, where, "core", bits=CHIP.counters.bits, id=number) for number, (name, where) in enumerate(lines)
    )
    column = (Post("go.core", Rect(SX, SX + 1, quasi(0), quasi(height))), Wait("go.core", height))

    def row(y: Quasi) -> tuple[Post, Wait]:
        return Post("row.core", Rect(quasi(0), quasi(2), y, y + 1)), Wait("row.core", 2)

    workers = (
        Worker("upper", UPPER, "core", (Run(0, "core"), *row(SY), *column, Run(1, "core"))),
        Worker("lower", rect(0, 2, 2, 3), "core", (Run(0, "core"), *row(SY + 2), *(column if height == 3 else ()))),
    )
    tensors = (
        Tensor("x", shape_of(ROWS, COLS), "f32", "INPUT"),
        Tensor("t", shape_of(ROWS, COLS), "f32", "SCRATCH", offset=0),
        Tensor("y", shape_of(ROWS, COLS), "f32", "OUTPUT"),
    )
    made = Program(
        name="lines",
        phase="PERSISTENT",
        target=CHIP.name,
        target_digest=target_digest(CHIP),
        graph_digest="",
        symbols=(),
        tensors=tensors,
        shapes=shapes,
        instances=_instances("first", "second"),
        counters=counters,
        workers=workers,
    )
    return replace(made, graph_digest=graph_digest(made))


def test_columns_through_all_rows_are_accepted():
    assert judge(program(3), CHIP).safe
    accepted(program(3), CHIP)


def test_columns_that_leave_a_row_out_are_refused():
    assert "race" in judge(program(2), CHIP).fault
    with pytest.raises(BalanceRefused, match="one rectangle"):
        accepted(program(2), CHIP)
