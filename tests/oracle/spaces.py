"""Bytes and their shadows.

A `Space` is one address range: the local memory of a site, a tensor, or the SCRATCH arena. An element lives at the
address of its first byte; `owner` says, per byte, which element covers it, `kind` of which type, so that a read of
anything but a whole element of its type is a fault.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pavane.ir.types import block_elements, row_bytes
from tests.oracle.cells import CELL, Cells

KINDS = {"f32": 1, "f16": 2, "bf16": 3, "i8": 4, "i32": 5, "q8_0": 6, "bfp8": 7}


def header_bytes(dtype: str) -> int:
    """What a block has before its elements of one byte each: a scale, an exponent."""
    block = block_elements(dtype)
    return row_bytes(dtype, block) - block if block > 1 else 0


class Fault(Exception):
    """Something that no safe program does; the text says what and where."""


class Space:
    """One address range with values, element ownership, and the clocks of the last write and of every reader."""

    def __init__(self, name: str, size: int, threads: int) -> None:
        self.name = name
        self.size = size
        self.threads = threads
        self.value = np.zeros(size, CELL)
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


class Box:
    """A rectangle of elements in a space, one base address a row: `first` are the elements' addresses, [rows, cols]."""

    def __init__(self, space: Space, bases: tuple[int, ...], col: int, cols: int, dtype: str) -> None:
        self.space = space
        self.dtype = dtype
        self.first, self.covered, self.size = _addresses(bases, col, cols, dtype)
        if self.covered.size and (self.covered.min() < 0 or self.covered.max() >= space.size):
            place = f"bytes {self.covered.min()} to {self.covered.max()} of {space.name}"
            raise Fault(f"out of bounds: {place}, which has {space.size}")

    def read(self, who: str) -> Cells:
        spots = self.first.ravel()
        owned = self.space.owner[self.covered[: spots.size * self.size].reshape(spots.size, self.size)]
        if not ((owned == spots[:, None]).all() and (self.space.kind[spots] == KINDS[self.dtype]).all()):
            raise Fault(f"unwritten or garbled bytes: {who} reads {self.space.name}")
        return self.space.value[self.first]

    def write(self, values: Cells) -> None:
        """Elements that lose a byte are gone."""
        spots = self.first.ravel()
        mine = self.covered[: spots.size * self.size]
        self.space.owner[mine] = np.repeat(spots, self.size)
        self.space.kind[mine] = KINDS[self.dtype]
        self.space.value[spots] = np.broadcast_to(values, self.first.shape).ravel()


@lru_cache(maxsize=8192)
def _addresses(bases: tuple[int, ...], col: int, cols: int, dtype: str) -> tuple[np.ndarray, np.ndarray, int]:
    """(first bytes [rows, cols]; all bytes, of elements first, then of blocks' headers; bytes an element)."""
    block = block_elements(dtype)
    starts = np.array(bases, np.int64)
    columns = np.arange(col, col + cols)
    if block == 1:
        size = row_bytes(dtype, 1)
        first = starts[:, None] + size * columns
        return first, (first.ravel()[:, None] + np.arange(size)).ravel(), size
    per = row_bytes(dtype, block)
    first = starts[:, None] + columns // block * per + header_bytes(dtype) + columns % block
    headers = (starts[:, None] + np.unique(columns // block) * per).ravel()
    return first, np.concatenate([first.ravel(), *(headers + n for n in range(header_bytes(dtype)))]), 1
