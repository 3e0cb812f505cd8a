"""A FIFO as one process sees it, as code.

Inside one process it is a ring of places; between two processes each end has a count that the other waits for, and an
index that never goes back. An ALIAS slot is an address, kept in the ring; the others lie in local memory at the FIFO's
address.
"""

from __future__ import annotations

from pavane.ir.program import Fifo, Front, Load, Pop, Process, Push, Reserve, Shape
from pavane.ir.types import row_bytes
from pavane.ir.walk import leaves, named
from pavane.native.generic import Operand
from pavane.native.layout import ADDRESSES, POPPING, PUSHING, queue_cell_bytes, queue_offset
from pavane.native.outside import outside
from pavane.native.sync import emit_add, emit_wait
from pavane.native.text import Code
from pavane.native.windows import window_row_bytes


def process_queues(
    code: Code, shape: Shape, process: Process, site: str, local: str, packed: frozenset[str], indexing: frozenset[str]
) -> dict[str, Queue]:
    """The FIFOs that a process uses, by name. `site` is the site's number, `local` its memory, `packed` the
    formals that are bound to packed bytes, `indexing` the FIFOs whose slots windows read indices from.
    """
    others = [p for p in shape.processes if p is not process]
    found = {}
    for number, fifo in enumerate(shape.fifos):
        if fifo.name not in _used(process):
            continue
        cell = None
        if any(fifo.name in _used(p) for p in others):
            offset = code.add(code.mul(site, queue_cell_bytes(shape)), str(queue_offset(shape, number)))
            cell = code.at("%queues", offset)
        found[fifo.name] = Queue(code, shape, fifo, local, cell, packed, fifo.name in indexing)
    return found


def _used(process: Process) -> frozenset[str]:
    steps = (Reserve, Push, Front, Pop)
    return frozenset(step.fifo for _, step in leaves(process.body) if isinstance(step, steps))


