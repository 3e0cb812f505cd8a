"""Quasi-affine integer expressions in one normal form: sums of integer multiples of variables and of floor(expr / d).

A `Quasi` is immutable, hashable and canonical: equal functions built from the same operations compare equal, so
equality of maps is equality of values. It serialises as an array, `[0, const, [[coefficient, atom], ...]]`, an atom
being a variable's name or `[numerator, divisor]`.

`Domain` gives each variable its range, outer variables first; `upper` and `lower` bound a Quasi over a domain. The
bounds are sound, not always tight: they combine three rules (interval sums, elimination of the innermost variable at
its own symbolic bound, and the relaxation (n - d + 1) / d <= floor(n / d) <= n / d) and keep the best. Floors are
relaxed where they are at most MAX_RELAXED_FLOORS together, nested ones too: n floors have 2**n relaxations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import gcd

import msgspec

MAX_MAGNITUDE = 1 << 56
MAX_RELAXED_FLOORS = 4


class Floor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """floor(numerator / divisor), divisor >= 2."""

    numerator: Quasi
    divisor: int


Atom = str | Floor


class Quasi(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=0):
    """const + sum of coefficient * atom, atoms in canonical order, coefficients non-zero."""

    const: int = 0
    terms: tuple[tuple[int, Atom], ...] = ()

    def __post_init__(self) -> None:
        if abs(self.const) > MAX_MAGNITUDE:
            raise ValueError("a quasi-affine constant is out of range")
        previous = None
        for coefficient, atom in self.terms:
            key = _atom_key(atom)
            if coefficient == 0 or abs(coefficient) > MAX_MAGNITUDE or (previous is not None and key <= previous):
                raise ValueError("a quasi-affine expression is not in normal form")
            previous = key
            if isinstance(atom, Floor) and not _is_normal_floor(atom):
                raise ValueError("a floor in a quasi-affine expression is not in normal form")

    def __add__(self, other: Quasi | int) -> Quasi:
        other = quasi(other)
        if not other.terms:
            return Quasi(self.const + other.const, self.terms) if other.const else self
        return _collect(self.const + other.const, (*self.terms, *other.terms))

    __radd__ = __add__

    def __neg__(self) -> Quasi:
        return self * -1

    def __sub__(self, other: Quasi | int) -> Quasi:
        return self + (-other if isinstance(other, int) else other * -1)

    def __rsub__(self, other: int) -> Quasi:
        return quasi(other) - self

    def __mul__(self, factor: int) -> Quasi:
        if factor in (0, 1):
            return self if factor else ZERO
        return Quasi(self.const * factor, tuple((c * factor, a) for c, a in self.terms))

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Quasi:
        return _floor(self, divisor)

    def __mod__(self, divisor: int) -> Quasi:
        return self - _floor(self, divisor) * divisor

    def ceil(self, divisor: int) -> Quasi:
        """ceil(self / divisor)."""
        return _floor(self + (divisor - 1), divisor)

    @property
    def is_const(self) -> bool:
        return not self.terms

    def coefficient(self, name: str) -> int:
        """The coefficient of a variable outside every floor."""
        return next((c for c, a in self.terms if a == name), 0)

    def variables(self) -> tuple[str, ...]:
        """Every variable that occurs, inside floors too, sorted."""
        return tuple(sorted(_variables(self)))

    def substitute(self, bindings: Mapping[str, Quasi | int]) -> Quasi:
        """Replace variables, simultaneously."""
        if not any(name in bindings for name in _variables(self)):
            return self
        const, terms = self.const, []
        for coefficient, atom in self.terms:
            if isinstance(atom, str):
                value = quasi(bindings.get(atom, atom))
            else:
                value = _floor(atom.numerator.substitute(bindings), atom.divisor)
            const += value.const * coefficient
            terms += [(c * coefficient, a) for c, a in value.terms]
        return _collect(const, terms)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The integer at a point; KeyError names a variable without a value."""
        total = self.const
        for coefficient, atom in self.terms:
            if isinstance(atom, str):
                total += coefficient * values[atom]
            else:
                total += coefficient * (atom.numerator.evaluate(values) // atom.divisor)
        return total

    def __str__(self) -> str:
        parts = []
        for coefficient, atom in self.terms:
            name = atom if isinstance(atom, str) else f"floor({atom.numerator}, {atom.divisor})"
            sign = "-" if coefficient < 0 else "+"
            size = "" if abs(coefficient) == 1 else f"{abs(coefficient)}*"
            parts.append(f"{sign} {size}{name}")
        if self.const or not parts:
            parts.append(f"{'-' if self.const < 0 else '+'} {abs(self.const)}")
        text = " ".join(parts)
        return text[2:] if text.startswith("+ ") else "-" + text[2:]


ZERO = Quasi()


def quasi(value: Quasi | int | str) -> Quasi:
    """An integer constant, or the variable of that name."""
    if isinstance(value, Quasi):
        return value
    return _variable(value) if isinstance(value, str) else Quasi(int(value))


@lru_cache(maxsize=4096)
def _variable(name: str) -> Quasi:
    return Quasi(0, ((1, name),))


def _atom_key(atom: Atom) -> tuple:
    if isinstance(atom, str):
        return (0, atom)
    return (1, atom.divisor, _quasi_key(atom.numerator))


def _quasi_key(value: Quasi) -> tuple:
    return (value.const, tuple((_atom_key(a), c) for c, a in value.terms))


def _collect(const: int, terms: Iterable[tuple[int, Atom]]) -> Quasi:
    totals: dict[Atom, int] = {}
    for coefficient, atom in terms:
        totals[atom] = totals.get(atom, 0) + coefficient
    kept = sorted(((c, a) for a, c in totals.items() if c), key=lambda item: _atom_key(item[1]))
    return Quasi(const, tuple(kept))


@lru_cache(maxsize=65536)
def _variables(value: Quasi) -> frozenset[str]:
    names: set[str] = set()
    for _, atom in value.terms:
        names |= {atom} if isinstance(atom, str) else _variables(atom.numerator)
    return frozenset(names)


def _is_normal_floor(atom: Floor) -> bool:
    """The result of `_floor` and of nothing else: reduced coefficients, no common factor, no floor of a lone floor."""
    numerator, divisor = atom.numerator, atom.divisor
    coefficients = [c for c, _ in numerator.terms]
    if divisor < 2 or not coefficients or not 0 <= numerator.const < divisor:
        return False
    if any(not 0 < c < divisor for c in coefficients) or gcd(divisor, *coefficients) > 1:
        return False
    return not (coefficients == [1] and isinstance(numerator.terms[0][1], Floor))


@lru_cache(maxsize=65536)
def _floor(value: Quasi, divisor: int) -> Quasi:
    """floor(value / divisor) in normal form: whole multiples leave the floor, common factors cancel, floors nest once.

    ValueError for a divisor below 1.
    """
    if divisor < 1:
        raise ValueError("floor division by a constant below 1")
    if divisor == 1:
        return value
    whole = _collect(value.const // divisor, ((c // divisor, a) for c, a in value.terms if c // divisor))
    rest = _collect(value.const % divisor, ((c % divisor, a) for c, a in value.terms if c % divisor))
    if rest.is_const:
        return whole
    common = gcd(divisor, *(c for c, _ in rest.terms))
    if common > 1:
        rest = Quasi(rest.const // common, tuple((c // common, a) for c, a in rest.terms))
        return whole + _floor(rest, divisor // common)
    if len(rest.terms) == 1 and rest.terms[0][0] == 1 and isinstance(rest.terms[0][1], Floor):
        inner = rest.terms[0][1]
        return whole + _floor(inner.numerator + rest.const * inner.divisor, inner.divisor * divisor)
    return whole + Quasi(0, ((1, Floor(rest, divisor)),))


class Domain:
    """Ranges of variables, outer first: each is an inclusive [lo, hi], both Quasi in the variables before it."""

    __slots__ = ("_key", "ranges")

    def __init__(self, ranges: Iterable[tuple[str, Quasi | int, Quasi | int]] = ()) -> None:
        self.ranges = tuple((name, quasi(lo), quasi(hi)) for name, lo, hi in ranges)
        self._key = hash(self.ranges)

    def with_loop(self, name: str, extent: Quasi | int) -> Domain:
        """The domain inside `for name in [0, extent)`; a variable of that name outside is shadowed."""
        kept = tuple(r for r in self.ranges if r[0] != name)
        return Domain((*kept, (name, ZERO, quasi(extent) - 1)))

    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return self._key


class Unbounded(Exception):
    """A variable has no range in the domain; the text names it."""


@lru_cache(maxsize=65536)
def upper(value: Quasi, domain: Domain) -> int:
    """An integer that `value` never exceeds on `domain`; raises `Unbounded` when a variable has no range."""
    return min(_candidates(value, domain))


@lru_cache(maxsize=65536)
def lower(value: Quasi, domain: Domain) -> int:
    """An integer that `value` never goes below on `domain`."""
    return -upper(value * -1, domain)


def floor_count(value: Quasi) -> int:
    """Its floors, those inside floors too."""
    return sum(1 + floor_count(atom.numerator) for _, atom in value.terms if not isinstance(atom, str))


def _candidates(value: Quasi, domain: Domain) -> Iterable[int]:
    if value.is_const:
        return (value.const,)
    found = [_interval_upper(value, domain)]
    floors = [(c, a) for c, a in value.terms if isinstance(a, Floor)]
    for coefficient, atom in floors if floor_count(value) <= MAX_RELAXED_FLOORS else ():
        rest = value - Quasi(0, ((coefficient, atom),))
        relaxed = atom.numerator if coefficient > 0 else atom.numerator - (atom.divisor - 1)
        found.append(upper(rest * atom.divisor + relaxed * coefficient, domain) // atom.divisor)
    inside = frozenset().union(*(_variables(a.numerator) for _, a in floors)) if floors else frozenset()
    for name, lo, hi in reversed(domain.ranges):
        coefficient = value.coefficient(name)
        if name in inside:
            break
        if coefficient:
            found.append(
                upper(value + (hi if coefficient > 0 else lo) * coefficient - quasi(name) * coefficient, domain)
            )
            break
    return found


def _interval_upper(value: Quasi, domain: Domain) -> int:
    total = value.const
    for coefficient, atom in value.terms:
        total += coefficient * _atom_bound(atom, domain, highest=coefficient > 0)
    return total


def _atom_bound(atom: Atom, domain: Domain, highest: bool) -> int:
    if isinstance(atom, Floor):
        bound = upper(atom.numerator, domain) if highest else lower(atom.numerator, domain)
        return bound // atom.divisor
    for name, lo, hi in domain.ranges:
        if name == atom:
            return upper(hi, domain) if highest else lower(lo, domain)
    raise Unbounded(atom)
