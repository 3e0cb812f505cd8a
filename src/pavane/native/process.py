"""One process of a shape as one function: its loops become loops, its steps code, in the written order.

A FIFO that one process fills and empties is a ring of places and nothing else; one between two processes has counts that the other side
waits for. An ALIAS slot is an address: loading it moves no byte. Copies are done where they are written, so a fence has nothing to do. The
function knows formals by number: no name of a tensor is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatchmethod

from pavane.ir.expr import Index, Indirect
from pavane.ir.program import (
    SITE_X,
    SITE_Y,
    Carry,
    Compute,
    Fence,
    Fifo,
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
from pavane.native.carries import touched
from pavane.native.cpu import Cpu
from pavane.native.elements import byte_offset, load_element, store_lanes
from pavane.native.functions import f32_text
from pavane.native.generic import Operand, emit_generic
from pavane.native.index import emit_index, emit_length
from pavane.native.layout import ADDRESSES, CELL, POPPING, PUSHING, REGISTER, Layout, queue_cell_bytes, queue_offset, rect_numbers
from pavane.native.matmul import emit_matmul, require_taken_as_stored
from pavane.native.sync import emit_add, emit_wait
from pavane.native.text import LANES, Code, Module
from pavane.native.windows import emit_address, emit_box, emit_copy, window_row_bytes
from pavane.reject import OutsideFragment

PARAMETERS = (
    "ptr %formals, ptr %symbols, i64 %x, i64 %y, i64 %home_x, i64 %home_y, "
    "ptr %locals, ptr noalias %scratch, ptr %queues, ptr %counters, i64 %spins"
)


def lower_process(module: Module, name: str, program: Program, shape: Shape, process: Process, layout: Layout, cpu: Cpu) -> None:
    """Write the function `name`."""
    code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
    lowering = _Process(code, program, shape, process, layout, cpu)
    lowering.body(process.body)
    code.finish()


class _Queue:
    """A FIFO as this process sees it. `filling` and `holding` are variables that hold the addresses of the two slots."""

    def __init__(self, code: Code, fifo: Fifo, cell: str | None) -> None:
        self.fifo, self.cell = fifo, cell
        self.slot_bytes = fifo.rows * row_bytes(fifo.dtype, fifo.cols)
        self.filling, self.holding, self.following = (code.slot("ptr") for _ in range(3))
        self.ring, self.ring_following = (code.slot(f"[{max(fifo.depth, 1)} x ptr]") for _ in range(2))
        self.push_index, self.pop_index = code.slot("i64"), code.slot("i64")
        self.reserved = self.held = False
        self.row_bytes = row_bytes(fifo.dtype, fifo.cols)
        for index in (self.push_index, self.pop_index):
            code.store("i64", "0", index, 8)


class _Process:
    """The function that is being written, and where its names live."""

    def __init__(self, code: Code, program: Program, shape: Shape, process: Process, layout: Layout, cpu: Cpu) -> None:
        self.code, self.shape, self.process, self.layout, self.cpu = code, shape, process, layout, cpu
        self.site = code.add(code.mul("%y", layout.width), "%x")
        self.local = code.at("%locals", code.mul(self.site, layout.local_bytes))
        x0, _, y0, _ = rect_numbers(process.rect)
        self.scope: dict[str, str] = {s.name: code.load("i64", code.at("%symbols", str(8 * i)), 8) for i, s in enumerate(program.symbols)}
        self.scope[SITE_X] = code.sub(code.sub("%x", "%home_x"), str(x0))
        self.scope[SITE_Y] = code.sub(code.sub("%y", "%home_y"), str(y0))
        self.loops: list[Loop] = []
        self.formals = {f.name: code.load("ptr", code.at("%formals", str(8 * i)), 8) for i, f in enumerate(shape.formals)}
        self.queues = {fifo.name: self._queue(i, fifo) for i, fifo in enumerate(shape.fifos) if fifo.name in _used(process)}
        self.carries = {c.name: c for c in shape.carries}
        self.fills = {step.fifo: step for _, step in leaves(process.body) if isinstance(step, Load)}

    def _queue(self, number: int, fifo: Fifo) -> _Queue:
        code, others = self.code, [p for p in self.shape.processes if p is not self.process]
        cell = None
        if any(fifo.name in _used(p) for p in others):
            offset = code.add(code.mul(self.site, queue_cell_bytes(self.shape)), str(queue_offset(self.shape, number)))
            cell = code.at("%queues", offset)
        queue = _Queue(code, fifo, cell)
        if fifo.kind == "ALIAS":
            queue.row_bytes = _alias_row_bytes(self.shape, fifo)
        return queue

    # --- loops and steps ---

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
        raise OutsideFragment(f"a step of kind {type(step).__name__} cannot run here", where=self.process.name)

    @step.register
    def _(self, step: Reserve) -> None:
        code, queue = self.code, self.queues[step.fifo]
        queue.reserved = True
        if queue.cell is not None:
            depth_before = code.sub(code.add(self._end_index(queue, PUSHING), "1"), str(queue.fifo.depth))
            emit_wait(code, code.at(queue.cell, str(POPPING)), code.value(f"trunc i64 {depth_before} to i32"), "%spins")
        if queue.fifo.kind != "ALIAS":
            code.store("ptr", self._slot(queue, PUSHING), queue.filling, 8)

    @step.register
    def _(self, step: Push) -> None:
        queue = self.queues[step.fifo]
        queue.reserved = False
        self._advance(queue, PUSHING)

    @step.register
    def _(self, step: Front) -> None:
        code, queue = self.code, self.queues[step.fifo]
        queue.held = True
        if queue.cell is not None:
            wanted = code.add(self._end_index(queue, POPPING), "1")
            emit_wait(code, code.at(queue.cell, str(PUSHING)), code.value(f"trunc i64 {wanted} to i32"), "%spins")
        if queue.fifo.kind != "ALIAS":
            code.store("ptr", self._slot(queue, POPPING), queue.holding, 8)
            return
        place = code.mul(self._place(queue, POPPING), 8)
        ring = queue.ring if queue.cell is None else code.at(queue.cell, str(ADDRESSES))
        bound = code.load("ptr", code.at(ring, place), 8)
        following = code.load("ptr", code.at(queue.ring_following, place), 8) if queue.cell is None else bound
        code.store("ptr", bound, queue.holding, 8)
        code.store("ptr", following, queue.following, 8)

    @step.register
    def _(self, step: Pop) -> None:
        queue = self.queues[step.fifo]
        queue.held = False
        self._advance(queue, POPPING)

    @step.register
    def _(self, step: Load) -> None:
        code, queue = self.code, self.queues[step.fifo]
        formal, base = named(self.shape.formals, step.tensor), self.formals[step.tensor]
        if queue.fifo.kind == "ALIAS":
            self._bind(queue, step)
            return
        box = emit_box(code, formal, base, step.window, self._read_index, self.scope)
        first = code.mul(emit_index(code, step.row, self.scope), queue.row_bytes)
        target = code.at(code.load("ptr", queue.filling, 8), first)
        emit_copy(code, formal.dtype, (target, queue.row_bytes), (box.address, box.row_bytes), box.rows, box.columns)

    @step.register
    def _(self, step: Store) -> None:
        code, queue = self.code, self.queues[step.fifo]
        formal = named(self.shape.formals, step.tensor)
        box = emit_box(code, formal, self.formals[step.tensor], step.window, self._read_index, self.scope)
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
        code, carry = self.code, self.carries[step.carry]
        rows, columns = touched(self.process.body, carry.name, frozenset(self.scope))
        count = str(carry.rows) if rows is None else emit_length(code, rows, self.scope)
        width = str(carry.cols)
        if columns is not None and carry.dtype != "q8_0":
            width = code.greatest(code.least(emit_index(code, columns, self.scope), width), "0")
        operand = self._carry(carry)
        if carry.initial == 0.0:
            self._clear(operand, count, width, whole=columns is None)
        else:
            self._fill(operand, carry.initial, count, width)

    @step.register
    def _(self, step: Compute) -> None:
        op = step.op
        target = self._written(op.dst.name)
        if isinstance(op, Generic):
            emit_generic(self.code, op, self._read, target, self.scope)
            return
        require_taken_as_stored(self.shape, op)
        operands = (target, self._read(op.a.name), self._read(op.b.name))
        emit_matmul(self.code, op, operands, self._following(op, operands[2]), "%scratch", self.cpu, self.scope)

    # --- what a name means ---

    def _read(self, name: str) -> Operand:
        """The operand of that name: a carry, the slot in front, or the slot being filled."""
        if name in self.carries:
            return self._carry(self.carries[name])
        queue = self.queues[name]
        return Operand(queue.fifo.dtype, self.code.load("ptr", queue.holding if queue.held else queue.filling, 8), queue.row_bytes)

    def _written(self, name: str) -> Operand:
        if name in self.carries:
            return self._carry(self.carries[name])
        queue = self.queues[name]
        return Operand(queue.fifo.dtype, self.code.load("ptr", queue.filling if queue.reserved else queue.holding, 8), queue.row_bytes)

    def _carry(self, carry: Carry) -> Operand:
        return Operand(carry.dtype, self.code.at(self.local, str(carry.address)), row_bytes(carry.dtype, carry.cols))

    def _following(self, op: MatmulTiles, b: Operand) -> str:
        """Where b goes on in the next turn: what the load of an ALIAS slot knows of it."""
        queue = self.queues.get(op.b.name)
        plain = op.b.row == Quasi() and op.b.col == Quasi()
        if queue is None or queue.fifo.kind != "ALIAS" or not queue.held or not plain:
            return b.base
        return self.code.load("ptr", queue.following, 8)

    def _read_index(self, index: Index) -> str:
        """An index of a window; one read at run time is an element of the slot in front of its FIFO."""
        if isinstance(index, Quasi):
            return emit_index(self.code, index, self.scope)
        return self._indirect(index)

    def _indirect(self, index: Indirect) -> str:
        code, queue = self.code, self.queues[index.via]
        fill = self.fills.get(index.via)
        if fill is None or any(not isinstance(s, Quasi) for s in fill.window.start):
            raise OutsideFragment("an index is read from a slot that another process fills", where=index.via)
        places = [emit_index(code, q - s, self.scope) for q, s in zip(index.index, fill.window.start, strict=True)]  # type: ignore[operator]
        row = "0" if fill.window.row < 0 else places[fill.window.row]
        pointer = code.at(code.load("ptr", queue.holding, 8), code.mul(row, queue.row_bytes))
        if queue.fifo.dtype == "i32":
            return code.value(f"sext i32 {code.load('i32', code.at(pointer, code.mul(places[-1], 4)))} to i64")
        return code.value(f"fptosi float {load_element(code, queue.fifo.dtype, pointer, places[-1])} to i64")

    # --- FIFOs ---

    def _bind(self, queue: _Queue, step: Load) -> None:
        code, formal, base = self.code, named(self.shape.formals, step.tensor), self.formals[step.tensor]
        if step.row != Quasi():
            raise OutsideFragment("an ALIAS slot is bound as a whole", where=step.fifo)
        address = emit_address(code, formal, base, step.window, self._read_index)
        code.store("ptr", address, queue.filling, 8)
        place = code.mul(self._place(queue, PUSHING), 8)
        ring = queue.ring if queue.cell is None else code.at(queue.cell, str(ADDRESSES))
        code.store("ptr", address, code.at(ring, place), 8)
        if queue.cell is None:
            code.store("ptr", self._next_address(step, address), code.at(queue.ring_following, place), 8)

    def _next_address(self, step: Load, address: str) -> str:
        """The address that the load binds in the next turn of its innermost loop, if there is one."""
        starts = step.window.start
        if not self.loops or not all(isinstance(s, Quasi) for s in starts):
            return address
        loop, code = self.loops[-1], self.code
        if not any(loop.var in s.variables() for s in starts):  # type: ignore[union-attr]
            return address
        turn = code.add(self.scope[loop.var], "1")
        scope = {**self.scope, loop.var: turn}
        formal, base = named(self.shape.formals, step.tensor), self.formals[step.tensor]
        following = emit_address(code, formal, base, step.window, lambda s: emit_index(code, s, scope))  # type: ignore[arg-type]
        more = code.value(f"icmp slt i64 {turn}, {emit_index(code, loop.extent, self.scope)}")
        return code.value(f"select i1 {more}, ptr {following}, ptr {address}")

    def _end_index(self, queue: _Queue, end: int) -> str:
        """How many slots this end has passed on (between processes: ever; inside one: in this ring)."""
        if queue.cell is not None:
            return self.code.load("i64", self.code.at(queue.cell, str(end + 8)), 8)
        return self.code.load("i64", queue.push_index if end == PUSHING else queue.pop_index, 8)

    def _place(self, queue: _Queue, end: int) -> str:
        """Which slot of the ring this end is at."""
        if queue.fifo.depth == 1:
            return "0"
        index = self._end_index(queue, end)
        return index if queue.cell is None else self.code.value(f"urem i64 {index}, {queue.fifo.depth}")

    def _slot(self, queue: _Queue, end: int) -> str:
        first = self.code.at(self.local, str(queue.fifo.address))
        return self.code.at(first, self.code.mul(self._place(queue, end), queue.slot_bytes))

    def _advance(self, queue: _Queue, end: int) -> None:
        code = self.code
        following = code.add(self._end_index(queue, end), "1")
        if queue.cell is not None:
            code.store("i64", following, code.at(queue.cell, str(end + 8)), 8)
            emit_add(code, code.at(queue.cell, str(end)), 1)
            return
        wrapped = code.value(f"select i1 {code.value(f'icmp eq i64 {following}, {queue.fifo.depth}')}, i64 0, i64 {following}")
        code.store("i64", wrapped, queue.push_index if end == PUSHING else queue.pop_index, 8)

    # --- carries, counters, sites ---

    def _clear(self, operand: Operand, rows: str, columns: str, whole: bool) -> None:
        code = self.code
        if whole:
            self._zero(operand.base, code.mul(rows, operand.row_bytes))
            return
        with code.loop(rows) as row:
            self._zero(code.at(operand.base, code.mul(row, operand.row_bytes)), byte_offset(code, operand.dtype, columns))

    def _zero(self, pointer: str, size: str) -> None:
        self.code.call("llvm.memset.p0.i64", "void", f"ptr {pointer}, i8 0, i64 {size}, i1 false", "ptr, i8, i64, i1")

    def _fill(self, operand: Operand, initial: float, rows: str, columns: str) -> None:
        code = self.code
        if operand.dtype == "q8_0":
            raise OutsideFragment("a q8_0 carry starts at 0 only", where=self.process.name, needed=str(initial))
        value = code.splat("float", LANES, f32_text(initial))
        with code.loop(rows) as row, code.loop(columns, step=LANES) as column:
            pointer = code.at(operand.base, code.mul(row, operand.row_bytes))
            store_lanes(code, operand.dtype, pointer, column, value, code.mask(code.sub(columns, column)))

    def _counter(self, name: str, site: str) -> str:
        number = next(i for i, c in enumerate(self.shape.counters) if c.name == name)
        return counter_cell(self.code, "%counters", number, site, self.layout)

    def _sites(self, rect: Rect) -> Iterator[str]:
        return each_site(self.code, rect, self.scope, ("%home_x", "%home_y"), self.layout)


def each_site(code: Code, rect: Rect, scope: dict[str, str], home: tuple[str, str], layout: Layout) -> Iterator[str]:
    """The numbers of a rectangle's sites, as loops around what the caller writes next."""
    x0, x1, y0, y1 = (emit_index(code, q, scope) for q in (rect.x0, rect.x1, rect.y0, rect.y1))
    with code.loop(y1, start=y0) as y, code.loop(x1, start=x0) as x:
        yield code.add(code.mul(code.add(y, home[1]), layout.width), code.add(x, home[0]))


