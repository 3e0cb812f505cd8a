"""A part of a chip as a chip: fewer sites, less memory of each. Who compiles a section for it need not know."""

from __future__ import annotations

from msgspec.structs import replace

from pavane.targets.descriptor import SpatialTarget


def restricted(
    target: SpatialTarget, width: int | None = None, height: int | None = None, memory_bytes: int | None = None
) -> SpatialTarget:
    """The chip with `width` x `height` sites of `memory_bytes` (None: as it is). Memory beside it stays whole."""
    grid = replace(target.grid, width=width or target.grid.width, height=height or target.grid.height)
    memory = target.memory if memory_bytes is None else replace(target.memory, bytes=memory_bytes)
    return replace(target, grid=grid, memory=memory)
