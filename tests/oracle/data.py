"""What stands in memory at a launch: a number and a leaf for every element that a launcher puts there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from pavane.ir.expr import Indirect
from pavane.ir.program import Load, Loop, Program, Store, Tensor
from pavane.ir.types import Const, Ints, block_elements, row_bytes
from tests.oracle.cells import Cells, constants, unwritten
from tests.oracle.compute import Effects
from tests.oracle.laws import Laws
from tests.oracle.machine import Machine
from tests.oracle.meaning import Values, extents
from tests.oracle.rounding import rounded, shortened
from tests.oracle.spaces import Box, Space

Symbols = dict[str, int]


Integers = Literal["mixed", "largest", "odd", "small"]


@dataclass(frozen=True)
class Draw:
    """Where numbers and leaves come from. `integers`, of what a fill allows: half of them the largest; nearly all; as
    many that are one less; of a magnitude of two at most.
    """

    rng: np.random.Generator
    laws: Laws
    integers: Integers = "mixed"


def first_data(program: Program, symbols: Symbols, draw: Draw) -> Values:
    """Flat arrays for the greatest extents: weights, and of caches the rows before the first epoch's."""
    most = {s.name: s.hi for s in program.symbols}
    data = {t.name: unwritten(prod(extents(t.shape, most))) for t in program.tensors}
    for tensor in program.tensors:
        if tensor.role in ("WEIGHT", "STATE"):
            rows = tensor.shape[0] if tensor.transition is None else tensor.transition.row
            made = _elements(program, tensor, rows.evaluate(symbols), symbols, draw)
            data[tensor.name][: made.size] = made
    return data


def lay_weights_on_sites(program: Program, machine: Machine, data: Values, symbols: Symbols) -> None:
    """Once: what lies on the sites must still be there at the next launch."""
    for tensor in program.tensors:
        if tensor.role == "WEIGHT" and tensor.home == "sites":
            for memory in machine.all_memories():
                _lay(memory, tensor.offset, tensor, data[tensor.name], symbols)


def fill(program: Program, effects: Effects, data: Values, symbols: Symbols, draw: Draw) -> None:
    """Inputs fresh, weights and caches as they are, nothing else."""
    for tensor in program.tensors:
        flat = data[tensor.name]
        if tensor.role in ("INPUT", "SCRATCH", "OUTPUT"):
            flat[:] = unwritten(flat.shape)
        if tensor.role == "INPUT":
            made = _elements(program, tensor, tensor.shape[0].evaluate(symbols), symbols, draw)
            flat[: made.size] = made
        space, _ = effects.tensors[tensor.name]
        if space is not None:
            space.forget_values()
    for tensor in program.tensors:
        if tensor.role not in ("SCRATCH", "OUTPUT"):
            space, base = effects.tensors[tensor.name]
            if space is not None:
                _lay(space, base, tensor, data[tensor.name], symbols)


def _elements(program: Program, tensor: Tensor, rows: int, symbols: Symbols, draw: Draw) -> Cells:
    """The first rows of a tensor, flat. What its fill makes a constant is one; any other element is a leaf."""
    shape = (rows, *extents(tensor.shape, symbols)[1:])
    if isinstance(tensor.fill, Const):
        return constants(np.full(prod(shape), tensor.fill.value))
    numbers = _numbers(program, tensor, prod(shape), draw)
    if isinstance(tensor.fill, Ints) and tensor.fill.lo == tensor.fill.hi:
        return constants(numbers)
    return draw.laws.leaves(tensor.name, numbers.reshape(shape)).ravel()


def _numbers(program: Program, tensor: Tensor, count: int, draw: Draw) -> np.ndarray:
    """As the tensor's type holds them: for an integer that it does not hold there is a smaller one, or 1 where odd ones
    are drawn. Integers in blocks: some blocks have small ones.
    """
    limits = (tensor.fill.lo, tensor.fill.hi) if isinstance(tensor.fill, Ints) else _index_range(program, tensor.name)
    if limits is None and tensor.dtype == "q8_0":
        return _scaled_quants(count, draw.rng)
    if limits is None:
        return rounded(draw.rng.standard_normal(count), tensor.dtype)
    numbers, block = _integers(limits, count, draw), block_elements(tensor.dtype)
    if block > 1 and limits[0] <= 3 and limits[1] >= -3:
        less = _integers((max(limits[0], -3), min(limits[1], 3)), count, draw)
        numbers = np.where(np.repeat(draw.rng.random(count // block) < 0.5, block), less, numbers)
    else:
        smaller = shortened(numbers, tensor.dtype)
        if draw.integers == "odd":
            smaller = np.where(draw.rng.random(count) < 0.5, np.sign(numbers), smaller)
        unheld = (rounded(numbers, tensor.dtype) != numbers) & (limits[0] <= smaller) & (smaller <= limits[1])
        numbers = np.where(unheld, smaller, numbers)
    numbers[rounded(numbers, tensor.dtype) != numbers] = 0.0
    return numbers


def _integers(limits: tuple[int, int], count: int, draw: Draw) -> np.ndarray:
    largest, rng = max(limits, key=abs), draw.rng
    if limits[0] == limits[1]:
        return np.full(count, float(largest))
    if draw.integers in ("largest", "odd"):
        return largest - np.sign(largest) * (rng.random(count) < (0.125 if draw.integers == "largest" else 0.5))
    if draw.integers == "small" and limits[0] <= 2 and limits[1] >= -2:
        return rng.integers(max(limits[0], -2), min(limits[1], 2) + 1, count).astype(float)
    numbers = rng.integers(limits[0], limits[1] + 1, count).astype(float)
    numbers[rng.random(count) < 0.5] = largest
    return numbers


def _scaled_quants(count: int, rng: np.random.Generator) -> np.ndarray:
    """Blocks of q8_0 as any quantiser may leave them: some have no quant of 127, so that rounding anew changes them."""
    shape = (count // block_elements("q8_0"), block_elements("q8_0"))
    scales = rounded(0.02 * rng.standard_normal((shape[0], 1)), "f16")
    largest = rng.integers(1, 128, (shape[0], 1))
    return (scales * rng.integers(-largest, largest + 1, shape)).ravel()


def _index_range(program: Program, tensor: str) -> tuple[int, int] | None:
    """The range that index readers state for a tensor."""
    found = []
    for instance in program.instances:
        bound = {b.formal for b in instance.bindings if b.tensor == tensor}
        shape = next(s for s in program.shapes if s.name == instance.shape)
        for process in shape.processes:
            found += [(x.lo, x.hi - 1) for x in _indirects(process.body) if x.tensor in bound]
    return (max(lo for lo, _ in found), min(hi for _, hi in found)) if found else None


def _indirects(body: tuple) -> Iterator[Indirect]:
    for node in body:
        if isinstance(node, Loop):
            yield from _indirects(node.body)
        elif isinstance(node, Load | Store):
            yield from (s for s in node.window.start if isinstance(s, Indirect))


def _lay(space: Space, base: int, tensor: Tensor, flat: Cells, symbols: Symbols) -> None:
    """The rows that have numbers."""
    width = extents(tensor.shape, symbols)[-1]
    rows = flat[: flat.size // width * width].reshape(-1, width)
    there = np.flatnonzero(~np.isnan(rows["number"]).any(1))
    if there.size:
        bases = base + there * row_bytes(tensor.dtype, width)
        Box(space, tuple(bases.tolist()), 0, width, tensor.dtype).write(rows[there])
