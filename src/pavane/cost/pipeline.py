"""The engines of one worker, step by step: when the last of them is done.

An engine does the steps of its stages in their written order; stages that share one share its loops over items. Each
step waits for what it needs:

    load, store   the engine is busy with the requests; the bytes pass the site's link in `own_cycles`, beside the last
                  `meanwhile_cycles` of the requests, and no sooner than the channels (of a copy on every site: the
                  network) have moved this turn's of all workers, `shared_cycles`, after what they moved before;
                  `latency_cycles` after all that they are there
    fence         until all that the engine has asked for are
    reserve       until one of the FIFO's slots has been popped
    front         until a slot has been pushed, and `handover_cycles` more
    compute       the engine is busy

All workers take their turns alike, and this one is served last. Of engines that could go on at the same time the one
that writes is last: at the boundary before the section it lets the others go. Loops of many turns are walked for a few:
a worker whose FIFOs are full, or empty, repeats itself, so the rest goes on at the pace of the last turn walked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from pavane.cost.spread import Run
from pavane.cost.traffic import Event, Lengths, Turns, lengths_of
from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y

_WALKED = 40  # turns in all, up to which every one is walked; above, so many of a loop:
_TURNS, _ITEMS = 8, 4  # fill the slots, empty them, and one more to see the pace; an item has turns of its own
SLOTS, MOST_SLOTS = 2, 4


@dataclass(frozen=True)
class Timed:
    """What one turn of an event takes. `apart_cycles`: how far it lets workers go apart, one request of each."""

    busy_cycles: int
    own_cycles: int = 0
    shared_cycles: int = 0
    latency_cycles: int = 0
    network: bool = False
    meanwhile_cycles: int = 0
    apart_cycles: int = 0


Cost = Callable[[Event, Lengths], Timed]


def pipeline_cycles(
    events: Sequence[Event], turns: Turns, slots: Mapping[str, int], handover_cycles: int, cost: Cost
) -> int | None:
    """Cycles from the first step to the last one's end. None where stages that share an engine would have to share more
    than their loops over items: their written order is not known yet, and in this one engines wait for each other.

    `turns`: the worker's along each variable that is blocked. `slots`: of each FIFO; where nothing is said, those with
    which two engines overlap.
    """
    engines: dict[str, list[Event]] = {}
    for event in events:
        engines.setdefault(event.engine, []).append(event)
    in_order = sorted(engines.values(), key=lambda own: any(event.kind == "store" for event in own))
    bodies = [_with_shared_loops(_nodes(own, 0)) for own in in_order]
    looped: dict[str, tuple[Run, ...]] = {}
    for event in events:
        looped.update((var, turns.get(var) or ((None, trips),)) for var, trips in event.nest)
    few = _few(looped)
    timing = _Timing({**least_slots(events), **slots}, handover_cycles, cost)
    total = 0
    for weight, cut in _corners(looped, few):
        end = timing.walk(bodies, cut)
        if end is None:
            return None
        total += weight * end
    return total


def least_slots(events: Sequence[Event]) -> dict[str, int]:
    """Two of each FIFO, one where one engine fills and drains it."""
    drainers = {event.fifo: event.engine for event in events if event.kind == "front"}
    return {e.fifo: SLOTS if drainers.get(e.fifo) != e.engine else 1 for e in events if e.kind == "push"}


def useful_slots(events: Sequence[Event]) -> dict[str, int]:
    """How many slots at most a FIFO gains from.

    While its consumer does something else than turns of the loop that drains it, a reader goes on: a few turns' worth
    in a loop of its own, all of them where the consumer goes through another loop before, for which others read.
    """
    fillers = {event.fifo: event.engine for event in events if event.kind == "push"}
    loops: dict[str, dict[tuple[int, ...], list[Event]]] = {}
    for event in events:
        if event.kind == "front" and event.nest and event.nest[-1][0] not in (LV_ITEM_X, LV_ITEM_Y):
            loops.setdefault(event.engine, {}).setdefault(event.loops, []).append(event)
    useful = {}
    for of_engine in loops.values():
        for loop, fronts in of_engine.items():
            before = [e for other, found in of_engine.items() for e in found if _is_before(other, loop)]
            for front in fronts:
                others = all(fillers.get(e.fifo) != fillers.get(front.fifo) for e in before)
                useful[front.fifo] = front.nest[-1][1] if before and others else MOST_SLOTS
    return useful


def _is_before(loop: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Does a loop stand before another one, in one turn of what is around both?"""
    return loop[:-1] == other[:-1] and loop < other


