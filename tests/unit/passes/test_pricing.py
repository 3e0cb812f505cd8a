"""Plans priced once for any memory: the same as if they had been priced for that memory alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.walk import symbol_domain
from pavane.passes.place import place
from pavane.passes.plans import rewritten
from pavane.passes.predicting import section_prediction, section_spread
from pavane.passes.pricing import NEAR, Priced, Prices
from pavane.passes.size_buffers import size_buffers
from pavane.passes.tile import least_bytes, tile
from pavane.reject import NoPlan
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.restrict import restricted
from tests.unit.passes.templates import CASES


def memories(case_name: str, toy: SpatialTarget) -> list[SpatialTarget]:
    least = least_bytes(CASES[case_name](toy).program, toy)
    return [restricted(toy, memory_bytes=size) for size in (least, least + least // 3, 2 * least, 65536)]


@pytest.mark.parametrize("case_name", CASES)
def test_prices_of_one_memory_hold_for_another(case_name: str, toy: SpatialTarget) -> None:
    program = CASES[case_name](toy).program
    prices = Prices(program, toy)
    for target in (*memories(case_name, toy), *reversed(memories(case_name, toy))):
        assert prices.ranked(target) == Prices(program, target).ranked(target)


def cycles(priced: Priced) -> int:
    return priced.prediction.cycles


def energy(priced: Priced) -> int:
    return priced.prediction.cycles * priced.prediction.dram_bytes


@pytest.mark.parametrize("case_name", CASES)
def test_ranked_plans_fit_and_are_in_order(case_name: str, toy: SpatialTarget) -> None:
    program = CASES[case_name](toy).program
    for target in memories(case_name, toy):
        ranked = Prices(program, toy).ranked(target)
        least = min((priced.prediction.cycles for priced in ranked), default=0)
        near = [priced for priced in ranked if priced.prediction.cycles <= least * (NEAR + 1) // NEAR]
        assert ranked[: len(near)] == near
        for some, in_order in ((near, energy), (ranked[len(near) :], cycles)):
            assert [in_order(p) for p in some] == sorted(in_order(p) for p in some)
        assert all(priced.memory_bytes <= target.memory.bytes for priced in ranked)


@pytest.mark.parametrize("case_name", CASES)
def test_there_is_no_plan_below_the_least_memory(case_name: str, toy: SpatialTarget) -> None:
    program = CASES[case_name](toy).program
    small = restricted(toy, memory_bytes=least_bytes(program, toy) - 1)
    assert Prices(program, toy).ranked(small) == []
    with pytest.raises(NoPlan):
        tile(replace(program), small)


@pytest.mark.parametrize("case_name", CASES)
def test_a_plan_is_priced_as_the_section_that_it_makes(case_name: str, toy: SpatialTarget) -> None:
    program = CASES[case_name](toy).program
    prices = Prices(program, toy)
    best = prices.ranked(toy)[0]
    shape = rewritten(prices.lattice, best.plan)
    spread = section_spread(shape, symbol_domain(program), toy)
    alone = section_prediction(replace(program, shapes=(shape,)), shape, spread, toy)({})
    assert best.prediction.cycles <= alone.cycles  # readers are shared where that is faster


@pytest.mark.parametrize("case_name", CASES)
def test_slots_are_priced_as_they_will_be_laid_out(case_name: str, toy: SpatialTarget) -> None:
    """In the least memory the same FIFOs have one slot."""
    program = CASES[case_name](toy).program
    least = memories(case_name, toy)[0]
    tiled = tile(program, least)
    priced = Prices(program, least)
    slots = priced.slots(priced.ranked(least)[0], least)
    sized = size_buffers(place(replace(tiled, phase="FUSED"), least), least).shapes[0]
    assert {f.name: min(2, f.depth) for f in sized.fifos} == {name: min(2, count) for name, count in slots.items()}
