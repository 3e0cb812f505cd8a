"""Random edits of real programs: what the checker accepts, the oracle must call safe."""

from __future__ import annotations

import random

import pytest

from pavane.verify.prove import prove
from tests.checker_oracle.mutants import mutant, places
from tests.checker_oracle.programs import Case, decoder, names, refusal, small
from tests.oracle import judge


def false_accepts(case: Case, seed: int, count: int) -> list[str]:
    """Mutants of one or two edits that are accepted and unsafe, worded. Also counts that enough were refused."""
    program, target = case
    rng, found, original = random.Random(seed), list(places(program)), prove(program, target)
    wrong, accepted, made = [], 0, 0
    while made < count:
        edited = mutant(program, rng, found)
        if edited is None:
            continue
        label, changed = edited
        for _ in range(rng.choice((0, 0, 1, 2))):
            again = mutant(changed, rng)
            label, changed = (f"{label} & {again[0]}", again[1]) if again else (label, changed)
        made += 1
        if refusal(changed, target, original) is not None:
            continue
        accepted += 1
        verdict = judge(changed, target, seed=seed)
        if verdict.judged and verdict.fault:
            wrong.append(f"{label}: {verdict.fault}")
    assert accepted < count, "nothing was refused"
    return wrong


@pytest.mark.parametrize("name", names())
def test_every_original_is_safe_and_accepted(name: str) -> None:
    program, target = small(name)
    assert judge(program, target).fault == ""
    assert refusal(program, target) is None


@pytest.mark.parametrize("name", names())
def test_no_accepted_mutant_is_unsafe(name: str) -> None:
    assert false_accepts(small(name), 1, 60) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("name", names())
def test_no_accepted_mutant_is_unsafe_thorough(name: str, seed: int) -> None:
    assert false_accepts(small(name), seed, 150) == []


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, "rows"])
def test_no_accepted_mutant_of_a_decoder_is_unsafe(rows: int | str) -> None:
    assert false_accepts(decoder("host", rows), 21, 60) == []


@pytest.mark.slow
def test_a_decoder_on_the_chip_is_safe() -> None:
    program, target = decoder("toy", "rows")
    assert judge(program, target, points=1).fault == ""
