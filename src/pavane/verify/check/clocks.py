"""What happens before a point, by section: the clocks of the sites that have the same workers (a *class*).

For each engine of a class, at its current point: `own[e]` is the last section whose accesses by engine e on this very
site happen before; `all[(c, e)]` the same on every site of class c; `row[(c, e)]` and `column[(c, e)]` the same on
every site of class c in this site's row or column, if there is any; `rounds` by reach the last round known to be
complete in this site's group; `waited[k]` the last wait for counter k that this site has completed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import TypeVar

from pavane.ir.program import Program
from pavane.verify.check.boxes import Box, common_part

K = TypeVar("K")


@dataclass
class Clock:
    """What happens before a point of one engine of one class."""

    own: dict[str, int] = field(default_factory=dict)
    all: dict[tuple[int, str], int] = field(default_factory=dict)
    row: dict[tuple[int, str], int] = field(default_factory=dict)
    column: dict[tuple[int, str], int] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Clock:
        return Clock(*(dict(table) for table in vars(self).values()))

    def join(self, other: Clock) -> None:
        for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            join(mine, theirs)


def join(mine: dict[K, int], theirs: dict[K, int]) -> None:
    for key, value in theirs.items():
        if mine.get(key, -1) < value:
            mine[key] = value


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
