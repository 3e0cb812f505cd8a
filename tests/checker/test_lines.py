"""Boundaries in lines: posters meet in their rows, then in their columns. What is accepted, and what must not be."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.model_shapes import MODELS, stored_weights
from msgspec.structs import replace

from pavane import api
from pavane.ir.program import SITE_Y, Post, Program, Rect, Wait
from pavane.ir.quasi import quasi
from pavane.passes.verify import verify
from pavane.reject import BalanceRefused, CapacityRefused, NotProven, OrderRefused
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.targets.load import load_target

FIFTH = load_target(Path(__file__).parents[1] / "chips" / "fifth.toml")
CHIP = replace(FIFTH, grid=replace(FIFTH.grid, width=6, height=3))


@pytest.fixture(scope="module")
def program() -> Program:
    config = replace(MODELS["smollm2-135m"], layers=1)
    return api.compile(api.decoder(config, stored_weights(config), rows=1, contract="FLOAT", context=64), CHIP)


def changed(program: Program, edit, only: str = "") -> Program:
    """Every worker that posts to rows (or the one of that name) with another body; to be certified anew."""
    workers = []
    for worker in program.workers:
        posts = any(isinstance(t, Post) and t.counter == "row.mover" for t in worker.body)
        workers.append(
            replace(worker, body=tuple(edit(list(worker.body), worker))) if posts and only in worker.name else worker
        )
    return replace(program, workers=tuple(workers), phase="PERSISTENT", certificate=None)


def is_post(turn, name: str) -> bool:
    return isinstance(turn, Post) and turn.counter == name


def is_wait(turn, name: str) -> bool:
    return isinstance(turn, Wait) and turn.counter == name


def refuse(program: Program, kind: type[NotProven], target: SpatialTarget = CHIP) -> str:
    with pytest.raises(NotProven) as caught:
        verify(program, target)
    assert isinstance(caught.value, kind), caught.value
    return str(caught.value)


def test_rows_and_then_columns_are_accepted(program):
    assert verify(replace(program, phase="PERSISTENT", certificate=None), CHIP).phase == "VERIFIED"
    assert {w.n for worker in program.workers for w in worker.body if is_wait(w, "row.mover")} == {6}
    assert {w.n for worker in program.workers for w in worker.body if is_wait(w, "go.mover")} == {3}


def swapped(body, worker):
    """Columns first: a column then knows of its own sites only, and a row of no other row."""
    at = {
        "post row": [n for n, t in enumerate(body) if is_post(t, "row.mover")],
        "wait row": [n for n, t in enumerate(body) if is_wait(t, "row.mover")],
        "post go": [n for n, t in enumerate(body) if is_post(t, "go.mover")],
        "wait go": [n for n, t in enumerate(body) if is_wait(t, "go.mover")],
    }
    out = list(body)
    for rows, waits, columns, ends in zip(*at.values(), strict=True):
        out[rows], out[waits], out[columns], out[ends] = body[columns], body[ends], body[rows], body[waits]
    return out


def test_columns_and_then_rows_are_refused(program):
    assert "may still use" in refuse(changed(program, swapped), OrderRefused)


def test_rows_alone_are_refused(program):
    def edit(body, worker):
        return [t for t in body if not (is_post(t, "go.mover") or is_wait(t, "go.mover"))]

    without = changed(program, edit)
    kept = tuple(c for c in without.counters if c.name != "go.mover")
    refuse(replace(without, counters=kept), OrderRefused)


def test_columns_alone_are_refused(program):
    def edit(body, worker):
        return [t for t in body if not (is_post(t, "row.mover") or is_wait(t, "row.mover"))]

    without = changed(program, edit)
    kept = tuple(c for c in without.counters if c.name != "row.mover")
    refuse(replace(without, counters=kept), OrderRefused)


def test_the_columns_post_before_the_rows_wait_is_refused(program):
    """The column is told what the poster knew before its row had met."""

    def edit(body, worker):
        out = list(body)
        for n, turn in enumerate(body):
            if is_wait(turn, "row.mover"):
                out[n], out[n + 1] = body[n + 1], body[n]
        return out

    refuse(changed(program, edit), OrderRefused)


@pytest.mark.parametrize("name", ["row.mover", "go.mover"])
@pytest.mark.parametrize("n", [1, 2, 5, 7, 18])
def test_a_wait_takes_one_whole_round_of_its_line(program, name, n):
    def edit(body, worker):
        return [replace(t, n=n) if is_wait(t, name) else t for t in body]

    assert f"posts of {name}" in refuse(changed(program, edit), BalanceRefused)


def test_a_post_to_the_next_row_is_refused(program):
    def edit(body, worker):
        y = quasi(SITE_Y) + worker.rect.y0 + 1
        return [replace(t, to=replace(t.to, y0=y, y1=y + 1)) if is_post(t, "row.mover") else t for t in body]

    refuse(changed(program, edit), BalanceRefused)


def test_a_post_to_a_part_of_the_row_is_refused(program):
    def edit(body, worker):
        return [replace(t, to=replace(t.to, x1=t.to.x1 - 1)) if is_post(t, "row.mover") else t for t in body]

    refuse(changed(program, edit), BalanceRefused)


def test_a_post_to_all_rows_does_not_reach_like_the_others(program):
    first = next(w.name for w in program.workers if any(is_post(t, "row.mover") for t in w.body))
    whole = Rect(quasi(0), quasi(6), quasi(0), quasi(3))

    def edit(body, worker):
        return [replace(t, to=whole) if is_post(t, "row.mover") else t for t in body]

    assert "reach alike" in refuse(changed(program, edit, only=first), BalanceRefused)


def test_a_site_that_posts_to_no_row_is_refused(program):
    """Its row would count fewer posts than the others."""
    first = next(w.name for w in program.workers if any(is_post(t, "row.mover") for t in w.body))

    def edit(body, worker):
        return [t for t in body if not (is_post(t, "row.mover") or is_wait(t, "row.mover"))]

    refuse(changed(program, edit, only=first), BalanceRefused)


def test_a_poster_that_skips_a_round_is_refused(program):
    """One wait for the row left out: the next round of posts comes before the last is known to be complete."""

    def edit(body, worker):
        waits = [n for n, t in enumerate(body) if is_wait(t, "row.mover")]
        return [t for n, t in enumerate(body) if n != waits[0]]

    refuse(changed(program, edit), NotProven)


def test_bits_that_hold_one_round_of_a_row_and_not_two_are_refused(program):
    """2 x 6 posts may be in flight; 4 bits hold 8."""
    poor = replace(CHIP, counters=replace(CHIP.counters, bits=4))
    counters = tuple(replace(c, bits=4) for c in program.counters)
    fewer = replace(program, counters=counters, target_digest=target_digest(poor), phase="PERSISTENT", certificate=None)
    said = refuse(fewer, CapacityRefused, poor)
    assert "12 posts" in said
    assert "8 (4 bits, half of the range)" in said
