"""The program above its sections: workers run them in order, with rounds of counters at the boundaries. Evidence for
`order`.

Every worker runs each section's process once, in the order of the sections; on every site of a process exactly one
worker runs it.

**Rounds.** All program counters that are posted to whole rectangles form one family. Poster: a site of a worker that
posts. The r-th group of posts of a poster (posts with no other turn between) gives one post to every counter on all
its sites; the r-th wait of a waiter takes as many posts as there are posters, P.

*Barrier lemma.* When a wait of round r completes, every poster has begun round r. Proof: let W be the first wait, in
time, that completes before some poster X has begun its round r (r being W's round). W has consumed r*P posts of its
counter; X has given at most r-1 of them, so some poster Y has given at least r+1, and Y's post of round r+1 comes
after a wait of round r (condition *paced*), which completed earlier than W, so X had begun round r. Contradiction.
With one poster the condition is not needed: posts are counted in order.

**Local counters.** A counter whose posts go to the poster's own site has one poster a site: its r-th wait follows the
r-th post by counting. A post of it may have as many before it on their way as the poster does not know to be taken.

*In flight.* Where on every waiting site a poster begins round r+1 only after that site's waiter has completed round r
(condition *drained*), at most rounds r+1 and r+2 are in flight on a counter: 2 * P <= 2**(bits - 1). Otherwise all
posts of an epoch are: P * rounds <= 2**(bits - 1).

**Clocks.** Sites with the same workers form a class. For each engine of a class the run keeps, at its current point:
`own[e]`: the last section whose accesses by engine e on this very site happen before; `all[(c, e)]`: the same on
every site of class c; `rounds`: the last round known to be complete; `waited[k]`: the last wait for counter k that
this site has completed. Inside a section clocks flow along `facts`, between sections along each worker, over a
boundary to everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from pavane.ir.program import SITE_X, SITE_Y, Counter, Post, Program, Rect, Run, Wait, Worker
from pavane.ir.quasi import quasi
from pavane.reject import BalanceRefused, CapacityRefused, OrderRefused, ProgressRefused, ReplayRefused
from pavane.verify.check.balance import overlaps
from pavane.verify.check.facts import BEGIN, DONE, END, LOCAL, TENSORS, Facts, facts
from pavane.verify.check.section import Actor, Section
from pavane.verify.check.site_state import Box, box

K = TypeVar("K")


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
        _join(self.own, other.own)
        _join(self.all, other.all)
        _join(self.waited, other.waited)
        self.rounds = max(self.rounds, other.rounds)


def _join(mine: dict[K, int], theirs: dict[K, int]) -> None:
    for key, value in theirs.items():
        if mine.get(key, -1) < value:
            mine[key] = value


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
    classes: tuple[Class, ...]
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
    begun: dict[int, int] = field(default_factory=dict)
    posted: dict[int, list[tuple[int, Clock]]] = field(default_factory=dict)
    local: frozenset[str] = frozenset()
    handed: dict[tuple[int, str], list[Clock]] = field(default_factory=dict)
    handing: dict[tuple[int, str], int] = field(default_factory=dict)
    facts_of: dict[tuple[str, frozenset[int]], Facts] = field(default_factory=dict)


def walk_program(program: Program, sections: dict[str, Section], visit: Callable[[Access], None]) -> str:
    """Run all sections in order on clocks and show `visit` every access; refuses workers and boundaries that do not
    fit.
    """
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
                raise OrderRefused(
                    f"{worker.name} and {program.workers[j].name} share an engine of a site", where=program.name
                )
    classes = _classes(program, boxes)
    local = frozenset(t.counter for w in program.workers for t in w.body if isinstance(t, Post) and not _is_constant(t))
    posters = tuple(
        i for i, w in enumerate(program.workers) if any(isinstance(t, Post) and t.counter not in local for t in w.body)
    )
    sites = sum((boxes[i][1] - boxes[i][0]) * (boxes[i][3] - boxes[i][2]) for i in posters)
    clocks = {(c.number, engine): Clock() for c in classes for engine in c.workers}
    walk = _Walk(
        program,
        sections,
        boxes,
        classes,
        {c.name: c for c in program.counters},
        clocks,
        [0] * len(boxes),
        posters,
        sites,
    )
    walk.local = local
    _family(walk)
    return walk


def _is_constant(turn: Post) -> bool:
    return all(edge.is_const for edge in (turn.to.x0, turn.to.x1, turn.to.y0, turn.to.y1))


def _classes(program: Program, boxes: tuple[Box, ...]) -> tuple[Class, ...]:
    xs = sorted({edge for b in boxes for edge in b[:2]})
    ys = sorted({edge for b in boxes for edge in b[2:]})
    areas: dict[tuple[int, ...], list] = {}
    for y0, y1 in pairwise(ys):
        for x0, x1 in pairwise(xs):
            here = tuple(i for i, b in enumerate(boxes) if b[0] <= x0 < b[1] and b[2] <= y0 < b[3])
            if here:
                entry = areas.setdefault(here, [(x0, y0), 0])
                entry[1] += (x1 - x0) * (y1 - y0)
    found = []
    for number, (here, (site, area)) in enumerate(areas.items()):
        found.append(Class(number, site, area, {program.workers[i].engine: i for i in here}))
    return tuple(found)


# --- the family of counters -------------------------------------------------------------------------------------------


def _family(walk: _Walk) -> None:
    """Every counter is waited for on its own sites by its own engine, by whole rounds."""
    for name, counter in walk.counters.items():
        where = f"counter {name}"
        if counter.ahead != 0:
            raise BalanceRefused("a boundary's counter starts ahead", where=where)
        edges = box(counter.rect, where)
        waiters = [i for i, w in enumerate(walk.program.workers) if _waits(w, name)]
        covered = sum((walk.boxes[i][1] - walk.boxes[i][0]) * (walk.boxes[i][3] - walk.boxes[i][2]) for i in waiters)
        inside = all(
            _inside(walk.boxes[i], edges) and walk.program.workers[i].engine == counter.engine for i in waiters
        )
        if name in walk.local and inside:
            continue
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


# --- turns ------------------------------------------------------------------------------------------------------------


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
                elif turn.counter in walk.local:
                    _hand(walk, number, turn)
                else:
                    _post_group(walk, number)
                moved = True


def _complete(walk: _Walk, worker: int) -> bool:
    """Has everything that the worker's next wait needs been posted?"""
    turn = walk.program.workers[worker].body[walk.at[worker]]
    round_ = walk.waits.get(worker, 0) + 1
    if turn.counter in walk.local:  # type: ignore[union-attr]
        return all(len(walk.handed.get((c, turn.counter), ())) >= round_ for c in _places(walk, worker))  # type: ignore[union-attr]
    return walk.begun.get(round_, 0) == len(walk.posters) > 0


