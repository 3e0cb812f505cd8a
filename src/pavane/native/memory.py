"""The bytes behind a program's tensors, and numpy views of them.

Weights stay where the caller has them; everything else is allocated for the greatest extents its symbols allow. A
tensor in blocks is seen as bytes [..., bytes of a row]. Programs that share have the same WEIGHT and STATE bytes and
the same watermark of STATE rows written.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import threading
from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise

import numpy as np

from pavane.ir.digest import digest
from pavane.ir.program import Program, Tensor
from pavane.ir.quasi import Domain, upper
from pavane.ir.types import block_elements, row_bytes
from pavane.ir.walk import symbol_domain
from pavane.native.kept import Fill, Place, kept_bytes
from pavane.native.packed_forms import FORM, pack_weight, packed_bytes
from pavane.reject import LaunchReject
from pavane.tensor_graph.operands import STORAGE

_ALIGNMENT = 4096
_LARGE_PAGE = 1 << 21


def view_shape(dtype: str, extents: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a view: a type in blocks counts bytes in its last dimension."""
    return (*extents[:-1], row_bytes(dtype, extents[-1])) if block_elements(dtype) > 1 else extents


def tensor_bytes(dtype: str, extents: tuple[int, ...]) -> int:
    return math.prod(extents[:-1]) * row_bytes(dtype, extents[-1])


def greatest_extents(tensor: Tensor, domain: Domain) -> tuple[int, ...]:
    """The extents that memory is allocated for."""
    return tuple(max(0, upper(q, domain)) for q in tensor.shape)


def aligned(size_bytes: int) -> np.ndarray:
    """Zeroed bytes that start at a page."""
    raw = np.zeros(size_bytes + _ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size_bytes]


