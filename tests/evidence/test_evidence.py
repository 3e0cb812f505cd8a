"""A slice of the evidence: no false accept, no unsafe mutant that survives, every generator and class present."""

from __future__ import annotations

import random
from functools import cache

import pytest

from tests.evidence import plan
from tests.evidence.__main__ import run
from tests.evidence.classes import CLASSES
from tests.evidence.document import page, table
from tests.evidence.hand import Hand
from tests.evidence.verdicts import Outcome
from tests.oracle import judge


@cache
def slice_of(size: float, seed: int) -> tuple[tuple[Outcome, ...], tuple]:
    outcomes, missing = run(size, seed, processes=1)
    return tuple(outcomes), tuple(missing)


def wrong(outcomes: tuple[Outcome, ...]) -> list[str]:
    return [f"{o.generator}, {o.label}, {o.tags}, {o.number}: {o.fault}" for o in outcomes if o.unsafe and o.accepted]


def misnamed(outcomes: tuple[Outcome, ...]) -> float:
    """The share of unsafe mutants whose refusal does not name the mistake."""
    unsafe = [o for o in outcomes if o.generator == "mutants" and o.unsafe]
    return sum(not o.refusals or o.refusals[0][0] not in CLASSES[o.label].expected for o in unsafe) / len(unsafe)


def test_no_unsafe_program_of_a_slice_is_accepted() -> None:
    outcomes, _ = slice_of(0.02, 7)
    assert wrong(outcomes) == []
    assert misnamed(outcomes) <= 0.1


def test_a_slice_has_all_generators_and_classes() -> None:
    outcomes, _ = slice_of(0.02, 7)
    assert {o.generator for o in outcomes} == {*plan.HAND, "passes", "mutants"}
    assert {o.label for o in outcomes if o.generator == "mutants"} == set(CLASSES)
    unsafe, safe = sum(o.unsafe for o in outcomes), sum(o.safe for o in outcomes)
    assert len(outcomes) >= 150
    assert unsafe >= len(outcomes) // 4
    assert safe >= len(outcomes) // 4


def test_programs_of_the_passes_are_safe_and_accepted() -> None:
    outcomes, missing = slice_of(0.02, 7)
    made = [o for o in outcomes if o.generator == "passes"]
    assert made
    assert all(o.safe and o.accepted for o in made)
    assert not [m for m in missing if m.why.startswith("refused by verify")]


@pytest.mark.parametrize("name", plan.HAND)
def test_a_careful_hand_writes_safe_programs(name: str) -> None:
    """Seeds at which nothing is too large for the drawn chip."""
    for seed in (3, 5):
        program, target = plan.HAND[name][0](Hand(random.Random(seed), careless=0.0))
        assert judge(program, target, interleavings=4).fault == ""


def test_equal_seeds_give_equal_jobs() -> None:
    assert plan.jobs(0.02, 7) == plan.jobs(0.02, 7)
    assert plan.jobs(0.02, 7) != plan.jobs(0.02, 8)


def test_the_page_shows_what_came_out() -> None:
    outcomes, missing = slice_of(0.02, 7)
    text = page(outcomes, missing, (), 0.02, 7, 1.0)
    assert f"**0 of {sum(o.unsafe for o in outcomes):,} unsafe**" in text
    assert all(f"| {name} |" in text for name in CLASSES)
    assert (
        text.split("## Times of one run")[0]
        == page(outcomes, missing, (), 0.02, 7, 9.0).split("## Times of one run")[0]
    )


def test_a_table_is_markdown() -> None:
    assert table(("a", "b"), [(1, "x")]) == "| a | b |\n| --- | --- |\n| 1 | x |\n"


@pytest.mark.slow
def test_no_unsafe_program_is_accepted_thorough() -> None:
    outcomes, _ = slice_of(0.25, 11)
    assert wrong(outcomes) == []
    assert misnamed(outcomes) <= 0.05
