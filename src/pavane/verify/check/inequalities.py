"""Proofs of inequalities between quasi-affine expressions: indices inside extents, guards that follow from guards.

A variable of a compute step counts 0 <= v < len(span), and len(span) = min(size, limit - start) where the span is not
empty. Where it is empty the step does nothing and there is nothing to prove. So `v <= size - 1` and `v <= limit -
start - 1` both hold, and an inequality is proven when the bounds of `ir.quasi` prove it under one of them. Where
those bounds are too loose (a parity, a rotation) and the variables have few values, all points are tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from pavane.ir.program import Span
from pavane.ir.quasi import Domain, Floor, Quasi, floor_count, lower, quasi, upper

MAX_POINTS = 1 << 13
MAX_FLOORS = 8
_T = "%t"


@dataclass(frozen=True)
class Counted:
    """A variable that counts the elements of a span."""

    var: str
    span: Span

    def tops(self) -> tuple[Quasi, ...]:
        """Upper bounds of the variable where the span is not empty."""
        ends = (quasi(self.span.size - 1), self.span.limit - self.span.start - 1)
        return tuple(dict.fromkeys(ends))


def never_positive(value: Quasi, domain: Domain, counted: tuple[Counted, ...] = ()) -> bool:
    """Is value <= 0 at every point of the domain and of the counted variables?"""
    if value.is_const:
        return value.const <= 0
    if floor_count(value) > MAX_FLOORS:
        return False
    used = tuple(c for c in counted if c.var in value.variables())
    return any(upper(value, inside) <= 0 for inside in _domains(domain, used)) or _enumerated(value, domain, used)


def never_negative(value: Quasi, domain: Domain, counted: tuple[Counted, ...] = ()) -> bool:
    """Is value >= 0 at every point of the domain and of the counted variables?"""
    return value.const >= 0 if value.is_const else never_positive(value * -1, domain, counted)


def _domains(domain: Domain, counted: tuple[Counted, ...]) -> Iterator[Domain]:
    if not counted:
        yield domain
        return
    for tops in product(*(c.tops() for c in counted)):
        yield Domain((*domain.ranges, *((c.var, 0, top) for c, top in zip(counted, tops, strict=True))))


def _enumerated(value: Quasi, domain: Domain, counted: tuple[Counted, ...]) -> bool:
    """Try all points of constant ranges that contain the domain; False when they are too many."""
    sizes = {c.var: c.span.size for c in counted}
    ranges = {}
    for name in value.variables():
        if name in sizes:
            ranges[name] = (0, sizes[name] - 1)
        else:
            ranges[name] = (lower(quasi(name), domain), upper(quasi(name), domain))
    points = 1
    for lo, hi in ranges.values():
        points *= max(hi - lo + 1, 0)
        if points > MAX_POINTS:
            return False
    if _magnitude(value, ranges) >= 1 << 62:
        return False
    grids = np.meshgrid(*(np.arange(lo, hi + 1, dtype=np.int64) for lo, hi in ranges.values()), indexing="ij")
    return bool((on_points(value, dict(zip(ranges, grids, strict=True))) <= 0).all())


def _magnitude(value: Quasi, ranges: Mapping[str, tuple[int, int]]) -> int:
    """A bound of every partial sum, so that 64 bits suffice."""
    total = abs(value.const)
    for coefficient, atom in value.terms:
        inner = _magnitude(atom.numerator, ranges) if isinstance(atom, Floor) else max(map(abs, ranges[atom]))
        total += abs(coefficient) * (inner + 1)
    return total


def on_points(value: Quasi, points: Mapping[str, np.ndarray]) -> np.ndarray:
    """The values of an expression at many points."""
    total = np.asarray(value.const, np.int64)
    for coefficient, atom in value.terms:
        part = on_points(atom.numerator, points) // atom.divisor if isinstance(atom, Floor) else points[atom]
        total = total + coefficient * part
    return total


def span_never_empty(span: Span, domain: Domain) -> bool:
    """Does the span have an element at every point?"""
    return never_negative(span.limit - span.start - 1, domain)


def guard_holds(guard: Span, given: tuple[Span, ...], domain: Domain) -> bool:
    """Is a span provably not empty wherever every span of `given` is not empty?"""
    if guard in given or span_never_empty(guard, domain):
        return True
    return any(_follows(guard, other, domain) for other in given)


@lru_cache(maxsize=4096)
def _follows(guard: Span, given: Span, domain: Domain) -> bool:
    """`given.start < given.limit` implies `guard.start < guard.limit`, by writing guard.start as a function of t =
    given.start.
    """
    if not given.limit.is_const and _T in given.limit.variables():
        return False
    inside = Domain((*domain.ranges, (_T, lower(given.start, domain), given.limit - 1)))
    starts = _rewritten(guard.start, given, guard)
    return any(upper(start - guard.limit + 1, inside) <= 0 for start in starts)


def _rewritten(value: Quasi, given: Span, guard: Span) -> Iterator[Quasi]:
    """Forms of `value` with given.start replaced by the variable t, each equal to it."""
    t = quasi(_T)
    yield value - given.start + t
    divisors = {atom.divisor for _, atom in value.terms if isinstance(atom, Floor)}
    if given.limit.is_const and guard.limit.is_const and guard.limit.const > 0:
        divisors.add(-(-given.limit.const // guard.limit.const))
    for divisor in sorted(d for d in divisors if d >= 1):
        yield value - given.start // divisor + t // divisor


def aligned(value: Quasi, block: int) -> bool:
    """Is the value a multiple of a block's elements at every point, by its coefficients?"""
    return value.const % block == 0 and all(coefficient % block == 0 for coefficient, _ in value.terms)


def in_whole_blocks(offset: Quasi, span: Span, block: int, domain: Domain) -> bool:
    """Do the columns of a span, which stands at `offset` of a buffer, begin at a block and end at one: at the size, or
    where they are clipped?
    """
    rest = span.limit - span.start
    ends = aligned(rest, block) or never_negative(rest - span.size, domain)
    return aligned(offset, block) and span.size % block == 0 and ends
