"""The order of sums as the oracle sees it: which parts of contractions may follow each other in one accumulator."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from pavane.ir.program import MatmulTiles, Ref, Tree
from tests.building import whole
from tests.checker_oracle.programs import refusal
from tests.evidence.hand import Hand
from tests.evidence.sums import sums
from tests.oracle import judge
from tests.oracle.spaces import Fault
from tests.oracle.sums import Part, add

OP = MatmulTiles(Ref("acc"), Ref("a"), Ref("b"), False, whole(8), whole(8), whole(8), Tree(0, 1, False))
Step = tuple[str, int, int] | tuple[str, int, int, int]  # of which contraction, from k on, to k, of the first rows only


def added(*steps: Step, exact: bool = False, lanes: int = 1) -> list[Part]:
    parts: list[Part] = []
    for name, first, end, *rows in steps:
        part = Part(((name, ()), None), first, end, range(rows[0] if rows else 8), range(8))
        add(parts, part, replace(OP, tree=Tree(0, lanes, False)), exact)
    return parts


@pytest.mark.parametrize(
    "steps",
    [
        (("A", 0, 4), ("A", 4, 8)),
        (("A", 0, 4), ("A", 4, 8), ("D", 0, 4), ("D", 4, 8)),
        (("A", 0, 4), ("A", 4, 8), ("A", 0, 4), ("A", 4, 8)),  # twice the same
        (("A", 0, 4), ("A", 8, 12)),  # terms between them belong to other sums
        (("A", 0, 4), ("A", 4, 8, 2), ("A", 8, 12, 2), ("A", 0, 4), ("A", 4, 8)),
    ],
)
def test_one_after_the_other(steps: tuple[Step, ...]) -> None:
    added(*steps)


@pytest.mark.parametrize(
    "steps",
    [
        (("A", 4, 8), ("A", 0, 4)),
        (("A", 0, 4), ("A", 8, 12), ("A", 4, 8)),
        (("A", 0, 4), ("D", 0, 4), ("A", 4, 8)),
        (("A", 0, 4), ("D", 0, 4, 2), ("A", 4, 8)),
        (("A", 0, 4), ("A", 0, 4), ("A", 4, 8), ("A", 4, 8)),
    ],
)
def test_in_turns_or_backwards(steps: tuple[Step, ...]) -> None:
    with pytest.raises(Fault, match="wrong order"):
        added(*steps)


def test_where_all_is_exact_turns_are_no_matter() -> None:
    added(("A", 0, 4), ("D", 0, 4), ("A", 4, 8), exact=True)
    with pytest.raises(Fault, match="wrong order"):
        added(("A", 4, 8), ("A", 0, 4), exact=True)


def test_lanes_add_a_contraction_at_once() -> None:
    added(("A", 0, 8), ("D", 0, 8), lanes=16)
    with pytest.raises(Fault, match="in lanes of its own"):
        added(("A", 0, 4), ("A", 4, 8), lanes=16)


def test_checker_and_oracle_agree_on_sums_in_turns() -> None:
    """Careless enough to mix sums, and nothing else."""
    seen = set()
    for number in range(40):
        program, target = sums(Hand(random.Random(number), careless=1e-9))
        fault = judge(program, target, interleavings=0).fault
        assert bool(fault) == (refusal(program, target) is not None), (number, fault)
        seen.add((program.shapes[0].name, fault.partition(":")[0]))
    assert seen == {(name, fault) for name in ("two_sums", "nested_sums") for fault in ("", "wrong order")}
