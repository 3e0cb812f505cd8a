"""Rectangles of sites as (x0, x1, y0, y1), the ends outside."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from pavane.ir.program import Rect
from pavane.reject import OutsideFragment

Box = tuple[int, int, int, int]
MAX_SITES = 1 << 14


def box(rect: Rect, where: str) -> Box:
    """(x0, x1, y0, y1) of a rectangle of constants, not empty and not left of or above the origin."""
    edges = (rect.x0, rect.x1, rect.y0, rect.y1)
    if not all(edge.is_const for edge in edges):
        raise OutsideFragment("a rectangle of sites is not constant", where=where)
    x0, x1, y0, y1 = (edge.const for edge in edges)
    if not (0 <= x0 < x1 and 0 <= y0 < y1):
        raise OutsideFragment(f"[{x0}, {x1}) x [{y0}, {y1}) is not a rectangle of sites", where=where)
    return x0, x1, y0, y1


def extent_of(boxes: Iterable[Box]) -> tuple[int, int]:
    """Width and height of the grid that rectangles stand in; refuses more sites than arrays are made of."""
    edges = tuple(boxes)
    width, height = max((b[1] for b in edges), default=1), max((b[3] for b in edges), default=1)
    if width * height > MAX_SITES:
        raise OutsideFragment("a section covers too many sites", needed=f"{width} x {height}", available=f"{MAX_SITES}")
    return width, height


def overlaps(a: Box, b: Box) -> bool:
    """Do two rectangles share a site?"""
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def clashing(placed: Iterable[tuple[str, Box]]) -> tuple[str, str] | None:
    """The first two of some named rectangles that share a site."""
    pairs = combinations(placed, 2)
    return next(((name, other) for (name, edges), (other, beside) in pairs if overlaps(edges, beside)), None)


def within(inner: Box, outer: Box) -> bool:
    """Does `outer` contain every site of `inner`?"""
    return outer[0] <= inner[0] and inner[1] <= outer[1] and outer[2] <= inner[2] and inner[3] <= outer[3]


def common_part(a: Box, b: Box) -> Box:
    """The sites that are in both; without a site where they share none."""
    x0, y0 = max(a[0], b[0]), max(a[2], b[2])
    return x0, max(x0, min(a[1], b[1])), y0, max(y0, min(a[3], b[3]))


def area(edges: Box) -> int:
    """How many sites."""
    return (edges[1] - edges[0]) * (edges[3] - edges[2])


def point(site: tuple[int, int]) -> Box:
    """One site."""
    return site[0], site[0] + 1, site[1], site[1] + 1
