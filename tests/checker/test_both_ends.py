"""A FIFO with both ends in one process. Slots match by their numbers only where they are handed over in the loops in
which they are taken: a process that keeps one slot ahead hands over, in each turn, what the next one takes.
"""

from __future__ import annotations

import pytest

from pavane.ir.expr import at
from pavane.ir.program import (
    Fifo,
    Formal,
    Front,
    Items,
    Loop,
    Node,
    Numerics,
    Pop,
    Process,
    Program,
    Shape,
    Spec,
)
from pavane.ir.quasi import quasi
from pavane.reject import BalanceRefused, MeaningRefused
from pavane.targets.load import load_target
from tests.building import K, program_of, read, rect, shape_of, window, write
from tests.checker.editing import accepted
from tests.oracle import judge

HOST = load_target("host", 1)
FIRST, OTHER = (read("f", "X", window((row, 1), (0, 8), row=0)) for row in (0, 5))
STORE, DROP = write("f", "Y", window((K, 1), (0, 8), row=0)), (Front("f"), Pop("f"))


def loop(turns: int, *steps: Node) -> Loop:
    return Loop("LV_KBLOCK", quasi(turns), steps)


def program(turns: int, row: int, depth: int, body: tuple[Node, ...]) -> Program:
    """Each row of Y is said to be a row of X."""
    formals = (Formal("X", shape_of(8, 8), "f32", "IN"), Formal("Y", shape_of(turns, 8), "f32", "OUT"))
    spec = (Spec("Y", shape_of(0, 0), shape_of(turns, 8), at("X", row, "i1")),)
    process = Process("core", rect(0, 1, 0, 1), "core", body)
    slots = Fifo("f", "LOCAL", 1, 8, "f32", depth, 0)
    shape = Shape("ends", formals, spec, Items(quasi(1), quasi(1), 8, 8), Numerics(), (), (process,), (slots,))
    return program_of(HOST, shape)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("turns", [2, 3, 5])
def test_one_slot_ahead(turns, depth):
    """Every turn but the first stores what the turn before it has read: not the first slot."""
    made = program(turns, 0, depth, (*FIRST, loop(turns, *STORE, *OTHER), *DROP))
    assert "wrong value" in judge(made, HOST).fault
    with pytest.raises(BalanceRefused, match="in another loop nest"):
        accepted(made, HOST)


@pytest.mark.parametrize(
    ("row", "body"),
    [
        (5, (loop(3, *OTHER, *STORE),)),
        (5, (*FIRST, *DROP, loop(3, *OTHER, *STORE))),
        (5, (loop(3, *FIRST, *DROP, *OTHER, *STORE), *FIRST, *DROP)),
        (0, (loop(3, *OTHER, *DROP, *FIRST, *STORE),)),
    ],
)
def test_taken_where_it_is_handed_over(row, body):
    made = program(3, row, 1, body)
    assert judge(made, HOST).safe
    assert accepted(made, HOST).refusals == ()
    with pytest.raises(MeaningRefused):
        accepted(program(3, 5 - row, 1, body), HOST)
