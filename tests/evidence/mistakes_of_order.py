"""Mistakes with posts, waits, fences, rectangles and counters."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pavane.ir.program import (
    Counter,
    Fence,
    Front,
    Loop,
    Pop,
    Post,
    Program,
    Push,
    Reserve,
    Send,
    Wait,
)
from pavane.targets.descriptor import SpatialTarget, target_digest
from tests.checker_oracle.mutants import Path, at, put
from tests.evidence import edits
from tests.evidence.mistakes import Mutant, mistake


@mistake("dropped post", "balance", "progress", "replay", "multicast")
def dropped_post(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    for place in edits.anywhere(program, Post):
        yield Mutant(edits.without(program, place), target, place.nested)


@mistake("dropped wait", "balance", "replay", "order", "multicast")
def dropped_wait(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    for place in edits.anywhere(program, Wait):
        yield Mutant(edits.without(program, place), target, place.nested)


@mistake("dropped fence", "order")
def dropped_fence(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    for place in edits.steps(program, Fence):
        yield Mutant(edits.without(program, place), target, place.nested)


@mistake("off-by-one credit", "balance", "progress", "multicast", "replay", "capacity", "order")
def off_by_one_credit(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    for place in edits.anywhere(program, Wait, Post):
        for by in (1, -1):
            if place.step.n + by > 0:
                yield Mutant(edits.set_step(program, place, n=place.step.n + by), target, place.nested)
    for path, counter, nested in _counters(program):
        yield Mutant(put(program, (*path, "ahead"), counter.ahead + 1), target, nested)


@mistake("wrong multicast count", "multicast", "balance", "progress", "replay")
def wrong_multicast_count(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """One member more or fewer than there are: in the send, in the post to them, in the wait for their credits."""
    for place in edits.steps(program, Send, Post):
        to = place.step.to
        for edge, by in (("x1", 1), ("x1", -1), ("y1", 1), ("y1", -1), ("x0", 1), ("y0", 1)):
            yield Mutant(
                edits.set_step(program, place, to=replace(to, **{edge: getattr(to, edge) + by})), target, place.nested
            )
    for place in edits.steps(program, Wait):
        if any(isinstance(n, Send) for n in at(program, place.path[:-1])):
            for by in (1, -1, 2):
                yield Mutant(edits.set_step(program, place, n=max(1, place.step.n + by)), target, place.nested)


@mistake(
    "foreign or missing site", "multicast", "balance", "capacity", "order", "coverage", "progress", "outside-fragment"
)
def foreign_or_missing_site(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """Rectangles of processes, workers, counters, sends and posts, shrunk, grown or moved by one site."""
    changes = ({"x1": 1}, {"x1": -1}, {"y1": 1}, {"y1": -1}, {"x0": 1, "x1": 1}, {"y0": 1, "y1": 1}, {"x0": 1})
    places = [((*p.path, "to"), p.step.to, p.nested) for p in edits.anywhere(program, Send, Post)]
    places += [(("workers", w, "rect"), x.rect, False) for w, x in enumerate(program.workers)]
    for s, shape in enumerate(program.shapes):
        places += [
            (("shapes", s, "processes", p, "rect"), x.rect, isinstance(x.body[0], Loop))
            for p, x in enumerate(shape.processes)
        ]
    places += [((*path, "rect"), c.rect, nested) for path, c, nested in _counters(program)]
    for path, rect, nested in places:
        for change in changes:
            yield Mutant(
                put(program, path, replace(rect, **{k: getattr(rect, k) + n for k, n in change.items()})),
                target,
                nested,
            )


@mistake("source reused before receipt", "order", "balance", "multicast", "progress")
def source_reused(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A slot is given back or handed on before those who read it have it: pops and pushes move up."""
    for place in edits.steps(program, Pop, Push):
        body, i = at(program, place.path[:-1]), place.path[-1]
        for back in (1, 2, 3):
            if i - back >= 0 and not isinstance(body[i - back], Loop):
                moved = (*body[: i - back], body[i], *body[i - back : i], *body[i + 1 :])
                yield Mutant(put(program, place.path[:-1], moved), target, place.nested)


