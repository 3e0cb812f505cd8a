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
from pavane.verify.check.boxes import Box, box, overlaps, point, within
from pavane.verify.check.clocks import Class, Clock, classes_of, joined
from pavane.verify.check.families import OWN, ROW, WHOLE, Family, families_of, waits_for


@dataclass
class Walk:
    """The classes of each worker's sites (`places`), how far it is (`at`), the clocks, the posts and waits so far.

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
    groups: dict[tuple[int, str], int] = field(default_factory=dict)
    waits: dict[tuple[int, str], int] = field(default_factory=dict)
    begun: dict[tuple[str, int], int] = field(default_factory=dict)
    posts: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    rounds: dict[str, list[int]] = field(default_factory=dict)
    posted: dict[tuple[str, int], list[tuple[int, Clock]]] = field(default_factory=dict)
    released: dict[tuple[str, int], Clock] = field(default_factory=dict)
    handed: dict[tuple[int, str], list[Clock]] = field(default_factory=dict)
    handing: dict[tuple[int, str], int] = field(default_factory=dict)


def walk_of(program: Program, untold: frozenset[str]) -> Walk:
    """All workers at their first turns."""
    boxes = tuple(box(w.rect, f"worker {w.name}") for w in program.workers)
    for i, worker in enumerate(program.workers):
        for j in range(i):
            if program.workers[j].engine == worker.engine and overlaps(boxes[i], boxes[j]):
                raise OrderRefused(
                    f"{worker.name} and {program.workers[j].name} share an engine of a site", where=program.name
                )
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
    turn = walk.program.workers[worker].body[walk.at[worker]]
    name = turn.counter  # type: ignore[union-attr]
    nth, reach, rounds = walk.waits.get((worker, name), 0), walk.reaches[name], walk.rounds.get(name, [])
    if reach == OWN:
        return all(len(walk.handed.get((place, name), ())) > nth for place in walk.places[worker])
    return nth < len(rounds) and walk.begun[(reach, rounds[nth])] == len(walk.families[reach].posters)


def _hand(walk: Walk, number: int, turn: Post) -> None:
    """A post to a local counter: to the poster's own site, once, with room for it."""
    worker, counter = walk.program.workers[number], walk.counters[turn.counter]
    walk.at[number] += 1
    for place in walk.places[number]:
        clock = walk.clocks[(place, worker.engine)]
        before = walk.handed.setdefault((place, turn.counter), [])
        if before and walk.handing[(place, turn.counter)] != number:
            raise BalanceRefused(f"two workers of a site post to {turn.counter}", where=f"worker {worker.name}")
        walk.handing[(place, turn.counter)] = number
        before.append(clock)
        _fits(counter, len(before) - clock.waited.get(turn.counter, 0))


def _post_group(walk: Walk, number: int) -> None:
    worker = walk.program.workers[number]
    where = f"worker {worker.name}"
    reach = walk.reaches[worker.body[walk.at[number]].counter]  # type: ignore[union-attr]
    family = walk.families[reach]
    names = []
    while walk.at[number] < len(worker.body):
        turn = worker.body[walk.at[number]]
        if not isinstance(turn, Post) or walk.reaches[turn.counter] != reach or turn.counter in names:
            break
        names.append(turn.counter)
        walk.at[number] += 1
    names.sort()
    round_ = walk.groups[(number, reach)] = walk.groups.get((number, reach), 0) + 1
    if (reach, round_) not in walk.posts:
        for name in names:
            walk.rounds.setdefault(name, []).append(round_)
    wanted = walk.posts.setdefault((reach, round_), names)
    if names != wanted:
        raise BalanceRefused(
            f"round {round_} of a boundary does not post once to the same counters everywhere",
            where=where,
            needed=", ".join(wanted),
            available=", ".join(names),
        )
    for place in walk.places[number]:
        clock = walk.clocks[(place, worker.engine)]
        if family.posts > 1 and clock.rounds.get(reach, 0) < round_ - 1:
            walk.ahead.add(reach)
        walk.posted.setdefault((reach, round_), []).append((place, clock))
    walk.begun[(reach, round_)] = walk.begun.get((reach, round_), 0) + 1


