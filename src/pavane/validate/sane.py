"""Is the value of a size that the other rules can handle? Depth, magnitude and counts, found without recursion.

These rules come first: every later rule may recurse over what they let through, and may do arithmetic on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from pavane.ir.program import FORMAT_VERSION, Compute, Loop, Node, Program, Shape
from pavane.ir.quasi import Floor, Quasi
from pavane.validate.violation import Finding, RuleTable

MAX_NUMBER = 1 << 40
MAX_DEPTH = 200
MAX_PARTS = 2_000_000
MAX_FLOORS = 8
MAX_TERMS = 32
MAX_NAME = 256
MAX_STEPS = 4096  # of a shape; the checker has no more of any of these
MAX_NAMED = 128
MAX_OF_A_PROGRAM = {
    "symbols": 16, "tensors": 1 << 14, "shapes": 256, "instances": 1 << 14, "counters": MAX_NAMED, "workers": MAX_NAMED,
}  # fmt: skip
MAX_OF_A_SHAPE = {
    "formals": MAX_NAMED, "spec": MAX_NAMED, "groups": 32, "processes": 32, "fifos": MAX_NAMED, "carries": MAX_NAMED,
    "counters": MAX_NAMED, "sites": 1 << 14,
}  # fmt: skip
_END = object()


class Measured(msgspec.Struct, frozen=True):
    """What a walk over all of a program found. The walk stops at the first part beyond the limits of depth or count.

    `long`: the lists that have more than they may, as (place, what, most).
    """

    version: int
    parts: int
    depth: int
    numbers: tuple[tuple[str, float], ...]
    texts: tuple[str, ...]
    indices: tuple[Quasi, ...]
    long: tuple[tuple[str, str, int], ...]


def measure(program: Program) -> Measured:
    """Walk over every part once, without recursion."""
    parts = deepest = 0
    numbers: dict[tuple[str, float], None] = {}
    texts: dict[str, None] = {}
    indices: dict[Quasi, None] = {}
    stack: list[tuple[Iterator[object], str]] = [(iter((program,)), "program")]
    while stack and parts <= MAX_PARTS and deepest <= MAX_DEPTH:
        values, owner = stack[-1]
        value = next(values, _END)
        if value is _END:
            stack.pop()
            continue
        parts += 1
        if isinstance(value, Quasi):
            indices[value] = None
        elif isinstance(value, msgspec.Struct):
            fields = [getattr(value, field) for field in value.__struct_fields__]
            stack.append((iter(fields), type(value).__name__.lower()))
            deepest = max(deepest, len(stack) - 1)
        elif isinstance(value, tuple):
            if value:
                stack.append((iter(value), owner))
                deepest = max(deepest, len(stack) - 1)
        elif isinstance(value, str):
            texts[value] = None
        elif isinstance(value, int | float):
            numbers[owner, value] = None
    long = tuple(_long(program))
    return Measured(program.version, parts, deepest, tuple(numbers), tuple(texts), tuple(indices), long)


def _long(program: Program) -> Iterator[tuple[str, str, int]]:
    yield from (
        ("program", what, most) for what, most in MAX_OF_A_PROGRAM.items() if len(getattr(program, what)) > most
    )
    for number, instance in enumerate(program.instances):
        if len(instance.bindings) > MAX_NAMED:
            yield f"instance {number}", "bindings", MAX_NAMED
    for number, shape in enumerate(program.shapes):
        place = f"shape {number}"
        yield from ((place, what, most) for what, most in MAX_OF_A_SHAPE.items() if len(getattr(shape, what)) > most)
        yield from ((place, what, most) for what, most in _long_bodies(shape))


def _long_bodies(shape: Shape) -> Iterator[tuple[str, int]]:
    """Of all bodies together; counting ends beyond the limit."""
    bodies = (*(stage.body for group in shape.groups for stage in group.stages), *(p.body for p in shape.processes))
    stack: list[Node] = [node for body in bodies for node in body]
    steps = guards = 0
    while stack and steps <= MAX_STEPS:
        node = stack.pop()
        if isinstance(node, Loop) and node.body:
            stack.extend(node.body)
            continue
        steps += 1
        if isinstance(node, Compute):
            guards = max(guards, len(node.op.guard))
    if steps > MAX_STEPS:
        yield "steps", MAX_STEPS
    if guards > MAX_NAMED:
        yield "guards of an op", MAX_NAMED


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


def lists(measured: Measured) -> Iterator[Finding]:
    """Rules may compare all of one list with all of another."""
    yield from ((place, f"more than {most} {what}") for place, what, most in measured.long)


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
    ("sane.lists", lists),
    ("sane.numbers", finite_and_moderate),
    ("sane.texts", printable),
    ("sane.indices", moderate_indices),
)
