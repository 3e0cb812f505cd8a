"""A PERSISTENT program as one LLVM module: a function a (shape, process), a function a worker, and three entry points.

    launch(control)            one epoch: starts the other threads, does thread 0's share, returns when all have ended
    resident(control, thread)  what every other thread runs for its life: wait for an epoch, do its share, say so
    dismiss(control)           between epochs: every resident returns
Beside them the entry points of `packed_forms`, which run once, when weights are loaded.
Two instances of a shape share its functions, FIFOs and counters; only the table of addresses tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pavane.ir.program import SITE_X, SITE_Y, Post, Program, Run, Turn, Wait, Worker
from pavane.ir.walk import named
from pavane.native.cpu import Cpu
from pavane.native.handshakes import counter_cell, each_site, emit_counter_wait
from pavane.native.layout import (
    BINDINGS,
    CLOCKS,
    COUNTERS,
    DONE,
    GO,
    LOCALS,
    QUEUES,
    SCRATCH,
    SPINS,
    STOP,
    SYMBOLS,
    TARGET,
    Layout,
    clock_count,
    rect_numbers,
)
from pavane.native.packed_forms import define_packing
from pavane.native.process import lower_process
from pavane.native.sync import define_sync, emit_add, emit_wait
from pavane.native.text import Code, Module

LAUNCH, RESIDENT, DISMISS = "launch", "resident", "dismiss"


def lower_program(program: Program, layout: Layout, cpu: Cpu, clocks: bool = False) -> str:
    """The module's text; with `clocks`, workers count the cycles of all their turns, not of waits only."""
    module = Module()
    define_sync(module, cpu)
    for s, shape in enumerate(program.shapes):
        for p, process in enumerate(shape.processes):
            lower_process(module, f"section{s}_process{p}", program, shape, process, layout, cpu)
    for number, worker in enumerate(program.workers):
        _Worker(module, number, program, worker, layout, clocks).write()
    _define_share(module, program, layout)
    _define_launch(module, layout)
    _define_resident(module)
    _define_dismiss(module)
    define_packing(module)
    return str(module)


class _Worker:
    """The function of one worker: its turns in order."""

    def __init__(
        self, module: Module, number: int, program: Program, worker: Worker, layout: Layout, clocks: bool
    ) -> None:
        attributes = "internal noinline nounwind"
        parameters = "ptr %control, i64 %x, i64 %y, ptr %scratch, i64 %thread"
        self.code = Code(module, f"worker{number}", parameters, attributes=attributes)
        self.program, self.worker, self.layout, self.clocks = program, worker, layout, clocks
        self.areas = {
            place: self.code.load("ptr", self.code.at("%control", str(place)), 8)
            for place in (BINDINGS, SYMBOLS, LOCALS, QUEUES, COUNTERS)
        }
        self.spins = self.code.load("i64", self.code.at("%control", str(SPINS)), 8)
        self.counters = self.code.at(self.areas[COUNTERS], str(layout.program_counters))

    def write(self) -> None:
        """The whole body of an epoch."""
        for turn in self.worker.body:
            if isinstance(turn, Wait) or (self.clocks and isinstance(turn, Run)):
                self._timed(turn)
            else:
                self._turn(turn)
        self.code.finish()

    def _timed(self, turn: Run | Wait) -> None:
        """The turn, its cycles on the thread's clock of that instance (waits have one together)."""
        place = turn.instance if isinstance(turn, Run) else len(self.program.instances)
        with _counted(self.code, self.program, place):
            self._turn(turn)

    def _turn(self, turn: Turn) -> None:
        code, layout = self.code, self.layout
        if isinstance(turn, Run):
            self._run(turn)
        elif isinstance(turn, Wait):
            site = code.add(code.mul("%y", layout.width), "%x")
            emit_counter_wait(
                code, counter_cell(code, self.counters, self._number(turn.counter), site, layout), turn.n, self.spins
            )
        else:
            self._post(turn)

    def _post(self, turn: Post) -> None:
        code, layout = self.code, self.layout
        x0, _, y0, _ = rect_numbers(self.worker.rect)
        scope = {SITE_X: code.sub("%x", str(x0)), SITE_Y: code.sub("%y", str(y0))}
        for site in each_site(code, turn.to, scope, layout):
            emit_add(code, counter_cell(code, self.counters, self._number(turn.counter), site, layout), turn.n)

    def _number(self, counter: str) -> int:
        return next(i for i, c in enumerate(self.program.counters) if c.name == counter)

    def _run(self, turn: Run) -> None:
        code, layout, instance = self.code, self.layout, self.program.instances[turn.instance]
        shape = named(self.program.shapes, instance.shape)
        process = next(i for i, p in enumerate(shape.processes) if p.name == turn.process)
        number = next(i for i, s in enumerate(self.program.shapes) if s is shape)
        bindings = code.at(self.areas[BINDINGS], str(layout.bindings[turn.instance]))
        queues = code.at(self.areas[QUEUES], str(layout.queues[number]))
        counters = code.at(self.areas[COUNTERS], str(layout.counters[number]))
        arguments = (
            f"ptr {bindings}, ptr {self.areas[SYMBOLS]}, i64 %x, i64 %y, "
            f"ptr {self.areas[LOCALS]}, ptr %scratch, ptr {queues}, ptr {counters}, i64 {self.spins}"
        )
        code.line(f"call void @section{number}_process{process}({arguments})")


