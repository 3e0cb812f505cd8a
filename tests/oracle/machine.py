"""One interleaving of a program's tasks: bounded FIFOs, counters, asynchronous accesses, vector clocks.

Threads of the clocks: every task; for each task its asynchronous accesses (issue to fence); for each alias FIFO of a
site its reads (load to pop). Edges: program order, push -> front, pop -> the reserve that needs it, post -> the wait
that needs it (the first posts to arrive that make the sum), access -> fence.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np

from pavane.ir.program import (
    Compute,
    Counter,
    Fence,
    Fifo,
    Front,
    Init,
    Load,
    Pop,
    Post,
    Program,
    Push,
    Reserve,
    Send,
    Step,
    Store,
    Tensor,
    Wait,
)  # fmt: skip
from pavane.ir.types import row_bytes
from pavane.targets.descriptor import SpatialTarget
from tests.oracle.cells import Cells
from tests.oracle.chip import steps_of
from tests.oracle.compute import Effects
from tests.oracle.expand import Action, Context, Site, Task, sites_of
from tests.oracle.meaning import extents
from tests.oracle.spaces import Fault, Space


@dataclass
class Slot:
    """Where a slot's rows stand. `rows`: (space, address) a row; None where an alias has bound nothing. `through`: the
    indices of an alias.
    """

    rows: list[tuple[Space, int] | None]
    width: int
    dtype: str
    alias: bool
    origin: tuple | None = None
    formal: str = ""
    taken: int = 0
    shown: list[int] = field(default_factory=list)
    through: list[Cells] = field(default_factory=list)


@dataclass
class Queue:
    """One FIFO of a shape on one site; it stays through instances and epochs, as on the chip."""

    fifo: Fifo
    slots: list[Slot]
    flag: int
    alias_thread: int
    pushed: int = 0
    popped: int = 0
    push_clocks: list[np.ndarray] = field(default_factory=list)
    pop_clocks: list[np.ndarray] = field(default_factory=list)
    reserved: bool = False
    held: bool = False
    filled: bool = False
    pushers: set[str] = field(default_factory=set)
    poppers: set[str] = field(default_factory=set)

    @property
    def filling(self) -> Slot:
        return self.slots[self.pushed % len(self.slots)]

    @property
    def front(self) -> Slot:
        return self.slots[self.popped % len(self.slots)]


@dataclass
class Signal:
    """One counter of one site. `arrived`: (posts, clock) in order of arrival."""

    name: str
    bits: int
    ahead: int
    consumed: int = 0
    posted: int = 0
    arrived: list[tuple[int, np.ndarray]] = field(default_factory=list)
    waiters: set[str] = field(default_factory=set)

    def passes(self, n: int) -> bool:
        """Does a wait for n further posts end? As the chip compares: with so many bits, and round the end of them."""
        ahead_by = self.ahead + self.posted - (self.consumed + n)
        return ahead_by % (1 << self.bits) < 1 << (self.bits - 1)


def tensor_bytes(tensor: Tensor, program: Program) -> int:
    """The most that it takes for any value of the symbols."""
    shape = extents(tensor.shape, {s.name: s.hi for s in program.symbols})
    return prod(shape[:-1]) * row_bytes(tensor.dtype, shape[-1])


def _whole_rows(slot: Slot) -> list[tuple[Space, np.ndarray]]:
    """The bytes of a slot in local memory."""
    size = row_bytes(slot.dtype, slot.width)
    return [(space, np.arange(address, address + size)) for space, address in slot.rows]


def _filled_by(step: Step | str) -> str:
    """The buffer that a step puts something into."""
    return step.fifo if isinstance(step, Load) else step.op.dst.name if isinstance(step, Compute) else ""


def _filled_elsewhere(fifo: Fifo, context: Context) -> bool:
    """Does another site send what a process's slots hold?"""
    if any(_filled_by(step) == fifo.name for step in steps_of(context.process.body)):
        return False
    every = (step for process in context.shape.processes for step in steps_of(process.body))
    return any(isinstance(step, Send) and step.fifo == fifo.name for step in every)


