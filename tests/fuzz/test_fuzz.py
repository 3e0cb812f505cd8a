"""Edited artefacts end refused, or accepted and not contradicted by the oracle; in bounded time and memory.

`python -m tests.fuzz --minutes N` goes on where this stops.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from pavane.artefact import Artefact, artefact_bytes
from pavane.targets.load import load_target
from tests.checker import editing as e
from tests.checker.two_sections import twice_on_toy
from tests.fuzz.cases import cases
from tests.fuzz.edits import EDITS, KEPT, Case, edited
from tests.fuzz.sandbox import Sandbox
from tests.fuzz.seeds import artefact
from tests.fuzz.target import _guarded, examine

TOY = load_target("toy")
QUICK = ("twice_on_toy", "twice_on_host", "matmul_multicast", "norm_product_by_hand", "gather_host")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as one:
        yield one


@given(case=cases(QUICK))
def test_an_edited_artefact_ends_in_an_answer(sandbox: Sandbox, case: Case) -> None:
    assert sandbox.examine(edited(case)).finding == ""


@pytest.mark.slow
@settings(max_examples=400)
@given(case=cases())
def test_many_edited_artefacts_end_in_an_answer(sandbox: Sandbox, case: Case) -> None:
    assert sandbox.examine(edited(case)).finding == ""


@pytest.mark.parametrize("name", QUICK)
def test_an_artefact_as_it_is_is_accepted_and_judged(sandbox: Sandbox, name: str) -> None:
    outcome = sandbox.examine(artefact_bytes(artefact(name)))
    assert (outcome.stage, outcome.finding, outcome.judged) == ("accepted", "", True)


@pytest.mark.parametrize("kind", sorted(EDITS))
def test_an_edit_is_a_function_of_its_numbers_and_changes_files(kind: str) -> None:
    rng = random.Random(kind)
    made = [Case("twice_on_toy", ((kind, KEPT * rng.randrange(1 << 27)),)) for _ in range(6)]
    files = [edited(case) for case in made]
    assert files == [edited(case) for case in made]
    assert any(file != artefact_bytes(artefact("twice_on_toy")) for file in files)


def test_the_sandbox_says_what_goes_wrong() -> None:
    """A fuzz target that cannot find anything finds nothing."""

    def crash() -> None:
        raise KeyError("a bug")

    def hang() -> None:
        while True:
            pass

    assert _guarded("checker", crash).finding.startswith("CRASH: checker raises KeyError")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.fuzz.target.CHECK_SECONDS", 0.05)
        assert _guarded("checker", hang).finding.startswith("SLOW: checker")


def test_a_checker_that_accepts_all_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = e.without("read", 2)(twice_on_toy(TOY))
    data = artefact_bytes(Artefact(e.signed(broken, TOY), TOY))
    assert examine(data).finding == ""
    monkeypatch.setattr("tests.fuzz.target.check", lambda program, target: None)
    assert examine(data).finding.startswith("FALSE ACCEPT: race")


def test_a_process_that_dies_is_a_finding() -> None:
    with Sandbox() as sandbox:
        sandbox.end()
        assert sandbox.examine(b"").finding.startswith("DEATH")
        assert sandbox.examine(b"").stage == "reader"
