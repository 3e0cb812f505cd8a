"""Turns of workers at the boundaries between sections: rounds of posts to the program's counters, and waits.

**Rounds**, by family of counters and group of sites (`families`). Poster: a site of a worker that posts to the family.
The r-th posts of a poster (with no other turn between, each to another counter) give one post to each of some counters
of the family, the same for all posters, on all sites of its group; the j-th wait for a counter belongs to the j-th
round that posts to it, and takes as many posts as its group has posters, P.

*Barrier lemma.* When a wait of round r completes, every poster of the waiter's group has begun round r. Proof, for one
group, whose counters nobody else posts to: let W be the first wait, in time, that completes before some poster X has
begun its round r (r being W's round, the j-th of its counter). W has consumed j*P posts of its counter; X has given at
most j-1 of them, so some poster Y has given at least j+1, and so has begun a later round than r, which comes after a
wait of round r of its own site, so of this group (condition *paced*), which completed earlier than W, so X had begun
round r. Contradiction. With one poster the condition is not needed: posts are counted in order. A family of which a
poster runs ahead, so that it is not paced, tells nobody anything: its waits end, and nothing is known after them.

*Rows, then columns.* When a row's wait completes, everything on the sites of the row that came before their posters'
posts is over. When after it the column's wait completes, so it is on every row that a poster of the column stands in,
and posters of the column stand in all rows. So what *all* posters to columns know of their rows is known of all sites.

*Local counters.* A counter whose posts go to the poster's own site has one poster a site: its r-th wait follows the
r-th post by counting. A post of it may have as many before it on their way as the poster does not know to be taken.

*In flight.* In a paced family, where on every waiting site a poster begins the (j+1)-th round of a counter only after
the waiter there has completed the j-th (condition *drained*), nobody can begin the (j+3)-th before the waiter has
completed the (j+1)-th, so at most two rounds are in flight on the counter: 2 * P <= 2**(bits - 1). Otherwise all posts
of an epoch are: P * rounds <= 2**(bits - 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pavane.ir.program import Counter, Post, Program, Run, Wait
from pavane.reject import BalanceRefused, CapacityRefused, OrderRefused, ProgressRefused, ReplayRefused
from pavane.verify.check.boxes import Box, box, clashing, point, within
from pavane.verify.check.clocks import Class, Clock, classes_of, joined
from pavane.verify.check.families import OWN, ROW, WHOLE, Family, families_of, waits_for


@dataclass
class Round:
    """The counters that its posters post to, how many workers have begun it, the clocks of their classes then, and what
    is known when all have.
    """

    number: int
    names: list[str]
    begun: int = 0
    posted: list[tuple[int, Clock]] = field(default_factory=list)
    released: Clock | None = None


@dataclass
class Walk:
    """The classes of each worker's sites (`places`), how far it is (`at`), the clocks; by reach and number all rounds
    so far, by counter those that post to it; by class and counter who posts to its own site, and the clocks then; the
    groups of posts and the waits of each worker so far.

    `ahead`: the families in which a poster has begun a round before the one before it was known to be complete;
    `untold`: those of which that is said before, so that their rounds tell nobody anything.
    """

    program: Program
    boxes: tuple[Box, ...]
    classes: tuple[Class, ...]
    places: tuple[tuple[int, ...], ...]
    counters: dict[str, Counter]
    clocks: dict[tuple[int, str], Clock]
    at: list[int]
    reaches: dict[str, str]
    families: dict[str, Family]
    untold: frozenset[str]
    ahead: set[str] = field(default_factory=set)
    begun: dict[tuple[str, int], Round] = field(default_factory=dict)
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    handed: dict[tuple[int, str], tuple[int, list[Clock]]] = field(default_factory=dict)
    groups: dict[tuple[int, str], int] = field(default_factory=dict)
    waits: dict[tuple[int, str], int] = field(default_factory=dict)


def walk_of(program: Program, untold: frozenset[str]) -> Walk:
    """All workers at their first turns."""
    boxes = tuple(box(w.rect, f"worker {w.name}") for w in program.workers)
    for engine in dict.fromkeys(worker.engine for worker in program.workers):
        if both := clashing((w.name, b) for w, b in zip(program.workers, boxes, strict=True) if w.engine == engine):
            raise OrderRefused(f"{' and '.join(both)} share an engine of a site", where=program.name)
    classes = classes_of(program, boxes)
    places = tuple(
        tuple(c.number for c in classes if c.workers.get(worker.engine) == number)
        for number, worker in enumerate(program.workers)
    )
    clocks = dict.fromkeys(((c.number, engine) for c in classes for engine in c.workers), Clock())
    counters = {c.name: c for c in program.counters}
    return Walk(
        program, boxes, classes, places, counters, clocks, [0] * len(boxes), *families_of(program, boxes), untold
    )


# --- turns ------------------------------------------------------------------------------------------------------------


def advance(walk: Walk) -> None:
    """Every worker goes on through posts and enabled waits up to its next section."""
    alike: dict[tuple, Clock] = {}
    moved = True
    while moved:
        moved = False
        for number, worker in enumerate(walk.program.workers):
            while walk.at[number] < len(worker.body):
                turn = worker.body[walk.at[number]]
                if isinstance(turn, Run) or (isinstance(turn, Wait) and not _complete(walk, number)):
                    break
                if isinstance(turn, Wait):
                    _wait(walk, number, turn, alike)
                elif walk.reaches[turn.counter] == OWN:
                    _hand(walk, number, turn)
                else:
                    _post_group(walk, number)
                moved = True


def _complete(walk: Walk, worker: int) -> bool:
    """Has everything that the worker's next wait needs been posted?"""
    name = walk.program.workers[worker].body[walk.at[worker]].counter  # type: ignore[union-attr]
    nth, reach, rounds = walk.waits.get((worker, name), 0), walk.reaches[name], walk.rounds.get(name, [])
    if reach == OWN:
        return all(len(walk.handed.get((place, name), (worker, ()))[1]) > nth for place in walk.places[worker])
    return nth < len(rounds) and rounds[nth].begun == len(walk.families[reach].posters)


