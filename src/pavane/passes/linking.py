"""A recognised op's expressions as links, and its operands as windows over the axes of the section."""

from __future__ import annotations

from collections.abc import Mapping

from pavane.ir.expr import At, Const, Expr, Fn, Reduce, Var, fn
from pavane.ir.quasi import Quasi, quasi
from pavane.passes.chain import Link, Scope
from pavane.passes.template import READER_A, Axis, Operand, extents, window
from pavane.tensor_graph.recognised import LinkExpr
from pavane.tensor_graph.recognised import Operand as Given


def link_of(given: LinkExpr) -> Link:
    """The same value, written for any scope."""

    def build(scope: Scope, r: Quasi, c: Quasi) -> Expr:
        return _built(given.expr, scope, {"i0": r, "i1": c})

    return Link(given.name, build, given.per_row, given.cut)


def _built(expr: Expr, scope: Scope, at: Mapping[str, Quasi]) -> Expr:
    if isinstance(expr, At):
        row, col = (index.substitute(at) for index in expr.index if isinstance(index, Quasi))
        return scope.get(expr.name, row, col)
    if isinstance(expr, Fn):
        return fn(expr.op, *(_built(a, scope, at) for a in expr.args), dtype=expr.dtype)
    if isinstance(expr, Reduce):
        reduce = scope.total if expr.kind == "SUM" else scope.greatest
        return reduce(expr.extent, lambda k: _built(expr.body, scope, {**at, expr.var: k}))
    return Var(expr.value.substitute(at)) if isinstance(expr, Var) else Const(expr.value)


def operand_over(given: Given, rows: Axis, cols: Axis, stage: str = READER_A) -> Operand:
    """What an item needs of an operand: its block, its piece of a row or column, or one element."""
    whole_row, one_col = (rows.start, rows.size), (quasi(0), 1)
    if given.spread == "full":
        shape, part = extents(rows.limit, cols.limit), window(whole_row, cols.dim, row=0)
    elif given.spread == "per_row":
        shape, part = extents(rows.limit, 1), window(whole_row, one_col, row=0)
    elif given.spread == "per_column":
        shape, part = extents(cols.limit), window(cols.dim)
    else:
        shape, part = extents(1), window(one_col)
    return Operand(given.formal, given.tensor, shape, part, stage)