class Machine:
    """All state of a run. `launch` runs one epoch under a policy that picks among the tasks that may go on."""

    def __init__(self, program: Program, target: SpatialTarget, effects: Effects, tasks: int) -> None:
        self.program, self.target, self.effects = program, target, effects
        self.task_count = tasks
        aliases = [(s.name, f.name) for s in program.shapes for f in s.fifos if f.kind == "ALIAS"]
        sites = [(x, y) for y in range(target.grid.height) for x in range(target.grid.width)]
        self.alias_threads = {(site, *a): 2 * tasks + i for i, (site, a) in enumerate(product(sites, aliases))}
        self.threads = 2 * tasks + len(self.alias_threads)
        self.memories: dict[Site, Space] = {}
        self.flags: dict[Site, Space] = {}
        self.queues: dict[tuple, Queue] = {}
        self.signals: dict[tuple, Signal] = {}
        self.known_signals: dict[tuple, Signal] = {}
        self.async_count = [0] * self.threads
        self.early = ""  # the first slot that changed hands before its transfers had ended

    # --- state that comes to be on first use ---

    def memory(self, site: Site) -> Space:
        if site not in self.memories:
            ends = [
                f.address + max(f.depth, 1) * f.rows * row_bytes(f.dtype, f.cols)
                for s in self.program.shapes
                for f in s.fifos
            ]
            ends += [c.address + c.rows * row_bytes(c.dtype, c.cols) for s in self.program.shapes for c in s.carries]
            ends += [t.offset + tensor_bytes(t, self.program) for t in self.program.tensors if t.home == "sites"]
            self.memories[site] = Space(
                f"memory of {site}", min(self.target.memory.bytes, max([*ends, 1])), self.threads
            )
            self.flags[site] = Space(f"reservations of {site}", 512, self.threads)
        return self.memories[site]

    def all_memories(self) -> list[Space]:
        """Of every site of the chip."""
        grid = self.target.grid
        return [self.memory((x, y)) for y in range(grid.height) for x in range(grid.width)]

    def forget_copies(self) -> None:
        """At a launch nothing stands in the tensors that lie on the sites."""
        for tensor in self.program.tensors:
            if tensor.home == "sites" and tensor.role == "SCRATCH":
                for memory in self.all_memories():
                    memory.owner[tensor.offset : tensor.offset + tensor_bytes(tensor, self.program)] = -1

    def queue(self, context: Context, site: Site, name: str) -> Queue:
        key = (site, context.shape.name, name)
        if key not in self.queues:
            fifo = next((f for f in context.shape.fifos if f.name == name), None)
            if fifo is None:
                raise Fault(f"misuse: no FIFO {name}")
            flag = sum(k[0] == site for k in self.queues)
            self.queues[key] = Queue(fifo, self._slots(fifo, site), flag, self.alias_threads.get(key, -1))
        return self.queues[key]

    def _slots(self, fifo: Fifo, site: Site) -> list[Slot]:
        memory, pitch = self.memory(site), row_bytes(fifo.dtype, fifo.cols)
        alias = fifo.kind == "ALIAS"
        if fifo.depth < 1:
            raise Fault(f"misuse: {fifo.name} has no slot")
        if not alias:
            self._place(fifo.name, fifo.address, fifo.depth * fifo.rows * pitch)
        slots = []
        for i in range(fifo.depth):
            base = fifo.address + i * fifo.rows * pitch
            rows: list = [None] * fifo.rows if alias else [(memory, base + r * pitch) for r in range(fifo.rows)]
            slots.append(Slot(rows, fifo.cols, fifo.dtype, alias, shown=[0] * fifo.rows))
        return slots

    def _place(self, name: str, address: int, size: int) -> None:
        if address < self.target.memory.reserved_bytes or address + size > self.target.memory.bytes:
            raise Fault(f"out of bounds: {name} at {address} to {address + size} of a site's memory")

    def carry(self, context: Context, site: Site, name: str) -> Slot:
        carry = next((c for c in context.shape.carries if c.name == name), None)
        if carry is None:
            raise Fault(f"misuse: no buffer {name}")
        pitch = row_bytes(carry.dtype, carry.cols)
        self._place(name, carry.address, carry.rows * pitch)
        memory = self.memory(site)
        rows: list = [(memory, carry.address + r * pitch) for r in range(carry.rows)]
        return Slot(rows, carry.cols, carry.dtype, False)

    def signal(self, context: Context | None, site: Site, name: str) -> Signal:
        known = (-1 if context is None else context.index, site, name)
        if known not in self.known_signals:
            self.known_signals[known] = self._find_signal(context, site, name)
        return self.known_signals[known]

    def _find_signal(self, context: Context | None, site: Site, name: str) -> Signal:
        listed = self.program.counters if context is None else context.shape.counters
        counter: Counter | None = next((c for c in listed if c.name == name), None)
        if counter is None:
            raise Fault(f"misuse: no counter {name}")
        if site not in sites_of(counter.rect, {}):
            raise Fault(f"misuse: counter {name} is not on {site}")
        shape = "" if context is None else context.shape.name
        key = (site, counter.id) if counter.id >= 0 else (site, shape, name)
        signal = self.signals.setdefault(key, Signal(name, counter.bits, counter.ahead))
        if signal.ahead != counter.ahead or signal.bits != counter.bits:
            raise Fault(f"misuse: {name} shares id {counter.id} with a counter that differs")
        return signal

    # --- an epoch ---

    def launch(self, tasks: list[Task], choose: Callable[[list[int]], int], numbers: bool) -> None:
        """Run every task to its end. `numbers`: compute values too (else replay the accesses that were noted)."""
        for space in (*self.memories.values(), *self.flags.values(), *self.effects.spaces()):
            space.forget_clocks()
        self.tasks, self.numbers = tasks, numbers
        self.clocks = [np.zeros(self.threads, np.int64) for _ in tasks]
        self.async_count = [0] * self.threads
        self.under_way: list[list] = [[] for _ in tasks]
        for queue in self.queues.values():
            queue.push_clocks = [self._nothing()] * queue.pushed
            queue.pop_clocks = [self._nothing()] * queue.popped
        for signal in self.signals.values():
            signal.arrived = [(signal.posted, self._nothing())]
        at = [0] * len(tasks)
        ready: list[int] = []
        blocked = set(range(len(tasks)))
        self._wake(ready, blocked, at)
        while ready:
            i = choose(ready)
            step = tasks[i].actions[at[i]].step
            self._step(i, tasks[i].actions[at[i]])
            at[i] += 1
            if at[i] == len(tasks[i].actions) or not self._can(i, tasks[i].actions[at[i]]):
                ready.remove(i)
                blocked.add(i)
            if isinstance(step, Push | Pop | Post):
                self._wake(ready, blocked, at)
        stuck = [f"{t.name} at {t.actions[at[i]].step}" for i, t in enumerate(tasks) if at[i] < len(t.actions)]
        if stuck:
            raise Fault(f"deadlock: {'; '.join(stuck)[:300]}")
        self._require_clean()

    def _wake(self, ready: list[int], blocked: set[int], at: list[int]) -> None:
        """Move those that may go on to `ready`. Who may go on still may whatever the others do, or they share an end of
        a FIFO or a counter, which is a fault.
        """
        woken = [
            i for i in blocked if at[i] < len(self.tasks[i].actions) and self._can(i, self.tasks[i].actions[at[i]])
        ]
        for i in woken:
            blocked.remove(i)
            insort(ready, i)

    def _nothing(self) -> np.ndarray:
        return np.zeros(self.threads, np.int64)

    def _require_clean(self) -> None:
        for i, task in enumerate(self.tasks):
            a = self.task_count + i
            if self.clocks[i][a] < self.async_count[a]:
                raise Fault(f"unbalanced: {task.name} ends with transfers that no fence completes")
        for key, queue in self.queues.items():
            if queue.pushed != queue.popped or queue.reserved or queue.held:
                raise Fault(f"unbalanced: FIFO {key} at the end")
        for key, signal in self.signals.items():
            if signal.posted != signal.consumed:
                raise Fault(
                    f"unbalanced: counter {signal.name} {key} holds {signal.posted - signal.consumed} more at the end"
                )

    def _can(self, i: int, action: Action) -> bool:
        step, context, site = action.step, action.context, self.tasks[i].site
        if isinstance(step, Reserve):
            queue = self.queue(context, site, step.fifo)
            return queue.reserved or queue.pushed - queue.popped < queue.fifo.depth
        if isinstance(step, Front):
            queue = self.queue(context, site, step.fifo)
            return queue.held or queue.pushed > queue.popped
        if isinstance(step, Wait):
            return self.signal(context, site, step.counter).passes(step.n)
        return True

    def _step(self, i: int, action: Action) -> None:
        self.clocks[i][i] += 1
        handler = _HANDLERS.get(type(action.step))
        if handler is not None:
            handler(self, i, action)

    # --- FIFOs ---

    def _reserve(self, i: int, action: Action) -> None:
        queue, who = self._end(i, action, "push")
        if queue.reserved:
            raise Fault(f"misuse: {who} holds a slot of {queue.fifo.name} already")
        queue.reserved, queue.filled = True, False
        if queue.pushed >= queue.fifo.depth:
            self._join(i, queue.pop_clocks[queue.pushed - queue.fifo.depth])
        slot = queue.filling
        slot.origin, slot.formal, slot.shown, slot.through = None, "", [0] * len(slot.rows), []
        if slot.alias:
            slot.rows = [None] * len(slot.rows)
        elif _filled_elsewhere(queue.fifo, action.context):
            self._note_or_replay(i, action, lambda: self._begun(queue))
        self._flag(i, queue, write=True)

    def _begun(self, queue: Queue) -> list:
        """Who has a slot may leave anything in the rest of it from its first fill (where another site fills it, from
        its reserve) to its push: nothing is there.
        """
        rows = _whole_rows(queue.filling)
        for space, covered in rows:
            space.owner[covered] = -1
        return [(*row, True, -1) for row in rows]

    def _begun_by(self, i: int, action: Action) -> list:
        """What a step touches as the first that fills a slot."""
        name = _filled_by(action.step)
        if not any(f.name == name and f.kind != "ALIAS" for f in action.context.shape.fifos):
            return []
        queue = self.queue(action.context, self.tasks[i].site, name)
        return self._begun(queue) if queue.reserved and not queue.filled else []

    def _push(self, i: int, action: Action) -> None:
        queue, who = self._end(i, action, "push")
        if not queue.reserved:
            raise Fault(f"misuse: {who} pushes {queue.fifo.name} without a slot")
        if queue.fifo.kind.startswith("MULTICAST") and not queue.filled:
            raise Fault(f"multicast: {who} hands over a slot of {queue.fifo.name} that nothing was put into")
        self._require_ended(i, queue.fifo.name, (Load, Send))
        self._flag(i, queue, write=True)
        if queue.filled and not queue.filling.alias:
            self._note_or_replay(i, action, lambda: [(*row, True, -1) for row in _whole_rows(queue.filling)])
        queue.reserved = False
        queue.pushed += 1
        queue.push_clocks.append(self.clocks[i].copy())

    def _front(self, i: int, action: Action) -> None:
        queue, who = self._end(i, action, "pop")
        if queue.held:
            raise Fault(f"misuse: {who} holds the front of {queue.fifo.name} already")
        queue.held = True
        self._join(i, queue.push_clocks[queue.popped])

    def _pop(self, i: int, action: Action) -> None:
        queue, who = self._end(i, action, "pop")
        if not queue.held:
            raise Fault(f"misuse: {who} pops {queue.fifo.name} without a slot")
        self._require_ended(i, queue.fifo.name, (Store,))
        if queue.alias_thread >= 0:
            self.clocks[i][queue.alias_thread] = max(self.clocks[i][queue.alias_thread], queue.front.taken)
        queue.held = False
        queue.popped += 1
        queue.pop_clocks.append(self.clocks[i].copy())

    def _require_ended(self, i: int, fifo: str, kinds: tuple[type, ...]) -> None:
        """A slot changes hands only after the fence of its transfers (docs/ir.md, Asynchrony). What comes of it where
        it does not is a fault of its own, where it shows; `early` is one where nothing else does.
        """
        if any(isinstance(step, kinds) and step.fifo == fifo for step in self.under_way[i]):
            self.early = self.early or f"misuse: {self.tasks[i].name} hands over {fifo} before its transfers have ended"

    def _end(self, i: int, action: Action, end: str) -> tuple[Queue, str]:
        queue = self.queue(action.context, self.tasks[i].site, action.step.fifo)
        users = queue.pushers if end == "push" else queue.poppers
        users.add(self.tasks[i].name)
        if len(users) > 1:
            raise Fault(f"misuse: two processes {end} {queue.fifo.name}: {sorted(users)}")
        return queue, self.tasks[i].name

    def _flag(
        self, i: int, queue: Queue, write: bool, site: Site | None = None, thread: int = -1, clock: int = -1
    ) -> None:
        """Reserving, sending into and pushing a slot exclude each other like accesses to one byte."""
        space = self.flags[site or self.tasks[i].site]
        thread, clock = (i, self.clocks[i][i]) if thread < 0 else (thread, clock)
        space.touch(np.array([queue.flag]), write, self.clocks[i], thread, clock, self.tasks[i].name)

    def _join(self, i: int, clock: np.ndarray) -> None:
        np.maximum(self.clocks[i], clock, out=self.clocks[i])

    # --- counters ---

    def _post(self, i: int, action: Action) -> None:
        step = action.step
        for site in sites_of(step.to, action.env):
            signal = self.signal(action.context, site, step.counter)
            signal.posted += step.n
            signal.arrived.append((step.n, self.clocks[i].copy()))
            flight = signal.ahead + signal.posted - signal.consumed
            if step.n < 1 or flight > 1 << (signal.bits - 1):
                raise Fault(f"overflow: {flight} posts of {signal.name} in flight, {signal.bits} bits")

    def _wait(self, i: int, action: Action) -> None:
        step = action.step
        signal = self.signal(action.context, self.tasks[i].site, step.counter)
        signal.waiters.add(self.tasks[i].name)
        if len(signal.waiters) > 1:
            raise Fault(f"misuse: two processes wait for {signal.name}: {sorted(signal.waiters)}")
        if step.n < 1 or step.n > 1 << (signal.bits - 1):
            raise Fault(f"overflow: a wait of {step.n} on {signal.bits} bits")
        signal.consumed += step.n
        total = 0
        for n, clock in signal.arrived:
            if total >= signal.consumed - signal.ahead:
                break
            self._join(i, clock)
            total += n

    # --- accesses ---

    def _note(self, i: int, action: Action, touches: list) -> None:
        """touches: (space, bytes, write, asynchronous thread or -1)."""
        action.touches = touches
        self._replay(i, action)

    def _replay(self, i: int, action: Action) -> None:
        fresh: dict[int, int] = {}
        for space, covered, write, thread in action.touches:
            if thread < 0:
                space.touch(covered, write, self.clocks[i], i, self.clocks[i][i], self.tasks[i].name)
                continue
            if thread not in fresh:
                self.async_count[thread] += 1
                fresh[thread] = self.async_count[thread]
            space.touch(covered, write, self.clocks[i], thread, fresh[thread], f"a transfer of {self.tasks[i].name}")

    def _note_or_replay(self, i: int, action: Action, touched: Callable[[], list]) -> None:
        if self.numbers:
            self._note(i, action, touched())
        else:
            self._replay(i, action)

    def _access(self, i: int, action: Action) -> None:
        touched = lambda: [*self._begun_by(i, action), *self.effects.run(self, i, action)]  # noqa: E731
        self._note_or_replay(i, action, touched)
        step = action.step
        if isinstance(step, Compute) and any(f.name == step.op.dst.name for f in action.context.shape.fifos):
            self.queue(action.context, self.tasks[i].site, step.op.dst.name).filled = True
        if isinstance(step, Load):
            queue = self.queue(action.context, self.tasks[i].site, step.fifo)
            queue.filled = True
            if queue.alias_thread >= 0:
                queue.filling.taken = self.async_count[queue.alias_thread]
                return
        if isinstance(step, Load | Store | Send):
            self.under_way[i].append(step)
        if isinstance(step, Send):
            self._reach(i, action)

    def _reach(self, i: int, action: Action) -> None:
        a = self.task_count + i
        for site in sites_of(action.step.to, action.env):
            queue = self.queue(action.context, site, action.step.fifo)
            queue.filled = True
            self._flag(i, queue, False, site, a, self.async_count[a])

    def _fence(self, i: int, action: Action) -> None:
        a = self.task_count + i
        self.clocks[i][a] = self.async_count[a]
        self.under_way[i].clear()

    def _begin(self, i: int, action: Action) -> None:
        """A section starts with nothing in the carries of its processes."""
        if action.step == "begin" and self.numbers:
            self.effects.forget_carries(self, i, action)


_HANDLERS: dict[type, Callable[[Machine, int, Action], None]] = {
    Reserve: Machine._reserve, Push: Machine._push, Front: Machine._front, Pop: Machine._pop, Post: Machine._post,
    Wait: Machine._wait, Fence: Machine._fence, Load: Machine._access, Store: Machine._access, Send: Machine._access,
    Compute: Machine._access, Init: Machine._access, str: Machine._begin,
}  # fmt: skip