# --- what an engine does ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Loop:
    var: str
    body: tuple[_Loop | Event, ...]


_Body = tuple[_Loop | Event, ...]


def _nodes(events: Sequence[Event], depth: int) -> _Body:
    """Events in their loops, `depth` of which are around all of them."""
    found: list[_Loop | Event] = []
    start = 0
    while start < len(events):
        first = events[start]
        if len(first.nest) == depth:
            found.append(first)
            start += 1
            continue
        end = start
        while end < len(events) and _loop_at(events[end], depth) == _loop_at(first, depth):
            end += 1
        found.append(_Loop(first.nest[depth][0], _nodes(events[start:end], depth + 1)))
        start = end
    return tuple(found)


def _loop_at(event: Event, depth: int) -> tuple[str, int] | None:
    if len(event.nest) <= depth:
        return None
    return event.nest[depth][0], event.loops[depth] if event.loops else 0


def _with_shared_loops(body: _Body) -> _Body:
    """Stages of one engine go through the items together."""
    found: list[_Loop | Event] = []
    places: dict[str, int] = {}
    for node in body:
        if isinstance(node, _Loop) and node.var in (LV_ITEM_X, LV_ITEM_Y):
            place = places.setdefault(node.var, len(found))
            if place < len(found):
                found[place] = _Loop(node.var, (*found[place].body, *node.body))  # type: ignore[union-attr]
                continue
        found.append(node)
    return tuple(_Loop(n.var, _with_shared_loops(n.body)) if isinstance(n, _Loop) else n for n in found)


# --- loops of many turns ----------------------------------------------------------------------------------------------


def _few(looped: Turns) -> dict[str, int]:
    """The loops of which not all turns are walked, and of how many: the longest ones first."""
    left = {var: sum(count for _, count in runs) for var, runs in looped.items()}
    few: dict[str, int] = {}
    for var in sorted(left, key=lambda v: (-left[v], v)):
        enough = _ITEMS if var in (LV_ITEM_X, LV_ITEM_Y) else _TURNS
        if prod(left.values()) > _WALKED and left[var] > enough:
            few[var] = left[var] = enough
    return few


def _corners(looped: Turns, few: Mapping[str, int]) -> Iterator[tuple[int, Turns]]:
    """Fewer turns, and with what weight each such walk counts: on a straight line through the last two of each loop."""
    for back in product((0, 1), repeat=len(few)):
        weight, cut = 1, dict(looped)
        for (var, most), less in zip(few.items(), back, strict=True):
            beyond = sum(count for _, count in looped[var]) - most
            weight *= -beyond if less else 1 + beyond
            cut[var] = _first_turns(looped[var], most - less)
        yield weight, cut


def _first_turns(runs: Sequence[Run], turns: int) -> tuple[Run, ...]:
    """So many turns, the last ones as they are."""
    (length, _), *rest = runs
    return ((length, turns - sum(n for _, n in rest)), *rest)


# --- the walk ---------------------------------------------------------------------------------------------------------

_Step = tuple[str, str, Timed]
_NOTHING = Timed(0)


