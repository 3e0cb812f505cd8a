"""Which site touches which elements: steps of different sections that meet in no element, or in one row, one column or
one site only.

*Idle sites.* Where every window of a process on a formal is empty for the first or the last values of a coordinate, its
sites of those values touch nothing. What is left is a range of values for each coordinate: of the chip's, where a
section stands along a list of sites, around those that are left of the list.

*Elements.* A formal is the first elements of its tensor, so element i of one is element i of any other that begins at
the same byte with the same type. A section that reads it touches elements below the product of its extents, one that
writes it those of its spec's box: from the number of the first, `sum of origin * stride`, to that of the last. Where
one ends before the other begins, for all values of the symbols, they have no element in common.

*Digits.* A window's start in one dimension is a number: `offset + high + stride * SITE + low`, where `offset` depends
on symbols only, `high` is a sum of multiples of `stride * sites` over loops and the other coordinate, and `low`, with
the element inside the window, stays below `stride`. Then the index i belongs to site `floor((i - offset) / stride) mod
sites`, in every turn (a *digit* of SITE). Where two processes on the same rectangle have a digit in common, every
element that both touch they touch on sites of the same coordinate. Formals with equal extents after the first number
their elements alike.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pavane.ir.program import SITE_X, SITE_Y, Load, Store
from pavane.ir.quasi import ZERO, Domain, Quasi, quasi, upper
from pavane.verify.check.boxes import Box
from pavane.verify.check.facts import touching
from pavane.verify.check.inequalities import never_negative
from pavane.verify.check.section import Actor, Leaf, Section

Digit = tuple[str, int, Quasi, int]
Range = tuple[int, int]  # first, end


@dataclass(frozen=True)
class Footprint:
    """The rectangle of a process (of the line of `sites`, where its section has such a list), the ranges of the chip's
    coordinates outside which it touches nothing of a formal, the extents by which the formal's elements are numbered,
    the digits that all its steps have, and the range of elements that its section touches, where they can be counted.
    """

    sites: tuple[tuple[int, int], ...]
    box: Box
    busy: tuple[Range, Range]
    inner: tuple[Quasi, ...]
    digits: frozenset[Digit]
    elements: tuple[Quasi, Quasi] | None

    def apart(self, other: Footprint, alike: bool, symbols: Domain) -> bool:
        """Have they no element in common? `alike`: equal elements stand at equal bytes."""
        if any(first == end for first, end in (*self.busy, *other.busy)):
            return True
        if not alike or self.elements is None or other.elements is None:
            return False
        (first, end), (low, high) = self.elements, other.elements
        return never_negative(low - end, symbols) or never_negative(first - high, symbols)

    def agree(self, other: Footprint, alike: bool) -> tuple[str, ...]:
        """The coordinates that are the same wherever both touch one element. One place of a list is one site, of which
        both are the same.
        """
        alike = alike and (self.sites, self.box, self.inner) == (other.sites, other.box, other.inner)
        common = {axis for axis, *_ in self.digits & other.digits if alike}
        if self.sites and SITE_X in common:
            return SITE_X, SITE_Y
        ranges = zip((SITE_X, SITE_Y), self.busy, other.busy, strict=True)
        by_digits = () if self.sites else common
        return tuple(a for a, mine, theirs in ranges if a in by_digits or (mine == theirs and mine[1] - mine[0] == 1))


def footprint_of(section: Section, actor: Actor, formal: str) -> Footprint:
    """The footprint of a process on a formal."""
    steps = [(user, leaf) for user, leaf in touching(section, actor) if leaf.step.tensor == formal]  # type: ignore[union-attr]
    digits = [frozenset(_digits(section, user, leaf)) if user.box == actor.box else frozenset() for user, leaf in steps]
    x0, x1, y0, y1 = actor.box
    in_use = _busy(section, steps, SITE_X, x0, x1), _busy(section, steps, SITE_Y, y0, y1)
    if section.shape.sites:
        in_use = _around(section.shape.sites[slice(*in_use[0])])
    inner, common = section.formals[formal].shape[1:], frozenset.intersection(*digits)
    return Footprint(section.shape.sites, actor.box, in_use, inner, common, _elements(section, formal))


def _around(sites: Sequence[tuple[int, int]]) -> tuple[Range, Range]:
    """The ranges of x and y in which these sites of the chip stand."""
    if not sites:
        return (0, 0), (0, 0)
    xs, ys = zip(*sites, strict=True)
    return (min(xs), max(xs) + 1), (min(ys), max(ys) + 1)


def _elements(section: Section, formal: str) -> tuple[Quasi, Quasi] | None:
    """From the first element that the section touches to the one after the last, row-major."""
    shape = section.formals[formal].shape
    if not all(extent.is_const for extent in shape[1:]):
        return None
    strides = [math.prod(extent.const for extent in shape[d + 1 :]) for d in range(len(shape))]
    spec = section.specs.get(formal)
    origin, extents = (spec.origin, spec.extents) if spec else ((ZERO,) * len(shape), shape)
    first = sum((o * stride for o, stride in zip(origin, strides, strict=True)), ZERO)
    last = sum(((e - 1) * stride for e, stride in zip(extents, strides, strict=True)), first)
    return first, last + 1


def _busy(section: Section, steps: list[tuple[Actor, Leaf]], axis: str, first: int, end: int) -> Range:
    """The range without the first and last values at which all windows are empty, by halving."""

    def idle(low: int, high: int) -> bool:
        return all(_is_idle(section, user, leaf, (axis, low, high)) for user, leaf in steps)

    end = first + bisect_left(range(first, end), True, key=lambda value: idle(value, end - 1))
    return first + bisect_left(range(first, end), True, key=lambda value: not idle(first, value)), end


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
        offset = Quasi(start.const, tuple(term for term in start.terms if term[1] not in moving))
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