class Queue:
    """`filling` and `holding`: variables with the addresses of the slot being filled and of the slot held.

    `cell` is the words shared with the other end, None when this process has both ends. `following` has the address
    that an ALIAS slot's next load will bind, as far as the load knows it. `origin`, of a slot of indices that is held:
    where the first element of the tensor that it was loaded from would lie.
    """

    def __init__(
        self,
        code: Code,
        shape: Shape,
        fifo: Fifo,
        local: str,
        cell: str | None,
        packed: frozenset[str],
        indexing: bool,
    ) -> None:
        self.fifo, self.alias = fifo, fifo.kind == "ALIAS"
        self.packed = any(load.fifo == fifo.name and load.tensor in packed for load in _all_loads(shape))
        self.slot_bytes = fifo.rows * row_bytes(fifo.dtype, fifo.cols)
        self.row_bytes = _alias_row_bytes(shape, fifo, packed) if self.alias else row_bytes(fifo.dtype, fifo.cols)
        self.filling, self.holding, self.following, self.origin = (code.slot("ptr") for _ in range(4))
        self.held = self._reserved = False
        self._code, self._local, self._cell = code, local, cell
        ring = f"[{fifo.depth} x ptr]"
        self._own_addresses, self._own_following = (code.slot(ring) for _ in range(2))
        self._own_origins = code.slot(ring) if indexing else ""
        self._indices = {end: code.slot("i64") for end in (PUSHING, POPPING)}
        for index in self._indices.values():
            code.store("i64", "0", index, 8)

    def reserve(self) -> None:
        """Wait for a free slot, where the other end is elsewhere, and make it the one being filled."""
        self._reserved = True
        if self._cell is not None:
            popped = self._code.sub(self._code.add(self._index(PUSHING), "1"), str(self.fifo.depth))
            self._wait(POPPING, popped)
        if not self.alias:
            self._code.store("ptr", self._slot(PUSHING), self.filling, 8)

    def push(self) -> None:
        """Hand the slot being filled over."""
        self._reserved = False
        self._advance(PUSHING)

    def front(self) -> None:
        """Wait for a slot, where the other end is elsewhere, and make it the one held."""
        code = self._code
        self.held = True
        if self._cell is not None:
            self._wait(PUSHING, code.add(self._index(POPPING), "1"))
        if self._own_origins:
            code.store("ptr", code.load("ptr", self._entry(self._own_origins, POPPING), 8), self.origin, 8)
        if not self.alias:
            code.store("ptr", self._slot(POPPING), self.holding, 8)
            return
        bound = following = code.load("ptr", self._entry(self._addresses(), POPPING), 8)
        if self._cell is None:
            following = code.load("ptr", self._entry(self._own_following, POPPING), 8)
        code.store("ptr", bound, self.holding, 8)
        code.store("ptr", following, self.following, 8)

    def pop(self) -> None:
        """Give the slot held back."""
        self.held = False
        self._advance(POPPING)

    def bind(self, address: str, following: str) -> None:
        """The reserved ALIAS slot is what lies at `address`."""
        code = self._code
        code.store("ptr", address, self.filling, 8)
        code.store("ptr", address, self._entry(self._addresses(), PUSHING), 8)
        if self._cell is None:
            code.store("ptr", following, self._entry(self._own_following, PUSHING), 8)

    def begin(self, origin: str) -> None:
        """The indices in the slot being filled count from `origin` on."""
        self._code.store("ptr", origin, self._entry(self._own_origins, PUSHING), 8)

    def read(self) -> Operand:
        """The slot in front, or else the one being filled."""
        return self._operand(self.holding if self.held else self.filling)

    def written(self) -> Operand:
        """The slot being filled, or else the one in front."""
        return self._operand(self.filling if self._reserved else self.holding)

    def _operand(self, variable: str) -> Operand:
        return Operand(self.fifo.dtype, self._code.load("ptr", variable, 8), self.row_bytes, self.packed)

    def _addresses(self) -> str:
        return self._own_addresses if self._cell is None else self._code.at(self._cell, str(ADDRESSES))

    def _wait(self, end: int, count: str) -> None:
        code = self._code
        emit_wait(code, code.at(str(self._cell), str(end)), code.value(f"trunc i64 {count} to i32"), "%spins")

    def _index(self, end: int) -> str:
        """How many slots this end has passed on: ever, or, where both ends are here, in this ring."""
        code = self._code
        return code.load("i64", self._indices[end] if self._cell is None else code.at(self._cell, str(end + 8)), 8)

    def _place(self, end: int) -> str:
        """Which slot of the ring this end is at."""
        if self.fifo.depth == 1:
            return "0"
        index = self._index(end)
        return index if self._cell is None else self._code.value(f"urem i64 {index}, {self.fifo.depth}")

    def _entry(self, ring: str, end: int) -> str:
        """What a ring of addresses has of the slot that this end is at."""
        return self._code.at(ring, self._code.mul(self._place(end), 8))

    def _slot(self, end: int) -> str:
        first = self._code.at(self._local, str(self.fifo.address))
        return self._code.at(first, self._code.mul(self._place(end), self.slot_bytes))

    def _advance(self, end: int) -> None:
        code = self._code
        following = code.add(self._index(end), "1")
        if self._cell is not None:
            code.store("i64", following, code.at(self._cell, str(end + 8)), 8)
            emit_add(code, code.at(self._cell, str(end)), 1)
            return
        last = code.value(f"icmp eq i64 {following}, {self.fifo.depth}")
        code.store("i64", code.value(f"select i1 {last}, i64 0, i64 {following}"), self._indices[end], 8)


def _all_loads(shape: Shape) -> tuple[Load, ...]:
    return tuple(step for p in shape.processes for _, step in leaves(p.body) if isinstance(step, Load))


def _alias_row_bytes(shape: Shape, fifo: Fifo, packed: frozenset[str]) -> int:
    """Bytes from row to row of what an ALIAS FIFO is bound to: the same for all its loads."""
    loads = [load for load in _all_loads(shape) if load.fifo == fifo.name]
    distinct = sorted({window_row_bytes(named(shape.formals, n.tensor), n.window, n.tensor in packed) for n in loads})
    if len(distinct) != 1:
        raise outside("an ALIAS FIFO is bound to windows whose rows lie differently", fifo.name, f"{distinct} bytes")
    return distinct[0]
