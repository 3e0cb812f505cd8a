"""The bytes of a sharded tensor, where they are: in the memories of the sites that it is dealt to (`ir.shards`).

Each site's share has an owner of its own in that site's memory (memory.py), so a buffer laid over a share is noticed
at the next read of it. What is read is gathered into a region of its own, whole where every byte is the tensor's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pavane.ir.program import Tensor
from pavane.ir.shards import pieces, share_bytes
from pavane.ir.types import row_bytes
from pavane.reject import MemoryExceeded
from pavane.sim.faults import SimulationFault
from pavane.sim.memory import Memory, Region
from pavane.sim.numbers import NUMPY


@dataclass(frozen=True)
class Box:
    """Where a window's bytes lie in its tensor: `rows` runs of `width` bytes, `pitch` apart."""

    address: int
    rows: int
    width: int
    pitch: int


class Shards:
    """A tensor in the memories of all sites, in their order."""

    def __init__(self, tensor: Tensor, size_bytes: int, memories: Sequence[Memory]) -> None:
        end = tensor.offset + share_bytes(size_bytes, tensor.shard_bytes, len(memories))
        if tensor.offset < 0 or end > len(memories[0].data):
            raise MemoryExceeded(
                f"the shares of {tensor.name!r} are not inside the sites' memories",
                needed=f"bytes {tensor.offset} to {end}",
                available=f"0 to {len(memories[0].data)}",
            )
        self._tensor = tensor
        self._size_bytes = size_bytes
        self._parts = [(memory, memory.new_owner()) for memory in memories]

    def fill(self, raw: np.ndarray) -> None:
        """Put the tensor's first bytes there."""
        self.write(Box(0, 1, len(raw), len(raw)), raw)

    def write(self, box: Box, raw: np.ndarray) -> None:
        """Bytes, row after row, to where they belong."""
        flat, done = raw.reshape(-1), 0
        for memory, owner, place in self._places(box):
            size = place.stop - place.start
            memory.data[place] = flat[done : done + size]
            memory.owner[place] = owner  # type: ignore[index]
            done += size

    def read(self, box: Box) -> tuple[np.ndarray, np.ndarray]:
        """Bytes, row after row, and of each whether it is the tensor's."""
        found = [(memory.data[place], memory.owner[place] == owner) for memory, owner, place in self._places(box)]  # type: ignore[index]
        return np.concatenate([data for data, _ in found]), np.concatenate([fresh for _, fresh in found])

    def region(self, box: Box) -> Region:
        """A two-dimensional part of the tensor, as it is now."""
        stored = NUMPY[self._tensor.dtype]
        item, units = stored.itemsize, box.width // stored.itemsize
        data, fresh = self.read(box)
        array = data.view(stored).reshape(box.rows, units)
        return Region(array, fresh.astype(np.uint16).reshape(box.rows, units, item), 1)

    def whole(self, shape: tuple[int, ...]) -> np.ndarray:
        """The tensor's first elements, row-major."""
        dtype = self._tensor.dtype
        size = row_bytes(dtype, shape[-1]) * int(np.prod(shape[:-1], dtype=np.int64))
        return self.read(Box(0, 1, size, size))[0].view(NUMPY[dtype]).reshape((*shape[:-1], -1))

    def _places(self, box: Box) -> Iterator[tuple[Memory, int, slice]]:
        """The memory, the owner and the bytes of each piece, in the order of the tensor's bytes."""
        last = box.address + (box.rows - 1) * box.pitch + box.width
        if box.address < 0 or last > self._size_bytes:
            raise SimulationFault(
                f"bytes {box.address} to {last} of {self._tensor.name!r}, which has {self._size_bytes}"
            )
        for row in range(box.rows):
            start = box.address + row * box.pitch
            for site, local, size in pieces(start, box.width, self._tensor.shard_bytes, len(self._parts)):
                memory, owner = self._parts[site]
                yield memory, owner, slice(self._tensor.offset + local, self._tensor.offset + local + size)


@lru_cache(maxsize=1 << 14)
def owners(box: Box, shard_bytes: int, sites: int) -> tuple[tuple[int, int, int], ...]:
    """Of each site that has bytes of a window: its number, how many, and in how many contiguous runs."""
    rows, width = (1, box.rows * box.width) if box.pitch == box.width else (box.rows, box.width)
    found: dict[int, tuple[int, int]] = {}
    behind: tuple[int, int] | None = None  # where the last piece ended: what goes on there is the same run
    for row in range(rows):
        for site, local, size in pieces(box.address + row * box.pitch, width, shard_bytes, sites):
            count, runs = found.get(site, (0, 0))
            found[site] = count + size, runs + (behind != (site, local))
            behind = site, local + size
    return tuple((site, count, runs) for site, (count, runs) in found.items())
