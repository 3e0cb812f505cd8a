"""One process of a shape as one function: its loops become loops, its steps code, in the written order.

A FIFO that one process fills and empties is a ring of places and nothing else (less where a result goes straight to
its tensor: `direct`); one between two processes has counts that the other side waits for. An ALIAS slot is an address:
loading it moves no byte. Copies are done where they are written, so a fence has nothing to do. The function knows
formals by number: no name of a tensor is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, singledispatchmethod

from pavane.ir.expr import Index, Indirect
from pavane.ir.program import (
    SITE_X,
    SITE_Y,
    Carry,
    Compute,
    Fence,
    Formal,
    Front,
    Generic,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Pop,
    Post,
    Process,
    Program,
    Push,
    Rect,
    Reserve,
    Send,
    Shape,
    Step,
    Store,
    Wait,
)
from pavane.ir.quasi import Quasi
from pavane.ir.types import row_bytes
from pavane.ir.walk import leaves, named
from pavane.native.carries import emit_init, touched
from pavane.native.cpu import Cpu
from pavane.native.direct import direct_stores
from pavane.native.generic import Operand, emit_generic
from pavane.native.handshakes import counter_cell, each_site, emit_counter_wait, place_on_list
from pavane.native.index import emit_index
from pavane.native.kernels_packed import panel_bytes
from pavane.native.layout import Layout, rect_numbers
from pavane.native.matmul import Product, emit_matmul, require_taken_as_stored
from pavane.native.outside import outside
from pavane.native.packing import packed_formals
from pavane.native.panels import panel_offsets
from pavane.native.queues import Queue, process_queues
from pavane.native.sums import sums_in_place
from pavane.native.sync import emit_add
from pavane.native.text import Code, Module
from pavane.native.windows import Box, emit_address, emit_box, emit_copy

PARAMETERS = (
    "ptr %formals, ptr %symbols, i64 %x, i64 %y, "
    "ptr %locals, ptr noalias %scratch, ptr %queues, ptr %counters, i64 %spins"
)


def lower_process(
    module: Module, name: str, program: Program, shape: Shape, process: Process, layout: Layout, cpu: Cpu
) -> None:
    """Write the function `name`."""
    code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
    lowering = _Process(code, program, shape, process, layout, cpu)
    lowering.body(process.body)
    code.finish()


class _Process:
    """The function that is being written, and where its names live."""

    def __init__(self, code: Code, program: Program, shape: Shape, process: Process, layout: Layout, cpu: Cpu) -> None:
        self.code, self.shape, self.process, self.layout, self.cpu = code, shape, process, layout, cpu
        self.site = code.add(code.mul("%y", layout.width), "%x")
        self.local = code.at("%locals", code.mul(self.site, layout.local_bytes))
        x0, _, y0, _ = rect_numbers(process.rect)
        self.scope: dict[str, str] = {
            s.name: code.load("i64", code.at("%symbols", str(8 * i)), 8) for i, s in enumerate(program.symbols)
        }
        x, y = (place_on_list(code, shape.sites, self.site, layout), "0") if shape.sites else ("%x", "%y")
        self.scope[SITE_X] = code.sub(x, str(x0))
        self.scope[SITE_Y] = code.sub(y, str(y0))
        self.outside = frozenset(self.scope)
        self.loops: list[Loop] = []
        self.formals = {
            f.name: code.load("ptr", code.at("%formals", str(8 * i)), 8) for i, f in enumerate(shape.formals)
        }
        self.packed = packed = packed_formals(program, shape)
        self.loads = tuple(step for _, step in leaves(process.body) if isinstance(step, Load))
        self.indexing = frozenset(i.via for s in self.loads for i in s.window.start if isinstance(i, Indirect))
        self.queues = process_queues(code, shape, process, self.site, self.local, packed, self.indexing)
        self.carries = {c.name: c for c in shape.carries}
        self.panels, panel_bytes_ = panel_offsets(shape, packed)
        self.scratch = code.at("%scratch", str(panel_bytes_))
        self.direct = direct_stores(program, shape, process)
        self.sums = sums_in_place(program, shape, process, self.direct)

    def body(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                self._loop(node)
            else:
                self.step(node)

    def _loop(self, loop: Loop) -> None:
        outer = self.scope
        with self.code.loop(emit_index(self.code, loop.extent, outer)) as turn:
            self.scope = {**outer, loop.var: turn}
            self.loops.append(loop)
            self.body(loop.body)
            self.loops.pop()
        self.scope = outer

    @singledispatchmethod
    def step(self, step: Step) -> None:
        raise outside(f"a step of kind {type(step).__name__} cannot run here", self.process.name)

    @step.register
    def _(self, step: Reserve) -> None:
        self.queues[step.fifo].reserve()

    @step.register
    def _(self, step: Push) -> None:
        self.queues[step.fifo].push()

    @step.register
    def _(self, step: Front) -> None:
        self.queues[step.fifo].front()

    @step.register
    def _(self, step: Pop) -> None:
        self.queues[step.fifo].pop()

    @step.register
    def _(self, step: Load) -> None:
        code, queue = self.code, self.queues[step.fifo]
        if queue.alias:
            self._bind(queue, step)
            return
        formal, base = named(self.shape.formals, step.tensor), self.formals[step.tensor]
        box = emit_box(code, formal, base, step.window, self._read_index, self.scope)
        first = code.mul(emit_index(code, step.row, self.scope), queue.row_bytes)
        filling = code.load("ptr", queue.filling, 8)
        target = code.at(filling, first)
        if step.fifo in self.indexing:
            queue.begin(self._first_index(step, filling))
        emit_copy(code, formal.dtype, (target, queue.row_bytes), (box.address, box.row_bytes), box.rows, box.columns)

    @step.register
    def _(self, step: Store) -> None:
        if step.fifo in self.direct:
            return
        code, queue = self.code, self.queues[step.fifo]
        formal, box = self._destination(step)
        source = code.load("ptr", queue.holding, 8)
        emit_copy(code, formal.dtype, (box.address, box.row_bytes), (source, queue.row_bytes), box.rows, box.columns)

    @step.register
    def _(self, step: Send) -> None:
        code, queue = self.code, self.queues[step.fifo]
        source = code.load("ptr", queue.filling, 8)
        place = code.sub(code.value(f"ptrtoint ptr {source} to i64"), code.value(f"ptrtoint ptr {self.local} to i64"))
        for site in self._sites(step.to):
            target = code.at(code.at("%locals", code.mul(site, self.layout.local_bytes)), place)
            arguments = f"ptr {target}, ptr {source}, i64 {queue.slot_bytes}, i1 false"
            code.call("llvm.memmove.p0.p0.i64", "void", arguments, "ptr, ptr, i64, i1")

    @step.register
    def _(self, step: Fence) -> None:
        """Every copy has been made."""

    @step.register
    def _(self, step: Post) -> None:
        for site in self._sites(step.to):
            emit_add(self.code, self._counter(step.counter, site), step.n)

    @step.register
    def _(self, step: Wait) -> None:
        emit_counter_wait(self.code, self._counter(step.counter, self.site), step.n, "%spins")

    @step.register
    def _(self, step: Init) -> None:
        carry = self.carries[step.carry]
        sums = self.sums.get(carry.name)
        if sums is None:
            part = touched(self.process.body, carry.name, tuple(self.loops), self.outside)
            emit_init(self.code, carry, self._carry(carry), part, self.scope)
        elif sums.beginning is None:
            with self._inside(sums.store) as target:
                part = (sums.result.rows, sums.result.cols.limit - sums.result.cols.start)
                emit_init(self.code, carry, target, part, self.scope)

    @step.register
    def _(self, step: Compute) -> None:
        op = step.op
        if isinstance(op, Generic):
            self._generic(op)
        elif op.dst.name in self.sums:
            self._product_in_place(op)
        else:
            self._product(op, self._written(op.dst.name))

    def _product(self, op: MatmulTiles, target: Operand, fresh: str = "false") -> None:
        require_taken_as_stored(self.shape, op)
        a, b = self._read(op.a.name), self._read(op.b.name)
        product = Product(op, target, a, b, self._following(op, b), self.scratch, fresh)
        emit_matmul(self.code, product, self.cpu, self.scope)

    def _product_in_place(self, op: MatmulTiles) -> None:
        sums = self.sums[op.dst.name]
        fresh = "false" if sums.beginning is None else self._first_turn(sums.beginning)
        with self._inside(sums.store) as target:
            self._product(op, target, fresh)

    def _first_turn(self, loops: tuple[Loop, ...]) -> str:
        """Whether all of them are in their first turn."""
        found = "true"
        for loop in loops:
            here = self.code.value(f"icmp eq i64 {self.scope[loop.var]}, 0")
            found = self.code.value(f"and i1 {found}, {here}")
        return found

    def _generic(self, op: Generic) -> None:
        code = self.code
        store = self.direct.get(op.dst.name)
        if store is None:
            emit_generic(code, op, self._read, self._written(op.dst.name), self.scope)
        elif all(sums.store is not store for sums in self.sums.values()):
            with self._inside(store) as target:
                emit_generic(code, op, self._read, target, self.scope)

    @contextmanager
    def _inside(self, step: Store) -> Iterator[Operand]:
        """The window as a destination; what is written in the block runs where it has a row inside the tensor."""
        formal, box = self._destination(step)
        with self.code.when(self.code.value(f"icmp sgt i64 {box.rows}, 0")):
            yield Operand(formal.dtype, box.address, box.row_bytes)

    def _destination(self, step: Store) -> tuple[Formal, Box]:
        formal = named(self.shape.formals, step.tensor)
        return formal, emit_box(self.code, formal, self.formals[step.tensor], step.window, self._read_index, self.scope)

    def _read(self, name: str) -> Operand:
        return self._carry(self.carries[name]) if name in self.carries else self.queues[name].read()

    def _written(self, name: str) -> Operand:
        return self._carry(self.carries[name]) if name in self.carries else self.queues[name].written()

    def _carry(self, carry: Carry) -> Operand:
        if carry.name in self.panels:
            base = self.code.at("%scratch", str(self.panels[carry.name]))
            return Operand(carry.dtype, base, panel_bytes(carry.cols), panel=carry.cols)
        return Operand(carry.dtype, self.code.at(self.local, str(carry.address)), row_bytes(carry.dtype, carry.cols))

    def _following(self, op: MatmulTiles, b: Operand) -> str:
        """Where b goes on in the next turn: what the load of an ALIAS slot knows of it."""
        queue = self.queues.get(op.b.name)
        plain = op.b.row == Quasi() and op.b.col == Quasi()
        if queue is None or not queue.alias or not queue.held or not plain:
            return b.base
        return self.code.load("ptr", queue.following, 8)

    def _read_index(self, index: Index) -> str:
        """An index of a window; one read at run time is an element of the slot in front of its FIFO."""
        if isinstance(index, Quasi):
            return emit_index(self.code, index, self.scope)
        return self._indirect(index)

    def _indirect(self, index: Indirect) -> str:
        """An element of the tensor, out of the slot in front: the load that filled it knows from where it counts."""
        code, queue = self.code, self.queues[index.via]
        rows = {load.window.row for load in self.loads if load.fifo == index.via}
        if len(rows) != 1 or queue.fifo.dtype != "i32":
            raise outside("indices are read only from i32 slots that the same process fills, all alike", index.via)
        row, places = rows.pop(), [emit_index(code, q, self.scope) for q in index.index]
        first = "0" if row < 0 else code.mul(places[row], queue.row_bytes)
        pointer = code.at(code.load("ptr", queue.origin, 8), code.add(first, code.mul(places[-1], 4)))
        return code.value(f"sext i32 {code.load('i32', pointer)} to i64")

    def _first_index(self, step: Load, slot: str) -> str:
        """Where the tensor's first element would lie, counted from a slot of indices that a load fills."""
        code, queue, window = self.code, self.queues[step.fifo], step.window
        starts = [self._read_index(start) for start in window.start]
        first = "0" if window.row < 0 else code.mul(starts[window.row], queue.row_bytes)
        return code.at(slot, code.sub("0", code.add(first, code.mul(starts[-1], 4))))

    def _bind(self, queue: Queue, step: Load) -> None:
        if step.row != Quasi():
            raise outside("an ALIAS slot is bound as a whole", step.fifo)
        formal, base = named(self.shape.formals, step.tensor), self.formals[step.tensor]
        address = emit_address(self.code, formal, base, step.window, self._read_index, formal.name in self.packed)
        if step.fifo in self.indexing:
            queue.begin(self._first_index(step, address))
        queue.bind(address, self._next_address(step, address))

    def _next_address(self, step: Load, address: str) -> str:
        """The address that the load binds in the next turn of its innermost loop, if there is one."""
        starts = [s for s in step.window.start if isinstance(s, Quasi)]
        if not self.loops or len(starts) < len(step.window.start):
            return address
        loop, code = self.loops[-1], self.code
        if not any(loop.var in s.variables() for s in starts):
            return address
        turn = code.add(self.scope[loop.var], "1")
        scope = {**self.scope, loop.var: turn}
        formal, base = named(self.shape.formals, step.tensor), self.formals[step.tensor]
        read = partial(emit_index, code, scope=scope)
        following = emit_address(code, formal, base, step.window, read, formal.name in self.packed)
        more = code.value(f"icmp slt i64 {turn}, {emit_index(code, loop.extent, self.scope)}")
        return code.value(f"select i1 {more}, ptr {following}, ptr {address}")

    def _counter(self, name: str, site: str) -> str:
        number = next(i for i, c in enumerate(self.shape.counters) if c.name == name)
        return counter_cell(self.code, "%counters", number, site, self.layout)

    def _sites(self, rect: Rect) -> Iterator[str]:
        return each_site(self.code, rect, self.scope, self.layout)
