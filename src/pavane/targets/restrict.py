"""A part of a chip as a chip: fewer sites, less memory of each. Who compiles a section for it need not know."""

from __future__ import annotations

from msgspec.structs import replace

from pavane.targets.descriptor import Dram, SpatialTarget


def restricted(
    target: SpatialTarget, width: int | None = None, height: int | None = None, memory_bytes: int | None = None
) -> SpatialTarget:
    """The chip with `width` x `height` sites of `memory_bytes` (None: as it is). Memory beside it stays whole.

    Fewer sites may be any of the chip's, so none of them is taken to be beside a channel.
    """
    grid = replace(target.grid, width=width or target.grid.width, height=height or target.grid.height)
    memory = target.memory if memory_bytes is None else replace(target.memory, bytes=memory_bytes)
    dram = target.dram if grid == target.grid else _far_from_all(target.dram)
    return replace(target, grid=grid, memory=memory, dram=dram)


def adjacent_sites(target: SpatialTarget) -> SpatialTarget:
    """The sites beside the channels as a chip of one row: site (c, 0) is beside channel c."""
    grid = replace(target.grid, width=target.dram.channels, height=1, scattered=True)
    line = tuple((channel, 0) for channel in range(target.dram.channels))
    return replace(target, grid=grid, dram=replace(target.dram, adjacent=line))


def _far_from_all(dram: Dram) -> Dram:
    return replace(dram, adjacent=(), bytes_per_cycle=dram.far_rate, far_bytes_per_cycle=0)