def _places(walk: _Walk, worker: int) -> tuple[int, ...]:
    """The classes of a worker's sites."""
    engine = walk.program.workers[worker].engine
    return tuple(place.number for place in walk.classes if place.workers.get(engine) == worker)


def _hand(walk: _Walk, number: int, turn: Post) -> None:
    """A post to a local counter: to the poster's own site, once, with room for it."""
    worker, edges = walk.program.workers[number], walk.boxes[number]
    where = f"worker {worker.name}"
    x, y = quasi(SITE_X) + edges[0], quasi(SITE_Y) + edges[2]
    counter = walk.counters[turn.counter]
    if turn.n != 1 or turn.to != Rect(x, x + 1, y, y + 1) or not _inside(edges, box(counter.rect, counter.name)):
        raise BalanceRefused(f"a post of {turn.counter} does not go once to the poster's own site", where=where)
    walk.at[number] += 1
    for place in _places(walk, number):
        clock = walk.clocks[(place, worker.engine)]
        before = walk.handed.setdefault((place, turn.counter), [])
        if before and walk.handing[(place, turn.counter)] != number:
            raise BalanceRefused(f"two workers of a site post to {turn.counter}", where=where)
        walk.handing[(place, turn.counter)] = number
        before.append(clock.copy())
        flying = len(before) - clock.waited.get(turn.counter, 0)
        if flying > 1 << (counter.bits - 1):
            raise CapacityRefused(
                "a counter has too few bits for the posts that may be in flight",
                where=f"counter {turn.counter}",
                needed=f"{flying} posts",
                available=f"{1 << (counter.bits - 1)} ({counter.bits} bits, half of the range)",
            )


