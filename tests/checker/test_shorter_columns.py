"""Rows and columns of sites at a boundary must be those of one rectangle: a column that is shorter than the grid says
nothing of the rows that it does not stand in.
"""

from __future__ import annotations

import pytest

from pavane.ir.program import Counter, Post, Program, Rect, Run, Wait, Worker
from pavane.ir.quasi import Quasi, quasi
from pavane.reject import BalanceRefused
from tests.building import SX, SY, X, rect
from tests.checker.editing import accepted
from tests.checker.two_sections import double_on_cores, lone, twice
from tests.oracle.judge import judge

CHIP = lone(2, 3)
UPPER = rect(0, 2, 0, 2)


def program(height: int) -> Program:
    """All sites make t and meet in their rows, then in columns of `height` sites; the upper two rows take all of t."""
    shapes = (
        double_on_cores("first", rect(0, 2, 0, 3), 32 * SX + 64 * SY, 1),
        double_on_cores("second", UPPER, 32 * SX + 64 * SY + 128 * X, 2),
    )
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
    return twice(CHIP, shapes, workers, counters)


def test_columns_through_all_rows_are_accepted():
    assert judge(program(3), CHIP).safe
    accepted(program(3), CHIP)


def test_columns_that_leave_a_row_out_are_refused():
    assert "race" in judge(program(2), CHIP).fault
    with pytest.raises(BalanceRefused, match="one rectangle"):
        accepted(program(2), CHIP)