def large(size_bytes: int) -> np.ndarray:
    """Zeroed bytes in pages as large as the system gives."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return aligned(size_bytes)
    area = mmap.mmap(-1, size_bytes + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(area, np.uint8)
    start = -raw.ctypes.data % _LARGE_PAGE
    return raw[start : start + size_bytes]


def release(part: np.ndarray) -> None:
    """Let the pages of a mapped file go that lie inside `part`; they come back when they are read. Memory that is not a
    read-only mapping is left alone.
    """
    owner: object = part
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, mmap.mmap) or not memoryview(owner).readonly or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = part.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    start, stop = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE, (first + part.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if start < stop:
        owner.madvise(mmap.MADV_DONTNEED, start, stop - start)


class Memory:
    """Bytes by tensor name; `watermark` is one past the last row that each STATE tensor's epochs have written. Who
    works on them has the `lock`.
    """

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, np.ndarray],
        share: Memory | None,
        place: Place | None = None,
    ) -> None:
        self.tensors = {t.name: t for t in program.tensors}
        self._domain = symbol_domain(program)
        self.lock: threading.Lock = threading.Lock() if share is None else share.lock
        self.watermark: dict[str, int] = {} if share is None else share.watermark
        self._bytes: dict[str, np.ndarray] = {}
        self._packed: dict[str, np.ndarray] = {} if share is None else share._packed
        self._place_of_packed: Place | None = place if share is None else share._place_of_packed
        if share is None:
            _check_names(program, weights)
        elif weights:
            raise LaunchReject(
                "a program that shares its weights takes none",
                where=program.name,
                available=", ".join(sorted(weights)),
                remedy="give weights={} beside `share`",
            )
        else:
            _check_equal(self, share)
        arena = aligned(self._arena_bytes())
        for tensor in program.tensors:
            self._bytes[tensor.name] = self._place(tensor, weights, share, arena)

    def extents(self, tensor: Tensor) -> tuple[int, ...]:
        return greatest_extents(tensor, self._domain)

    def role(self, name: str) -> str:
        """The role of a tensor; empty where there is none of that name."""
        return self.tensors[name].role if name in self.tensors else ""

    def _arena_bytes(self) -> int:
        laid_out = [t for t in self.tensors.values() if _in_arena(t)]
        return max([0, *(t.offset + tensor_bytes(t.dtype, self.extents(t)) for t in laid_out)])

    def _place(
        self, tensor: Tensor, weights: Mapping[str, np.ndarray], share: Memory | None, arena: np.ndarray
    ) -> np.ndarray:
        size = tensor_bytes(tensor.dtype, self.extents(tensor))
        if tensor.role in ("WEIGHT", "STATE") and share is not None:
            return share._bytes[tensor.name]
        if tensor.role == "WEIGHT":
            return weight_bytes(tensor, self.extents(tensor), weights[tensor.name])
        if _in_arena(tensor):
            return arena[tensor.offset : tensor.offset + size]
        return aligned(size)

    def address(self, name: str, packed: bool = False) -> int:
        return (self._packed if packed else self._bytes)[name].ctypes.data

    def pack(self, names: Iterable[str], entries: Mapping[str, int], threads: int) -> None:
        """Find or make the packed copies that are not there yet, with a loaded program's entry points, side by side."""
        missing = [self.tensors[name] for name in names if name not in self._packed]
        if not missing:
            return
        sizes = [-(-packed_bytes(t.dtype, *self._rows_and_columns(t)) // _ALIGNMENT) * _ALIGNMENT for t in missing]
        places = [slice(start, end) for start, end in pairwise(accumulate(sizes, initial=0))]

        def fill(arena: np.ndarray) -> None:
            for tensor, place in zip(missing, places, strict=True):
                rows, columns = self._rows_and_columns(tensor)
                source = self._bytes[tensor.name]
                pack_weight(entries[tensor.dtype], tensor.dtype, source, rows, columns, threads, arena[place])
                release(source)

        arena = self._arena_of_packed(missing, sum(sizes), fill)
        self._packed.update((t.name, arena[place]) for t, place in zip(missing, places, strict=True))

    def _arena_of_packed(self, tensors: list[Tensor], size_bytes: int, fill: Fill) -> np.ndarray:
        """The bytes of these tensors' packed copies: kept ones where they have a place, else in memory."""
        if self._place_of_packed is not None:
            what = [(t.name, t.dtype, *self._rows_and_columns(t)) for t in tensors]
            key = digest([FORM, self._place_of_packed.contents, what])
            kept = kept_bytes(self._place_of_packed, key, size_bytes, fill)
            if kept is not None:
                return kept
        arena = large(size_bytes)
        fill(arena)
        return arena

    def _rows_and_columns(self, tensor: Tensor) -> tuple[int, int]:
        *rows, columns = self.extents(tensor)
        return math.prod(rows), columns

    def view(self, name: str, symbols: Mapping[str, int] | None) -> np.ndarray:
        """The tensor at those values of the symbols (None: at its greatest extents)."""
        tensor = self.tensors[name]
        extents = self.extents(tensor) if symbols is None else tuple(max(0, q.evaluate(symbols)) for q in tensor.shape)
        part = self._bytes[name][: tensor_bytes(tensor.dtype, extents)]
        return part.view(STORAGE[tensor.dtype]).reshape(view_shape(tensor.dtype, extents))


def _in_arena(tensor: Tensor) -> bool:
    """SCRATCH beside the chip shares one arena; what lies on the sites has memory of its own here."""
    return tensor.role == "SCRATCH" and tensor.offset >= 0 and tensor.home == "dram"


def weight_bytes(tensor: Tensor, extents: tuple[int, ...], given: np.ndarray) -> np.ndarray:
    """The caller's array as bytes, in place where it is contiguous; refused unless it is what the tensor declares."""
    wanted, shape = STORAGE[tensor.dtype], view_shape(tensor.dtype, extents)
    if not isinstance(given, np.ndarray):
        raise LaunchReject(
            "a weight is no numpy array",
            where=tensor.name,
            needed=f"{wanted.name} {list(shape)}",
            available=type(given).__name__,
            remedy="give the array of the model that the program was compiled for",
        )
    if given.dtype != wanted or given.shape != shape:
        raise LaunchReject(
            "a weight is not what the program declares",
            where=tensor.name,
            needed=f"{wanted.name} {list(shape)} ({tensor_bytes(tensor.dtype, extents):,} bytes)",
            available=f"{given.dtype.name} {list(given.shape)} ({given.nbytes:,} bytes)",
            remedy="give the array of the model that the program was compiled for",
        )
    return np.ascontiguousarray(given).reshape(-1).view(np.uint8)


def _check_names(program: Program, weights: Mapping[str, np.ndarray]) -> None:
    declared = {t.name for t in program.tensors if t.role == "WEIGHT"}
    missing, unknown = sorted(declared - set(weights)), sorted(set(weights) - declared)
    if missing or unknown:
        raise LaunchReject(
            "the weights are not those of the program",
            where=program.name,
            terms=[*(f"{n} is missing" for n in missing), *(f"{n} is not a weight of it" for n in unknown)],
            remedy="give one array a WEIGHT tensor, under its name",
        )


def _check_equal(mine: Memory, other: Memory) -> None:
    """WEIGHT and STATE tensors of two programs that share are declared alike."""
    kept = ("WEIGHT", "STATE")
    faults = []
    for name, tensor in mine.tensors.items():
        if tensor.role not in kept:
            continue
        theirs = other.tensors.get(name)
        if theirs is None:
            faults.append(f"{name} is not in the other program")
        elif (tensor.shape, tensor.dtype, tensor.role, tensor.fill, tensor.interleave_bytes) != (
            theirs.shape,
            theirs.dtype,
            theirs.role,
            theirs.fill,
            theirs.interleave_bytes,
        ):
            faults.append(f"{name} is declared differently")
    if faults:
        raise LaunchReject(
            "two programs cannot share their weights and state",
            terms=faults,
            remedy="compile both from one model, contract and context",
        )