def _post_group(walk: _Walk, number: int) -> None:
    worker = walk.program.workers[number]
    where = f"worker {worker.name}"
    names = []
    while walk.at[number] < len(worker.body):
        turn = worker.body[walk.at[number]]
        if not isinstance(turn, Post) or turn.counter in walk.local:
            break
        if turn.n != 1 or turn.to != walk.counters[turn.counter].rect:
            raise BalanceRefused(f"a post of {turn.counter} does not go once to each of its sites", where=where)
        names.append(turn.counter)
        walk.at[number] += 1
    family = sorted(set(walk.counters) - walk.local)
    if sorted(names) != family:
        raise BalanceRefused("a boundary's posts are not one to each counter", where=where, needed=", ".join(family))
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
        walk.posted.setdefault(round_, []).append((place.number, clock.copy()))
    walk.begun[round_] = walk.begun.get(round_, 0) + 1


def _wait(walk: _Walk, number: int, turn: Wait) -> None:
    worker = walk.program.workers[number]
    posts = 1 if turn.counter in walk.local else walk.poster_sites
    if turn.n != posts:
        raise BalanceRefused(
            "a wait does not take one whole round",
            where=f"worker {worker.name}",
            needed=f"{posts} posts of {turn.counter}",
            available=f"{turn.n}",
        )
    walk.at[number] += 1
    round_ = walk.waits[number] = walk.waits.get(number, 0) + 1
    released = None if turn.counter in walk.local else _released(walk, round_)
    for place in _places(walk, number):
        clock = walk.clocks[(place, worker.engine)]
        clock.join(walk.handed[(place, turn.counter)][round_ - 1] if released is None else released)
        clock.waited[turn.counter] = round_
        for (other, engine), instance in clock.all.items():
            if other == place:
                clock.own[engine] = max(clock.own.get(engine, -1), instance)


def _released(walk: _Walk, round_: int) -> Clock:
    """What happens before the completion of a round: all that any poster knew, and each poster's own site on all its
    sites.
    """
    clock = Clock(rounds=round_)
    for place, known in walk.posted[round_]:
        clock.join(Clock(all=known.all))
        for engine, instance in known.own.items():
            clock.all[(place, engine)] = max(clock.all.get((place, engine), -1), instance)
    return clock


def _is_drained(walk: _Walk, round_: int) -> bool:
    """On each waiting site some poster has begun the round after that site's waiters completed the round before."""
    for place in walk.classes:
        known = [clock for number, clock in walk.posted[round_] if number == place.number]
        for name, counter in walk.counters.items():
            here = name not in walk.local and _inside(_point(place.site), box(counter.rect, name))
            if here and not any(clock.waited.get(name, 0) >= round_ - 1 for clock in known):
                return False
    return True


def _point(site: tuple[int, int]) -> Box:
    return site[0], site[0] + 1, site[1], site[1] + 1


# --- sections ---------------------------------------------------------------------------------------------------------


def _section(walk: _Walk, number: int, section: Section, visit: Callable[[Access], None]) -> None:
    runners = {actor.number: _runners(walk, number, actor) for actor in section.actors}
    for place in walk.classes:
        present = {
            a.number: a.process.engine
            for a in section.actors
            if place.workers.get(a.process.engine) in runners[a.number]
        }
        if present:
            _on_class(walk, number, section, place, present, visit)
    for workers in runners.values():
        for worker in workers:
            walk.at[worker] += 1


def _runners(walk: _Walk, number: int, actor: Actor) -> tuple[int, ...]:
    """The workers that run a process of a section next; together they are its sites, each once."""
    where = f"section {number}, process {actor.name}"
    found, waiting = [], []
    for index, worker in enumerate(walk.program.workers):
        turn = worker.body[walk.at[index]] if walk.at[index] < len(worker.body) else None
        if isinstance(turn, Run) and (turn.instance, turn.process) == (number, actor.name):
            found.append(index)
        elif isinstance(turn, Wait) and worker.engine == actor.process.engine:
            waiting.append(f"{worker.name} waits for {turn.n} posts of {turn.counter}, which are never all given")
    covered = sum((walk.boxes[i][1] - walk.boxes[i][0]) * (walk.boxes[i][3] - walk.boxes[i][2]) for i in found)
    whole = (actor.box[1] - actor.box[0]) * (actor.box[3] - actor.box[2])
    if covered == whole and all(
        _inside(walk.boxes[i], actor.box) and walk.program.workers[i].engine == actor.process.engine for i in found
    ):
        return tuple(found)
    if waiting:
        raise ProgressRefused("a boundary is never passed", where=where, terms=waiting)
    raise OrderRefused(
        "the process is not run once on each of its sites, after the sections before it",
        where=where,
        needed=f"{whole} sites of engine {actor.process.engine}",
        available=f"{covered}",
    )


