"""Homes: what lies on the chip is of a role that may, stands in local memory beside every buffer, as its sections say.

A tensor of home `sites` has a copy at `offset` of every site's local memory. A store writes all copies and is over, at
its fence, when the last has it; a load reads its own site's. So all copies are equal wherever a read is ordered after
the write, and `order`, `coverage` and `bounds` speak of them as of one tensor. A tensor of home `sharded` has each byte
once, on one site (`ir.shards`): a load or a store goes to the sites that have its bytes, and is over, at its fence,
when the last of them is done. So it is one tensor too, wherever its bytes lie.

What is left is room: of a copy, or of a site's share, [offset, offset + bytes) inside local memory, disjoint from every
buffer of every shape (whoever runs where). What lasts from launch to launch, a WEIGHT or a STATE, is disjoint from
every other tensor on the chip. Two SCRATCH tensors may share bytes; `order` then takes them as conflicting
(`bindings`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pavane.ir.program import Formal, Tensor
from pavane.ir.shards import share_bytes
from pavane.ir.types import row_bytes
from pavane.reject import CapacityRefused
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.check.bindings import Memory
from pavane.verify.check.capacity import memory_map
from pavane.verify.check.intervals import Interval, Taken

_ROLES = {"sites": ("SCRATCH", "WEIGHT"), "sharded": ("WEIGHT", "STATE")}
_LASTING = ("WEIGHT", "STATE")


def homes(memory: Memory, target: SpatialTarget) -> str:
    """Refuse what has no room on the chip, and a section that looks for a tensor elsewhere than where it lies."""
    for where, _, pairs in memory.bound:
        for formal, tensor in pairs:
            wanted, there = _place(formal), _place(tensor)
            if wanted != there:
                what = f"the section takes {formal.name} from {wanted}"
                raise CapacityRefused(what, where=where, needed=wanted, available=f"{tensor.name} lies in {there}")
    for tensor in memory.program.tensors:
        if tensor.shard_bytes and tensor.home != "sharded":
            raise CapacityRefused(f"a tensor in {tensor.home} has blocks of shares", where=f"tensor {tensor.name}")
    here = [tensor for tensor in memory.program.tensors if tensor.home != "dram"]
    for tensor in here:
        _may_lie_there(tensor, target)
    if not memory.part:
        rooms = [_room(tensor, memory, target) for tensor in here]
        maps = ((section.shape.name, memory_map(section)) for section in memory.sections.values())
        buffers = Taken((low, high, f"{name} of {shape}") for shape, listed in maps for low, high, name in listed)
        for room in rooms:
            _has_room(room, buffers, target)
        _lasting_apart(rooms, {tensor.name for tensor in here if tensor.role in _LASTING})
    shards = sum(tensor.home == "sharded" for tensor in here)
    return f"{len(here) - shards} tensors on the sites" + (f", {shards} sharded" if shards else "")


def _place(what: Formal | Tensor) -> str:
    return f"{what.home} in blocks of {what.shard_bytes} bytes" if what.shard_bytes else what.home


def _may_lie_there(tensor: Tensor, target: SpatialTarget) -> None:
    roles = _ROLES[tensor.home]
    if tensor.role not in roles or target.alias:
        raise CapacityRefused(
            f"a tensor of role {tensor.role} " + ("is sharded" if tensor.home == "sharded" else "lies on the sites"),
            where=f"tensor {tensor.name}",
            needed=f"{' or '.join(roles)}, on a chip whose engines move what they work on",
        )
    if tensor.home == "sharded":
        row = row_bytes(tensor.dtype, tensor.shape[-1].const)
        if tensor.shard_bytes < 1 or tensor.shard_bytes % row:
            what = f"the tensor is sharded in blocks of {tensor.shard_bytes} bytes"
            raise CapacityRefused(what, where=f"tensor {tensor.name}", needed=f"whole rows of {row} bytes")


def _room(tensor: Tensor, memory: Memory, target: SpatialTarget) -> Interval[str]:
    """What a tensor takes of each site."""
    size = memory.bytes_of(tensor)
    if tensor.home == "sharded":
        size = share_bytes(size, tensor.shard_bytes, target.sites)
    return tensor.offset, tensor.offset + size, tensor.name


def _has_room(room: Interval[str], buffers: Taken[str], target: SpatialTarget) -> None:
    start, end, tensor = room
    where, local = f"tensor {tensor}", target.memory
    if start < local.reserved_bytes or start % local.alignment_bytes or end > local.bytes:
        raise CapacityRefused(
            f"the tensor takes bytes {start} to {end} of each site",
            where=where,
            needed=f"a multiple of {local.alignment_bytes} from {local.reserved_bytes} on",
            available=f"{local.bytes} bytes a site",
        )
    _apart(room, buffers.meets(start, end))


def _lasting_apart(rooms: Sequence[Interval[str]], lasting: set[str]) -> None:
    """Nothing is laid over what must last from launch to launch."""
    passing = Taken(room for room in rooms if room[2] not in lasting)
    last: Interval[str] | None = None
    for room in sorted(room for room in rooms if room[2] in lasting):
        _apart(room, passing.meets(*room[:2]))
        _apart(room, last if last is not None and last[1] > room[0] else None)
        last = room


def _apart(room: Interval[str], other: Interval[str] | None) -> None:
    start, end, tensor = room
    if other is not None:
        raise CapacityRefused(
            f"{tensor} shares bytes with {other[2]}",
            where=f"tensor {tensor}",
            needed=f"bytes {start} to {end} of each site",
            available=f"{other[2]} takes {other[0]} to {other[1]}",
        )
