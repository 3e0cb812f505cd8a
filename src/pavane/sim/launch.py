"""What is checked before anything moves: the program is for this target, the symbols are in range, the arrays are
what they must be.

Everything here refuses with `LaunchReject` (a program that cannot be simulated at all: `ArgumentReject`), naming the
tensor or symbol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from pavane.ir.expr import Indirect
from pavane.ir.program import Load, Program, Store, Tensor
from pavane.ir.quasi import upper
from pavane.ir.types import Floats, block_elements
from pavane.ir.walk import leaves, named, symbol_domain
from pavane.reject import ArgumentReject, LaunchReject
from pavane.sim.numbers import NUMPY, values
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.tensor_graph.fills import broken_promise


def check_program(program: Program, target: SpatialTarget) -> None:
    if program.phase not in ("PERSISTENT", "VERIFIED"):
        raise ArgumentReject(f"only a PERSISTENT or VERIFIED program can be simulated, this one is {program.phase}")
    if program.target_digest != target_digest(target):
        raise ArgumentReject(
            f"the program is for {program.target}, not for this {target.name}", remedy="compile it for this target"
        )
    _check_engines(program, target)
    for tensor in program.tensors:
        if tensor.home == "sharded" and (tensor.offset < 0 or tensor.shard_bytes < 1):
            raise ArgumentReject(f"tensor {tensor.name!r} is sharded and has no place on the sites")


def check_shared(program: Program, other: Program) -> None:
    """WEIGHT and STATE of two programs on one chip are declared alike, and lie in the same channels and places; what is
    sharded is in both, so that neither has buffers there.
    """
    theirs = {t.name: t for t in other.tensors}
    kept = [t for t in program.tensors if t.role in ("WEIGHT", "STATE")]
    faults = [f"{t.name} is not in the other program" for t in kept if t.name not in theirs]
    mine = {t.name for t in program.tensors}
    shares = (t.name for t in other.tensors if t.home == "sharded" and t.name not in mine)
    faults += [f"{name}, which lies on the sites, is not in this program" for name in shares]
    if program.target_digest != other.target_digest:
        faults.append(f"one is for {program.target}, the other for another {other.target}")
    for tensor in kept:
        if tensor.name in theirs and _declared(tensor) != _declared(theirs[tensor.name]):
            faults.append(f"{tensor.name} is declared differently, or lies elsewhere")
    if faults:
        raise LaunchReject("two programs cannot share their weights and state", terms=faults)


def _declared(tensor: Tensor) -> tuple[object, ...]:
    place = (tensor.shard_bytes, tensor.offset) if tensor.home == "sharded" else (tensor.interleave_bytes,)
    return tensor.shape, tensor.dtype, tensor.role, tensor.fill, place


def _check_engines(program: Program, target: SpatialTarget) -> None:
    """Each engine of each site runs at most one worker."""
    names = [engine.name for engine in target.engines]
    taken: dict[tuple[int, int, str], str] = {}
    for worker in program.workers:
        if worker.engine not in names:
            raise ArgumentReject(f"{target.name} has no engine {worker.engine!r}", where=f"worker {worker.name}")
        for x in range(worker.rect.x0.const, worker.rect.x1.const):
            for y in range(worker.rect.y0.const, worker.rect.y1.const):
                other = taken.setdefault((x, y, worker.engine), worker.name)
                if other != worker.name:
                    raise ArgumentReject(f"workers {other} and {worker.name} share {worker.engine} of site ({x}, {y})")


def check_symbols(program: Program, symbols: Mapping[str, int]) -> None:
    unknown = sorted(set(symbols) - {s.name for s in program.symbols})
    if unknown:
        raise LaunchReject(
            f"the program has no symbol {unknown[0]!r}", available=", ".join(s.name for s in program.symbols)
        )
    for symbol in program.symbols:
        value = symbols.get(symbol.name)
        if not isinstance(value, int) or not symbol.lo <= value <= symbol.hi:
            raise LaunchReject(
                f"symbol {symbol.name!r} is {value!r}", needed=f"an integer from {symbol.lo} to {symbol.hi}"
            )


def check_transitions(program: Program, symbols: Mapping[str, int], frontiers: Mapping[str, int]) -> None:
    """An epoch starts at or below the row up to which its STATE was written."""
    for tensor in program.tensors:
        if tensor.transition is not None:
            row = tensor.transition.row.evaluate(symbols)
            if not 0 <= row <= frontiers[tensor.name]:
                raise LaunchReject(
                    f"the launch writes {tensor.name!r} from row {row}",
                    needed=f"a first row from 0 to {frontiers[tensor.name]}",
                    remedy="launch positions without a gap",
                )


def as_stored(tensor: Tensor, array: np.ndarray, extents: tuple[int, ...]) -> np.ndarray:
    """The array in the tensor's own type and shape; blocks may come as their bytes (uint8)."""
    if not isinstance(array, np.ndarray):
        raise LaunchReject(f"tensor {tensor.name!r} was given {type(array).__name__}", needed="a numpy array")
    array = np.asarray(array)  # of one that hides some of its elements, all
    block, stored = block_elements(tensor.dtype), NUMPY[tensor.dtype]
    shape = (*extents[:-1], extents[-1] // block)
    if block > 1 and array.dtype == np.uint8 and array.shape == (*shape[:-1], shape[-1] * stored.itemsize):
        return np.ascontiguousarray(array).view(stored)
    if array.dtype != stored or array.shape != shape:
        raise LaunchReject(
            f"tensor {tensor.name!r} was given {array.dtype} {list(array.shape)}",
            needed=f"{stored} {list(shape)}" + (" (or its bytes)" if block > 1 else ""),
        )
    return array


def check_fill(tensor: Tensor, array: np.ndarray) -> None:
    """Values that proofs of exactness and of bounds rest on."""
    if isinstance(tensor.fill, Floats):
        return
    broken = broken_promise(tensor.fill, values(array, tensor.dtype))
    if broken:
        raise LaunchReject(f"tensor {tensor.name!r} {broken}", remedy="give what the program was compiled for")


def check_indices(program: Program, name: str, array: np.ndarray) -> None:
    """Every index that a section reads out of an INPUT is in the range that the proofs assume."""
    for formal, index in index_uses(program):
        if formal == name and array.size and not (index.lo <= array.min() and array.max() < index.hi):
            raise LaunchReject(
                f"tensor {name!r} holds indices from {array.min()} to {array.max()}",
                needed=f"{index.lo} to {index.hi - 1}",
            )


def index_uses(program: Program) -> Iterator[tuple[str, Indirect]]:
    """(tensor, index) of every Indirect of every instance."""
    for instance in program.instances:
        tensors = {b.formal: b.tensor for b in instance.bindings}
        for process in named(program.shapes, instance.shape).processes:
            for _, step in leaves(process.body):
                if isinstance(step, Load | Store):
                    yield from ((tensors[s.tensor], s) for s in step.window.start if isinstance(s, Indirect))


def present_extents(tensor: Tensor, symbols: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(extent.evaluate(symbols) for extent in tensor.shape)


def greatest_extents(program: Program, tensor: Tensor) -> tuple[int, ...]:
    return tuple(upper(extent, symbol_domain(program)) for extent in tensor.shape)