def _on_class(
    walk: _Walk,
    number: int,
    section: Section,
    place: Class,
    present: dict[int, str],
    visit: Callable[[Access], None],
) -> None:
    """Clocks of the processes of a section on one class: at their first accesses, then at their ends."""
    key = (section.shape.name, frozenset(present))
    if key not in walk.facts_of:
        walk.facts_of[key] = facts(section, key[1])
    order = walk.facts_of[key]
    begin = {p: walk.clocks[(place.number, engine)] for p, engine in present.items()}
    for process in present:
        tensors = _at(order, process, TENSORS, begin, present, place, number)
        local = _at(order, process, LOCAL, begin, present, place, number)
        visit(Access(number, section, section.actors[process], place, walk.classes, tensors, local))
    ends = {p: _at(order, p, END, begin, present, place, number) for p in present}
    for process, engine in present.items():
        walk.clocks[(place.number, engine)] = ends[process]


def _at(
    order: Facts, process: int, point: str, begin: dict[int, Clock], present: dict[int, str], place: Class, number: int
) -> Clock:
    clock = begin[process].copy()
    for other, what in sorted(order.known(process, point)):
        if what == BEGIN:
            clock.join(begin[other])
        elif what == DONE:
            clock.own[present[other]] = max(clock.own.get(present[other], -1), number)
    if place.area == 1:
        for engine, instance in clock.own.items():
            clock.all[(place.number, engine)] = max(clock.all.get((place.number, engine), -1), instance)
    return clock


# --- the end ----------------------------------------------------------------------------------------------------------


def _ended(walk: _Walk) -> None:
    """Every worker is at its end, every post has been waited for, and no counter can have wrapped."""
    for number, worker in enumerate(walk.program.workers):
        if walk.at[number] < len(worker.body):
            turn = worker.body[walk.at[number]]
            if isinstance(turn, Wait):
                raise ProgressRefused(
                    "a worker waits for posts that are never given", where=f"worker {worker.name}", terms=[turn.counter]
                )
            raise OrderRefused(
                "a worker runs a section out of order or twice", where=f"worker {worker.name}", terms=[str(turn)]
            )
    groups = sorted({walk.groups.get(i, 0) for i in walk.posters})
    waits = sorted({walk.waits.get(i, 0) for i, w in enumerate(walk.program.workers) if _waits_for_rounds(walk, w)})
    _local_ended(walk)
    if groups != waits or len(groups) > 1:
        raise ReplayRefused(
            "an epoch does not take every post of its boundaries",
            where=walk.program.name,
            needed=f"{groups}",
            available=f"{waits}",
        )
    _bits(walk, groups[0] if groups else 0)


def _waits_for_rounds(walk: _Walk, worker: Worker) -> bool:
    return any(isinstance(turn, Wait) and turn.counter not in walk.local for turn in worker.body)


def _local_ended(walk: _Walk) -> None:
    for (place, name), handed in walk.handed.items():
        waiter = walk.classes[place].workers.get(walk.counters[name].engine, -1)
        if walk.waits.get(waiter, 0) != len(handed):
            raise ReplayRefused(
                "an epoch does not take every post", where=f"counter {name}", needed=f"{len(handed)} waits on each site"
            )


def _bits(walk: _Walk, rounds: int) -> None:
    drained = all(_is_drained(walk, r) for r in range(2, rounds + 1))
    flying = walk.poster_sites * (min(rounds, 2) if drained else rounds)
    for name, counter in walk.counters.items():
        if name not in walk.local and flying > 1 << (counter.bits - 1):
            raise CapacityRefused(
                "a boundary's counter has too few bits for the posts that may be in flight",
                where=f"counter {name}",
                needed=f"{flying} posts",
                available=f"{1 << (counter.bits - 1)} ({counter.bits} bits, half of the range)",
                remedy=""
                if drained
                else "let every waiting process be followed by a poster of its site before the next boundary",
            )