def _hand(walk: Walk, number: int, turn: Post) -> None:
    """A post to a local counter: to the poster's own site, once, with room for it."""
    worker, counter = walk.program.workers[number], walk.counters[turn.counter]
    walk.at[number] += 1
    for place in walk.places[number]:
        clock = walk.clocks[(place, worker.engine)]
        poster, clocks = walk.handed.setdefault((place, turn.counter), (number, []))
        if poster != number:
            raise BalanceRefused(f"two workers of a site post to {turn.counter}", where=f"worker {worker.name}")
        clocks.append(clock)
        _fits(counter, len(clocks) - clock.waited.get(turn.counter, 0))


def _post_group(walk: Walk, number: int) -> None:
    """The posts of a worker to a family, up to its next other turn, or to a counter that it has posted to: a round."""
    worker = walk.program.workers[number]
    reach = walk.reaches[worker.body[walk.at[number]].counter]  # type: ignore[union-attr]
    names: list[str] = []
    while walk.at[number] < len(worker.body):
        turn = worker.body[walk.at[number]]
        if not isinstance(turn, Post) or walk.reaches[turn.counter] != reach or turn.counter in names:
            break
        names.append(turn.counter)
        walk.at[number] += 1
    names.sort()
    nth = walk.groups[(number, reach)] = walk.groups.get((number, reach), 0) + 1
    if (reach, nth) not in walk.begun:
        walk.begun[(reach, nth)] = Round(nth, names)
        for name in names:
            walk.rounds.setdefault(name, []).append(walk.begun[(reach, nth)])
    round_ = walk.begun[(reach, nth)]
    if names != round_.names:
        what = f"round {nth} of a boundary does not post once to the same counters everywhere"
        needed, available = ", ".join(round_.names), ", ".join(names)
        raise BalanceRefused(what, where=f"worker {worker.name}", needed=needed, available=available)
    round_.begun += 1
    for place in walk.places[number]:
        clock = walk.clocks[(place, worker.engine)]
        if walk.families[reach].posts > 1 and clock.rounds.get(reach, 0) < nth - 1:
            walk.ahead.add(reach)
        round_.posted.append((place, clock))


def _wait(walk: Walk, number: int, turn: Wait, alike: dict[tuple, Clock]) -> None:
    """`alike`: the clocks after waits since the last section, so that sites which know the same share one."""
    worker, reach = walk.program.workers[number], walk.reaches[turn.counter]
    posts = 1 if reach == OWN else walk.families[reach].posts
    if turn.n != posts:
        what, needed = "a wait does not take one whole round", f"{posts} posts of {turn.counter}"
        raise BalanceRefused(what, where=f"worker {worker.name}", needed=needed, available=f"{turn.n}")
    walk.at[number] += 1
    nth = walk.waits[(number, turn.counter)] = walk.waits.get((number, turn.counter), 0) + 1
    released = None if reach == OWN else _released(walk, reach, walk.rounds[turn.counter][nth - 1])
    for place in walk.places[number]:
        told = walk.handed[(place, turn.counter)][1][nth - 1] if released is None else released
        clock = walk.clocks[(place, worker.engine)].joined(told)
        own = clock.own
        for table in (clock.all, clock.row, clock.column):
            own = joined(own, {e: table[(place, e)] for e in walk.classes[place].workers if (place, e) in table})
        clock = replace(clock, own=own, waited={**clock.waited, turn.counter: nth})
        walk.clocks[(place, worker.engine)] = alike.setdefault(clock.known(), clock)