class _Timing:
    """The steps of events with their times, which do not change from walk to walk."""

    def __init__(self, slots: Mapping[str, int], handover_cycles: int, cost: Cost) -> None:
        self._slots, self._handover_cycles, self._cost = slots, handover_cycles, cost
        self._known: dict[tuple[int, Lengths], _Step] = {}

    def walk(self, bodies: Sequence[_Body], turns: Turns) -> int | None:
        """The last engine's end; None where there is none."""
        steps = [self._steps(body, turns, {}) for body in bodies]
        return _ended(steps, self._slots, self._handover_cycles)

    def _steps(self, body: _Body, turns: Turns, lengths: dict[str, int | None]) -> list[_Step]:
        found: list[_Step] = []
        for node in body:
            if isinstance(node, _Loop):
                for length, count in turns[node.var]:
                    found += self._steps(node.body, turns, {**lengths, node.var: length}) * count
            else:
                found.append(self._step(node, lengths))
        return found

    def _step(self, event: Event, lengths: Mapping[str, int | None]) -> _Step:
        sizes = lengths_of(event, lengths)
        key = id(event), sizes
        if key not in self._known:
            waits = event.kind in ("reserve", "push", "front", "pop", "fence")
            self._known[key] = event.kind, event.fifo, _NOTHING if waits else self._cost(event, sizes)
        return self._known[key]


_Want = tuple[int, Sequence[int], int]  # goes on at this time, once the sequence has more than so many entries
_READY = (0,), 0


def _ended(processes: Sequence[list[_Step]], slots: Mapping[str, int], handover_cycles: int) -> int | None:
    """When the last engine has done its steps; of those that can go on the one that is behind does."""
    fifos = {fifo: _Fifo(depth) for fifo, depth in slots.items()}
    taken = _Taken()
    engines = [_engine(steps, fifos, taken, handover_cycles) for steps in processes]
    wants: dict[int, _Want] = dict.fromkeys(range(len(engines)), (0, *_READY))
    last = 0
    while wants:
        able = [(time, number) for number, (time, queue, count) in wants.items() if len(queue) > count]
        if not able:
            return None
        last, number = max(last, min(able)[0]), min(able)[1]
        want = next(engines[number], None)
        if want is None:
            del wants[number]
        else:
            wants[number] = want
    return last


class _Fifo:
    """When each slot was pushed (and may be seen) and popped; how many were reserved and fronted."""

    __slots__ = ("depth", "fronted", "popped", "pushed", "reserved")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.pushed: list[int] = []
        self.popped: list[int] = []
        self.fronted = self.reserved = 0


class _Taken:
    """Until when channels and network have bytes of all workers to move.

    At first all workers ask at once. Their requests are served in turn, so the last ones of all end one after the
    other: so far apart the workers come to what follows, this one last.
    """

    def __init__(self) -> None:
        self._until = {False: 0, True: 0}
        self._apart = 0

    def until(self, timed: Timed, now: int) -> int:
        """When this worker's bytes of a transfer asked for now have passed, after all others'."""
        begins = max(self._until[timed.network], now - self._apart)
        self._apart = max(self._apart, timed.apart_cycles)
        self._until[timed.network] = max(now, begins + timed.shared_cycles)
        return max(now + timed.own_cycles, self._until[timed.network])


def _engine(steps: Sequence[_Step], fifos: Mapping[str, _Fifo], taken: _Taken, handover_cycles: int) -> Iterator[_Want]:
    """One engine's steps; what it wants whenever others may have to go first, and its end."""
    now = done = 0
    for kind, name, timed in steps:
        if kind == "reserve":
            fifo = fifos[name]
            slot, fifo.reserved = fifo.reserved - fifo.depth, fifo.reserved + 1
            if slot >= 0:
                if len(fifo.popped) <= slot:
                    yield now, fifo.popped, slot
                now = max(now, fifo.popped[slot])
        elif kind == "front":
            fifo = fifos[name]
            slot, fifo.fronted = fifo.fronted, fifo.fronted + 1
            if len(fifo.pushed) <= slot:
                yield now, fifo.pushed, slot
            now = max(now, fifo.pushed[slot])
        elif kind == "push":
            fifos[name].pushed.append(now + handover_cycles)
        elif kind == "pop":
            fifos[name].popped.append(now)
        elif kind == "fence":
            now = max(now, done)
        else:
            if timed.own_cycles:
                yield now, *_READY
            now += timed.busy_cycles
            begun = now - timed.meanwhile_cycles
            if timed.own_cycles:
                there = taken.until(timed, begun) if timed.shared_cycles else begun + timed.own_cycles
                done = max(done, max(now, there) + timed.latency_cycles)
    yield max(now, done), *_READY
