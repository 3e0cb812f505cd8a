"""The tensors of a program as bytes, allocated for the greatest value of the symbols.

SCRATCH tensors with an offset beside the chip share one arena, as they do on the chip (those on the sites, and what is
sharded, lie in the sites' memories: state.py, shards.py); every other tensor has memory of its own.
SCRATCH, OUTPUT and STATE remember who wrote each byte (memory.py): at a launch SCRATCH and OUTPUT hold nothing,
STATE what the launches before left.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pavane.ir.program import Formal, Program, Tensor
from pavane.ir.quasi import upper
from pavane.ir.types import row_bytes
from pavane.ir.walk import named, symbol_domain
from pavane.sim.faults import UnwrittenOutput
from pavane.sim.memory import Memory, Region, region

_TRACKED = ("STATE", "SCRATCH", "OUTPUT")


class TensorStore:
    """The bytes of every tensor, and typed views of them."""

    def __init__(self, program: Program, share: TensorStore | None = None) -> None:
        """`share`: the store that has the bytes of WEIGHT and STATE."""
        self._program = program
        self._memories: dict[str, Memory] = {}
        self._offsets = {t.name: max(0, t.offset) if t.home == "dram" else 0 for t in program.tensors}
        sizes = {t.name: 0 if t.home == "sharded" else greatest_bytes(program, t) for t in program.tensors}
        shared = {t.name for t in program.tensors if t.offset >= 0 and t.home == "dram"}
        arena_bytes = max((t.offset + sizes[t.name] for t in program.tensors if t.name in shared), default=0)
        arena = Memory(arena_bytes)
        for tensor in program.tensors:
            own = Memory(sizes[tensor.name], tensor.role in _TRACKED) if tensor.name not in shared else arena
            self._memories[tensor.name] = own
        if share is not None:
            shared = {t.name for t in program.tensors if t.role in ("WEIGHT", "STATE")}
            self._memories.update((name, share._memories[name]) for name in sorted(shared))
        self._writers = {t.name: self._memories[t.name].new_owner() for t in program.tensors}
        if share is not None:
            self._writers.update((name, share._writers[name]) for name in sorted(shared))

    def fill(self, name: str, array: np.ndarray) -> None:
        """Put an array's bytes at the tensor's start."""
        raw = raw_bytes(array)
        memory, start = self._memories[name], self._offsets[name]
        memory.data[start : start + len(raw)] = raw
        if memory.owner is not None:
            memory.owner[start : start + len(raw)] = self._writers[name]

    def raw(self, name: str) -> np.ndarray:
        """All bytes of a tensor that shares its memory with no other."""
        return self._memories[name].data

    def forget(self, roles: tuple[str, ...]) -> None:
        """Nothing has written the tensors of these roles."""
        for tensor in self._program.tensors:
            memory = self._memories[tensor.name]
            if tensor.role in roles and memory.owner is not None:
                memory.owner[:] = 0

    def view(self, name: str, formal: Formal, symbols: Mapping[str, int]) -> Region:
        """A formal's view of the tensor: its first elements, row-major with the formal's shape."""
        shape = tuple(extent.evaluate(symbols) for extent in formal.shape)
        return region(self._memories[name], self._offsets[name], shape, formal.dtype, self._writers[name])

    def read(self, name: str, symbols: Mapping[str, int], whole: bool) -> np.ndarray:
        """A copy of the tensor at its present shape; `whole`: refuse when an element was never written."""
        tensor = named(self._program.tensors, name)
        shape = tuple(extent.evaluate(symbols) for extent in tensor.shape)
        found = region(self._memories[name], self._offsets[name], shape, tensor.dtype, self._writers[name])
        if whole and found.owner is not None and not found.whole():
            missing = np.argwhere((found.owner != found.writer).any(axis=-1))
            raise UnwrittenOutput(
                f"{len(missing)} elements of output {name!r} were never written",
                where=f"the first is at {tuple(int(i) for i in missing[0])}",
            )
        return found.array.copy()


def raw_bytes(array: np.ndarray) -> np.ndarray:
    """An array's bytes, row-major."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def greatest_bytes(program: Program, tensor: Tensor) -> int:
    domain = symbol_domain(program)
    extents = [max(0, upper(extent, domain)) for extent in tensor.shape]
    return int(np.prod(extents[:-1], dtype=np.int64)) * row_bytes(tensor.dtype, extents[-1])
