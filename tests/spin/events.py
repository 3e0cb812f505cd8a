"""A program's choreography as data: workers with their events, FIFOs and counters by site.

A FIFO is one of a site and a shape, a counter one of a site and the chip's id; both stay through sections and epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from pavane.ir.program import Counter, Fifo, Rect, Shape
from pavane.ir.walk import named
from tests.spin.accesses import Access, Misuse, Site, Values

MOST_EVENTS = 20_000


class TooLarge(Exception):
    """More events than a model of this kind is for."""


@dataclass(frozen=True)
class Event:
    """One atomic step of a model.

    `begins`: the accesses that begin; `ends`: those that end, as they began; `into`: (queue, number of the slot that is
    sent into).
    """

    op: str
    queue: int = -1
    number: int = -1
    signals: tuple[int, ...] = ()
    n: int = 0
    begins: tuple[Access, ...] = ()
    ends: tuple[tuple[Access, ...], ...] = ()
    into: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Task:
    """One worker on one site."""

    name: str
    site: Site
    engine: str
    epochs: list[list[Event]]


@dataclass
class Choreography:
    """All workers; FIFOs and counters by site, numbered; `alias_reads`: (queue, slot's number) -> what it reads."""

    tasks: list[Task] = field(default_factory=list)
    queues: dict[tuple[Site, str, str], int] = field(default_factory=dict)
    fifos: list[Fifo] = field(default_factory=list)
    signals: dict[tuple[Site, int | str], int] = field(default_factory=dict)
    counters: list[Counter] = field(default_factory=list)
    alias_reads: dict[tuple[int, int], tuple[Access, ...]] = field(default_factory=dict)
    grid: tuple[int, int] = (0, 0)
    bits: int = 0
    pushed: dict[int, int] = field(default_factory=dict)
    popped: dict[int, int] = field(default_factory=dict)
    events_left: int = MOST_EVENTS

    def sites_of(self, rect: Rect, env: Values) -> list[Site]:
        """The sites of a rectangle, row by row."""
        x0, x1, y0, y1 = (edge.evaluate(env) for edge in (rect.x0, rect.x1, rect.y0, rect.y1))
        if min(x0, y0) < 0 or x1 > self.grid[0] or y1 > self.grid[1]:
            raise Misuse(f"sites {x0}..{x1}, {y0}..{y1} are nowhere")
        return [(x, y) for y in range(y0, y1) for x in range(x0, x1)]

    def queue(self, site: Site, shape: Shape, name: str) -> int:
        key = (site, shape.name, name)
        if key not in self.queues:
            self.queues[key] = len(self.fifos)
            self.fifos.append(found(shape.fifos, name))
            self.pushed[self.queues[key]] = self.popped[self.queues[key]] = 0
        return self.queues[key]

    def signal(self, site: Site, counters: tuple[Counter, ...], name: str, shape: str) -> int:
        counter = found(counters, name)
        counter = replace(counter, bits=min(counter.bits, self.bits))
        if site not in self.sites_of(counter.rect, {}):
            raise Misuse(f"{name} is not on site {site}")
        key = (site, counter.id if counter.id >= 0 else f"{shape}.{name}")
        if key not in self.signals:
            self.signals[key] = len(self.counters)
            self.counters.append(counter)
        first = self.counters[self.signals[key]]
        if (first.bits, first.ahead) != (counter.bits, counter.ahead):
            raise Misuse(f"{name} and {first.name} share an id and differ")
        return self.signals[key]


def found(items: tuple, name: str) -> Any:
    try:
        return named(items, name)
    except KeyError:
        raise Misuse(f"there is no {name}") from None
