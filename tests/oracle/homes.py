"""Where tensors lie: aligned, of a role that may, with room on the sites and in every channel, as sections say."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from pavane.ir.program import Formal, Program, Tensor
from pavane.ir.types import row_bytes
from pavane.targets.descriptor import SpatialTarget
from tests.oracle.meaning import extents
from tests.oracle.spaces import Fault


def require_homes(program: Program, target: SpatialTarget) -> None:
    """Raise a Fault for the first tensor that cannot lie where it is said to."""
    for tensor in program.tensors:
        place = target.dram if tensor.home == "dram" else target.memory
        if tensor.role == "SCRATCH" and tensor.offset % place.alignment_bytes:
            raise Fault(f"chip: {tensor.name} is not aligned")
        if tensor.home == "sites":
            _require_copies(program, tensor, target)
        if tensor.home == "sharded":
            _require_shares(program, tensor, target)
        _require_units(program, tensor, target)
    _require_channels(program, target)


def _require_copies(program: Program, tensor: Tensor, target: SpatialTarget) -> None:
    """SCRATCH with a copy on every site, which sections know, inside what local memory is free to programs."""
    end = tensor.offset + _bytes(program, tensor)
    if tensor.role not in ("SCRATCH", "WEIGHT") or target.alias:
        raise Fault(f"chip: {tensor.name} cannot lie on the sites")
    if tensor.offset % target.memory.alignment_bytes or not target.memory.reserved_bytes <= tensor.offset:
        raise Fault(f"chip: {tensor.name} stands at {tensor.offset} of every site")
    if end > target.memory.bytes:
        raise Fault(f"out of bounds: {tensor.name} ends at {end} of every site")
    _require_alone(program, tensor, [(tensor.offset, end)], target)


def _require_shares(program: Program, tensor: Tensor, target: SpatialTarget) -> None:
    """A WEIGHT or STATE in blocks of whole rows, each on its site where nothing else of the program ever stands."""
    row, size = row_bytes(tensor.dtype, tensor.shape[-1].const), _bytes(program, tensor)
    if tensor.role not in ("WEIGHT", "STATE") or target.alias:
        raise Fault(f"chip: {tensor.name} cannot be sharded")
    if tensor.shard_bytes < 1 or tensor.shard_bytes % row:
        raise Fault(f"chip: {tensor.name} is cut inside a row")
    turns = range(-(-size // (tensor.shard_bytes * target.sites)))
    mine = [(tensor.offset + n * tensor.shard_bytes, tensor.offset + (n + 1) * tensor.shard_bytes) for n in turns]
    if tensor.offset % target.memory.alignment_bytes or tensor.offset < target.memory.reserved_bytes:
        raise Fault(f"chip: {tensor.name} stands at {tensor.offset} of every site")
    if mine[-1][1] > target.memory.bytes:
        raise Fault(f"out of bounds: {tensor.name} ends at {mine[-1][1]} of some site")
    _require_alone(program, tensor, mine, target)


def _require_alone(program: Program, tensor: Tensor, mine: list[tuple[int, int]], target: SpatialTarget) -> None:
    """No buffer ever takes these bytes of local memory, and no other tensor where one of the two lasts. (Where neither
    does, what a run does to the bytes decides.)
    """
    others = [t for t in program.tensors if t.name != tensor.name and t.home != "dram"]
    lasting = [_place(program, t, target) for t in others if {t.role, tensor.role} != {"SCRATCH"}]
    for low, high, name in (*_standing(program), *lasting):
        if any(low < end and start < high for start, end in mine):
            raise Fault(f"race: {name} stands over {tensor.name}")


def _require_units(program: Program, tensor: Tensor, target: SpatialTarget) -> None:
    """Units of its own, or blocks of shares, has only what may, and the sections know them."""
    units = (tensor.interleave_bytes, tensor.shard_bytes)
    for formal in _formals_of(program, tensor):
        if (formal.interleave_bytes, formal.shard_bytes) != units:
            raise Fault(f"chip: {formal.name} is said to lie otherwise than {tensor.name}")
    if tensor.shard_bytes and tensor.home != "sharded":
        raise Fault(f"chip: {tensor.name} has blocks and is not sharded")
    if units[0] and (tensor.role != "WEIGHT" or target.alias or units[0] % target.dram.alignment_bytes or units[0] < 0):
        raise Fault(f"chip: {tensor.name} cannot go round the channels by {units[0]} bytes")


def _require_channels(program: Program, target: SpatialTarget) -> None:
    """Byte by byte, how full each channel gets; where nothing says how it goes round, only all of memory counts."""
    dram, beside = target.dram, [t for t in program.tensors if t.home == "dram"]
    kept = [(_bytes(program, t), t.interleave_bytes) for t in beside if t.role != "SCRATCH"]
    kept.append((max((t.offset + _bytes(program, t) for t in beside if t.role == "SCRATCH"), default=0), 0))
    if sum(size for size, _ in kept) > dram.bytes:
        raise Fault("out of bounds: the tensors pass the end of the memory beside the chip")
    full = np.zeros(dram.channels, np.int64)
    for size, unit in kept:
        starts = np.arange(0, size, unit or dram.interleave_bytes)
        lengths = np.minimum(unit or dram.interleave_bytes, size - starts)
        np.add.at(full, np.arange(starts.size) % dram.channels, lengths)
    if any(unit for _, unit in kept) and full.max() > dram.bytes // dram.channels:
        raise Fault(f"out of bounds: channel {int(full.argmax())} is to hold {int(full.max())} bytes")


def _formals_of(program: Program, tensor: Tensor) -> list[Formal]:
    """Under which formals sections know it."""
    bound = {(i.shape, b.formal) for i in program.instances for b in i.bindings if b.tensor == tensor.name}
    return [f for s in program.shapes for f in s.formals if (s.name, f.name) in bound]


def _standing(program: Program) -> Iterator[tuple[int, int, str]]:
    """Bytes of local memory that buffers take."""
    for shape in program.shapes:
        for fifo in shape.fifos:
            if fifo.kind != "ALIAS":
                yield fifo.address, fifo.address + fifo.depth * fifo.rows * row_bytes(fifo.dtype, fifo.cols), fifo.name
        for carry in shape.carries:
            yield carry.address, carry.address + carry.rows * row_bytes(carry.dtype, carry.cols), carry.name


def _place(program: Program, tensor: Tensor, target: SpatialTarget) -> tuple[int, int, str]:
    """Bytes of local memory that a tensor takes on the site that has most of it."""
    size = _bytes(program, tensor)
    if tensor.home == "sharded" and tensor.shard_bytes > 0:
        size = tensor.shard_bytes * -(-size // (tensor.shard_bytes * target.sites))
    return tensor.offset, tensor.offset + size, tensor.name


def _bytes(program: Program, tensor: Tensor) -> int:
    """The most that it takes for any value of the symbols."""
    *outer, last = extents(tensor.shape, {s.name: s.hi for s in program.symbols})
    return prod(outer) * row_bytes(tensor.dtype, last)
