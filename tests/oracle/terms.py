"""Expressions on numbers: a value is an array with one named axis a variable that it depends on (reals as float64)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from pavane.ir.expr import At, Const, Expr, Fn, Indirect, Reduce, Var
from pavane.ir.quasi import Quasi
from tests.oracle.spaces import Fault

Labelled = tuple[tuple[str, ...], np.ndarray]
Read = Callable[[At, tuple[np.ndarray, ...]], np.ndarray]
RANGE = {"i8": (-128, 127), "i32": (-(2**31), 2**31 - 1)}


class Scope:
    """Extents of variables that range, values of those that are fixed, and how an operand is read at indices."""

    def __init__(self, extents: Mapping[str, int], fixed: Mapping[str, int], read: Read) -> None:
        self.extents = dict(extents)
        self.fixed = dict(fixed)
        self.read = read


def value_of(expr: Expr, scope: Scope) -> Labelled:
    """The value over the variables it depends on."""
    if isinstance(expr, Const):
        return (), np.asarray(float(expr.value))
    if isinstance(expr, Var):
        names, values = index_of(expr.value, scope)
        return names, values.astype(float)
    if isinstance(expr, At):
        names, indices = _aligned([_index(i, scope) for i in expr.index])
        return names, scope.read(expr, tuple(np.broadcast_arrays(*indices)))
    if isinstance(expr, Fn):
        names, args = _aligned([value_of(a, scope) for a in expr.args])
        with np.errstate(all="ignore"):
            return names, np.asarray(_apply(expr, args))
    return _reduce(expr, scope)


def over(value: Labelled, names: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
    """One array over exactly these axes."""
    return np.broadcast_to(_spread(value, names), shape)


def index_of(index: Quasi, scope: Scope) -> Labelled:
    """A quasi-affine expression; variables that range become axes."""
    names = tuple(n for n in index.variables() if n in scope.extents)
    axes = {n: np.arange(scope.extents[n]).reshape([-1 if m == n else 1 for m in names]) for n in names}
    result = np.asarray(_at(index, {**scope.fixed, **axes}))
    return names, np.broadcast_to(result, tuple(scope.extents[n] for n in names))


def _at(index: Quasi, points: Mapping[str, object]) -> object:
    total: object = index.const
    for coefficient, atom in index.terms:
        inner = points[atom] if isinstance(atom, str) else _at(atom.numerator, points) // atom.divisor
        total = total + coefficient * inner
    return total


def _index(index: Quasi | Indirect, scope: Scope) -> Labelled:
    if isinstance(index, Quasi):
        return index_of(index, scope)
    names, inner = value_of(At(index.tensor, index.index), scope)
    if inner.size and (inner.min() < index.lo or inner.max() >= index.hi):
        raise Fault(f"an index of {index.tensor} lies outside [{index.lo}, {index.hi})")
    return names, inner.astype(np.int64)


def _aligned(values: list[Labelled]) -> tuple[tuple[str, ...], list[np.ndarray]]:
    names = tuple(dict.fromkeys(n for have, _ in values for n in have))
    return names, [_spread(v, names) for v in values]


def _spread(value: Labelled, names: tuple[str, ...]) -> np.ndarray:
    have, array = value
    array = np.transpose(array, [have.index(n) for n in names if n in have])
    sizes = iter(array.shape)
    return array.reshape([next(sizes) if n in have else 1 for n in names])


def _apply(expr: Fn, args: list[np.ndarray]) -> np.ndarray:
    if expr.op == "cast":
        return np.clip(np.trunc(args[0]), *RANGE[expr.dtype])
    return _FUNCTIONS[expr.op](*args)


def _reduce(expr: Reduce, scope: Scope) -> Labelled:
    extent = int(index_of(expr.extent, Scope({}, scope.fixed, scope.read))[1])
    inner = Scope({**scope.extents, expr.var: extent}, scope.fixed, scope.read)
    inner.fixed.pop(expr.var, None)
    if expr.kind == "MAX" and extent < 1:
        raise Fault("a MAX of nothing")
    body = expr.body
    if expr.kind == "SUM" and isinstance(body, Fn) and body.op == "mul":
        (left, a), (right, b) = (value_of(x, inner) for x in body.args)
        if expr.var in left and expr.var in right:
            return _product(left, a, right, b, expr.var)
    names, values = value_of(body, inner)
    keep = tuple(n for n in names if n != expr.var)
    full = over((names, values), (*keep, expr.var), (*(inner.extents[n] for n in keep), max(extent, 0)))
    return keep, full.sum(-1) if expr.kind == "SUM" else full.max(-1)


def _product(left: tuple[str, ...], a: np.ndarray, right: tuple[str, ...], b: np.ndarray, over_name: str) -> Labelled:
    letters = {n: i for i, n in enumerate(dict.fromkeys((*left, *right)))}
    keep = tuple(n for n in letters if n != over_name)
    with np.errstate(all="ignore"):
        product = np.einsum(a, [letters[n] for n in left], b, [letters[n] for n in right], [letters[n] for n in keep])
    return keep, product


def half_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum, "max": np.maximum,
    "abs": np.abs, "eq": lambda a, b: 1.0 * (a == b), "lt": lambda a, b: 1.0 * (a < b),
    "le": lambda a, b: 1.0 * (a <= b), "select": lambda c, a, b: np.where(c != 0, a, b),
    "round": half_away, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]),
}  # fmt: skip