@contextmanager
def _counted(code: Code, program: Program, clock: int) -> Iterator[None]:
    """Add the cycles of what is written inside to a clock of the thread."""
    before = code.call("llvm.readcyclecounter", "i64", "", "")
    yield
    taken = code.sub(code.call("llvm.readcyclecounter", "i64", "", ""), before)
    table = code.load("ptr", code.at("%control", str(CLOCKS)), 8)
    place = code.at(code.at(table, code.mul("%thread", 8 * clock_count(program))), str(8 * clock))
    code.store("i64", code.add(code.load("i64", place, 8), taken), place, 8)


def _define_share(module: Module, program: Program, layout: Layout) -> None:
    """One thread's share of an epoch."""
    code = Code(module, "share", "ptr %control, i64 %thread", attributes="internal noinline nounwind")
    all_scratch = code.load("ptr", code.at("%control", str(SCRATCH)), 8)
    scratch = code.at(all_scratch, code.mul("%thread", layout.scratch_bytes))
    labels, after = [code.label() for _ in layout.threads], code.label()
    cases = " ".join(f"i64 {i}, label %{label}" for i, label in enumerate(labels))
    with _counted(code, program, clock_count(program) - 1):
        code.line(f"switch i64 %thread, label %{after} [ {cases} ]")
        for label, thread in zip(labels, layout.threads, strict=True):
            code.open(label)
            code.line(
                f"call void @worker{thread.worker}"
                f"(ptr %control, i64 {thread.x}, i64 {thread.y}, ptr {scratch}, i64 %thread)"
            )
            code.jump(after)
        code.open(after)
    code.finish()


def _define_launch(module: Module, layout: Layout) -> None:
    code = Code(module, LAUNCH, "ptr %control", attributes="nounwind")
    others = len(layout.threads) - 1
    place = code.at("%control", str(TARGET))
    target = code.value(f"add i32 {code.load('i32', place, 4)}, {others}")
    code.store("i32", target, place, 4)
    emit_add(code, code.at("%control", str(GO)), 1)
    code.line("call void @share(ptr %control, i64 0)")
    spins = code.load("i64", code.at("%control", str(SPINS)), 8)
    emit_wait(code, code.at("%control", str(DONE)), target, spins)
    code.finish()


def _define_resident(module: Module) -> None:
    code = Code(module, RESIDENT, "ptr %control, i64 %thread", attributes="nounwind")
    leave, go_on = code.label(), code.label()
    spins = code.load("i64", code.at("%control", str(SPINS)), 8)
    with code.loop(str(1 << 62)) as turn:
        epoch = code.value(f"trunc i64 {code.add(turn, '1')} to i32")
        emit_wait(code, code.at("%control", str(GO)), epoch, spins)
        stopped = code.value(f"load atomic i32, ptr {code.at('%control', str(STOP))} seq_cst, align 4")
        code.branch(code.value(f"icmp ne i32 {stopped}, 0"), leave, go_on)
        code.open(go_on)
        code.line("call void @share(ptr %control, i64 %thread)")
        emit_add(code, code.at("%control", str(DONE)), 1)
    code.jump(leave)
    code.open(leave)
    code.finish()


def _define_dismiss(module: Module) -> None:
    code = Code(module, DISMISS, "ptr %control", attributes="nounwind")
    code.line(f"store atomic i32 1, ptr {code.at('%control', str(STOP))} seq_cst, align 4")
    emit_add(code, code.at("%control", str(GO)), 1)
    code.finish()
