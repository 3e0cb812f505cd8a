"""What happens before a point, by section: the clocks of the sites that have the same workers (a *class*).

For each engine of a class, at its current point: `own[e]` is the last section whose accesses by engine e on this very
site happen before; `all[(c, e)]` the same on every site of class c; `row[(c, e)]` and `column[(c, e)]` the same on
every site of class c in this site's row or column, if there is any; `rounds` by reach the last round known to be
complete in this site's group; `waited[k]` the last wait for counter k that this site has completed.

Clocks and their tables do not change: most sites know the same, and share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise, repeat
from operator import ge
from typing import TypeVar

from pavane.ir.program import Program
from pavane.verify.check.boxes import Box, common_part

K = TypeVar("K")


@dataclass(frozen=True, eq=False)
class Clock:
    """What happens before a point of one engine of one class. Two are equal only where they are one."""

    own: Mapping[str, int] = field(default_factory=dict)
    all: Mapping[tuple[int, str], int] = field(default_factory=dict)
    row: Mapping[tuple[int, str], int] = field(default_factory=dict)
    column: Mapping[tuple[int, str], int] = field(default_factory=dict)
    rounds: Mapping[str, int] = field(default_factory=dict)
    waited: Mapping[str, int] = field(default_factory=dict)

    def joined(self, other: Clock) -> Clock:
        """What happens before one point or the other."""
        if other is self:
            return self
        tables = zip(vars(self).values(), vars(other).values(), strict=True)
        return Clock(*(joined(mine, theirs) for mine, theirs in tables))

    def known(self) -> tuple:
        """Equal for two clocks that say the same and share the large tables; while one of them is kept."""
        small = (frozenset(table.items()) for table in (self.own, self.rounds, self.waited))
        return *small, id(self.all), id(self.row), id(self.column)


def joined(mine: Mapping[K, int], theirs: Mapping[K, int]) -> Mapping[K, int]:
    """The later of two numbers for each key; one of the two tables where it says as much."""
    if not theirs or mine is theirs or _covers(mine, theirs):
        return mine
    if _covers(theirs, mine):
        return theirs
    return {**theirs, **{key: max(number, theirs.get(key, -1)) for key, number in mine.items()}}


def _covers(one: Mapping[K, int], other: Mapping[K, int]) -> bool:
    return len(one) >= len(other) and all(map(ge, map(one.get, other, repeat(-1)), other.values()))


@dataclass(frozen=True)
class Class:
    """Sites with the same workers: one of them, how many they are, a rectangle that they are all in, and the worker of
    each engine there.
    """

    number: int
    site: tuple[int, int]
    area: int
    within: Box
    workers: dict[str, int]


def over_everywhere(clock: Clock, here: Class, other: int, engine: str) -> int:
    """The last section that an engine is done with on every site of a class, before a point of a site of `here`."""
    known = clock.all.get((other, engine), -1)
    alone = other == here.number and here.area == 1
    return max(known, clock.own.get(engine, -1)) if alone else known


def classes_of(program: Program, boxes: tuple[Box, ...]) -> tuple[Class, ...]:
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
        common = reduce(common_part, (boxes[i] for i in here))
        found.append(Class(number, site, area, common, {program.workers[i].engine: i for i in here}))
    return tuple(found)