def _released(walk: Walk, reach: str, round_: Round) -> Clock:
    """What happens before the completion of a round, by its reach; found once, as it then stays as it is."""
    if round_.released is None:
        round_.released = Clock() if reach in walk.untold else _known_after(reach, round_)
    return round_.released


def _known_after(reach: str, round_: Round) -> Clock:
    reached: Mapping[tuple[int, str], int] = {}
    for place, known in round_.posted:
        reached = joined(reached, {(place, engine): instance for engine, instance in known.own.items()})
        if reach == WHOLE:
            reached = joined(reached, known.all)
    clock = Clock(rounds={reach: round_.number})
    if reach == WHOLE:
        return replace(clock, all=reached)
    if reach == ROW:
        return replace(clock, row=reached)
    rows = [known.row for _, known in round_.posted]
    of_all = sorted(set.intersection(*(set(row) for row in rows)))
    return replace(clock, column=reached, all={key: min(row[key] for row in rows) for key in of_all})


# --- the end ----------------------------------------------------------------------------------------------------------


def ended(walk: Walk) -> None:
    """Every worker is at its end, every post has been waited for, and no counter can have wrapped."""
    for number, worker in enumerate(walk.program.workers):
        if walk.at[number] < len(worker.body):
            turn = worker.body[walk.at[number]]
            if isinstance(turn, Wait):
                what = "a worker waits for posts that are never given"
                raise ProgressRefused(what, where=f"worker {worker.name}", terms=[turn.counter])
            what = "a worker runs a section out of order or twice"
            raise OrderRefused(what, where=f"worker {worker.name}", terms=[str(turn)])
    for (place, name), (_, handed) in walk.handed.items():
        waiter = walk.classes[place].workers.get(walk.counters[name].engine, -1)
        if walk.waits.get((waiter, name), 0) != len(handed):
            what, needed = "an epoch does not take every post", f"{len(handed)} waits on each site"
            raise ReplayRefused(what, where=f"counter {name}", needed=needed)
    for reach, family in walk.families.items():
        _family_ended(walk, reach, family)


def _family_ended(walk: Walk, reach: str, family: Family) -> None:
    given = sorted({walk.groups.get((i, reach), 0) for i in family.posters})
    if len(given) > 1:
        raise ReplayRefused("posters take part in other numbers of rounds", where=walk.program.name, terms=[f"{given}"])
    for name in family.counters:
        rounds = len(walk.rounds.get(name, ()))
        taken = {walk.waits.get((i, name), 0) for i, w in enumerate(walk.program.workers) if waits_for(w, name)}
        if taken != {rounds}:
            what, needed = "an epoch does not take every post of its boundaries", f"{rounds} waits on each site"
            raise ReplayRefused(what, where=f"counter {name}", needed=needed, available=f"{sorted(taken)}")
        drained = reach not in walk.untold and all(_is_drained(walk, name, nth) for nth in range(1, rounds))
        remedy = "let every waiting process be followed by a poster of its site before the next boundary"
        flying = family.posts * (min(rounds, 2) if drained else rounds)
        _fits(walk.counters[name], flying, "" if drained else remedy)


def _fits(counter: Counter, flying: int, remedy: str = "") -> None:
    most = 1 << (counter.bits - 1)
    if flying > most:
        raise CapacityRefused(
            "a boundary's counter has too few bits for the posts that may be in flight",
            where=f"counter {counter.name}",
            needed=f"{flying} posts",
            available=f"{most} ({counter.bits} bits, half of the range)",
            remedy=remedy,
        )


def _is_drained(walk: Walk, name: str, nth: int) -> bool:
    """On each waiting site some poster has begun the next round of a counter after that site's nth wait for it."""
    edges = box(walk.counters[name].rect, name)
    told = {n for n, clock in walk.rounds[name][nth].posted if clock.waited.get(name, 0) >= nth}
    return all(c.number in told for c in walk.classes if within(point(c.site), edges))
