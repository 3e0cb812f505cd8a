"""Generic: an expression evaluated for all rows and columns at once.

An operand's elements are asked of `read(name, rows, cols)`, where rows and cols are index arrays that broadcast to
[rows, cols, k]. Floats are f32 and round after every operator; integers stay integers while only integers meet (none of
them above 2**31 where they are added or multiplied). exp and its like are computed in float64 and rounded to f32.
`round` takes halves away from zero; `cast` truncates and saturates.

SUM has one tree: lane l of 16 adds the terms k = l (mod 16) in ascending k from 0, in f32, then lane l + 8 is added
to lane l, and so on by halving.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from pavane.ir.expr import At, Const, Expr, Fn, Reduce, Var
from pavane.ir.program import LV_GEN_COL, LV_GEN_K, LV_GEN_ROW
from pavane.ir.quasi import Quasi
from pavane.sim.matmul import folded
from pavane.sim.numbers import NUMPY
from pavane.tensor_graph.q8 import round_half_away

Read = Callable[[str, np.ndarray, np.ndarray], np.ndarray]
Point = Mapping[str, int | np.ndarray]
SUM_LANES = 16
_MOST = 1 << 31  # two of them give a product, and 2**31 of them a sum, that 64 bits hold


def evaluated(expr: Expr, read: Read, variables: Mapping[str, int], rows: int, cols: int) -> np.ndarray:
    """The [rows, cols] values of an expression at loop variables, sites and symbols."""
    point: dict[str, int | np.ndarray] = {
        **variables,
        LV_GEN_ROW: np.arange(rows).reshape(rows, 1, 1),
        LV_GEN_COL: np.arange(cols).reshape(1, cols, 1),
    }
    with np.errstate(all="ignore"):
        found = _value(expr, read, point)
    return np.broadcast_to(found, (rows, cols, 1))[:, :, 0]


def index_values(index: Quasi, point: Point) -> int | np.ndarray:
    """A quasi-affine expression where some variables are arrays."""
    total: int | np.ndarray = index.const
    for coefficient, atom in index.terms:
        part = point[atom] if isinstance(atom, str) else index_values(atom.numerator, point) // atom.divisor
        total = total + coefficient * part
    return total


def _value(expr: Expr, read: Read, point: Point) -> np.ndarray:
    if isinstance(expr, Const):
        return np.array([[[_plain_number(expr.value)]]])
    if isinstance(expr, Var):
        return _index_array(expr.value, point)
    if isinstance(expr, At):
        row, col = (_index_array(i, point) for i in expr.index if isinstance(i, Quasi))
        return read(expr.name, row, col)
    if isinstance(expr, Fn):
        return _applied(expr, [_value(a, read, point) for a in expr.args])
    return _reduced(expr, read, point)


def _plain_number(value: float) -> np.int64 | np.float32:
    """A small whole constant is an integer, so that it leaves integers integers; beside a float it becomes one."""
    return np.int64(value) if abs(value) <= 1 << 24 and value == math.trunc(value) else np.float32(value)


def _index_array(index: Quasi, point: Point) -> np.ndarray:
    found = np.asarray(index_values(index, point), np.int64)
    return found if found.ndim == 3 else found.reshape(1, 1, 1)


def _reduced(expr: Reduce, read: Read, point: Point) -> np.ndarray:
    extent = index_values(expr.extent, point)
    steps = np.arange(int(np.asarray(extent).max(initial=0))).reshape(1, 1, -1)
    terms = _value(expr.body, read, {**point, LV_GEN_K: steps, expr.var: steps})
    if terms.shape[2] != steps.shape[2]:
        terms = np.broadcast_to(terms, (*terms.shape[:2], steps.shape[2]))
    if expr.kind == "MAX":
        return terms.max(axis=2, keepdims=True)
    return _tree_sum(_small(terms))[:, :, None]


def _tree_sum(terms: np.ndarray) -> np.ndarray:
    lanes = np.zeros((*terms.shape[:2], SUM_LANES), terms.dtype)
    for start in range(0, terms.shape[2], SUM_LANES):
        part = terms[:, :, start : start + SUM_LANES]
        lanes[:, :, : part.shape[2]] += part
    return folded(lanes)


def _applied(expr: Fn, args: list[np.ndarray]) -> np.ndarray:
    if expr.op == "cast":
        limits = np.iinfo(NUMPY[expr.dtype])
        return np.clip(np.trunc(args[0]), limits.min, limits.max).astype(np.int64)
    if expr.op == "select":
        a, b = _alike(args[1], args[2])
        return np.where(args[0] != 0, a, b)
    if expr.op in ("add", "sub", "mul"):
        args = [_small(a) for a in args]
    if expr.op in _PLAIN:
        return _PLAIN[expr.op](*_alike(*args))
    return _FUNCTIONS[expr.op](_float(args[0]).astype(np.float64)).astype(np.float32)


def _alike(*args: np.ndarray) -> list[np.ndarray]:
    """All integers, or all f32."""
    if all(a.dtype.kind == "i" for a in args):
        return list(args)
    return [_float(a) for a in args]


def _small(array: np.ndarray) -> np.ndarray:
    """Integers up to _MOST; others as f32."""
    fits = array.dtype.kind != "i" or -_MOST <= array.min(initial=0) <= array.max(initial=0) <= _MOST
    return array if fits else _float(array)


def _float(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32)


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _float(a) / _float(b)


def _rounded(a: np.ndarray) -> np.ndarray:
    return a if a.dtype.kind == "i" else round_half_away(a)


_PLAIN: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divided,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "eq": lambda a, b: (a == b).astype(np.int64),
    "lt": lambda a, b: (a < b).astype(np.int64),
    "le": lambda a, b: (a <= b).astype(np.int64),
    "round": _rounded,
}

_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}
