"""Expressions on cells: a value is an array of them with one named axis a variable that it depends on.

What an operator does to the numbers is here (reals as float64), what it does to the terms is in `laws`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from pavane.ir.expr import At, Const, Expr, Fn, Indirect, Reduce, Var
from pavane.ir.quasi import Quasi
from tests.oracle.cells import CELL, Cells, constants
from tests.oracle.figures import require_finite, require_in_f32
from tests.oracle.laws import Laws
from tests.oracle.spaces import Fault

Labelled = tuple[tuple[str, ...], np.ndarray]  # of cells, or of integers where it is an index
Read = Callable[[At, tuple[np.ndarray, ...]], Cells]
RANGE = {"i8": (-128, 127), "i32": (-(2**31), 2**31 - 1)}


class Scope:
    """Extents of variables that range, values of those that are fixed, and how an operand is read at indices. `single`:
    an engine computes in f32, whose numbers must be those that are meant (of a spec they are any).
    """

    def __init__(
        self, laws: Laws, extents: Mapping[str, int], fixed: Mapping[str, int], read: Read, single: bool = False
    ) -> None:
        self.laws = laws
        self.extents = dict(extents)
        self.fixed = dict(fixed)
        self.read = read
        self.single = single

    def within(self, extents: Mapping[str, int], fixed: Mapping[str, int]) -> Scope:
        """With other variables."""
        return Scope(self.laws, extents, fixed, self.read, self.single)


def value_of(expr: Expr, scope: Scope) -> Labelled:
    """The value over the variables it depends on."""
    if isinstance(expr, Const):
        if scope.single:
            require_finite(expr.value, "f32", "a constant")
        return (), constants(expr.value)
    if isinstance(expr, Var):
        names, values = index_of(expr.value, scope)
        if scope.single:
            require_in_f32(values.astype(float), str(expr.value))
        return names, constants(values)
    if isinstance(expr, At):
        return _element(expr, scope)
    if isinstance(expr, Fn):
        names, args = _aligned([value_of(a, scope) for a in expr.args])
        name = f"cast {expr.dtype}" if expr.op == "cast" else expr.op
        return names, scope.laws.function(name, args, _number_of(expr, [a["number"] for a in args]))
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


def _element(at: At, scope: Scope) -> Labelled:
    """An element; where indices are read at run time, through them."""
    through = [value_of(At(i.tensor, i.index), scope) for i in at.index if isinstance(i, Indirect)]
    found = iter(through)
    indices = [index_of(i, scope) if isinstance(i, Quasi) else _checked(i, next(found)) for i in at.index]
    names, aligned = _aligned([*indices, *through])
    value = scope.read(at, tuple(np.broadcast_arrays(*aligned[: len(indices)])))
    for index in aligned[len(indices) :]:
        value = scope.laws.through(index, value)
    return names, value


def _checked(index: Indirect, value: Labelled) -> Labelled:
    names, inner = value[0], value[1]["number"]
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


def _number_of(expr: Fn, args: list[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        if expr.op == "cast":
            return np.clip(np.trunc(args[0]), *RANGE[expr.dtype])
        return np.asarray(_FUNCTIONS[expr.op](*args))


def _reduce(expr: Reduce, scope: Scope) -> Labelled:
    names, extents = index_of(expr.extent, scope)
    if names:
        return _apart(expr, names, scope)
    extent = int(extents)
    if extent < 1:
        if expr.kind == "MAX":
            raise Fault("a MAX of nothing")
        return (), constants(0.0)
    inner = scope.within({**scope.extents, expr.var: extent}, {v: x for v, x in scope.fixed.items() if v != expr.var})
    body = expr.body
    if expr.kind == "SUM" and isinstance(body, Fn) and body.op == "mul":
        (left, a), (right, b) = (value_of(x, inner) for x in body.args)
        if expr.var in left and expr.var in right:
            return scope.laws.product(left, a, right, b, expr.var)
    names, values = value_of(body, inner)
    keep = tuple(n for n in names if n != expr.var)
    full = over((names, values), (*keep, expr.var), (*(inner.extents[n] for n in keep), extent))
    return keep, scope.laws.total(full) if expr.kind == "SUM" else scope.laws.greatest(full)


def _apart(expr: Reduce, names: tuple[str, ...], scope: Scope) -> Labelled:
    """A reduction whose extent depends on variables that range: by itself at each of their points."""
    others = {name: extent for name, extent in scope.extents.items() if name not in names}
    sizes = tuple(scope.extents[name] for name in names)
    points = (dict(zip(names, point, strict=True)) for point in np.ndindex(sizes))
    found = [_reduce(expr, scope.within(others, {**scope.fixed, **point})) for point in points]
    rest = tuple(dict.fromkeys(name for have, _ in found for name in have))
    shape = tuple(others[name] for name in rest)
    values = [over(value, rest, shape) for value in found] or [np.zeros((0, *shape), CELL)]
    return (*names, *rest), np.stack(values).reshape(*sizes, *shape)


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
