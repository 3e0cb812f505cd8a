"""Channels: how the bytes of a weight go round the channels of DRAM, and that the fullest one holds its part.

`interleave_bytes` says in which channel a byte of a WEIGHT lies, not which bytes a window is: coverage, bounds, order
and meaning speak of bytes. What is left is room. All channels are of one size, every tensor begins with channel 0, and
units go round, so channel 0 is the fullest; a tensor that says nothing goes round in the chip's own units.
"""

from __future__ import annotations

from pavane.ir.program import Tensor
from pavane.reject import CapacityRefused
from pavane.targets.descriptor import Dram, SpatialTarget
from pavane.verify.check.bindings import Memory


def channels(memory: Memory, target: SpatialTarget) -> str:
    """Refuse a weight whose sections take it to lie otherwise, one that cannot lie so, and a channel too full."""
    stated = [tensor for tensor in memory.program.tensors if tensor.interleave_bytes]
    for tensor in stated:
        _may_lie_so(tensor, target)
    for where, _, pairs in memory.bound:
        for formal, tensor in pairs:
            if formal.interleave_bytes != tensor.interleave_bytes:
                raise CapacityRefused(
                    f"the section takes {formal.name} to lie {formal.interleave_bytes} B a channel in turn",
                    where=where,
                    available=f"{tensor.name} lies {tensor.interleave_bytes} B a channel",
                )
    if stated:
        _fullest_has_room(memory, target.dram)
    return f"{len(stated)} weights in units of their own over {target.dram.channels} channels"


def _may_lie_so(tensor: Tensor, target: SpatialTarget) -> None:
    alignment = target.dram.alignment_bytes
    if tensor.role != "WEIGHT" or target.alias:
        raise CapacityRefused(
            f"a tensor of role {tensor.role} says how it goes round the channels",
            where=f"tensor {tensor.name}",
            needed="WEIGHT, on a chip whose engines move what they work on",
        )
    if tensor.interleave_bytes < 0 or tensor.interleave_bytes % alignment:
        what = f"a tensor goes round the channels by {tensor.interleave_bytes} bytes"
        raise CapacityRefused(what, where=f"tensor {tensor.name}", needed=f"a multiple of {alignment}")


def _fullest_has_room(memory: Memory, dram: Dram) -> None:
    kept = sum(_in_fullest(t.interleave_bytes, memory.bytes_of(t), dram) for t in memory.lasting)
    needed, room = kept + _in_fullest(0, memory.arena_end, dram), dram.bytes // dram.channels
    if needed > room:
        what = "the first channel of the memory beside the chip is too full"
        raise CapacityRefused(
            what, where=memory.program.name, needed=f"{needed} bytes", available=f"{room} bytes a channel"
        )


def _in_fullest(unit_bytes: int, size_bytes: int, dram: Dram) -> int:
    """Bytes of a tensor in channel 0."""
    unit = unit_bytes or dram.interleave_bytes
    rounds, rest = divmod(size_bytes, unit * dram.channels)
    return rounds * unit + min(rest, unit)
