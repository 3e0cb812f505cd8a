"""Evaluating a spec's expressions with whole arrays: every value is labelled with the variables that it depends on.

The arithmetic is a parameter (`Algebra`): plain numbers in `reference`, numbers with an error in `bound`. A value's
payload is a tuple of arrays of one shape (the numbers; or the numbers and their errors), with one axis a variable. So a
subexpression that does not depend on a variable is computed once, and a sum of products over a shared variable becomes
one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Protocol

import msgspec
import numpy as np

from pavane.ir.expr import At, Const, Expr, Fn, Indirect, Reduce, Var
from pavane.ir.quasi import Quasi
from pavane.reject import LaunchReject

Payload = tuple[np.ndarray, ...]


class Labelled(msgspec.Struct, frozen=True):
    """Arrays of one shape whose axes are the variables in `names`."""

    names: tuple[str, ...]
    payload: Payload


class Algebra(Protocol):
    """What the numbers are. Payloads of one call broadcast with each other."""

    def number(self, value: np.ndarray) -> Payload: ...

    def apply(self, op: str, args: tuple[Payload, ...], dtype: str) -> Payload: ...

    def reduce(self, kind: str, value: Payload) -> Payload:
        """Over the last axis."""
        ...

    def contract(self, left: Payload, right: Payload, weight: str) -> Payload:
        """[batch, m, k] . [batch, k, n] -> [batch, m, n]; `weight` is the formal that the right factor reads, or ""."""
        ...


class Scope(msgspec.Struct, frozen=True):
    """Extents of the variables in reach, values of the symbols, the operands' payloads (plain and after the
    transition).
    """

    extents: Mapping[str, int]
    symbols: Mapping[str, int]
    read: Callable[[str, bool], Payload]
    algebra: Algebra

    def inside(self, variable: str, extent: int) -> Scope:
        return Scope({**self.extents, variable: extent}, self.symbols, self.read, self.algebra)


def evaluate(expr: Expr, scope: Scope) -> Labelled:
    """The value of an expression for all values of the variables in reach that it depends on."""
    if isinstance(expr, Const):
        return Labelled((), scope.algebra.number(np.asarray(expr.value)))
    if isinstance(expr, Var):
        names, values = index_values(expr.value, scope)
        return Labelled(names, scope.algebra.number(values))
    if isinstance(expr, At):
        return _operand(expr, scope)
    if isinstance(expr, Fn):
        names, payloads = aligned(tuple(evaluate(a, scope) for a in expr.args))
        return Labelled(names, scope.algebra.apply(expr.op, payloads, expr.dtype))
    return _reduction(expr, scope)


# --- indices and operands ---------------------------------------------------------------------------------------------


def index_values(value: Quasi, scope: Scope) -> tuple[tuple[str, ...], np.ndarray]:
    """A quasi-affine expression as an integer array over the variables that it holds."""
    names = tuple(n for n in value.variables() if n in scope.extents)
    points: dict[str, Any] = dict(scope.symbols)
    points.update((n, np.arange(scope.extents[n]).reshape(tuple(-1 if n == m else 1 for m in names))) for n in names)
    shape = tuple(scope.extents[n] for n in names)
    return names, np.broadcast_to(np.asarray(_at_points(value, points)), shape)


def _at_points(value: Quasi, points: Mapping[str, Any]) -> Any:
    """A quasi-affine expression at numbers or at arrays that broadcast."""
    total: Any = value.const
    for coefficient, atom in value.terms:
        if isinstance(atom, str):
            total = total + coefficient * points[atom]
        else:
            total = total + coefficient * (_at_points(atom.numerator, points) // atom.divisor)
    return total


def _operand(expr: At, scope: Scope) -> Labelled:
    """One array look-up: dimension by dimension where no two indices share a variable, else all at once."""
    payload = scope.read(expr.name, expr.next)
    indices = [_index(expr, d, scope) for d in range(len(expr.index))]
    for d, (_, values) in enumerate(indices):
        _check_inside(expr, d, values, payload[0].shape[d])
    used = [n for names, _ in indices for n in names]
    if len(used) == len(set(used)) and all(len(names) <= 1 for names, _ in indices):
        return Labelled(tuple(used), tuple(_taken(a, [values for _, values in indices]) for a in payload))
    names, positions = aligned(tuple(Labelled(n, (v,)) for n, v in indices))
    return Labelled(names, tuple(a[tuple(p[0] for p in positions)] for a in payload))


def _index(expr: At, dimension: int, scope: Scope) -> tuple[tuple[str, ...], np.ndarray]:
    index = expr.index[dimension]
    if isinstance(index, Quasi):
        return index_values(index, scope)
    return _indirect(index, scope)


def _indirect(index: Indirect, scope: Scope) -> tuple[tuple[str, ...], np.ndarray]:
    found = _operand(At(index.tensor, index.index), scope)
    values = np.asarray(found.payload[0]).astype(np.int64)
    if values.size and (values.min() < index.lo or values.max() >= index.hi):
        raise LaunchReject(
            f"an index of {index.tensor} lies outside the table",
            needed=f"{index.lo} to {index.hi - 1}",
            available=f"{values.min()} to {values.max()}",
            remedy="give indices of the table's rows",
        )
    return found.names, values


def _check_inside(expr: At, dimension: int, values: np.ndarray, extent: int) -> None:
    if values.size and (values.min() < 0 or values.max() >= extent):
        raise IndexError(
            f"{expr.name} is read at {values.min()} to {values.max()} of {extent} in dimension {dimension}"
        )


def _taken(array: np.ndarray, indices: list[np.ndarray]) -> np.ndarray:
    """One index array (a number or one axis) a dimension."""
    for d in reversed(range(len(indices))):
        values = indices[d]
        if values.ndim == 0:
            array = array[(slice(None),) * d + (int(values),)]
        elif values.size and np.array_equal(values, np.arange(values[0], values[0] + values.size)):
            array = array[(slice(None),) * d + (slice(int(values[0]), int(values[0]) + values.size),)]
        else:
            array = np.take(array, values, axis=d)
    return array


# --- axes -------------------------------------------------------------------------------------------------------------


def aligned(values: tuple[Labelled, ...]) -> tuple[tuple[str, ...], tuple[Payload, ...]]:
    """All variables of the values in order of first occurrence, and payloads that broadcast over them."""
    names = tuple(dict.fromkeys(n for value in values for n in value.names))
    return names, tuple(tuple(_spread(a, value.names, names) for a in value.payload) for value in values)


def _spread(array: np.ndarray, have: tuple[str, ...], want: tuple[str, ...]) -> np.ndarray:
    """Axes in the order of `want`, those that are missing with extent 1."""
    order = [have.index(n) for n in want if n in have]
    array = np.transpose(array, order)
    return array.reshape(tuple(array.shape[[m for m in want if m in have].index(n)] if n in have else 1 for n in want))


def full_array(value: Labelled, index: int, names: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
    """One array of the payload over the given axes, in that order, broadcast to `shape`."""
    return np.broadcast_to(_spread(value.payload[index], value.names, names), shape)


# --- reductions -------------------------------------------------------------------------------------------------------


def _reduction(expr: Reduce, scope: Scope) -> Labelled:
    extent = expr.extent.evaluate(scope.symbols)
    inner = scope.inside(expr.var, extent)
    body = expr.body
    if expr.kind == "SUM" and isinstance(body, Fn) and body.op == "mul":
        left, right = evaluate(body.args[0], inner), evaluate(body.args[1], inner)
        if expr.var in left.names and expr.var in right.names and _outer(left, right, expr.var):
            weight = body.args[1].name if isinstance(body.args[1], At) else ""
            return _contraction(left, right, expr.var, scope, weight)
        names, payloads = aligned((left, right))
        value = Labelled(names, scope.algebra.apply("mul", payloads, ""))
    else:
        value = evaluate(body, inner)
    names = tuple(n for n in value.names if n != expr.var)
    shape = (*(scope.extents[n] for n in names), extent)
    arrays = tuple(full_array(value, i, (*names, expr.var), shape) for i in range(len(value.payload)))
    return Labelled(names, scope.algebra.reduce(expr.kind, arrays))


def _outer(left: Labelled, right: Labelled, variable: str) -> bool:
    """Has each factor an axis of its own, so that the sum is a matrix product?"""
    own = [n for n in left.names if n not in right.names]
    return bool(own) and any(n not in left.names for n in right.names) and variable not in own


def _contraction(left: Labelled, right: Labelled, variable: str, scope: Scope, weight: str) -> Labelled:
    """Shared variables are the batch, each factor's own variables its rows or columns."""
    batch = tuple(n for n in left.names if n in right.names and n != variable)
    rows = tuple(n for n in left.names if n not in right.names)
    cols = tuple(n for n in right.names if n not in left.names)
    extent = scope.inside(variable, _extent(left, variable)).extents
    sizes = [tuple(extent[n] for n in names) for names in (batch, rows, cols)]
    k = (extent[variable],)
    flat = [prod(s) for s in sizes]
    a = tuple(
        full_array(left, i, (*batch, *rows, variable), (*sizes[0], *sizes[1], *k)).reshape(flat[0], flat[1], k[0])
        for i in range(len(left.payload))
    )
    b = tuple(
        full_array(right, i, (*batch, variable, *cols), (*sizes[0], *k, *sizes[2])).reshape(flat[0], k[0], flat[2])
        for i in range(len(right.payload))
    )
    product = scope.algebra.contract(a, b, weight)
    return Labelled((*batch, *rows, *cols), tuple(p.reshape(*sizes[0], *sizes[1], *sizes[2]) for p in product))


def _extent(value: Labelled, variable: str) -> int:
    return value.payload[0].shape[value.names.index(variable)]
