"""Which site touches which elements: steps of different sections that meet in one row, one column or one site only.

*Idle sites.* Where every window of a process on a formal is empty for one value of a coordinate, its sites of that
value touch nothing. What is left is a range of values for each coordinate.

*Digits.* A window's start in one dimension is a number: `offset + high + stride * SITE + low`, where `high` is a sum of
multiples of `stride * sites` over loops and the other coordinate, and `low`, with the element inside the window, stays
below `stride`. Then the index i belongs to site `floor((i - offset) / stride) mod sites`, in every turn (a *digit* of
SITE). Where two processes on the same rectangle have a digit in common, every element that both touch they touch on
sites of the same coordinate. Formals with equal extents after the first number their elements alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pavane.ir.program import SITE_X, SITE_Y, Load, Store
from pavane.ir.quasi import Domain, Quasi, quasi, upper
from pavane.verify.check.boxes import Box
from pavane.verify.check.facts import touching
from pavane.verify.check.inequalities import never_negative
from pavane.verify.check.section import Actor, Leaf, Section

Digit = tuple[str, int, Quasi, int]


@dataclass(frozen=True)
class Footprint:
    """The rectangle of a process (of the line of `sites`, where its section has such a list), the ranges (first, end)
    of SITE_X and SITE_Y outside which it touches nothing of a formal, the extents by which the formal's elements are
    numbered, and the digits that all its steps have.
    """

    sites: tuple[tuple[int, int], ...]
    box: Box
    busy: tuple[tuple[int, int], tuple[int, int]]
    inner: tuple[Quasi, ...]
    digits: frozenset[Digit]

    def agree(self, other: Footprint, alike: bool) -> tuple[str, ...]:
        """The coordinates that are the same wherever both touch one element; `alike`: equal elements stand at equal
        bytes. Along one list of sites both are or neither: a place of the line says nothing of rows and columns.
        """
        if self.sites != other.sites:
            return ()
        alike = alike and (self.box, self.inner) == (other.box, other.inner)
        common = {axis for axis, *_ in self.digits & other.digits if alike}
        ranges = zip((SITE_X, SITE_Y), self.busy, other.busy, strict=True)
        same = tuple(a for a, mine, theirs in ranges if a in common or (mine == theirs and mine[1] - mine[0] == 1))
        return same if not self.sites or len(same) == len((SITE_X, SITE_Y)) else ()


def footprint_of(section: Section, actor: Actor, formal: str) -> Footprint:
    """The footprint of a process on a formal."""
    steps = [(user, leaf) for user, leaf in touching(section, actor) if leaf.step.tensor == formal]  # type: ignore[union-attr]
    digits = [frozenset(_digits(section, user, leaf)) if user.box == actor.box else frozenset() for user, leaf in steps]
    x0, x1, y0, y1 = actor.box
    busy = _busy(section, steps, SITE_X, x0, x1), _busy(section, steps, SITE_Y, y0, y1)
    inner = section.formals[formal].shape[1:]
    return Footprint(section.shape.sites, actor.box, busy, inner, frozenset.intersection(*digits))


def _busy(section: Section, steps: list[tuple[Actor, Leaf]], axis: str, first: int, end: int) -> tuple[int, int]:
    """The range without the last values at which all windows are empty, by halving."""
    low, high = first + 1, end
    while low < high:
        middle = (low + high) // 2
        idle = all(_is_idle(section, user, leaf, (axis, middle, end - 1)) for user, leaf in steps)
        low, high = (low, middle) if idle else (middle + 1, high)
    return first, low


def _is_idle(section: Section, user: Actor, leaf: Leaf, values: tuple[str, int, int]) -> bool:
    """Is a window empty on all sites that have some values of a coordinate?"""
    step: Load | Store = leaf.placed  # type: ignore[assignment]
    ranges = section.domain(user, leaf.nest).ranges
    domain = Domain(values if bound[0] == values[0] else bound for bound in ranges)
    starts = zip(step.window.start, section.formals[step.tensor].shape, strict=True)
    return any(isinstance(start, Quasi) and never_negative(start - extent, domain) for start, extent in starts)


def _digits(section: Section, actor: Actor, leaf: Leaf) -> Iterator[Digit]:
    """The digits of the site's coordinates in one window."""
    x0, x1, y0, y1 = actor.box
    step: Load | Store = leaf.step  # type: ignore[assignment]
    extents = {SITE_X: quasi(x1 - x0), SITE_Y: quasi(y1 - y0), **dict(leaf.nest)}
    most = {name: upper(extent, section.symbols) for name, extent in extents.items()}
    for dimension, start in enumerate(step.window.start):
        if not isinstance(start, Quasi):
            continue
        moving = {atom: c for c, atom in start.terms if isinstance(atom, str) and atom in most}
        offset = start.substitute(dict.fromkeys(moving, 0))
        if set(offset.variables()) & set(most):
            continue
        for axis in (SITE_X, SITE_Y):
            if axis in moving and _is_digit(axis, moving, most, step.window.size[dimension]):
                yield axis, dimension, offset % (moving[axis] * most[axis]), moving[axis]


def _is_digit(axis: str, moving: dict[str, int], most: dict[str, int], size: int) -> bool:
    """Every other variable moves by whole periods of the axis, or stays below its stride."""
    stride = moving[axis]
    low = [name for name, c in moving.items() if name != axis and c % (stride * most[axis])]
    span = size + sum(moving[name] * (most[name] - 1) for name in low)
    return stride > 0 and all(moving[name] > 0 for name in low) and span <= stride
