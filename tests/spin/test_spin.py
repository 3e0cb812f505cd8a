"""SPIN on the choreography of programs: what the checker accepts has no fault, and broken programs have theirs."""

from __future__ import annotations

import random

import pytest

from pavane.ir.program import Program
from pavane.targets.descriptor import SpatialTarget
from tests.checker import editing as e
from tests.checker_oracle.mutants import mutant, places
from tests.checker_oracle.programs import Case, names, refusal, small
from tests.oracle import judge
from tests.spin import SpinVerdict, missing_tools, spin_verdict, two_launches
from tests.spin.faults import CORES, FAULTS, HOST, LINE, PAIR, TICKING, TOY, TWO, TWO_SLOTS

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason=f"not installed: {missing_tools()}")

ACCEPTED: dict[str, Case] = {"line": (LINE, TOY), "pair": (PAIR, TOY), "two": (TWO, TOY), "cores": (CORES, HOST)}
QUICK = ("a dropped post", "a dropped fence of a load", "a dropped wait for the data", "one slot too few")
CHOREOGRAPHY = ("deadlock", "race", "overflow", "unbalanced")


def found(program: Program, target: SpatialTarget, **how: bool) -> SpinVerdict:
    verdict = spin_verdict(program, target, two_launches(program, greatest=True), **how)
    assert verdict.complete, "a limit was reached"
    return verdict


def target_of(program: Program) -> SpatialTarget:
    return TOY if program.target == TOY.name else HOST


@pytest.mark.parametrize("name", ["line", "pair", pytest.param("two", marks=pytest.mark.slow), "cores"])
def test_what_the_checker_accepts_is_clean(name: str) -> None:
    program, target = ACCEPTED[name]
    assert e.accepted(program, target).refusals == ()
    verdict = found(program, target)
    assert verdict.fault == ""
    assert verdict.states > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_small_program_is_clean(name: str) -> None:
    program, target = small(name)
    for greatest in (True, False) if program.symbols else (True,):
        verdict = spin_verdict(program, target, two_launches(program, greatest))
        assert (verdict.fault, verdict.complete) == ("", True)


@pytest.mark.parametrize("program", [TWO_SLOTS, TICKING], ids=["two slots", "ticking"])
def test_what_the_faults_begin_with_is_clean(program: Program) -> None:
    assert found(program, target_of(program)).fault == ""


@pytest.mark.parametrize(
    "what", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in sorted(FAULTS)]
)
def test_a_fault_is_found(what: str) -> None:
    faulty = FAULTS[what]
    program, target = faulty.edit(faulty.program), target_of(faulty.program)
    assert found(program, target).fault.startswith(faulty.words)
    assert e.refusal(faulty.program, target, faulty.edit) is not None


@pytest.mark.slow
@pytest.mark.parametrize("program", [LINE, PAIR, CORES, TICKING], ids=["line", "pair", "cores", "ticking"])
def test_all_interleavings_of_what_is_clean(program: Program) -> None:
    assert found(program, target_of(program), exhaustive=True).fault == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "gather_host", "softmax_toy"])
def test_the_reduction_hides_nothing(name: str | None) -> None:
    """On random mutants: one watch at a time against all interleavings of all steps, where those are few enough."""
    program, target = (PAIR, TOY) if name is None else small(name)
    rng, parts, compared = random.Random(9), list(places(program)), set()
    while len(compared) < 12:
        edited = mutant(program, rng, parts)
        if edited is None or edited[0] in compared:
            continue
        reduced, whole = (
            spin_verdict(edited[1], target, two_launches(program, True), exhaustive=all_, seconds=20)
            for all_ in (False, True)
        )
        compared.add(edited[0])
        assert bool(reduced.fault) == bool(whole.fault) or not whole.complete, edited[0]


def disagreements(case: Case, seed: int, count: int) -> list[str]:
    """Random mutants on which the three verdicts contradict each other, worded."""
    program, target = case
    rng, parts, wrong, made = random.Random(seed), list(places(program)), [], 0
    while made < count:
        edited = mutant(program, rng, parts)
        if edited is None:
            continue
        label, changed = edited
        oracle, accepted = judge(changed, target, seed=seed, points=1), refusal(changed, target) is None
        choreography = oracle.fault.startswith(CHOREOGRAPHY)
        if not accepted and not choreography:
            continue
        made += 1
        verdict = spin_verdict(changed, target, two_launches(changed, greatest=True))
        if accepted and verdict.fault:
            wrong.append(f"accepted, and SPIN finds {verdict.fault}: {label}")
        if choreography and not verdict.fault:
            wrong.append(f"the oracle finds {oracle.fault}, SPIN nothing: {label}")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul_multicast", "chain_toy", "gather_toy", "norm_product_toy", "symbolic_host"])
def test_spin_oracle_and_checker_agree_on_mutants(name: str) -> None:
    assert disagreements(small(name), 3, 12) == []


def test_tiny_mutants() -> None:
    assert disagreements((PAIR, TOY), 5, 5) == []
