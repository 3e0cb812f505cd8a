"""What the oracle does from epoch to epoch: counters go round their end, positions move, caches keep their rows."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from msgspec.structs import replace

from pavane.ir.program import Store, Symbol
from pavane.ir.quasi import quasi
from tests.checker_oracle.mutants import put
from tests.evidence import edits
from tests.evidence.epochs import over_epochs, round_and_round
from tests.evidence.hand import Case, Hand, signed
from tests.oracle import judge
from tests.oracle.judge import _next
from tests.oracle.machine import Signal


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_a_wait_ends_when_enough_was_posted_however_often_the_counter_went_round(bits: int) -> None:
    """Modulo 2**bits it is the count of posts that says so, as long as half of that is in flight at most."""
    half = 1 << (bits - 1)
    for consumed in range(5 << bits):
        for flight in range(half + 1):
            for n in range(1, half + 1):
                signal = Signal("c", bits, 0, consumed=consumed, posted=consumed + flight)
                assert signal.passes(n) == (flight >= n)


def test_beyond_half_of_the_count_a_wait_is_deceived() -> None:
    assert not Signal("c", 2, 0, consumed=0, posted=3).passes(1)


def test_positions_move_as_a_launch_allows() -> None:
    program, _ = over_epochs(Hand(random.Random(0), 0.0))
    program = replace(program, symbols=(Symbol("pos", 0, 9, 2), Symbol("rows", 1, 4, 1)))
    moves, now, seen = random.Random(1), {"pos": 0, "rows": 2}, []
    for _ in range(200):
        seen.append(now)
        now = _next(program, now, moves)
    assert all(0 <= b["pos"] <= min(a["pos"] + a["rows"], 9) and 1 <= b["rows"] <= 4 for a, b in pairwise(seen))
    assert any(b["pos"] < a["pos"] for a, b in pairwise(seen))
    assert any(b["pos"] == a["pos"] + a["rows"] for a, b in pairwise(seen))


def cache() -> Case:
    """A careful one, whose rows are read up to those of this epoch."""
    for number in range(40):
        program, target = over_epochs(Hand(random.Random(number), 0.0))
        if len(program.symbols) == 2 and program.symbols[0].lo == 0 and program.symbols[0].hi >= 6:
            return program, target
    raise LookupError("no such draw")


def test_a_cache_that_grows_is_safe() -> None:
    program, target = cache()
    assert judge(program, target, points=5, interleavings=4, epochs=6).fault == ""


def appended_at(row) -> Case:
    """New rows go elsewhere, and program and spec agree on where."""
    program, target = cache()
    place = next(p for p in edits.steps(program, Store) if "pos" in p.step.window.start[0].variables())
    program = put(program, (*place.path, "window", "start", 0), row)
    return signed(put(program, ("shapes", place.path[1], "spec", 0, "origin", 0), row)), target


@pytest.mark.parametrize("row", [quasi("pos") + 1, quasi(0), quasi("pos") - 3 * (quasi("pos") // 3)])
def test_rows_that_are_not_the_transitions_are_a_fault(row) -> None:
    """Beside them, over the first ones, round a ring of three."""
    program, target = appended_at(row)
    fault = judge(program, target, points=5, interleavings=0).fault
    assert "wrong place" in fault or "unwritten" in fault or "lost or double" in fault or "extents" in fault


def test_counters_of_few_bits_last_through_many_epochs() -> None:
    judged = 0
    for number in range(12):
        program, target = round_and_round(Hand(random.Random(number), 0.0))
        verdict = judge(program, target, interleavings=2, epochs=(1 << target.counters.bits) + 2)
        judged += bool(program.counters or any(s.counters for s in program.shapes))
        assert verdict.fault == "", number
    assert judged >= 6
