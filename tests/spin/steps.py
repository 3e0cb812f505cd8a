"""Workers as lists of events, one list a worker, site and epoch: loops unrolled, slots numbered, accesses in bytes.

An access of an op has two events, its beginning and its end. A load, store or send begins at its step and ends at the
process's next Fence: staying on the way as long as it may is the worst that it can do to others. What an alias reads
ends when its slot is popped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pavane.ir.expr import Indirect
from pavane.ir.program import (
    Compute,
    Counter,
    Fence,
    Formal,
    Front,
    Init,
    Instance,
    Load,
    Loop,
    Pop,
    Post,
    Process,
    Program,
    Push,
    Reserve,
    Run,
    Send,
    Shape,
    Step,
    Store,
    Wait,
)  # fmt: skip
from pavane.ir.walk import operands
from pavane.targets.descriptor import SpatialTarget
from tests.spin.accesses import (
    Access,
    Misuse,
    Site,
    Values,
    carry_access,
    clipped_rows,
    slot_access,
    window_accesses,
)  # fmt: skip
from tests.spin.events import MOST_EVENTS, Choreography, Event, Task, TooLarge, found

_FILLING, _HELD = ("filling",), ("held",)


def choreography(program: Program, target: SpatialTarget, epochs: tuple[Values, ...]) -> Choreography:
    """Every worker on every site of its rectangle, for one set of symbols an epoch. Raises Misuse, TooLarge."""
    try:
        return _choreography(program, target, epochs)
    except (KeyError, IndexError, ValueError) as error:
        raise Misuse(f"the program cannot be run: {type(error).__name__} {error}") from error


def _choreography(program: Program, target: SpatialTarget, epochs: tuple[Values, ...]) -> Choreography:
    made = Choreography(grid=(target.grid.width, target.grid.height), bits=target.counters.bits)
    for worker in program.workers:
        for site in made.sites_of(worker.rect, {}):
            made.tasks.append(Task(f"{worker.name}_{site[0]}_{site[1]}", site, worker.engine, []))
    if len({(task.site, task.engine) for task in made.tasks}) < len(made.tasks):
        raise Misuse("two workers on one engine of a site")
    for symbols in epochs:
        turns = iter(made.tasks)
        for worker in program.workers:
            for site in made.sites_of(worker.rect, {}):
                walk = _Walk(program, made, site)
                at = {"SITE_X": site[0] - worker.rect.x0.const, "SITE_Y": site[1] - worker.rect.y0.const}
                for turn in worker.body:
                    if isinstance(turn, Run):
                        walk.run(turn, worker.engine, symbols)
                    else:
                        walk.step(turn, {**symbols, **at})
                walk.finish()
                next(turns).epochs.append(walk.events)
    return made


class _Walk:
    """One worker on one site in one epoch: its events, the slots that it owns, and its transfers on their way."""

    def __init__(self, program: Program, made: Choreography, site: Site) -> None:
        self.program, self.made, self.site = program, made, site
        self.events: list[Event] = []
        self.reserved: set[int] = set()
        self.held: set[int] = set()
        self.on_the_way: list[tuple[Access, ...]] = []
        self.sent_into: list[tuple[int, int]] = []
        self.shape: Shape | None = None
        self.instance: Instance | None = None

    def run(self, turn: Run, engine: str, symbols: Values) -> None:
        """One process of an instance, whole."""
        if not 0 <= turn.instance < len(self.program.instances):
            raise Misuse("a section that is not there")
        self.instance = self.program.instances[turn.instance]
        self.shape = found(self.program.shapes, self.instance.shape)
        process: Process = found(self.shape.processes, turn.process)
        if self.site not in self.made.sites_of(process.rect, {}) or process.engine != engine:
            raise Misuse(f"{turn.process} runs where it does not belong")
        origin = (process.rect.x0.const, process.rect.y0.const)
        env = {**symbols, "SITE_X": self.site[0] - origin[0], "SITE_Y": self.site[1] - origin[1]}
        for step, point in self._unrolled(process.body, env):
            self.step(step, point)
        self.shape = self.instance = None

    def step(self, step: Step, env: Values) -> None:
        """The events of one step at one point of its loops."""
        _STEPS[type(step)](self, step, env)

    def finish(self) -> None:
        """A transfer that no fence completes is a fault of its own."""
        if self.on_the_way or self.sent_into:
            self._emit("unfenced")

    def _unrolled(self, body: tuple, env: Values) -> Iterator[tuple[Step, Values]]:
        for node in body:
            if not isinstance(node, Loop):
                yield node, env
                continue
            for turn in range(node.extent.evaluate(env)):
                self._spend()
                yield from self._unrolled(node.body, {**env, node.var: turn})

    def _spend(self) -> None:
        self.made.events_left -= 1
        if self.made.events_left < 0:
            raise TooLarge(f"more than {MOST_EVENTS} events")

    def _emit(self, op: str, **fields: Any) -> None:
        self._spend()
        self.events.append(Event(op, **fields))

    # --- FIFOs ---

    def _queue(self, name: str) -> int:
        number = self.made.queue(self.site, self.shape, name)
        if self.made.fifos[number].depth < 1:
            raise Misuse(f"{name} has no slots")
        return number

    def _reserve(self, step: Reserve, env: Values) -> None:
        queue = self._queue(step.fifo)
        self._emit("unowned" if queue in self.reserved else "reserve", queue=queue)
        self.reserved.add(queue)

    def _push(self, step: Push, env: Values) -> None:
        queue = self._queue(step.fifo)
        self._emit("push", queue=queue)
        self.reserved.discard(queue)
        self.made.pushed[queue] += 1

    def _front(self, step: Front, env: Values) -> None:
        queue = self._queue(step.fifo)
        self._emit("unowned" if queue in self.held else "front", queue=queue)
        self.held.add(queue)

    def _pop(self, step: Pop, env: Values) -> None:
        queue = self._queue(step.fifo)
        self._emit("pop", queue=queue, number=self.made.popped[queue])
        self.held.discard(queue)
        self.made.popped[queue] += 1

    def _slot(
        self, name: str, ends: tuple[str, ...], write: bool, first: int = 0, rows: int | None = None
    ) -> Access | None:
        """The slot that the process owns under that name, at one of those ends of the FIFO."""
        queue = self._queue(name)
        fifo = self.made.fifos[queue]
        owned = [end for end in ends if queue in (self.reserved if end == "filling" else self.held)]
        if len(owned) != 1:
            self._emit("unowned", queue=queue)
            return None
        count = self.made.pushed[queue] if owned == ["filling"] else self.made.popped[queue]
        return slot_access(fifo, count % fifo.depth, self.site, write, first, rows)

    # --- accesses ---

    def _load(self, step: Load, env: Values) -> None:
        for start in step.window.start:
            if isinstance(start, Indirect):
                self._at_once(self._slot(start.via, _HELD, False))
        formal = found(self.shape.formals, step.tensor)
        source = self._window(formal, step, env)
        queue = self._queue(step.fifo)
        rows = clipped_rows(step.window, formal, env)
        slot = self._slot(step.fifo, _FILLING, True, step.row.evaluate(env), rows)
        if self.made.fifos[queue].kind == "ALIAS":
            key = (queue, self.made.pushed[queue])
            self.made.alias_reads[key] = (*self.made.alias_reads.get(key, ()), *source)
            self._emit("bind", begins=source)
        else:
            self._issue("load", *source, slot)

    def _store(self, step: Store, env: Values) -> None:
        formal = found(self.shape.formals, step.tensor)
        place = self._window(formal, step, env)
        self._issue("store", self._slot(step.fifo, _HELD, False), *place)

    def _window(self, formal: Formal, step: Load | Store, env: Values) -> tuple[Access, ...]:
        return window_accesses(self.program, self.instance, formal, step, env, self.site, self.made.grid)

    def _send(self, step: Send, env: Values) -> None:
        queue = self._queue(step.fifo)
        fifo, number = self.made.fifos[queue], self.made.pushed[queue]
        targets = self.made.sites_of(step.to, env)
        into = tuple((self.made.queue(site, self.shape, step.fifo), number) for site in targets)
        copies = [slot_access(fifo, number % fifo.depth, site, write=True) for site in targets]
        self.sent_into += into
        self._issue("send", self._slot(step.fifo, _FILLING, False), *copies, into=into)

    def _issue(self, op: str, *accesses: Access | None, **fields: Any) -> None:
        begun = tuple(access for access in accesses if access is not None)
        self.on_the_way.append(begun)
        self._emit(op, begins=begun, **fields)

    def _fence(self, step: Fence, env: Values) -> None:
        self._emit("fence", ends=tuple(self.on_the_way), into=tuple(self.sent_into))
        self.on_the_way, self.sent_into = [], []

    def _compute(self, step: Compute, env: Values) -> None:
        touched: dict[tuple[str, int], Access] = {}
        for name, write in (*((n, False) for n in operands(step.op)), (step.op.dst.name, True)):
            access = self._named(name, write)
            if access is not None:
                touched[(access.space, access.mask)] = access
        self._at_once(*touched.values())

    def _named(self, name: str, write: bool) -> Access | None:
        carry = next((c for c in self.shape.carries if c.name == name), None)
        if carry is not None:
            return carry_access(carry, self.site, write)
        return self._slot(name, (*_FILLING, *_HELD), write)

    def _init(self, step: Init, env: Values) -> None:
        self._at_once(carry_access(found(self.shape.carries, step.carry), self.site, write=True))

    def _at_once(self, *accesses: Access | None) -> None:
        begun = tuple(access for access in accesses if access is not None)
        if begun:
            self._emit("begin", begins=begun)
            self._emit("end", ends=(begun,))

    # --- counters ---

    def _counters(self) -> tuple[tuple[Counter, ...], str]:
        return (self.program.counters, "") if self.shape is None else (self.shape.counters, self.shape.name)

    def _post(self, step: Post, env: Values) -> None:
        if step.n < 1:
            raise Misuse("a post of nothing")
        counters, shape = self._counters()
        targets = tuple(
            self.made.signal(site, counters, step.counter, shape) for site in self.made.sites_of(step.to, env)
        )
        self._emit("post", signals=targets, n=step.n)

    def _wait(self, step: Wait, env: Values) -> None:
        counters, shape = self._counters()
        self._emit("wait", signals=(self.made.signal(self.site, counters, step.counter, shape),), n=step.n)


_STEPS: dict[type, Any] = {
    Reserve: _Walk._reserve, Push: _Walk._push, Front: _Walk._front, Pop: _Walk._pop, Load: _Walk._load,
    Store: _Walk._store, Send: _Walk._send, Fence: _Walk._fence, Compute: _Walk._compute, Init: _Walk._init,
    Post: _Walk._post, Wait: _Walk._wait,
}  # fmt: skip
