"""The largest rectangle of sites without a hole: what a chip with harvested or broken sites is described as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

Sites = tuple[range, range]  # columns, rows


def largest_rectangle(width: int, height: int, holes: Set[tuple[int, int]]) -> Sites:
    """Of the largest ones the one that ends first, row by row; empty ranges where every site is a hole."""
    best: Sites = (range(0), range(0))
    free = [0] * width  # whole sites from the present row upwards
    for y in range(height):
        free = [0 if (x, y) in holes else above + 1 for x, above in enumerate(free)]
        for columns, rows in _under(free):
            if len(columns) * rows > len(best[0]) * len(best[1]):
                best = columns, range(y + 1 - rows, y + 1)
    return best


def _under(heights: Sequence[int]) -> Iterator[tuple[range, int]]:
    """The columns and height of every widest rectangle under a histogram."""
    rising: list[tuple[int, int]] = []  # first column and height of the rectangles that may still grow
    for x, height in enumerate((*heights, 0)):
        first = x
        while rising and rising[-1][1] > height:
            first, high = rising.pop()
            yield range(first, x), high
        if height and (not rising or rising[-1][1] < height):
            rising.append((first, height))
