"""The plain meaning of a program: its specs, evaluated section after section. Every engine is compared to this.

`evaluate_spec` knows nothing of choreography, targets or passes. Sums are numpy's in the given precision; results are
rounded where a tensor stores them and nowhere else. `round` goes to the nearest integer, halves away from zero; `cast`
truncates toward zero and saturates. Whole decoders have a reference of their own: `decoder_reference`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from pavane.ir.program import Instance, Program, Shape, Spec, Tensor
from pavane.ir.types import INTEGER_RANGE, block_elements
from pavane.ir.walk import named
from pavane.reject import LaunchReject
from pavane.tensor_graph.blocks import encode_blocks
from pavane.tensor_graph.evaluate import Payload, Scope, evaluate, full_array
from pavane.tensor_graph.operands import STORAGE, extents_at, numbers, stored, viewed
from pavane.tensor_graph.q8 import round_half_away

Tensors = Mapping[str, np.ndarray]
Symbols = Mapping[str, int]


def evaluate_spec(
    program: Program, tensors: Tensors, symbols: Symbols, precision: type = np.float64
) -> dict[str, np.ndarray]:
    """All tensors after one epoch: `tensors` with what the program's instances write, in order, in storage form."""
    known = dict(tensors)
    for instance in program.instances:
        shape = named(program.shapes, instance.shape)
        for spec, values in spec_values(program, instance, shape, known, symbols, precision):
            _write(program, instance, shape, spec, values, known, symbols)
    return known


def evaluate_sections(
    sections: Iterable[Program], tensors: Tensors, symbols: Symbols, precision: type = np.float64
) -> dict[str, np.ndarray]:
    """The same over programs that follow each other and share tensors by name."""
    known = dict(tensors)
    for section in sections:
        known = evaluate_spec(section, known, symbols, precision)
    return known


def spec_values(
    program: Program, instance: Instance, shape: Shape, tensors: Tensors, symbols: Symbols, precision: type = np.float64
) -> list[tuple[Spec, np.ndarray]]:
    """What each spec of an instance gives over its extents, not rounded to the output's type."""
    after: dict[str, np.ndarray] = {}

    def read(name: str, following: bool) -> Payload:
        if following and name in after:
            return (after[name],)
        return (formal_numbers(program, instance, shape, name, tensors, symbols, precision),)

    out = []
    for spec in shape.spec:
        extents = extents_at(spec.extents, symbols)
        names = tuple(f"i{d}" for d in range(len(extents)))
        scope = Scope(dict(zip(names, extents, strict=True)), symbols, read, PlainAlgebra(precision))
        values = np.ascontiguousarray(full_array(evaluate(spec.expr, scope), 0, names, extents))
        out.append((spec, values))
        if named(shape.formals, spec.out).role == "STATE":
            whole = read(spec.out, True)[0].copy()
            whole[_region(spec, extents, symbols)] = values
            after[spec.out] = whole
    return out


def formal_numbers(
    program: Program, instance: Instance, shape: Shape, name: str, tensors: Tensors, symbols: Symbols, precision: type
) -> np.ndarray:
    """The values of a formal's tensor in the formal's shape."""
    tensor = bound_tensor(program, instance, name)
    if tensor.name not in tensors:
        raise LaunchReject(f"no array is given for tensor {tensor.name}", where=instance.name, remedy="give one")
    return viewed(numbers(tensor, tensors[tensor.name], symbols, precision), named(shape.formals, name), symbols)


def bound_tensor(program: Program, instance: Instance, formal: str) -> Tensor:
    """The tensor that a formal of an instance is bound to."""
    bound = next(b.tensor for b in instance.bindings if b.formal == formal)
    return named(program.tensors, bound)


def _region(spec: Spec, extents: tuple[int, ...], symbols: Symbols) -> tuple[slice, ...]:
    starts = [start.evaluate(symbols) for start in spec.origin]
    return tuple(slice(s, s + n) for s, n in zip(starts, extents, strict=True))


def _write(
    program: Program,
    instance: Instance,
    shape: Shape,
    spec: Spec,
    values: np.ndarray,
    known: dict[str, np.ndarray],
    symbols: Symbols,
) -> None:
    """Replace the output's tensor by a copy with the spec's region written."""
    tensor, formal = bound_tensor(program, instance, spec.out), named(shape.formals, spec.out)
    if block_elements(tensor.dtype) > 1:
        whole = (
            _empty(tensor, symbols)
            if tensor.name not in known
            else numbers(tensor, known[tensor.name], symbols, np.float32)
        )
        viewed(whole, formal, symbols)[_region(spec, values.shape, symbols)] = values
        known[tensor.name] = encode_blocks(whole, tensor.dtype)
        return
    old = known.get(tensor.name)
    fits = old is not None and old.shape == extents_at(tensor.shape, symbols)
    whole = np.array(old, STORAGE[tensor.dtype]) if fits else _empty(tensor, symbols)
    viewed(whole, formal, symbols)[_region(spec, values.shape, symbols)] = stored(tensor.dtype, values)
    known[tensor.name] = whole


def _empty(tensor: Tensor, symbols: Symbols) -> np.ndarray:
    dtype = np.dtype(np.float32) if block_elements(tensor.dtype) > 1 else STORAGE[tensor.dtype]
    return np.zeros(extents_at(tensor.shape, symbols), dtype)


# --- plain numbers ----------------------------------------------------------------------------------------------------


class PlainAlgebra:
    """Numbers in one precision; a payload is one array."""

    def __init__(self, precision: type) -> None:
        self.precision = precision

    def number(self, value: np.ndarray) -> Payload:
        return (np.asarray(value, self.precision),)

    def apply(self, op: str, args: tuple[Payload, ...], dtype: str) -> Payload:
        with np.errstate(all="ignore"):
            if op == "cast":
                return (cast_values(args[0][0], dtype),)
            return (np.asarray(NUMPY_FUNCTIONS[op](*(a[0] for a in args)), self.precision),)

    def reduce(self, kind: str, value: Payload) -> Payload:
        return (value[0].sum(axis=-1) if kind == "SUM" else value[0].max(axis=-1),)

    def contract(self, left: Payload, right: Payload, weight: str) -> Payload:
        return (np.matmul(left[0], right[0]),)


def cast_values(values: np.ndarray, dtype: str) -> np.ndarray:
    """Truncated toward zero, saturated at the integer type's range."""
    return np.clip(np.trunc(values), *INTEGER_RANGE[dtype])


def _select(condition: np.ndarray, chosen: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.where(condition != 0, chosen, other)


NUMPY_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum, "max": np.maximum,
    "abs": np.abs, "eq": np.equal, "lt": np.less, "le": np.less_equal, "select": _select,
    "round": round_half_away, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": np.vectorize(math.erf, otypes=[np.float64]),
}  # fmt: skip
