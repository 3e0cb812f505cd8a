"""What can go wrong between workers, as a numbered list of things to watch.

    bytes          a set of bytes that two accesses of different workers, or an access and a transfer of one worker's,
                   share while one of them writes
    reservations   a slot that another site sends into
    counters       one that can have more posts in flight than half of its range

Bytes that the same accesses touch are one watch; a watch whose accesses are all in another's is dropped, since
whatever meets in it meets in the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.spin.accesses import Access
from tests.spin.events import Choreography, Event, TooLarge

COUNTED_BITS = 16


@dataclass(frozen=True)
class Use:
    """An access, whose it is, and whether it lasts beyond its step."""

    task: int
    access: Access
    lasting: bool


@dataclass(frozen=True)
class Watches:
    """`bytes_`: (space, mask, name). Numbers: bytes first, then reservations (queues), then counters (signals)."""

    bytes_: tuple[tuple[str, int, str], ...]
    reservations: tuple[int, ...]
    counters: tuple[int, ...]

    def of_accesses(self, accesses: tuple[Access, ...]) -> dict[int, bool]:
        """Watch -> does one of the accesses write there?"""
        found: dict[int, bool] = {}
        for number, (space, mask, _) in enumerate(self.bytes_):
            meeting = [access for access in accesses if access.space == space and access.mask & mask]
            if meeting:
                found[number] = any(access.write for access in meeting)
        return found

    def of_reservation(self, queue: int) -> tuple[int, ...]:
        return tuple(len(self.bytes_) + i for i, q in enumerate(self.reservations) if q == queue)

    def of_counter(self, signal: int) -> tuple[int, ...]:
        before = len(self.bytes_) + len(self.reservations)
        return tuple(before + i for i, s in enumerate(self.counters) if s == signal)

    def names(self) -> tuple[str, ...]:
        queues = tuple(f"the slot of FIFO {queue} that is sent into" for queue in self.reservations)
        return (*(name for _, _, name in self.bytes_), *queues, *(f"counter {signal}" for signal in self.counters))


def watches_of(made: Choreography) -> Watches:
    uses = [use for task in range(len(made.tasks)) for use in _uses(made, task)]
    spaces = sorted({use.access.space for use in uses})
    found = [(space, *part) for space in spaces for part in _parts([u for u in uses if u.access.space == space])]
    sent = sorted({queue for event in _events(made) if event.op == "send" for queue, _ in event.into})
    return Watches(tuple(found), tuple(sent), _crowded(made))


def _events(made: Choreography) -> list[Event]:
    return [event for task in made.tasks for epoch in task.epochs for event in epoch]


def _uses(made: Choreography, task: int) -> list[Use]:
    found = {
        (access.space, access.mask, access.write, event.op): Use(task, access, event.op != "begin")
        for epoch in made.tasks[task].epochs
        for event in epoch
        for access in event.begins
        if access.mask
    }
    return list(found.values())


def _parts(uses: list[Use]) -> list[tuple[int, str]]:
    """(mask, name) of every part in which uses can be in conflict, the dominated ones left out."""
    parts: list[int] = []
    for mask in dict.fromkeys(use.access.mask for use in uses):
        split = [half for part in parts for half in (part & mask, part & ~mask) if half]
        covered = sum(parts)
        parts = [*split, *([mask & ~covered] if mask & ~covered else [])]
    users = {part: frozenset(i for i, use in enumerate(uses) if use.access.mask & part) for part in parts}
    risky = [part for part in parts if _conflict([uses[i] for i in sorted(users[part])])]
    kept = [part for part in risky if not any(users[part] < users[other] for other in risky)]
    return [(part, _name(uses, users[part])) for part in kept]


def _conflict(uses: list[Use]) -> bool:
    writers = [use for use in uses if use.access.write]
    return any(a.task != b.task or a.lasting or b.lasting for a in writers for b in uses)


def _name(uses: list[Use], users: frozenset[int]) -> str:
    first = uses[min(users)].access
    return f"{first.what} in {first.space}"


def _crowded(made: Choreography) -> tuple[int, ...]:
    """Counters whose posts of two epochs, all together, are more than half of their range."""
    posts = [counter.ahead for counter in made.counters]
    for event in _events(made):
        if event.op == "post":
            for signal in event.signals:
                posts[signal] += event.n
    crowded = tuple(i for i, total in enumerate(posts) if total > half_range(made.counters[i].bits))
    if any(made.counters[i].bits > COUNTED_BITS for i in crowded):
        raise TooLarge(f"more posts than {COUNTED_BITS} bits count")
    return crowded


def half_range(bits: int) -> int:
    """Half of what a counter counts to. Those of more bits are modelled with COUNTED_BITS: posts of two epochs fit."""
    return 1 << (max(1, min(bits, COUNTED_BITS)) - 1)