def _wait(walk: Walk, number: int, turn: Wait, alike: dict[tuple, Clock]) -> None:
    """`alike`: the clocks after waits since the last section, so that sites which know the same share one."""
    worker, reach = walk.program.workers[number], walk.reaches[turn.counter]
    posts = 1 if reach == OWN else walk.families[reach].posts
    if turn.n != posts:
        raise BalanceRefused(
            "a wait does not take one whole round",
            where=f"worker {worker.name}",
            needed=f"{posts} posts of {turn.counter}",
            available=f"{turn.n}",
        )
    walk.at[number] += 1
    nth = walk.waits[(number, turn.counter)] = walk.waits.get((number, turn.counter), 0) + 1
    released = None if reach == OWN else _released_once(walk, reach, walk.rounds[turn.counter][nth - 1])
    for place in walk.places[number]:
        told = walk.handed[(place, turn.counter)][nth - 1] if released is None else released
        clock = walk.clocks[(place, worker.engine)].joined(told)
        own = clock.own
        for table in (clock.all, clock.row, clock.column):
            own = joined(own, {e: table[(place, e)] for e in walk.classes[place].workers if (place, e) in table})
        waited = {**clock.waited, turn.counter: nth}
        clock = replace(clock, own=own, waited=waited)
        walk.clocks[(place, worker.engine)] = alike.setdefault(clock.known(), clock)


def _released_once(walk: Walk, reach: str, round_: int) -> Clock:
    """A round that is complete stays as it is."""
    if (reach, round_) not in walk.released:
        walk.released[(reach, round_)] = _released(walk, reach, round_)
    return walk.released[(reach, round_)]


def _released(walk: Walk, reach: str, round_: int) -> Clock:
    """What happens before the completion of a round, by its reach."""
    if reach in walk.untold:
        return Clock()
    posted = walk.posted[(reach, round_)]
    reached: Mapping[tuple[int, str], int] = {}
    for place, known in posted:
        reached = joined(reached, {(place, engine): instance for engine, instance in known.own.items()})
        if reach == WHOLE:
            reached = joined(reached, known.all)
    clock = Clock(rounds={reach: round_})
    if reach == WHOLE:
        return replace(clock, all=reached)
    if reach == ROW:
        return replace(clock, row=reached)
    return replace(clock, column=reached, all=_known_to_all([known.row for _, known in posted]))


def _known_to_all(tables: list[Mapping[tuple[int, str], int]]) -> dict[tuple[int, str], int]:
    keys = sorted(set.intersection(*(set(table) for table in tables)))
    return {key: min(table[key] for table in tables) for key in keys}


# --- the end ----------------------------------------------------------------------------------------------------------


def ended(walk: Walk) -> None:
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
    _local_ended(walk)
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
            raise ReplayRefused(
                "an epoch does not take every post of its boundaries",
                where=f"counter {name}",
                needed=f"{rounds} waits on each site",
                available=f"{sorted(taken)}",
            )
        _bits(walk, reach, family.posts, name)


def _local_ended(walk: Walk) -> None:
    for (place, name), handed in walk.handed.items():
        waiter = walk.classes[place].workers.get(walk.counters[name].engine, -1)
        if walk.waits.get((waiter, name), 0) != len(handed):
            raise ReplayRefused(
                "an epoch does not take every post", where=f"counter {name}", needed=f"{len(handed)} waits on each site"
            )


def _bits(walk: Walk, reach: str, posts: int, name: str) -> None:
    rounds = walk.rounds.get(name, [])
    drained = reach not in walk.untold and all(_is_drained(walk, reach, name, nth) for nth in range(1, len(rounds)))
    remedy = "" if drained else "let every waiting process be followed by a poster of its site before the next boundary"
    _fits(walk.counters[name], posts * (min(len(rounds), 2) if drained else len(rounds)), remedy)


def _fits(counter: Counter, flying: int, remedy: str = "") -> None:
    if flying > 1 << (counter.bits - 1):
        raise CapacityRefused(
            "a boundary's counter has too few bits for the posts that may be in flight",
            where=f"counter {counter.name}",
            needed=f"{flying} posts",
            available=f"{1 << (counter.bits - 1)} ({counter.bits} bits, half of the range)",
            remedy=remedy,
        )


def _is_drained(walk: Walk, reach: str, name: str, nth: int) -> bool:
    """On each waiting site some poster has begun the next round of a counter after that site's nth wait for it."""
    next_round = walk.posted[(reach, walk.rounds[name][nth])]
    for place in walk.classes:
        known = [clock for number, clock in next_round if number == place.number]
        here = within(point(place.site), box(walk.counters[name].rect, name))
        if here and not any(clock.waited.get(name, 0) >= nth for clock in known):
            return False
    return True
