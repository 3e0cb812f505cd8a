"""Intervals of addresses [start, end): which of them share a byte, in time that grows with how many do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
Interval = tuple[int, int, T]


def sharing(intervals: Iterable[Interval[T]]) -> Iterator[tuple[T, T]]:
    """Every two that share a byte, once."""
    reaching: list[Interval[T]] = []
    for interval in _sorted(intervals):
        reaching = [other for other in reaching if other[1] > interval[0]]
        for other in reaching:
            yield other[2], interval[2]
        reaching.append(interval)


class Taken(Generic[T]):
    """Intervals that may overlap."""

    def __init__(self, intervals: Iterable[Interval[T]]) -> None:
        self.starts: list[int] = []
        self.furthest: list[Interval[T]] = []  # of those up to each start, the one that ends last
        for interval in _sorted(intervals):
            self.starts.append(interval[0])
            last = self.furthest[-1] if self.furthest else interval
            self.furthest.append(interval if interval[1] > last[1] else last)

    def meets(self, start: int, end: int) -> Interval[T] | None:
        """One that shares a byte with [start, end): of those that begin before its end, the one that ends last."""
        before = bisect_left(self.starts, end)
        return self.furthest[before - 1] if before and self.furthest[before - 1][1] > start else None


def _sorted(intervals: Iterable[Interval[T]]) -> list[Interval[T]]:
    return sorted(intervals, key=lambda interval: interval[:2])
