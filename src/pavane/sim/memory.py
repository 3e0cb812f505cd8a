"""Bytes and who wrote them: the memories of sites and of the tensors, in functional mode.

Every byte has an *owner*: the buffer that wrote it last, 0 while nothing has (poison, 0xFF: a NaN in every float
type). A read is legal only where the reader's own buffer wrote every byte: so a late load, padding, a missing
initialisation and two live buffers at one address are all caught, whatever the element type. Loads move owners along
with data: poison stays poison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pavane.ir.types import block_elements, row_bytes
from pavane.reject import ArgumentReject
from pavane.sim.numbers import NUMPY

_POISON = 0xFF
_MOST_OWNERS = np.iinfo(np.uint16).max


class Memory:
    """Raw bytes. `tracked`: remember owners (weights and inputs are whole by nature and need none)."""

    def __init__(self, size_bytes: int, tracked: bool = True) -> None:
        self.data = np.zeros(size_bytes, np.uint8)
        self.owner = np.zeros(size_bytes, np.uint16) if tracked else None
        self._buffers = 0

    def new_owner(self) -> int:
        self._buffers += 1
        if self._buffers > _MOST_OWNERS:
            raise ArgumentReject(
                "a memory has more buffers than the simulator can tell apart",
                available=str(_MOST_OWNERS),
                remedy="simulate its time only, or give its FIFOs fewer slots",
            )
        return self._buffers


@dataclass
class Region:
    """A typed view: `array` of elements (or blocks), `owner` with one more dimension (an element's bytes)."""

    array: np.ndarray
    owner: np.ndarray | None
    writer: int

    def part(self, *where: slice | int) -> Region:
        return Region(self.array[where], None if self.owner is None else self.owner[where], self.writer)

    def whole(self) -> bool:
        """Did this region's own buffer write every byte of it?"""
        return self.owner is None or bool((self.owner == self.writer).all())

    def copy_from(self, source: Region) -> None:
        self.array[...] = source.array
        if self.owner is not None:
            fresh = True if source.owner is None else source.owner == source.writer
            self.owner[...] = np.where(fresh, self.writer, 0)

    def write(self, array: np.ndarray) -> None:
        self.array[...] = array
        if self.owner is not None:
            self.owner[...] = self.writer

    def poison(self) -> None:
        if self.owner is not None:
            self.array.view(np.uint8)[...] = _POISON
            self.owner[...] = 0


def region(memory: Memory, offset: int, shape: Sequence[int], dtype: str, writer: int) -> Region:
    """The row-major tensor of that shape (elements) at a byte offset."""
    units = (*shape[:-1], -(-shape[-1] // block_elements(dtype)))
    item = NUMPY[dtype].itemsize
    size = int(np.prod(units, dtype=np.int64)) * item
    array = memory.data[offset : offset + size].view(NUMPY[dtype]).reshape(units)
    owner = None if memory.owner is None else memory.owner[offset : offset + size].reshape(*units, item)
    return Region(array, owner, writer)


@dataclass
class Buffer:
    """A slot or a carry of a site. `fresh`: its present user has not touched it yet, so nothing in it may be read."""

    region: Region
    dtype: str
    fresh: bool = True
    pieces: list[Piece] = field(default_factory=list)
    origin: Origin | None = None

    def touched(self) -> Region:
        """The region, poisoned at the first touch of each user."""
        if self.fresh:
            self.region.poison()
            self.fresh = False
        return self.region


@dataclass
class Origin:
    """Which window of which formal a slot was last loaded with (a gather reads its indices through it)."""

    formal: str
    start: tuple[int, ...]
    row: int


@dataclass
class Piece:
    """What an ALIAS slot is bound to from its row `row` on: a two-dimensional part of a tensor."""

    row: int
    part: Region


def local_buffer(memory: Memory, address: int, rows: int, cols: int, dtype: str) -> Buffer:
    return Buffer(region(memory, address, (rows, cols), dtype, memory.new_owner()), dtype)


def alias_buffer(dtype: str) -> Buffer:
    return Buffer(Region(np.zeros((0, 0), NUMPY[dtype]), None, 0), dtype)


def bound_region(buffer: Buffer) -> Region:
    """What an ALIAS slot shows: one window as it lies in memory, or the rows that a gather has bound."""
    pieces = buffer.pieces
    if not pieces:
        return buffer.region
    if len(pieces) == 1 and pieces[0].row == 0:
        return pieces[0].part
    rows = max(p.row + p.part.array.shape[0] for p in pieces)
    cols = max(p.part.array.shape[1] for p in pieces)
    shown = Memory(rows * cols * pieces[0].part.array.itemsize)
    seen = region(shown, 0, (rows, cols * block_elements(buffer.dtype)), buffer.dtype, shown.new_owner())
    for piece in pieces:
        height, width = piece.part.array.shape
        seen.part(slice(piece.row, piece.row + height), slice(0, width)).copy_from(piece.part)
    return seen


def slot_bytes(rows: int, cols: int, dtype: str) -> int:
    return rows * row_bytes(dtype, cols)
