"""Bytes and their shadows.

A `Space` is one address range: the local memory of a site, a tensor, or the SCRATCH arena. What is written whole is a
unit: an element, or of a type in blocks a block, whose elements share a scale or an exponent. `owner` says, per byte,
which unit covers it, by the address of its first byte, `kind` of which type. So a read of an element whose unit has
lost a byte, or is of another type, is a fault, and so is a write of a part of a block.

An element's cell stands at twice its address, or one after that: two elements of bfp4 share a byte.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pavane.ir.types import block_elements, row_bytes
from tests.oracle.cells import CELL, Cells

KINDS = {"f32": 1, "f16": 2, "bf16": 3, "i8": 4, "i32": 5, "q8_0": 6, "bfp8": 7, "bfp4": 8}
_HALVES = {"q8_0": 2, "bfp8": 2, "bfp4": 1}  # of a byte, an element of a block


class Fault(Exception):
    """Something that no safe program does; the text says what and where."""


class Space:
    """One address range with values, element ownership, and the clocks of the last write and of every reader."""

    def __init__(self, name: str, size: int, threads: int) -> None:
        self.name = name
        self.size = size
        self.threads = threads
        self.value = np.zeros(2 * size, CELL)
        self.owner = np.full(size, -1, np.int64)
        self.kind = np.zeros(size, np.int8)
        self.forget_clocks()

    def forget_clocks(self) -> None:
        """A launch is a barrier: nothing of the last epoch is concurrent with this one."""
        self.write_thread = np.zeros(self.size, np.int32)
        self.write_clock = np.zeros(self.size, np.int64)
        self.readers: dict[int, np.ndarray] = {}

    def forget_values(self) -> None:
        self.owner[:] = -1

    def touch(self, covered: np.ndarray, write: bool, seen: np.ndarray, thread: int, clock: int, who: str) -> None:
        """Note an access by `thread` at `clock`, whose past is `seen`; a conflict outside that past is a race."""
        late = self.write_clock[covered] > seen[self.write_thread[covered]]
        if late.any():
            what = f"{'writes' if write else 'reads'} byte {int(covered[late][0])} of {self.name}"
            raise Fault(f"race: {who} {what} beside a write")
        if write:
            for reader, clocks in self.readers.items():
                if (clocks[covered] > seen[reader]).any():
                    raise Fault(f"race: {who} writes {self.name} beside a read")
            self.write_thread[covered] = thread
            self.write_clock[covered] = clock
        else:
            self.readers.setdefault(thread, np.zeros(self.size, np.int64))[covered] = clock


class Addresses(NamedTuple):
    """Where the elements of a rectangle have their cells, which unit each is part of, where units begin, their bytes
    (unit after unit), and whether the rectangle covers them whole.
    """

    cells: np.ndarray
    unit_of: np.ndarray
    units: np.ndarray
    covered: np.ndarray
    whole: bool


class Box:
    """A rectangle of elements in a space, one base address a row."""

    def __init__(self, space: Space, bases: tuple[int, ...], col: int, cols: int, dtype: str) -> None:
        self.space = space
        self.dtype = dtype
        self._unit_bytes = row_bytes(dtype, block_elements(dtype))
        self.cells, self.unit_of, self.units, self.covered, self.whole = _addresses(bases, col, cols, dtype)
        if self.covered.size and (self.covered.min() < 0 or self.covered.max() >= space.size):
            place = f"bytes {self.covered.min()} to {self.covered.max()} of {space.name}"
            raise Fault(f"out of bounds: {place}, which has {space.size}")

    def present(self) -> np.ndarray:
        """Which elements are there: all bytes of their unit are its own, and it is of the type."""
        owned = self.space.owner[self.covered].reshape(-1, self._unit_bytes) == self.units[:, None]
        right = self.space.kind[self.units] == KINDS[self.dtype]
        return (owned.all(1) & right)[self.unit_of]

    def read(self, who: str) -> Cells:
        if not self.present().all():
            raise Fault(f"unwritten or garbled bytes: {who} reads {self.space.name}")
        return self.space.value[self.cells]

    def write(self, values: Cells) -> None:
        """Units that lose a byte are gone."""
        if not self.whole:
            raise Fault(f"misuse: a part of a block of {self.dtype} is written in {self.space.name}")
        self.space.owner[self.covered] = np.repeat(self.units, self._unit_bytes)
        self.space.kind[self.units] = KINDS[self.dtype]
        self.space.value[self.cells] = np.broadcast_to(values, self.cells.shape)

    def forget(self) -> None:
        """Nothing is there any more."""
        self.space.owner[self.covered] = -1


@lru_cache(maxsize=8192)
def _addresses(bases: tuple[int, ...], col: int, cols: int, dtype: str) -> Addresses:
    block, starts = block_elements(dtype), np.array(bases, np.int64)[:, None]
    size, columns = row_bytes(dtype, block), np.arange(col, col + cols)
    first, last = col // block, -(-(col + cols) // block)
    units = (starts + np.arange(first, last) * size).ravel()
    unit_of = np.arange(len(bases))[:, None] * (last - first) + columns // block - first
    cells = 2 * (starts + columns // block * size)
    if block > 1:
        halves = _HALVES[dtype]
        cells = cells + (2 * size - block * halves) + columns % block * halves  # behind the scale or the exponent
    covered = (units[:, None] + np.arange(size)).ravel()
    return Addresses(cells, unit_of, units, covered, not col % block and not (col + cols) % block)
