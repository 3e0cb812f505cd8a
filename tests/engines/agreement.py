"""One accepted program on every engine, some launches: what comes out is what the reference makes of the specs.

Inputs are small integers, so that only storage in short types, and functions, round.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pavane import native
from pavane.ir.program import Program, Tensor
from pavane.ir.types import Const, Ints, block_elements
from pavane.sim import Simulator
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.blocks import decode_blocks, encode_blocks
from pavane.tensor_graph.operands import extents_at, numbers, stored
from pavane.tensor_graph.reference import evaluate_spec

Arrays = dict[str, np.ndarray]
Launch = tuple[dict[str, int], Arrays]
TOLERANCE = {"bfp4": 0.8, "bfp8": 0.1, "q8_0": 0.06, "f16": 0.06, "bf16": 0.06}


def apart(program: Program, target: SpatialTarget, seed: int) -> list[str]:
    """Where an engine leaves something else than the reference: nothing, of a right program and right engines."""
    rng = np.random.default_rng(seed)
    most = {s.name: s.hi for s in program.symbols}
    weights = {t.name: _drawn(t, most, rng) for t in program.tensors if t.role == "WEIGHT"}
    launches = [
        (symbols, {t.name: _drawn(t, symbols, rng) for t in program.tensors if t.role == "INPUT"})
        for symbols in _symbols(program, rng)
    ]
    wanted = _reference(program, weights, launches)
    engines = {
        "simulator": _simulated(program, target, weights, launches, timing=False),
        "simulator, timed": _simulated(program, target, weights, launches, timing=True),
        "native": _native(program, target, weights, launches),
    }
    tolerance = _tolerance(program)
    return [
        f"{engine}, launch {number}: {tensor.name} is {error:.3g} apart"
        for engine, results in engines.items()
        for number, found in enumerate(results)
        for tensor in program.tensors
        if tensor.role == "OUTPUT"
        and (error := _error(tensor, found[tensor.name], wanted[number][tensor.name], launches[number][0])) > tolerance
    ]


def _symbols(program: Program, rng: np.random.Generator) -> Iterator[dict[str, int]]:
    """The least, the greatest, two between; a position goes on from where the launch before it has ended."""
    found = {s.name: s.lo for s in program.symbols}
    for launch in range(4 if program.symbols else 2):
        last = found
        found = {
            s.name: (s.lo, s.hi)[launch] if launch < 2 else int(rng.integers(s.lo, s.hi + 1)) for s in program.symbols
        }
        if "pos" in found:
            most = {s.name: s.hi for s in program.symbols}["pos"]
            found["pos"] = min(last["pos"] + last.get("rows", 1), most) if launch else last["pos"]
        yield found


def _drawn(tensor: Tensor, symbols: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    fill, shape = tensor.fill, extents_at(tensor.shape, symbols)
    low, high = (fill.lo, fill.hi) if isinstance(fill, Ints) else (-4, 4)
    values = np.full(shape, fill.value) if isinstance(fill, Const) else rng.integers(low, high + 1, shape)
    if block_elements(tensor.dtype) > 1:
        return encode_blocks(_held(values.astype(np.float32), tensor.dtype), tensor.dtype)
    return stored(tensor.dtype, values.astype(np.float64))


def _held(values: np.ndarray, dtype: str) -> np.ndarray:
    """Blocks of zeros in place of those that the type does not hold as they are: the launcher promises integers."""
    apart = decode_blocks(encode_blocks(values, dtype), dtype).reshape(values.shape) != values
    blocks = apart.reshape(-1, block_elements(dtype)).any(1, keepdims=True)
    return np.where(blocks, np.float32(0), values.reshape(-1, block_elements(dtype))).reshape(values.shape)


def _reference(program: Program, weights: Arrays, launches: list[Launch]) -> list[Arrays]:
    greatest = {s.name: s.hi for s in program.symbols}
    state = {t.name: _empty(t, greatest) for t in program.tensors if t.role == "STATE"}
    found = []
    for symbols, inputs in launches:
        found.append(evaluate_spec(program, {**weights, **state, **inputs}, symbols))
        state = {name: found[-1][name] for name in state}
    return found


def _empty(tensor: Tensor, symbols: dict[str, int]) -> np.ndarray:
    zeros = np.zeros(extents_at(tensor.shape, symbols), np.float32)
    return encode_blocks(zeros, tensor.dtype) if block_elements(tensor.dtype) > 1 else stored(tensor.dtype, zeros)


def _simulated(
    program: Program, target: SpatialTarget, weights: Arrays, launches: list[Launch], timing: bool
) -> list[Arrays]:
    chip = Simulator(program, target, weights, timing=timing)
    return [chip.launch(*launch).outputs for launch in launches]


def _native(program: Program, target: SpatialTarget, weights: Arrays, launches: list[Launch]) -> list[Arrays]:
    outputs = [t.name for t in program.tensors if t.role == "OUTPUT"]
    found = []
    with native.load(program, target, weights=weights, accept=lambda *_: None) as engine:
        for launch in launches:
            engine.launch(*launch)
            found.append({name: engine.tensor(name).copy() for name in outputs})
    return found


def _tolerance(program: Program) -> float:
    types = {t.dtype for t in program.tensors} | {b.dtype for s in program.shapes for b in (*s.fifos, *s.carries)}
    return max((TOLERANCE.get(dtype, 1e-4) for dtype in types), default=1e-4)


def _error(tensor: Tensor, found: np.ndarray, wanted: np.ndarray, symbols: dict[str, int]) -> float:
    """The greatest difference, of the root of the mean square; infinite where one is no number, and not the other."""
    a, b = (numbers(tensor, _raw(x), symbols, np.float64).ravel() for x in (found, wanted))
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    scale = float(np.sqrt(np.mean(b[finite] ** 2))) + 1e-6 if finite.any() else 1.0
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / scale


def _raw(array: np.ndarray) -> np.ndarray:
    """Blocks as bytes, whether they are given as such or as records."""
    whole = np.ascontiguousarray(array)
    return whole.view(np.uint8) if whole.dtype.fields else whole
