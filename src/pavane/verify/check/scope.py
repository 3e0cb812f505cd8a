"""What a name, a figure and an expression of the fragment may be: names resolve and are unique, every variable is in
scope, and sizes are bounded, so that every later rule ends in bounded time. Refuses with OutsideFragment.

The checker counts with integers of any size, engines in 64 bits. So a *scope* says of each variable a magnitude that it
never passes, and no index expression, nor what stands inside one of its floors, may pass MAX_VALUE.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from pavane.ir.expr import At, Const, Expr, Fn, Indirect, Reduce, Var, children
from pavane.ir.program import GENERIC_VARIABLES, LOOP_VARIABLES, LV_GEN_K, SITE_X, SITE_Y, Counter
from pavane.ir.quasi import Atom, Domain, Floor, Quasi, Unbounded, lower, quasi, upper
from pavane.ir.types import INTEGER_DTYPES, Ints, block_elements
from pavane.ir.types import Const as ConstantFill
from pavane.reject import OutsideFragment
from pavane.verify.check.boxes import MAX_SITES

MAX_INT, MAX_VALUE = 1 << 40, 1 << 48
LARGEST_F32 = (2 - 2.0**-23) * 2.0**127
MAX_BITS = 64
MAX_NAMED = 128
MAX_TEXT = 256
MAX_PAIRS = 1 << 20
MAX_DIMENSIONS = 8
MAX_EXPR_NODES, MAX_EXPR_DEPTH = 4096, 64
MAX_QUASI_ATOMS, MAX_QUASI_FLOORS, MAX_QUASI_DEPTH = 24, 6, 6
RESERVED = frozenset((*LOOP_VARIABLES, *GENERIC_VARIABLES, SITE_X, SITE_Y))
Scope = Mapping[str, int]
SITES: Scope = {SITE_X: MAX_SITES, SITE_Y: MAX_SITES}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,199}")


# What arithmetic on figures and expressions raises where they are too large for it.
TOO_LARGE = (ValueError, Unbounded, OverflowError, RecursionError)


def too_large(error: Exception, where: str) -> OutsideFragment:
    return OutsideFragment(f"figures or expressions are too large to reason about: {error}", where=where)


# --- names and figures ------------------------------------------------------------------------------------------------


def unique(names: Iterable[str], kind: str, where: str, most: int = MAX_NAMED) -> None:
    seen: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name):
            raise OutsideFragment(f"{name[:40]!r} cannot name a {kind}", where=where, remedy="letters, digits, _ . -")
        if name in seen:
            raise OutsideFragment(f"two {kind}s are named {name}", where=where)
        seen.add(name)
    if len(seen) > most:
        raise OutsideFragment(f"too many {kind}s", where=where, needed=str(len(seen)), available=str(most))


def legible(texts: Iterable[str], where: str) -> None:
    """Names to which nothing refers, which messages repeat: short and printable."""
    for text in texts:
        if len(text) > MAX_TEXT or not text.isprintable():
            raise OutsideFragment(f"{text[:40]!r} is no name", where=where, needed=f"{MAX_TEXT} printable characters")


def known(name: str, names: set[str], kind: str, where: str) -> None:
    if name not in names:
        raise OutsideFragment(f"there is no {kind} {name[:60]!r}", where=where)


def integers(values: Iterable[int], where: str) -> None:
    if any(abs(value) > MAX_INT for value in values):
        raise OutsideFragment("a figure is too large", where=where)


def admit_counter(counter: Counter, where: str) -> None:
    integers((counter.ahead, counter.id), where)
    if not 1 <= counter.bits <= MAX_BITS:
        raise OutsideFragment(f"a counter of {counter.bits} bits", where=where, available=f"1 .. {MAX_BITS}")


def admit_extents(shape: tuple[Quasi, ...], dtype: str, domain: Domain, where: str) -> None:
    if not 1 <= len(shape) <= MAX_DIMENSIONS:
        raise OutsideFragment(f"a tensor has 1 to {MAX_DIMENSIONS} dimensions", where=where, needed=str(len(shape)))
    in_scope(shape, scope_of(domain), where)
    if any(lower(extent, domain) < 1 for extent in shape):
        raise OutsideFragment("an extent may be below 1", where=where)
    if math.prod(upper(extent, domain) for extent in shape) > MAX_INT:
        raise OutsideFragment("a tensor is too large", where=where, available=f"{MAX_INT} elements")
    block = block_elements(dtype)
    if block > 1 and not (shape[-1].is_const and shape[-1].const % block == 0):
        raise OutsideFragment(
            f"the last extent of a {dtype} tensor is not a multiple of {block}", where=where, needed=str(shape[-1])
        )


def admit_fill(fill: object, where: str) -> None:
    if isinstance(fill, Ints) and not -MAX_INT <= fill.lo <= fill.hi <= MAX_INT:
        raise OutsideFragment(f"integers {fill.lo} .. {fill.hi} are no fill", where=where)
    if isinstance(fill, ConstantFill) and not math.isfinite(fill.value):
        raise OutsideFragment("a constant fill is not finite", where=where)


# --- index expressions ------------------------------------------------------------------------------------------------


def scope_of(domain: Domain) -> Scope:
    """The greatest magnitude of each variable."""
    ends = ((name, lower(quasi(name), domain), upper(quasi(name), domain)) for name in domain.names())
    return {name: max(abs(lo), abs(hi)) for name, lo, hi in ends}


def in_scope(values: Iterable[Quasi], scope: Scope, where: str) -> None:
    for value in values:
        atoms, floors = _measured(value, 0, where)
        if atoms > MAX_QUASI_ATOMS or floors > MAX_QUASI_FLOORS:
            raise OutsideFragment(
                "an index expression is too large", where=where, needed=f"{atoms} terms, {floors} floors"
            )
        for name in value.variables():
            if name not in scope:
                raise OutsideFragment(f"the variable {name[:60]!r} has no meaning here", where=where)
        _magnitude(value, scope, where)


def _magnitude(value: Quasi, scope: Scope, where: str) -> int:
    """What the value never passes, nor any of its partial sums."""
    total = abs(value.const) + sum(abs(c) * _magnitude_of_atom(atom, scope, where) for c, atom in value.terms)
    if total > MAX_VALUE:
        raise OutsideFragment(
            "an index expression may have too large a value", where=where, needed=str(total), available=str(MAX_VALUE)
        )
    return total


def _magnitude_of_atom(atom: Atom, scope: Scope, where: str) -> int:
    return scope[atom] if isinstance(atom, str) else _magnitude(atom.numerator, scope, where) // atom.divisor + 1


def _measured(value: Quasi, depth: int, where: str) -> tuple[int, int]:
    """Its terms and its floors, those inside floors too."""
    terms, floors, largest = len(value.terms), 0, abs(value.const)
    if depth > MAX_QUASI_DEPTH:
        raise OutsideFragment("an index expression is too deep", where=where)
    for coefficient, atom in value.terms:
        largest = max(largest, abs(coefficient))
        if isinstance(atom, Floor):
            inside = _measured(atom.numerator, depth + 1, where)
            terms, floors, largest = terms + inside[0], floors + 1 + inside[1], max(largest, atom.divisor)
    if largest > MAX_INT:
        raise OutsideFragment("an index expression has too large a figure", where=where)
    return terms, floors


def index_in_scope(index: Quasi | Indirect, scope: Scope, where: str) -> None:
    if isinstance(index, Quasi):
        in_scope((index,), scope, where)
        return
    in_scope(index.index, scope, where)
    if not 0 <= index.lo < index.hi <= MAX_INT:
        raise OutsideFragment(f"an indirect index in [{index.lo}, {index.hi})", where=where)


# --- expressions ------------------------------------------------------------------------------------------------------


def admit_expression(expr: Expr, scope: Scope, ranks: dict[str, int], where: str, spec: bool) -> None:
    """Walk without recursion; each node with the variables in scope there and its depth."""
    stack: list[tuple[Expr, Scope, int]] = [(expr, scope, 0)]
    count = 0
    bound: set[str] = set()
    while stack:
        node, inside, depth = stack.pop()
        count += 1
        if count > MAX_EXPR_NODES or depth > MAX_EXPR_DEPTH:
            raise OutsideFragment("an expression is too large", where=where, available=f"{MAX_EXPR_NODES} nodes")
        if isinstance(node, Const) and not math.isfinite(node.value):
            raise OutsideFragment("a constant is not finite", where=where)
        if isinstance(node, Var):
            in_scope((node.value,), inside, where)
        elif isinstance(node, At):
            _operand(node, inside, ranks, where, spec)
        elif isinstance(node, Fn) and node.op == "cast" and node.dtype not in INTEGER_DTYPES:
            raise OutsideFragment(f"a cast to {node.dtype[:60]!r}", where=where)
        elif isinstance(node, Reduce):
            _bind(node, inside, where, bound, spec)
            inside = {**inside, node.var: _magnitude(node.extent, inside, where)}
        stack.extend((child, inside, depth + 1) for child in children(node))


def _operand(node: At, scope: Scope, ranks: dict[str, int], where: str, spec: bool) -> None:
    if ranks.get(node.name) != len(node.index):
        raise OutsideFragment(f"{node.name[:60]} is not an operand of {len(node.index)} dimensions", where=where)
    if node.next:
        raise OutsideFragment(f"{node.name} after its transition is read in the section that writes it", where=where)
    for index in node.index:
        if isinstance(index, Indirect) and not spec:
            raise OutsideFragment("an indirect index inside a compute step", where=where)
        index_in_scope(index, scope, where)
        if isinstance(index, Indirect):
            known(index.tensor, set(ranks), "formal", where)


def _bind(node: Reduce, scope: Scope, where: str, bound: set[str], spec: bool) -> None:
    in_scope((node.extent,), scope, where)
    if spec:
        if node.var in scope or node.var in bound or node.var in RESERVED or not _NAME.fullmatch(node.var):
            raise OutsideFragment(f"the reduction variable {node.var[:40]!r} is used twice or reserved", where=where)
    elif node.var != LV_GEN_K or bound:
        raise OutsideFragment("a compute step has one reduction, over LV_GEN_K", where=where)
    bound.add(node.var)