def counter_cell(code: Code, base: str, number: int, site: str, layout: Layout) -> str:
    """The counter's word on a site."""
    return code.at(base, code.add(code.mul(site, CELL), str(number * layout.sites * CELL)))


def emit_counter_wait(code: Code, cell: str, n: int, spins: str) -> None:
    """Consume n further posts against the running register, which is never reset."""
    register = code.at(cell, str(REGISTER))
    target = code.value(f"add i32 {code.load('i32', register, 4)}, {n}")
    code.store("i32", target, register, 4)
    emit_wait(code, cell, target, spins)


def _used(process: Process) -> frozenset[str]:
    steps = (Reserve, Push, Front, Pop)
    return frozenset(step.fifo for _, step in leaves(process.body) if isinstance(step, steps))


def _alias_row_bytes(shape: Shape, fifo: Fifo) -> int:
    """Bytes from row to row of what an ALIAS FIFO is bound to: the same for all its loads."""
    found = []
    for process in shape.processes:
        for _, step in leaves(process.body):
            if isinstance(step, Load) and step.fifo == fifo.name:
                found.append(window_row_bytes(named(shape.formals, step.tensor), step.window))
    distinct = sorted(set(found))
    if len(distinct) != 1:
        raise OutsideFragment("an ALIAS FIFO is bound to windows whose rows lie differently", where=fifo.name, needed=f"{distinct} bytes")
    return distinct[0]
