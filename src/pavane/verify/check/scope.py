"""What a name, a figure and an expression of the fragment may be: names resolve and are unique, every variable is in
scope, and sizes are bounded, so that every later rule ends in bounded time. Refuses with OutsideFragment.

The checker counts with integers of any size, engines in 64 bits. So a *scope* says of each variable a magnitude that it
never passes, and no index expression, nor what stands inside one of its floors, may pass MAX_VALUE.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping

from pavane.ir.expr import At, Const, Expr, Fn, Indirect, Reduce, Var, children
from pavane.ir.program import GENERIC_VARIABLES, LOOP_VARIABLES, LV_GEN_K, SITE_X, SITE_Y, Counter, Post, Send, Wait
from pavane.ir.quasi import Domain, Floor, Quasi, Unbounded, lower, quasi, upper
from pavane.ir.types import INTEGER_DTYPES, Ints, block_elements
from pavane.ir.types import Const as ConstantFill
from pavane.reject import OutsideFragment
from pavane.verify.check.boxes import MAX_SITES

MAX_INT, MAX_VALUE = 1 << 40, 1 << 48
LARGEST_F32 = (2 - 2.0**-23) * 2.0**127
MAX_BITS, MAX_POSTS = 64, 1 << 20
MAX_NAMED = 128
MAX_TEXT = 256
MAX_PAIRS, MAX_SHARING = 1 << 23, 1 << 20
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
    plural, seen = kind + ("es" if kind.endswith("s") else "s"), set[str]()
    for name in names:
        if not _NAME.fullmatch(name):
            raise OutsideFragment(f"{name[:40]!r} cannot name a {kind}", where=where, remedy="letters, digits, _ . -")
        if name in seen:
            raise OutsideFragment(f"two {plural} are named {name}", where=where)
        seen.add(name)
    at_most(len(seen), most, f"too many {plural}", where)


def at_most(count: int, most: int, what: str, where: str) -> None:
    """Refuse more of something than the fragment has."""
    if count > most:
        raise OutsideFragment(what, where=where, needed=f"{count}", available=f"{most}")


def one_to(most: int, count: int, what: str, where: str) -> None:
    """Refuse none of something, and more of it than the fragment has."""
    if not 1 <= count <= most:
        raise OutsideFragment(what, where=where, needed=f"{count}", available=f"1 .. {most}")


def legible(texts: Iterable[str], where: str) -> None:
    """Names to which nothing refers, which messages repeat: short and printable."""
    for text in texts:
        if len(text) > MAX_TEXT or not text.isprintable():
            raise OutsideFragment(f"{text[:40]!r} is no name", where=where, needed=f"{MAX_TEXT} printable characters")


def known(name: str, names: Container[str], kind: str, where: str) -> None:
    if name not in names:
        raise OutsideFragment(f"there is no {kind} {name[:60]!r}", where=where)


def integers(values: Iterable[int], where: str) -> None:
    if any(abs(value) > MAX_INT for value in values):
        raise OutsideFragment("a figure is too large", where=where)


def admit_counter(counter: Counter, where: str) -> None:
    integers((counter.ahead, counter.id), where)
    one_to(MAX_BITS, counter.bits, f"a counter of {counter.bits} bits", where)


def admit_handshake(step: Post | Wait | Send, where: str) -> None:
    """How many posts; and where they, or a slot, go: sites that depend on the doer's only."""
    if isinstance(step, Post | Wait):
        one_to(MAX_POSTS, step.n, f"{step.n} is no number of posts", where)
    if isinstance(step, Post | Send):
        in_scope((step.to.x0, step.to.x1, step.to.y0, step.to.y1), SITES, where)


def admit_extents(shape: tuple[Quasi, ...], dtype: str, domain: Domain, where: str) -> None:
    one_to(MAX_DIMENSIONS, len(shape), f"a tensor of {len(shape)} dimensions", where)
    in_scope(shape, scope_of(domain), where)
    if any(lower(extent, domain) < 1 for extent in shape):
        raise OutsideFragment("an extent may be below 1", where=where)
    at_most(math.prod(upper(extent, domain) for extent in shape), MAX_INT, "a tensor has too many elements", where)
    block = block_elements(dtype)
    if block > 1 and not (shape[-1].is_const and shape[-1].const % block == 0):
        what = f"the last extent of a {dtype} tensor is not a multiple of {block}"
        raise OutsideFragment(what, where=where, needed=str(shape[-1]))


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
        at_most(atoms, MAX_QUASI_ATOMS, "an index expression has too many terms", where)
        at_most(floors, MAX_QUASI_FLOORS, "an index expression has too many floors", where)
        for name in value.variables():
            if name not in scope:
                raise OutsideFragment(f"the variable {name[:60]!r} has no meaning here", where=where)
        _magnitude(value, scope, where)


def _magnitude(value: Quasi, scope: Scope, where: str) -> int:
    """What the value never passes, nor any of its partial sums."""
    total = abs(value.const)
    for coefficient, atom in value.terms:
        inside = scope[atom] if isinstance(atom, str) else _magnitude(atom.numerator, scope, where) // atom.divisor + 1
        total += abs(coefficient) * inside
    at_most(total, MAX_VALUE, "an index expression may have too large a value", where)
    return total


def _measured(value: Quasi, depth: int, where: str) -> tuple[int, int]:
    """Its terms and its floors, those inside floors too."""
    terms, floors, largest = len(value.terms), 0, abs(value.const)
    at_most(depth, MAX_QUASI_DEPTH, "an index expression is too deep", where)
    for coefficient, atom in value.terms:
        largest = max(largest, abs(coefficient))
        if isinstance(atom, Floor):
            inside = _measured(atom.numerator, depth + 1, where)
            terms, floors, largest = terms + inside[0], floors + 1 + inside[1], max(largest, atom.divisor)
    at_most(largest, MAX_INT, "an index expression has too large a figure", where)
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
        at_most(count, MAX_EXPR_NODES, "an expression has too many nodes", where)
        at_most(depth, MAX_EXPR_DEPTH, "an expression is too deep", where)
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
            known(index.tensor, ranks, "formal", where)


def _bind(node: Reduce, scope: Scope, where: str, bound: set[str], spec: bool) -> None:
    in_scope((node.extent,), scope, where)
    if spec:
        if node.var in scope or node.var in bound or node.var in RESERVED or not _NAME.fullmatch(node.var):
            raise OutsideFragment(f"the reduction variable {node.var[:40]!r} is used twice or reserved", where=where)
    elif node.var != LV_GEN_K or bound:
        raise OutsideFragment("a compute step has one reduction, over LV_GEN_K", where=where)
    bound.add(node.var)
