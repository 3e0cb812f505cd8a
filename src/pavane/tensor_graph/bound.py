"""How far an engine may be from a section's meaning, on actual operands: a running forward error bound.

Each value of the spec is carried with a bound of its absolute error. An operator rounds once in f32; exp and its like
err by their stated `FUNCTION_ULPS`; a sum of n terms, in whatever order, errs by gamma_n of its terms' magnitudes; an
operand of a product is rounded to the type in which the engine takes it (`numerics.operands`, or the carry that holds
it: types in blocks block by block), and to the significand bits that the target's engine multiplies; what is stored is
rounded to its tensor's type. Sections that are claimed exact have the bound 0.

Source: Higham, Accuracy and Stability of Numerical Algorithms, 2002, sections 3.1 and 3.3 (gamma_n, running error
analysis).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from pavane.ir.program import Compute, Instance, Load, MatmulTiles, Program, Shape, Spec
from pavane.ir.types import BFP_BLOCK, INTEGER_DTYPES, MAGNITUDE_BITS, Q8_BLOCK, SIGNIFICAND_BITS, block_elements
from pavane.ir.walk import bodies, leaves, named
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.fidelity import buffer_bits
from pavane.tensor_graph.evaluate import Labelled, Payload, Scope, evaluate, full_array
from pavane.tensor_graph.operands import STORAGE, extents_at, viewed
from pavane.tensor_graph.operands import numbers as tensor_numbers
from pavane.tensor_graph.reference import NUMPY_FUNCTIONS, Symbols, Tensors, bound_tensor, cast_values, formal_numbers

# Largest error of an engine's function, in units in the last place of f32. Engines may be better, not worse.
FUNCTION_ULPS = {"exp": 2, "log": 3, "sqrt": 1, "rsqrt": 2, "sin": 3, "cos": 3, "tanh": 3, "erf": 3}
UNIT, ULP = 2.0**-24, 2.0**-23
UNDERFLOW = 2.0**-126  # a result below f32's normal range may become 0


class Judged(msgspec.Struct, frozen=True):
    """One spec of a section: values over its extents, how far a right engine may be off, and where they lie in the
    formal.
    """

    tensor: str
    formal: str
    region: tuple[slice, ...]
    value: np.ndarray
    bound: np.ndarray


class Taken(msgspec.Struct, frozen=True):
    """The types in which operands of a product reach the engine, and the significand bits that it multiplies of each:
    those of f32 where it multiplies all (q8_0 by q8_0: as integers).
    """

    left: str
    right: str
    bits: tuple[int, int] = (SIGNIFICAND_BITS["f32"], SIGNIFICAND_BITS["f32"])


def error_bound(
    program: Program, tensors: Tensors, symbols: Symbols, instance: int = 0, target: SpatialTarget | None = None
) -> tuple[Judged, ...]:
    """Value and bound of everything that one instance writes, from the tensors as they are before it. Without a target
    every operand is multiplied in full.
    """
    bound_to = program.instances[instance]
    shape = named(program.shapes, bound_to.shape)
    algebra = ErrorAlgebra(products_of(shape, target))

    def read(name: str, following: bool) -> Payload:
        values = formal_numbers(program, bound_to, shape, name, tensors, symbols, np.float64)
        return values, np.zeros_like(values)

    return tuple(_judged(program, bound_to, shape, spec, read, algebra, symbols) for spec in shape.spec)


def worst_ratio(
    program: Program,
    before: Tensors,
    after: Tensors,
    symbols: Symbols,
    instance: int = 0,
    target: SpatialTarget | None = None,
) -> float:
    """max |engine - value| / bound over all that the instance wrote; at most 1 is right (0 / 0 counts as 0)."""
    worst = 0.0
    for judged in error_bound(program, before, symbols, instance, target):
        found = _written(program, instance, judged, after, symbols)
        excess = np.abs(found - judged.value)
        with np.errstate(all="ignore"):
            ratio = np.where(excess == 0, 0.0, np.where(judged.bound > 0, excess / judged.bound, np.inf))
        worst = max(worst, float(np.max(np.where(np.isnan(ratio), np.inf, ratio), initial=0.0)))
    return worst


def products_of(shape: Shape, target: SpatialTarget | None = None) -> Mapping[str, Taken]:
    """Per formal that a MatmulTiles reads as b: how both operands are taken."""
    loaded: dict[str, list[str]] = {}
    for _, body in bodies(shape):
        for _, step in leaves(body):
            if isinstance(step, Load):
                loaded.setdefault(step.fifo, []).append(step.tensor)
    carried = {carry.name: carry.dtype for carry in shape.carries}
    stored, widths = {formal.name: formal.dtype for formal in shape.formals}, buffer_bits(shape)
    taken = dict(shape.numerics.operands)
    out: dict[str, Taken] = {}
    for _, body in bodies(shape):
        for _, step in leaves(body):
            if isinstance(step, Compute) and isinstance(step.op, MatmulTiles) and step.op.b.name in loaded:
                left, needed = step.op.a.name, (widths[step.op.a.name], widths[step.op.b.name])
                formal = loaded.get(left, [""])[0]
                left_dtype = carried[left] if left in carried else taken.get(formal, stored.get(formal, "f32"))
                for right in loaded[step.op.b.name]:
                    out[right] = _taken(left_dtype, taken.get(right, stored[right]), needed, target)
    return out


def _taken(left: str, right: str, needed: tuple[int, int], target: SpatialTarget | None) -> Taken:
    modes = [engine.product_mode(left, right, needed) for engine in target.engines] if target else []
    mode = next((m for m in modes if m is not None), None)
    return Taken(left, right) if mode is None or left == "q8_0" else Taken(left, right, mode.bits)


def _judged(
    program: Program,
    instance: Instance,
    shape: Shape,
    spec: Spec,
    read: Callable[[str, bool], Payload],
    algebra: ErrorAlgebra,
    symbols: Symbols,
) -> Judged:
    extents = extents_at(spec.extents, symbols)
    names = tuple(f"i{d}" for d in range(len(extents)))
    found: Labelled = evaluate(spec.expr, Scope(dict(zip(names, extents, strict=True)), symbols, read, algebra))
    value, error = (np.ascontiguousarray(full_array(found, i, names, extents)) for i in (0, 1))
    tensor = bound_tensor(program, instance, spec.out)
    bound = np.zeros_like(value) if shape.numerics.exact else error + storing_error(tensor.dtype, value, error)
    starts = [start.evaluate(symbols) for start in spec.origin]
    region = tuple(slice(s, s + n) for s, n in zip(starts, extents, strict=True))
    return Judged(tensor.name, spec.out, region, value, bound)


def _written(program: Program, instance: int, judged: Judged, after: Tensors, symbols: Symbols) -> np.ndarray:
    bound_to = program.instances[instance]
    shape = named(program.shapes, bound_to.shape)
    tensor = bound_tensor(program, bound_to, judged.formal)
    values = tensor_numbers(tensor, after[judged.tensor], symbols, np.float64)
    return viewed(values, named(shape.formals, judged.formal), symbols)[judged.region]


# --- rounding to a type -----------------------------------------------------------------------------------------------


def storing_error(dtype: str, value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """What rounding a value to a type adds; along the last axis for types in blocks. Nothing where the value is known
    and held exactly.
    """
    if dtype in INTEGER_DTYPES:
        return np.zeros_like(value)
    if dtype == "q8_0":
        return quantisation_error(value, error)
    if dtype in MAGNITUDE_BITS:
        return block_float_error(dtype, value, error)
    largest = np.abs(value) + error
    smallest = {"f16": 2.0**-25}.get(dtype, UNDERFLOW)
    with np.errstate(over="ignore"):
        is_held = (error == 0) & (value.astype(STORAGE[dtype]).astype(np.float64) == value)
    return np.where(is_held, 0.0, largest * 2.0 ** -SIGNIFICAND_BITS[dtype] + smallest)


def shortening_error(bits: int, value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """The error of an operand of which so many significand bits are multiplied; a known value may have no more."""
    if bits >= SIGNIFICAND_BITS["f32"]:
        return error
    is_held = (error == 0) & (np.ldexp(np.frexp(value)[0], bits) % 1 == 0)
    return np.where(is_held, 0.0, error + (np.abs(value) + error) * 2.0**-bits)


def quantisation_error(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """q8_0, per block of 32 of the last axis: half a step, and the step's rounding to f16 times the greatest quant."""
    blocks = (np.abs(value) + error).reshape(*value.shape[:-1], -1, Q8_BLOCK)
    largest = blocks.max(axis=-1, keepdims=True)
    step = largest / 127.0
    scale_error = step * 2.0**-11 + 2.0**-25
    bound = step / 2 + scale_error * 127.5 + largest * UNIT * 4
    return np.broadcast_to(np.where(largest > 0, bound, 0.0), blocks.shape).reshape(value.shape)


