"""Terms: what an element of a buffer is, as an expression over formals; their normal form and equality over the reals.

A term's variables are ROW and COL (the element's place in its buffer), loop variables, SITE_X, SITE_Y and symbols;
reductions that the checker makes have fresh variables (`%k1`, ...), which no program can write, so substitution never
captures.

`normal(term, domain)` renames reductions by their depth, orders the arguments of commutative operators, simplifies
index expressions over the domain (a variable or a floor with one possible value becomes that value), writes a
reduction of one term as that term, x - x as 0, exp(0) and x / x as 1 where x is never 0 (all that where x is a number,
whatever stands in the formals), and drops what says nothing of the value: a dtype that an operator other than `cast`
carries, and the range in which an index read at run time is said to be (`bounds` shows that it is). Equal normal forms
are equal functions over the reals; the converse is not claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from pavane.ir.expr import COMMUTATIVE, At, Const, Expr, Fn, Index, Indirect, Reduce, Var, children, substitute, walk
from pavane.ir.quasi import Domain, Floor, Quasi, lower, quasi, upper
from pavane.reject import OutsideFragment

ROW, COL = "%r", "%c"
ZERO_TERM = Const(0.0)
PARTIAL = ("div", "log", "sqrt", "rsqrt")  # have no value for some arguments
MAX_TERM_NODES, MAX_PROGRAM_NODES = 1 << 13, 1 << 18


@dataclass
class Effort:
    """How many nodes the terms of a program may still have: its steps make them, and a store compares one."""

    nodes: int = MAX_PROGRAM_NODES

    def spend(self, term: Expr, where: str) -> Expr:
        """The term, unless it, or all of the program's together, are too large to be worked with in bounded time."""
        size = size_of(term)
        self.nodes -= size
        if size > MAX_TERM_NODES:
            raise OutsideFragment(
                "the value of a buffer is too large an expression", where=where, available=f"{MAX_TERM_NODES} nodes"
            )
        if self.nodes < 0:
            raise OutsideFragment(
                "the values of all buffers are too large", where=where, available=f"{MAX_PROGRAM_NODES} nodes a program"
            )
        return term


def size_of(term: Expr) -> int:
    """Nodes of a term and terms of its index expressions, counted without recursion."""
    stack, count = [term], 0
    while stack:
        node = stack.pop()
        count += 1 + sum(_index_size(index) for index in _indices(node))
        stack.extend(children(node))
    return count


def _indices(node: Expr) -> tuple[Index, ...]:
    if isinstance(node, At):
        return node.index
    return (node.value,) if isinstance(node, Var) else (node.extent,) if isinstance(node, Reduce) else ()


@lru_cache(maxsize=4096)
def _index_size(index: Index) -> int:
    if isinstance(index, Indirect):
        return sum(_index_size(q) for q in index.index)
    return sum(1 + _index_size(atom.numerator) if isinstance(atom, Floor) else 1 for _, atom in index.terms)


def element(term: Expr, row: Quasi, col: Quasi) -> Expr:
    """The term of the element at (row, col)."""
    return substitute(term, {ROW: row, COL: col})


def total(base: Expr, addends: tuple[Expr, ...]) -> Expr:
    """base + addends, a base of zero left out."""
    parts = list(addends) if base == ZERO_TERM and addends else [base, *addends]
    result = parts[0]
    for part in parts[1:]:
        result = Fn("add", (result, part))
    return result


def normal(term: Expr, domain: Domain, depth: int = 0) -> Expr:
    """The normal form of a term over a domain."""
    if isinstance(term, Const):
        return Const(float(term.value) + 0.0)
    if isinstance(term, Var):
        return Var(simplify(term.value, domain))
    if isinstance(term, At):
        return At(term.name, tuple(_index(i, domain) for i in term.index), term.next)
    if isinstance(term, Fn):
        args = tuple(normal(a, domain, depth) for a in term.args)
        ordered = tuple(sorted(args, key=_order)) if term.op in COMMUTATIVE else args
        return _constant(term.op, args) or Fn(term.op, ordered, term.dtype if term.op == "cast" else "")
    var = f"%b{depth}"
    extent = simplify(term.extent, domain)
    if extent == quasi(1):
        return normal(substitute(term.body, {term.var: 0}), domain, depth)
    inside = domain.with_loop(var, extent)
    body = substitute(term.body, {term.var: quasi(var)})
    return Reduce(term.kind, var, extent, normal(body, inside, depth + 1))


