"""Rectangles with constant bounds, as sets of sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

import msgspec
from msgspec.structs import replace

from pavane.ir.program import Process, Rect, Shape
from pavane.ir.quasi import quasi

Site = tuple[int, int]
N = TypeVar("N")


def constant_rect(x0: int, x1: int, y0: int, y1: int) -> Rect:
    """Sites x0 <= x < x1, y0 <= y < y1."""
    return Rect(quasi(x0), quasi(x1), quasi(y0), quasi(y1))


def site_in(rect: Rect, site: Site) -> bool:
    """Is a site inside?"""
    return rect.x0.const <= site[0] < rect.x1.const and rect.y0.const <= site[1] < rect.y1.const


def stands_on(shape: Shape, process: Process, site: Site) -> bool:
    """Is a process on a site of the program's grid?"""
    if not shape.sites:
        return site_in(process.rect, site)
    return site in shape.sites and site_in(process.rect, (shape.sites.index(site), 0))


def covers(shape: Shape, process: Process, rect: Rect) -> bool:
    """Is a process on every site of a rectangle of the program's grid?"""
    if not shape.sites:
        return inside(rect, process.rect)
    columns, rows = range(rect.x0.const, rect.x1.const), range(rect.y0.const, rect.y1.const)
    return all(stands_on(shape, process, (x, y)) for x in columns for y in rows)


def area(rect: Rect) -> int:
    """How many sites."""
    return max(0, rect.x1.const - rect.x0.const) * max(0, rect.y1.const - rect.y0.const)


def inside(inner: Rect, outer: Rect) -> bool:
    """Does `outer` contain every site of `inner`?"""
    columns = outer.x0.const <= inner.x0.const and inner.x1.const <= outer.x1.const
    return columns and outer.y0.const <= inner.y0.const and inner.y1.const <= outer.y1.const


def shifted(part: N, x: int, y: int) -> N:
    """A part of the grammar with every rectangle moved by so many columns and rows."""
    return part if x == y == 0 else cast(N, _shifted(part, x, y))


def _shifted(part: object, x: int, y: int) -> object:
    if isinstance(part, Rect):
        return Rect(part.x0 + x, part.x1 + x, part.y0 + y, part.y1 + y)
    if isinstance(part, tuple):
        return tuple(_shifted(item, x, y) for item in part)
    if isinstance(part, msgspec.Struct):
        fields = ((name, getattr(part, name)) for name in part.__struct_fields__)
        return replace(part, **{n: _shifted(v, x, y) for n, v in fields if isinstance(v, tuple | msgspec.Struct)})
    return part


def rectangles(sites: Sequence[Site]) -> tuple[Rect, ...]:
    """A set of sites as disjoint rectangles: runs of a row, joined over equal neighbouring rows."""
    left = set(sites)
    found: list[Rect] = []
    for x, y in sorted(sites, key=lambda s: (s[1], s[0])):
        if (x, y) not in left:
            continue
        x1 = x
        while (x1, y) in left:
            x1 += 1
        y1 = y + 1
        while all((c, y1) in left for c in range(x, x1)) and (x - 1, y1) not in left and (x1, y1) not in left:
            y1 += 1
        left -= {(c, r) for c in range(x, x1) for r in range(y, y1)}
        found.append(constant_rect(x, x1, y, y1))
    return tuple(found)
