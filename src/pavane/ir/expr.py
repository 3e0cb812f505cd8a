"""The one expression language: of specs, and (a subset) of Generic.

    Expr = Const | Var(quasi) | At(name, index) | Fn(op, args) | Reduce(kind, var, extent, body)

In a **spec** the variables are `i0, i1, ...` (the output's coordinates), symbols, and the reductions' own; `At` names
a formal and indexes it in all its dimensions. In a **Generic** they are LV_GEN_ROW, LV_GEN_COL, LV_GEN_K, the loops
around it, SITE_X, SITE_Y and symbols; `At` names a FIFO (the slot in front, or reserved) or a carry, indexed (row,
column); at most one Reduce, over LV_GEN_K. Values are real numbers; comparisons give 1 or 0; storage types round,
they do not change the meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from pavane.ir.canonical import one_number
from pavane.ir.quasi import Quasi, quasi

Op = Literal[
    "add", "sub", "mul", "div", "min", "max", "abs", "eq", "lt", "le", "select", "round", "cast",
    "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf",
]  # fmt: skip

ARITY: dict[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "eq": 2, "lt": 2, "le": 2, "select": 3,
    "abs": 1, "round": 1, "cast": 1, "exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1, "sin": 1, "cos": 1, "tanh": 1, "erf": 1,
}  # fmt: skip
COMMUTATIVE = ("add", "mul", "min", "max", "eq")


class Const(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="const"):
    """A finite number."""

    value: float

    def __post_init__(self) -> None:
        one_number(self, "value")


class Var(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="var"):
    """The value of a quasi-affine expression, as a number."""

    value: Quasi


class Indirect(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """An index read at run time: element `index` of the i32 tensor (formal) `tensor`, somewhere in [lo, hi).

    `via` names the FIFO whose front slot holds it when the reader uses it; a spec leaves it empty.
    """

    tensor: str
    index: tuple[Quasi, ...]
    lo: int
    hi: int
    via: str = ""


Index = Quasi | Indirect


class At(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="at"):
    """One element of an operand. `next` (specs only): of a STATE operand after its transition."""

    name: str
    index: tuple[Index, ...]
    next: bool = False


class Fn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="fn"):
    """An operator of the closed list. `select(c, a, b)` is a where c is not 0; `cast` names an integer `dtype`."""

    op: Op
    args: tuple[Expr, ...]
    dtype: str = ""

    def __post_init__(self) -> None:
        if len(self.args) != ARITY[self.op]:
            raise ValueError(f"{self.op} takes {ARITY[self.op]} arguments, got {len(self.args)}")


class Reduce(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="reduce"):
    """SUM or MAX of `body` over 0 <= var < extent. An empty SUM is 0; an empty MAX is refused."""

    kind: Literal["SUM", "MAX"]
    var: str
    extent: Quasi
    body: Expr


Expr = Const | Var | At | Fn | Reduce


def at(name: str, *index: Index | int | str, next: bool = False) -> At:
    """`at("A", "i0", "k0")`; strings are variables."""
    return At(name, tuple(i if isinstance(i, Indirect) else quasi(i) for i in index), next)


def fn(op: Op, *args: Expr | float, dtype: str = "") -> Fn:
    """`fn("mul", a, 0.125)`; plain numbers become constants."""
    return Fn(op, tuple(Const(float(a)) if isinstance(a, int | float) else a for a in args), dtype)


def children(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Fn):
        return expr.args
    return (expr.body,) if isinstance(expr, Reduce) else ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node, outermost first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def names(expr: Expr) -> tuple[str, ...]:
    """The operands an expression reads, in order of first occurrence."""
    return tuple(dict.fromkeys(e.name for e in walk(expr) if isinstance(e, At)))


def substitute(expr: Expr, bindings: Mapping[str, Quasi | int]) -> Expr:
    """Replace free variables, simultaneously. A reduction's own variable is not free in its body.

    The caller keeps the bindings' variables distinct from the reductions' variables (no capture).
    """
    if isinstance(expr, Const):
        return expr
    if isinstance(expr, Var):
        return Var(expr.value.substitute(bindings))
    if isinstance(expr, At):
        return At(expr.name, tuple(substitute_index(i, bindings) for i in expr.index), expr.next)
    if isinstance(expr, Fn):
        return Fn(expr.op, tuple(substitute(a, bindings) for a in expr.args), expr.dtype)
    inner = {name: value for name, value in bindings.items() if name != expr.var}
    return Reduce(expr.kind, expr.var, expr.extent.substitute(bindings), substitute(expr.body, inner))


def substitute_index(index: Index, bindings: Mapping[str, Quasi | int]) -> Index:
    if isinstance(index, Quasi):
        return index.substitute(bindings)
    return Indirect(index.tensor, tuple(q.substitute(bindings) for q in index.index), index.lo, index.hi, index.via)


def replace_operands(expr: Expr, replace: Callable[[At], Expr]) -> Expr:
    """Rebuild with every `At` replaced."""
    if isinstance(expr, At):
        return replace(expr)
    if isinstance(expr, Fn):
        return Fn(expr.op, tuple(replace_operands(a, replace) for a in expr.args), expr.dtype)
    if isinstance(expr, Reduce):
        return Reduce(expr.kind, expr.var, expr.extent, replace_operands(expr.body, replace))
    return expr