@lru_cache(maxsize=MAX_TERM_NODES)
def _order(term: Expr) -> str:
    """By what arguments are ordered: as short for a large term as for a small one."""
    inside = "".join(_order(child) for child in children(term))
    return sha256(f"{_head(term)!r}{inside}".encode()).hexdigest()


def _constant(op: str, args: tuple[Expr, ...]) -> Const | None:
    """x - x = 0; exp(0) = 1; x / x = 1 where x is never 0; for an x that always has a value."""
    first = args[0]
    if op == "exp" and first == Const(0.0):
        return Const(1.0)
    if op not in ("sub", "div") or first != args[1] or any(_may_have_none(node) for node in walk(first)):
        return None
    if op == "sub":
        return Const(0.0)
    return Const(1.0) if _never_zero(first) else None


def _may_have_none(node: Expr) -> bool:
    """Is it an operator that has no value for some arguments, and may have such?"""
    return isinstance(node, Fn) and node.op in PARTIAL and not (node.op == "div" and _never_zero(node.args[1]))


def _never_zero(term: Expr) -> bool:
    return term.value != 0 if isinstance(term, Const) else isinstance(term, Fn) and term.op == "exp"


def _index(index: Index, domain: Domain) -> Index:
    if isinstance(index, Quasi):
        return simplify(index, domain)
    return Indirect(index.tensor, tuple(simplify(q, domain) for q in index.index), 0, 0)


@lru_cache(maxsize=4096)
def simplify(value: Quasi, domain: Domain) -> Quasi:
    """An equal expression on the domain: variables and floors with one possible value replaced by it."""
    total_ = quasi(value.const)
    for coefficient, atom in value.terms:
        if isinstance(atom, Floor):
            inner = simplify(atom.numerator, domain) // atom.divisor
            total_ = total_ + _single(inner, domain) * coefficient
        else:
            total_ = total_ + _single(quasi(atom), domain) * coefficient
    return total_


def _single(value: Quasi, domain: Domain) -> Quasi:
    if value.is_const:
        return value
    lo = lower(value, domain)
    return quasi(lo) if lo == upper(value, domain) else value


def difference(left: Expr, right: Expr) -> str:
    """The first place where two normal forms differ, worded; nothing when they are equal."""
    if left == right:
        return ""
    if type(left) is type(right) and _head(left) == _head(right):
        for a, b in zip(children(left), children(right), strict=True):
            found = difference(a, b)
            if found:
                return found
    return f"{worded(left)} instead of {worded(right)}"


def _head(term: Expr) -> object:
    if isinstance(term, Fn):
        return (term.op, term.dtype)
    if isinstance(term, Reduce):
        return (term.kind, term.extent)
    return term


def worded(term: Expr, depth: int = 0) -> str:
    """A term as a person reads it, cut short below a few levels."""
    if depth > 4:
        return "..."
    if isinstance(term, Const):
        return f"{term.value:g}"
    if isinstance(term, Var):
        return _names(str(term.value))
    if isinstance(term, At):
        places = (
            f"{i.tensor}[{', '.join(map(str, i.index))}]" if isinstance(i, Indirect) else str(i) for i in term.index
        )
        return f"{term.name}[{_names(', '.join(places))}]"
    if isinstance(term, Fn):
        return f"{term.op}({', '.join(worded(a, depth + 1) for a in term.args)})"
    return f"{term.kind}({_names(term.var)} < {_names(str(term.extent))}) {worded(term.body, depth + 1)}"


def _names(text: str) -> str:
    return text.replace("%r", "row").replace("%c", "col").replace("%b", "k").replace("%k", "k")
