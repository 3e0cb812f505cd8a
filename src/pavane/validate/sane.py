"""Is the value of a size that the other rules can handle? Depth, magnitude and counts, found without recursion.

These rules come first: every later rule may recurse over what they let through, and may do arithmetic on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from pavane.ir.program import FORMAT_VERSION, Program
from pavane.ir.quasi import Floor, Quasi
from pavane.validate.violation import Finding, RuleTable

MAX_NUMBER = 1 << 40
MAX_DEPTH = 200
MAX_PARTS = 4_000_000
MAX_FLOORS = 8
MAX_TERMS = 32
MAX_NAME = 256


class Measured(msgspec.Struct, frozen=True):
    """What a walk over all of a program found. The walk stops at the first part beyond the limits of depth or count."""

    version: int
    parts: int
    depth: int
    numbers: tuple[tuple[str, float], ...]
    texts: tuple[str, ...]
    indices: tuple[Quasi, ...]


def measure(program: Program) -> Measured:
    """Walk over every part once, without recursion."""
    parts = deepest = 0
    numbers: dict[tuple[str, float], None] = {}
    texts: dict[str, None] = {}
    indices: dict[Quasi, None] = {}
    stack: list[tuple[object, str, int]] = [(program, "program", 0)]
    while stack and parts <= MAX_PARTS and deepest <= MAX_DEPTH:
        value, owner, depth = stack.pop()
        parts += 1
        deepest = max(deepest, depth)
        if isinstance(value, Quasi):
            indices[value] = None
        elif isinstance(value, msgspec.Struct):
            name = type(value).__name__.lower()
            stack.extend((getattr(value, field), name, depth + 1) for field in value.__struct_fields__)
        elif isinstance(value, tuple):
            stack.extend((item, owner, depth + 1) for item in value)
        elif isinstance(value, str):
            texts[value] = None
        elif isinstance(value, int | float):
            numbers[owner, value] = None
    return Measured(program.version, parts, deepest, tuple(numbers), tuple(texts), tuple(indices))


def version(measured: Measured) -> Iterator[Finding]:
    """These rules are those of one version of the grammar."""
    if measured.version != FORMAT_VERSION:
        yield "program", f"version {measured.version} of the grammar; this is version {FORMAT_VERSION}"


def depth(measured: Measured) -> Iterator[Finding]:
    """Parts are not nested deeper than a walk may recurse."""
    if measured.depth > MAX_DEPTH:
        yield "program", f"parts are nested more than {MAX_DEPTH} deep"


def count(measured: Measured) -> Iterator[Finding]:
    """A program describes roles, not sites: it stays small."""
    if measured.parts > MAX_PARTS:
        yield "program", f"more than {MAX_PARTS} parts"


def finite_and_moderate(measured: Measured) -> Iterator[Finding]:
    """Integers within 2**40, floats finite."""
    for owner, value in measured.numbers:
        if isinstance(value, float):
            if not math.isfinite(value):
                yield owner, f"{value} is not a finite number"
        elif abs(value) > MAX_NUMBER:
            yield owner, f"{value} is beyond 2**40"


def printable(measured: Measured) -> Iterator[Finding]:
    """Texts are short and printable."""
    for text in measured.texts:
        if len(text) > MAX_NAME or not text.isprintable():
            yield "program", f"the text {text[:24]!r} is longer than {MAX_NAME} characters or not printable"


def moderate_indices(measured: Measured) -> Iterator[Finding]:
    """Index expressions have few terms, few floors and moderate numbers, so that bounding them is quick and exact."""
    for value in measured.indices:
        terms, floors, largest = _weight(value)
        if terms > MAX_TERMS or floors > MAX_FLOORS:
            yield "program", f"an index has {terms} terms and {floors} floors; at most {MAX_TERMS} and {MAX_FLOORS}"
        if largest > MAX_NUMBER:
            yield "program", f"{largest} in an index is beyond 2**40"


def _weight(value: Quasi) -> tuple[int, int, int]:
    """(terms, floors, greatest number), nested ones included."""
    terms = floors = largest = 0
    stack = [value]
    while stack and terms <= MAX_TERMS:
        inner = stack.pop()
        largest = max(largest, abs(inner.const))
        for coefficient, atom in inner.terms:
            terms += 1
            largest = max(largest, abs(coefficient))
            if isinstance(atom, Floor):
                floors += 1
                largest = max(largest, atom.divisor)
                stack.append(atom.numerator)
    return terms, floors, largest


RULES: RuleTable[Measured] = (
    ("sane.version", version),
    ("sane.depth", depth),
    ("sane.count", count),
    ("sane.numbers", finite_and_moderate),
    ("sane.texts", printable),
    ("sane.indices", moderate_indices),
)
