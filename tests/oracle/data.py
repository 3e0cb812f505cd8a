"""What stands in memory at a launch: a number and a leaf for every element that a launcher puts there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from pavane.ir.expr import Indirect
from pavane.ir.program import Load, Loop, Program, Store, Tensor
from pavane.ir.types import Const, Ints, block_elements, row_bytes
from tests.oracle.cells import Cells, constants, unwritten
from tests.oracle.compute import Effects, rounded
from tests.oracle.laws import Laws
from tests.oracle.machine import Machine
from tests.oracle.meaning import Values, extents
from tests.oracle.spaces import KINDS, Space, header_bytes

Symbols = dict[str, int]


@dataclass(frozen=True)
class Draw:
    """Where numbers and leaves come from. `extreme`: integers are as large as their fills allow, or one less."""

    rng: np.random.Generator
    laws: Laws
    extreme: bool


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
    limits = (tensor.fill.lo, tensor.fill.hi) if isinstance(tensor.fill, Ints) else _index_range(program, tensor.name)
    if limits is None:
        return rounded(draw.rng.standard_normal(count), tensor.dtype)
    largest = max(limits, key=abs)
    if draw.extreme and limits[0] < limits[1]:
        return largest - np.sign(largest) * (draw.rng.random(count) < 0.125)
    numbers = draw.rng.integers(limits[0], limits[1] + 1, count).astype(float)
    numbers[draw.rng.random(count) < 0.5] = largest
    return numbers


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
    width = extents(tensor.shape, symbols)[-1]
    spots = np.flatnonzero(~np.isnan(flat["number"]))
    line, col, block = spots // width, spots % width, block_elements(tensor.dtype)
    size = row_bytes(tensor.dtype, 1) if block == 1 else 1
    first = base + line * row_bytes(tensor.dtype, width) + col // block * row_bytes(tensor.dtype, block)
    first += header_bytes(tensor.dtype) + col % block * size
    space.value[first] = flat[spots]
    space.kind[first] = KINDS[tensor.dtype]
    space.owner[(first[:, None] + np.arange(size)).ravel()] = np.repeat(first, size)