def block_float_error(dtype: str, value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """bfp8 and bfp4, per block of 16 of the last axis: a whole step, since the greatest magnitude is not exceeded."""
    blocks = (np.abs(value) + error).reshape(*value.shape[:-1], -1, BFP_BLOCK)
    largest = blocks.max(axis=-1, keepdims=True) * (1 + UNIT)  # the number may come as f32
    step = np.ldexp(1.0, np.frexp(largest)[1] - MAGNITUDE_BITS[dtype])
    return np.broadcast_to(np.where(largest > 0, step + UNDERFLOW, 0.0), blocks.shape).reshape(value.shape)


# --- the algebra ------------------------------------------------------------------------------------------------------


class ErrorAlgebra:
    """A payload is (value, bound of its absolute error), both float64."""

    def __init__(self, products: Mapping[str, Taken]) -> None:
        self.products = products

    def number(self, value: np.ndarray) -> Payload:
        exact = np.asarray(value, np.float64)
        return exact, np.abs(exact - exact.astype(np.float32).astype(np.float64))

    def apply(self, op: str, args: tuple[Payload, ...], dtype: str) -> Payload:
        with np.errstate(all="ignore"):
            value = cast_values(args[0][0], dtype) if op == "cast" else NUMPY_FUNCTIONS[op](*(a[0] for a in args))
            value = np.asarray(value, np.float64)
            propagated = _PROPAGATE[op](value, args, dtype) if op in _PROPAGATE else _monotone(op, value, args[0])
            error = np.nan_to_num(propagated, nan=np.inf)
            return value, np.broadcast_to(error + _own_error(op, value, error), value.shape)

    def reduce(self, kind: str, value: Payload) -> Payload:
        v, e = value
        if kind == "MAX":
            found = v.max(axis=-1)
            return found, np.maximum((v + e).max(axis=-1) - found, found - (v - e).max(axis=-1))
        magnitude = (np.abs(v) + e).sum(axis=-1)
        return v.sum(axis=-1), e.sum(axis=-1) + gamma(v.shape[-1]) * magnitude

    def contract(self, left: Payload, right: Payload, weight: str) -> Payload:
        taken = self.products.get(weight, Taken("f32", "f32"))
        (x, ex), (w, ew) = left, right
        ex = ex + storing_error(taken.left, x, ex)
        if block_elements(taken.right) == 1:
            ew = ew + storing_error(taken.right, w, ew)
        ex, ew = shortening_error(taken.bits[0], x, ex), shortening_error(taken.bits[1], w, ew)
        ax, aw = np.abs(x), np.abs(w)
        inherited = np.matmul(ex, aw + ew) + np.matmul(ax, ew)
        terms = x.shape[-1] + 1
        magnitude = np.matmul(ax, aw) + inherited
        return np.matmul(x, w), inherited + gamma(terms) * magnitude + terms * UNDERFLOW


def gamma(n: int) -> float:
    """n u / (1 - n u), the growth of n roundings."""
    return n * UNIT / (1.0 - n * UNIT)


def _own_error(op: str, value: np.ndarray, error: np.ndarray) -> np.ndarray | float:
    """The operator's own rounding, of the value that the engine may hold."""
    if op in ("min", "max", "abs", "eq", "lt", "le", "select", "round", "cast"):
        return 0.0
    size = np.abs(value) + error
    if op in FUNCTION_ULPS:
        return size * FUNCTION_ULPS[op] * ULP + UNDERFLOW
    is_small_integer = (error == 0) & (value == np.rint(value)) & (np.abs(value) <= 2.0**24)
    return np.where(is_small_integer & (op != "div"), 0.0, size * UNIT + UNDERFLOW)


def _monotone(op: str, value: np.ndarray, x: Payload) -> np.ndarray:
    """The function at both ends of its argument's range."""
    function = NUMPY_FUNCTIONS[op]
    low, high = x[0] - x[1], x[0] + x[1]
    if op in ("sqrt", "log", "rsqrt"):
        low = np.maximum(low, 0.0)
    ends = np.maximum(np.abs(function(low) - value), np.abs(function(high) - value))
    return np.where(x[1] == 0, 0.0, ends)


def _quotient(value: np.ndarray, args: tuple[Payload, ...], dtype: str) -> np.ndarray:
    (_, ea), (b, eb) = args
    room = np.abs(b) - eb
    return np.where(
        room > 0, (ea + np.abs(value) * eb) / np.where(room > 0, room, 1.0), np.where(ea + eb > 0, np.inf, 0.0)
    )


def _comparison(value: np.ndarray, args: tuple[Payload, ...], dtype: str) -> np.ndarray:
    """1 where the operands' errors may turn the answer."""
    (a, ea), (b, eb) = args
    return np.where((ea + eb > 0) & (np.abs(a - b) <= ea + eb), 1.0, 0.0)


def _selection(value: np.ndarray, args: tuple[Payload, ...], dtype: str) -> np.ndarray:
    (c, ec), (a, ea), (b, eb) = args
    either = np.maximum(ea, eb)
    return np.where(ec > 0, np.abs(a - b) + either, np.where(c != 0, ea, eb))


def _cast(value: np.ndarray, args: tuple[Payload, ...], dtype: str) -> np.ndarray:
    x, e = args[0]
    return np.maximum(np.abs(cast_values(x - e, dtype) - value), np.abs(cast_values(x + e, dtype) - value))


_PROPAGATE = {
    "add": lambda value, args, dtype: args[0][1] + args[1][1],
    "sub": lambda value, args, dtype: args[0][1] + args[1][1],
    "mul": lambda value, args, dtype: (
        np.abs(args[0][0]) * args[1][1] + args[0][1] * np.abs(args[1][0]) + args[0][1] * args[1][1]
    ),
    "div": _quotient,
    "min": lambda value, args, dtype: np.maximum(args[0][1], args[1][1]),
    "max": lambda value, args, dtype: np.maximum(args[0][1], args[1][1]),
    "abs": lambda value, args, dtype: args[0][1],
    "sin": lambda value, args, dtype: np.minimum(args[0][1], 2.0),
    "cos": lambda value, args, dtype: np.minimum(args[0][1], 2.0),
    "eq": _comparison,
    "lt": _comparison,
    "le": _comparison,
    "select": _selection,
    "cast": _cast,
}