@mistake("swapped waits", "progress", "multicast", "order", "balance", "replay")
def swapped_waits(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A wait and the step after it; or two waits of a process, each for the other's counter."""
    for place in edits.anywhere(program, Wait, Reserve, Front):
        other = edits.swapped(program, place)
        if other is not None:
            yield Mutant(other, target, place.nested)
    waits = list(edits.anywhere(program, Wait))
    for one in waits:
        for two in waits:
            if one.path[:4] == two.path[:4] and one.path < two.path and one.step.counter != two.step.counter:
                changed = edits.set_step(program, one, counter=two.step.counter)
                yield Mutant(edits.set_step(changed, two, counter=one.step.counter), target, one.nested)


@mistake("missing cross-section edge", "order", "balance", "replay", "progress")
def missing_edge(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A whole boundary, or one counter of it, is left out: posts and waits."""
    for counter in program.counters:
        changed = program
        for w, worker in enumerate(program.workers):
            body = tuple(t for t in worker.body if getattr(t, "counter", None) != counter.name)
            changed = put(changed, ("workers", w, "body"), body)
        left = tuple(c for c in program.counters if c.name != counter.name)
        yield Mutant(replace(changed, counters=left), target, False)
        for keep in range(3):
            yield from _without_round(program, target, counter.name, keep)


def _without_round(program: Program, target: SpatialTarget, name: str, number: int) -> Iterator[Mutant]:
    """The `number`-th post to a counter and wait for it of every worker are left out."""
    changed, gone = program, 0
    for w, worker in enumerate(program.workers):
        body = list(worker.body)
        for kind in (Post, Wait):
            mine = [t for t in body if isinstance(t, kind) and t.counter == name]
            if number < len(mine):
                body.remove(mine[number])
                gone += 1
        changed = put(changed, ("workers", w, "body"), tuple(body))
    if gone:
        yield Mutant(changed, target, False)


@mistake("stale count carried into the next epoch", "replay", "balance", "progress", "multicast", "order")
def stale_count(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A counter is left with a post that no wait of the epoch takes."""
    for place in edits.anywhere(program, Post):
        body, i = at(program, place.path[:-1]), place.path[-1]
        yield Mutant(put(program, place.path[:-1], (*body[: i + 1], body[i], *body[i + 1 :])), target, place.nested)
        yield Mutant(put(program, place.path[:-1], (*body, body[i])), target, place.nested)


@mistake("replay with stale FIFO content", "replay", "balance", "progress", "order")
def stale_fifo(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A slot is left in a FIFO: one more is filled and handed over, or one is not taken."""
    for place in edits.steps(program, Push):
        name, path = place.step.fifo, place.path[:5]
        body = at(program, path)
        yield Mutant(put(program, path, (*body, Reserve(name), Push(name))), target, False)
        inner, i = at(program, place.path[:-1]), place.path[-1]
        more = (*inner[: i + 1], Reserve(name), Push(name), *inner[i + 1 :])
        yield Mutant(put(program, place.path[:-1], more), target, place.nested)
    for place in edits.steps(program, Pop):
        yield Mutant(edits.without(program, place), target, place.nested)


@mistake("counter bits too few", "capacity", "multicast", "progress")
def bits_too_few(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A chip whose counters hold less than is in flight."""
    for bits in (1, 2, 3):
        if bits >= target.counters.bits or not list(_counters(program)):
            continue
        poor = replace(target, counters=replace(target.counters, bits=bits))
        changed = program
        for path, _, _ in _counters(program):
            changed = put(changed, (*path, "bits"), bits)
        nested = any(nested for _, _, nested in _counters(program))
        yield Mutant(replace(changed, target_digest=target_digest(poor)), poor, nested)


@mistake("semaphore reused while live", "capacity", "balance", "order", "multicast")
def semaphore_reused(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """Two counters have one number; or what one is used for goes over another, posts and waits alike."""
    found = list(_counters(program))
    for path, counter, nested in found:
        for other_path, other, _ in found:
            if other.id != counter.id:
                yield Mutant(put(program, (*path, "id"), other.id), target, nested)
            if other is not counter and other_path[:-1] == path[:-1]:
                yield Mutant(_merged(program, path, counter, other), target, nested)


def _merged(program: Program, path: Path, counter: Counter, other: Counter) -> Program:
    """Every post to a counter and wait for it is one of the other; the counter goes."""
    turn = path[0] == "counters"
    for place in edits.anywhere(program, Post, Wait):
        if place.step.counter == counter.name and place.turn == turn and (turn or place.path[:2] == path[:2]):
            program = edits.set_step(program, place, counter=other.name)
    left = tuple(c for c in at(program, path[:-1]) if c.name != counter.name)
    return put(program, path[:-1], left)


def _counters(program: Program) -> Iterator[tuple[tuple, Counter, bool]]:
    """(path, counter, whether it is used in a loop)."""
    for i, counter in enumerate(program.counters):
        yield ("counters", i), counter, False
    for s, shape in enumerate(program.shapes):
        for i, counter in enumerate(shape.counters):
            yield ("shapes", s, "counters", i), counter, edits.is_nested(shape, counter.name)
