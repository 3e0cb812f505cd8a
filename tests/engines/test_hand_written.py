"""Programs that no pass makes, and the checker accepts: engines run them, from one core to three, as the specs say."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice

import pytest
from msgspec.structs import replace

from pavane.ir.expr import fn
from tests.engines.agreement import apart
from tests.evidence import bases, plan
from tests.evidence.classes import CLASSES
from tests.evidence.hand import Case, Hand
from tests.evidence.verdicts import refusals_of

UNLAUNCHED = {"caches"}  # begin behind rows that no launch has written
GENERATORS = sorted({*plan.HAND} - UNLAUNCHED)
ON_CORES = ("alias pipelines", "sections", "sections repeated", "caches over epochs", "gathers", "sums of products")
HARMLESS = {  # classes of mistakes, of which many turn out to be none, and bases
    "depth reduced": "fifo",
    "swapped waits": "multicast",
    "wrong binding of an instance": "sections",
    "missing cross-section edge": "halves",
    "counter bits too few": "line",
}


def drawn(name: str) -> Iterator[Case]:
    """Accepted programs of a careful hand, whose positions begin at 0: before the first launch no row was written."""
    for number in count():
        case = plan.HAND[name][0](Hand(random.Random(f"{name} {number}"), careless=0.0))
        if not refusals_of(*case) and all(s.lo == 0 for s in case[0].symbols if s.name == "pos"):
            yield case


def harmless(name: str, family: str) -> Iterator[Case]:
    """Accepted mutants of a class."""
    for number in range(bases.DRAWN[family][1]):
        case = bases.base(f"{family}.{number}")
        if case is not None:
            for mutant in CLASSES[name].make(*case):
                if mutant.program != case[0] and not refusals_of(mutant.program, mutant.target, case[0]):
                    yield mutant.program, mutant.target


@pytest.mark.parametrize("name", GENERATORS)
def test_a_careful_hands_programs(name: str) -> None:
    for number, (program, target) in enumerate(islice(drawn(name), 2)):
        assert apart(program, target, number) == []


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("name", ON_CORES)
def test_on_cores(name: str, cores: int) -> None:
    on_host = (case for case in drawn(name) if case[1].alias and case[1].sites == cores and len(case[1].engines) == 1)
    assert apart(*next(on_host), cores) == []


@pytest.mark.parametrize("name", HARMLESS)
def test_mutants_that_are_accepted(name: str) -> None:
    found = list(islice(harmless(name, HARMLESS[name]), 2))
    assert found
    for number, (program, target) in enumerate(found):
        assert apart(program, target, number) == []


def test_a_program_that_means_something_else_is_found() -> None:
    program, target = next(case for case in drawn("rows in carries") if case[1].sites == 1)
    (shape,), (spec,) = program.shapes, program.shapes[0].spec
    other = replace(program, shapes=(replace(shape, spec=(replace(spec, expr=fn("mul", spec.expr, 1.001)),)),))
    assert len(apart(other, target, 0)) == 3 * 2  # engines, launches


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATORS)
def test_a_careful_hands_programs_thorough(name: str) -> None:
    for number, (program, target) in enumerate(islice(drawn(name), 2, 40)):
        assert apart(program, target, number) == []
