"""The program above its sections: workers run them in order, with rounds of counters at the boundaries. Evidence for `order`.

Every worker runs each section's process once, in the order of the sections; on every site of a process exactly one worker runs it.

**Rounds.** All program counters form one family. Poster: a site of a worker that posts. The r-th group of posts of a poster (posts with no other turn
between) gives one post to every counter on all its sites; the r-th wait of a waiter takes as many posts as there are posters, P.

*Barrier lemma.* When a wait of round r completes, every poster has begun round r. Proof: let W be the first wait, in time, that completes before
some poster X has begun its round r (r being W's round). W has consumed r*P posts of its counter; X has given at most r-1 of them,
so some poster Y has given at least r+1, and Y's post of round r+1 comes after a wait of round r (condition *paced*), which
completed earlier than W, so X had begun round r. Contradiction. With one poster the condition is not needed: posts are counted in order.

*In flight.* Where on every waiting site a poster begins round r+1 only after that site's waiter has completed round r (condition *drained*),
at most rounds r+1 and r+2 are in flight on a counter: 2 * P <= 2**(bits - 1). Otherwise all posts of an epoch are: P * rounds <= 2**(bits - 1).

**Clocks.** Sites with the same workers form a class. For each engine of a class the run keeps, at its current point: `own[e]`: the last section whose accesses by
engine e on this very site happen before; `all[(c, e)]`: the same on every site of class c; `rounds`: the last round known to be complete;
`waited[e]`: the last round that engine e of this site has completed. Inside a section clocks flow along `facts`, between sections along each worker, over a
boundary to everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pavane.ir.program import Counter, Post, Program, Run, Wait, Worker
from pavane.reject import BalanceRefused, CapacityRefused, OrderRefused, ProgressRefused, ReplayRefused
from pavane.verify.check.balance import overlaps
from pavane.verify.check.facts import BEGIN, DONE, END, LOCAL, TENSORS, Facts, facts
from pavane.verify.check.section import Actor, Section
from pavane.verify.check.site_state import Box, box


@dataclass
class Clock:
    """What happens before a point of one engine of one class."""

    own: dict[str, int] = field(default_factory=dict)
    all: dict[tuple[int, str], int] = field(default_factory=dict)
    rounds: int = 0
    waited: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Clock:
        return Clock(dict(self.own), dict(self.all), self.rounds, dict(self.waited))

    def join(self, other: Clock) -> None:
        for mine, theirs in ((self.own, other.own), (self.all, other.all), (self.waited, other.waited)):
            for key, value in theirs.items():
                if mine.get(key, -1) < value:  # type: ignore[call-overload]
                    mine[key] = value  # type: ignore[index]
        self.rounds = max(self.rounds, other.rounds)


@dataclass(frozen=True)
class Class:
    """Sites with the same workers: one of them, how many they are, and the worker of each engine there."""

    number: int
    site: tuple[int, int]
    area: int
    workers: dict[str, int]


@dataclass(frozen=True)
class Access:
    """A process of a section on the sites of a class, with what happens before its accesses."""

    instance: int
    section: Section
    actor: Actor
    place: Class
    tensors: Clock
    local: Clock


@dataclass
class _Walk:
    program: Program
    sections: dict[str, Section]
    boxes: tuple[Box, ...]
    classes: tuple[Class, ...]
    counters: dict[str, Counter]
    clocks: dict[tuple[int, str], Clock]
    at: list[int]
    posters: tuple[int, ...]
    poster_sites: int
    groups: dict[int, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    begun: dict[int, list[tuple[int, int, Clock]]] = field(default_factory=dict)
    drained: bool = True
    facts_of: dict[tuple[str, frozenset[int]], Facts] = field(default_factory=dict)


def walk_program(program: Program, sections: dict[str, Section], visit: Callable[[Access], None]) -> str:
    """Run all sections in order on clocks and show `visit` every access; refuses workers and boundaries that do not fit."""
    walk = _walk(program, sections)
    _advance(walk)
    for number, instance in enumerate(program.instances):
        _section(walk, number, sections[instance.shape], visit)
        _advance(walk)
    _ended(walk)
    rounds = max(walk.waits.values(), default=0)
    return f"{len(program.instances)} sections, {len(program.workers)} workers, {rounds} boundaries"


def _walk(program: Program, sections: dict[str, Section]) -> _Walk:
    boxes = tuple(box(w.rect, f"worker {w.name}") for w in program.workers)
    for i, worker in enumerate(program.workers):
        for j in range(i):
            if program.workers[j].engine == worker.engine and overlaps(boxes[i], boxes[j]):
                raise OrderRefused(f"{worker.name} and {program.workers[j].name} share an engine of a site", where=program.name)
    classes = _classes(program, boxes)
    posters = tuple(i for i, w in enumerate(program.workers) if any(isinstance(t, Post) for t in w.body))
    sites = sum((boxes[i][1] - boxes[i][0]) * (boxes[i][3] - boxes[i][2]) for i in posters)
    clocks = {(c.number, engine): Clock() for c in classes for engine in c.workers}
    walk = _Walk(program, sections, boxes, classes, {c.name: c for c in program.counters}, clocks, [0] * len(boxes), posters, sites)
    _family(walk)
    return walk


def _classes(program: Program, boxes: tuple[Box, ...]) -> tuple[Class, ...]:
    xs = sorted({edge for b in boxes for edge in b[:2]})
    ys = sorted({edge for b in boxes for edge in b[2:]})
    areas: dict[tuple[int, ...], list] = {}
    for y0, y1 in zip(ys, ys[1:], strict=False):
        for x0, x1 in zip(xs, xs[1:], strict=False):
            here = tuple(i for i, b in enumerate(boxes) if b[0] <= x0 < b[1] and b[2] <= y0 < b[3])
            if here:
                entry = areas.setdefault(here, [(x0, y0), 0])
                entry[1] += (x1 - x0) * (y1 - y0)
    found = []
    for number, (here, (site, area)) in enumerate(areas.items()):
        found.append(Class(number, site, area, {program.workers[i].engine: i for i in here}))
    return tuple(found)


# --- the family of counters ---------------------------------------------------------------------------------------------


def _family(walk: _Walk) -> None:
    """Every counter is waited for on its own sites by its own engine, by whole rounds."""
    for name, counter in walk.counters.items():
        where = f"counter {name}"
        if counter.ahead != 0:
            raise BalanceRefused("a boundary's counter starts ahead", where=where)
        edges = box(counter.rect, where)
        waiters = [i for i, w in enumerate(walk.program.workers) if _waits(w, name)]
        covered = sum((walk.boxes[i][1] - walk.boxes[i][0]) * (walk.boxes[i][3] - walk.boxes[i][2]) for i in waiters)
        inside = all(_inside(walk.boxes[i], edges) and walk.program.workers[i].engine == counter.engine for i in waiters)
        if not inside or covered != (edges[1] - edges[0]) * (edges[3] - edges[2]):
            raise BalanceRefused("the counter is not waited for on each of its sites by its engine", where=where)
    for worker in walk.program.workers:
        names = {turn.counter for turn in worker.body if isinstance(turn, Wait)}
        if len(names) > 1:
            raise BalanceRefused("a worker waits for two boundary counters", where=f"worker {worker.name}")


def _waits(worker: Worker, name: str) -> bool:
    return any(isinstance(turn, Wait) and turn.counter == name for turn in worker.body)


def _inside(inner: Box, outer: Box) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1] and outer[2] <= inner[2] and inner[3] <= outer[3]


# --- turns --------------------------------------------------------------------------------------------------------------


def _advance(walk: _Walk) -> None:
    """Every worker goes on through posts and enabled waits up to its next section."""
    moved = True
    while moved:
        moved = False
        for number, worker in enumerate(walk.program.workers):
            while walk.at[number] < len(worker.body):
                turn = worker.body[walk.at[number]]
                if isinstance(turn, Run) or (isinstance(turn, Wait) and not _complete(walk, number)):
                    break
                if isinstance(turn, Wait):
                    _wait(walk, number, turn)
                else:
                    _post_group(walk, number)
                moved = True


def _complete(walk: _Walk, worker: int) -> bool:
    """Have all posters begun the round that the worker waits for next?"""
    return len(walk.begun.get(walk.waits.get(worker, 0) + 1, ())) == len(walk.posters)


def _post_group(walk: _Walk, number: int) -> None:
    worker = walk.program.workers[number]
    where = f"worker {worker.name}"
    names = []
    while walk.at[number] < len(worker.body):
        turn = worker.body[walk.at[number]]
        if not isinstance(turn, Post):
            break
        if turn.n != 1 or turn.to != walk.counters[turn.counter].rect:
            raise BalanceRefused(f"a post of {turn.counter} does not go once to each of its sites", where=where)
        names.append(turn.counter)
        walk.at[number] += 1
    if sorted(names) != sorted(walk.counters):
        raise BalanceRefused("a boundary's posts are not one to each counter", where=where, needed=", ".join(walk.counters))
    round_ = walk.groups[number] = walk.groups.get(number, 0) + 1
    for place in walk.classes:
        if place.workers.get(worker.engine) != number:
            continue
        clock = walk.clocks[(place.number, worker.engine)]
        if walk.poster_sites > 1 and clock.rounds < round_ - 1:
            raise OrderRefused(
                f"round {round_} of a boundary is posted before round {round_ - 1} is known to be complete",
                where=where,
                remedy="let every poster wait at each boundary too",
            )
    walk.begun.setdefault(round_, []).append((number, round_, Clock()))


def _wait(walk: _Walk, number: int, turn: Wait) -> None:
    worker = walk.program.workers[number]
    if turn.n != walk.poster_sites:
        raise BalanceRefused(
            "a wait does not take one whole round",
            where=f"worker {worker.name}",
            needed=f"{walk.poster_sites} posts of {turn.counter}",
            available=f"{turn.n}",
        )
    walk.at[number] += 1
    round_ = walk.waits[number] = walk.waits.get(number, 0) + 1
    released = _released(walk, round_)
    for place in walk.classes:
        if place.workers.get(worker.engine) == number:
            clock = walk.clocks[(place.number, worker.engine)]
            clock.join(released)
            clock.rounds = max(clock.rounds, round_)
            clock.waited[worker.engine] = round_
            for (other, engine), instance in clock.all.items():
                if other == place.number:
                    clock.own[engine] = max(clock.own.get(engine, -1), instance)


def _released(walk: _Walk, round_: int) -> Clock:
    raise NotImplementedError


# --- sections -----------------------------------------------------------------------------------------------------------


def _section(walk: _Walk, number: int, section: Section, visit: Callable[[Access], None]) -> None:
    raise NotImplementedError


def _ended(walk: _Walk) -> None:
    raise NotImplementedError


__all__ = ["BEGIN", "DONE", "END", "LOCAL", "TENSORS", "CapacityRefused", "ProgressRefused", "ReplayRefused", "facts"]
