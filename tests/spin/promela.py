"""A program's choreography as Promela: one proctype a worker and site, two epochs, a barrier between them.

    promela(program, target, epochs, exhaustive=False) -> Model

FIFOs are occupancy counters: a Reserve waits until fewer than `depth` slots are taken, a Front until one is pushed.
Counters are never reset and count modulo 2**bits; a Wait adds to its process's own register and compares modularly.
An access in flight is counted in `readers[w]` or `writers[w]` of what it touches (watches.py).

Asserted: no conflicting accesses in flight at once; a slot is owned by whoever uses it; one process pushes, one pops,
one waits; no FIFO above its depth; no counter with more than half its range in flight; a send meets the slot of its own
number, reserved, and that slot is neither reserved nor pushed meanwhile; at the end of each epoch FIFOs are empty and
counters equal their registers. SPIN adds: no invalid end state.

**Reduction.** The model first picks one watch, and only that one is counted. Steps that do not touch it go first, in
the order of the processes (SPIN's priorities), and only the others interleave. Nothing is lost: with one process at
each end, a step that can be done stays possible whatever others do, and leads to the same state whenever it is done,
so doing it first hides no order of the steps that touch the watch. `exhaustive` counts all watches at once and
interleaves all steps: for tiny programs, to compare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pavane.ir.program import Program
from pavane.targets.descriptor import SpatialTarget
from tests.spin.accesses import Values
from tests.spin.events import Choreography, Event, TooLarge
from tests.spin.steps import choreography
from tests.spin.watches import Watches, half_range, watches_of

LEAST_PRIORITY, MOST_PRIORITY = 1, 255
MOST_SLOTS, MOST_TASKS = 250, 250
Written = tuple[str, list[str], tuple[int, ...]]  # guard, effects, watches touched


@dataclass(frozen=True)
class Model:
    """The text for SPIN, and what its numbers mean."""

    text: str
    watched: tuple[str, ...]
    queues: tuple[str, ...]
    counters: tuple[str, ...]


def promela(program: Program, target: SpatialTarget, epochs: tuple[Values, ...], exhaustive: bool = False) -> Model:
    """The model for one set of symbols an epoch. Raises Misuse, TooLarge."""
    made = choreography(program, target, epochs)
    if len(made.tasks) > MOST_TASKS:
        raise TooLarge(f"{len(made.tasks)} workers; SPIN runs {MOST_TASKS}")
    watches = watches_of(made)
    writer = _Writer(made, watches, exhaustive)
    lines = writer.declarations()
    for number in range(len(made.tasks)):
        lines += writer.process(number)
    lines += writer.launch(len(epochs))
    queues = tuple(f"{name} of {shape} on {site}" for site, shape, name in made.queues)
    counters = tuple(f"{made.counters[i].name} on {site}" for (site, _), i in made.signals.items())
    return Model("\n".join(lines) + "\n", watches.names(), queues, counters)


class _Writer:
    """The text, part by part."""

    def __init__(self, made: Choreography, watches: Watches, exhaustive: bool) -> None:
        self.made, self.watches, self.exhaustive = made, watches, exhaustive
        self.count = len(watches.names())

    def declarations(self) -> list[str]:
        """Global state, and what the steps do to it."""
        queues, signals, watches = len(self.made.fifos), len(self.made.counters), self.count
        arrays = [
            *_array("byte", ("taken", "reserved", "held", "pusher", "popper", "sending"), queues),
            *_array("short", ("number",), queues),
            *_array("int", ("count", "seen", "flight"), signals),
            *_array("byte", ("waiter",), signals),
            *_array("byte", ("readers", "writers"), watches),
        ]
        return [
            "bit slot_owned = 0, transfers_fenced = 0, waits_count = 0;",
            "short watched = 0;",
            "byte epoch = 0, ended = 0;",
            *arrays,
            f"#define ON(w) ({1 if self.exhaustive else '(watched == w)'})",
            "#define READ(w) assert(!ON(w) || writers[w] == 0); readers[w] = readers[w] + ON(w)",
            "#define WRITE(w) assert(!ON(w) || writers[w] + readers[w] == 0); writers[w] = writers[w] + ON(w)",
            "#define READ_END(w) readers[w] = readers[w] - ON(w)",
            "#define WRITE_END(w) writers[w] = writers[w] - ON(w)",
            "#define ONLY(who, me) assert(who == 0 || who == me); who = me",
        ]

    def process(self, number: int) -> list[str]:
        """One worker on one site. Where the next step's watches differ, the step before it sets the priority."""
        task = self.made.tasks[number]
        steps: list[Written] = []
        for epoch, events in enumerate(task.epochs):
            steps.append((f"epoch == {epoch}", [], ()))
            steps += [self._step(event, number + 1) for event in events]
            steps.append(("true", ["ended = ended + 1"], ()))
        body, now = [], ()
        for i, (guard, effects, _) in enumerate(steps):
            following = steps[i + 1][2] if i + 1 < len(steps) else ()
            if following != now and not self.exhaustive:
                effects = [*effects, self._priority(following, number)]
            now = following
            body.append(f"  d_step {{ {guard} -> {'; '.join(effects) or 'skip'} }};")
        return [f"proctype {task.name.replace('.', '_')}_{number}() {{", *body, "  skip", "}"]

    def launch(self, epochs: int) -> list[str]:
        """Pick a watch, start all, and between epochs ask that all is as it was."""
        tasks = self.made.tasks
        runs = [
            f"    run {task.name.replace('.', '_')}_{i}(){'' if self.exhaustive else f' priority {_rank(i)}'};"
            for i, task in enumerate(tasks)
        ]
        lines = ["init {", *self._ahead()]
        if self.count and not self.exhaustive:
            lines += ["  if", *(f"    :: watched = {w}" for w in range(self.count)), "  fi;"]
        lines += ["  atomic {", "    skip;", *runs, "  };"]
        for epoch in range(epochs):
            lines.append(f"  d_step {{ ended == {len(tasks)} -> ended = 0; {self._replay()}; epoch = {epoch + 1} }};")
        return [*lines, "  skip", "}"]

    def _ahead(self) -> list[str]:
        counters = enumerate(self.made.counters)
        set_ = [f"count[{s}] = {c.ahead}; flight[{s}] = {c.ahead}" for s, c in counters if c.ahead]
        return [f"  d_step {{ {'; '.join(set_)} }};"] if set_ else []

    def _replay(self) -> str:
        empty = [f"assert(taken[{q}] + reserved[{q}] + held[{q}] == 0)" for q in range(len(self.made.fifos))]
        equal = [f"assert(flight[{s}] == {c.ahead})" for s, c in enumerate(self.made.counters)]
        return "; ".join([*empty, *equal, "skip"])

    def _priority(self, touched: tuple[int, ...], number: int) -> str:
        if not touched:
            return f"set_priority(_pid, {_rank(number)})"
        watched = " || ".join(f"watched == {w}" for w in touched)
        return f"set_priority(_pid, ({watched} -> {LEAST_PRIORITY} : {_rank(number)}))"

    # --- steps ---

    def _step(self, event: Event, me: int) -> Written:
        guard, effects, touched = _STEPS[event.op](self, event, me)
        bound = self.made.alias_reads.get((event.queue, event.number), ()) if event.op == "pop" else ()
        for group in (*event.ends, *((access,) for access in bound)):
            watched = self.watches.of_accesses(group)
            touched += tuple(watched)
            effects += [f"{'WRITE' if write else 'READ'}_END({w})" for w, write in watched.items()]
        watched = self.watches.of_accesses(event.begins)
        effects += [f"{'WRITE' if write else 'READ'}({w})" for w, write in watched.items()]
        return guard, effects, tuple(sorted({*touched, *watched}))

    def _accesses(self, event: Event, me: int) -> Written:
        return "true", [], ()

    def _depth(self, queue: int) -> int:
        """No small program fills MOST_SLOTS."""
        return min(self.made.fifos[queue].depth, MOST_SLOTS)

    def _reserve(self, event: Event, me: int) -> Written:
        q = event.queue
        effects = [f"ONLY(pusher[{q}], {me})", f"assert(sending[{q}] == 0)", f"reserved[{q}] = 1"]
        return f"taken[{q}] < {self._depth(q)}", effects, self.watches.of_reservation(q)

    def _push(self, event: Event, me: int) -> Written:
        q = event.queue
        effects = [
            f"ONLY(pusher[{q}], {me})", f"assert(reserved[{q}])", f"assert(sending[{q}] == 0)", f"reserved[{q}] = 0",
            f"taken[{q}] = taken[{q}] + 1", f"number[{q}] = number[{q}] + 1",
            f"assert(taken[{q}] <= {self._depth(q)})",
        ]  # fmt: skip
        return "true", effects, self.watches.of_reservation(q)

    def _front(self, event: Event, me: int) -> Written:
        q = event.queue
        return f"taken[{q}] > 0", [f"ONLY(popper[{q}], {me})", f"held[{q}] = 1"], ()

    def _pop(self, event: Event, me: int) -> Written:
        q = event.queue
        effects = [
            f"ONLY(popper[{q}], {me})", f"assert(held[{q}])", f"held[{q}] = 0", f"taken[{q}] = taken[{q}] - 1",
        ]  # fmt: skip
        return "true", effects, ()

    def _post(self, event: Event, me: int) -> Written:
        effects, touched = [], ()
        for s in event.signals:
            half = half_range(self.made.counters[s].bits)
            n = min(event.n, half + 1)  # more is an overflow all the same, and may be no number of Promela's
            effects += [f"count[{s}] = (count[{s}] + {n}) % {2 * half}", f"flight[{s}] = flight[{s}] + {n}"]
            effects.append(f"assert(flight[{s}] <= {half})")
            touched += self.watches.of_counter(s)
        return "true", effects, touched

    def _wait(self, event: Event, me: int) -> Written:
        (s,), n = event.signals, event.n
        half = half_range(self.made.counters[s].bits)
        if not 1 <= n <= half:
            return "true", ["assert(waits_count)"], ()
        effects = [
            f"ONLY(waiter[{s}], {me})", f"seen[{s}] = (seen[{s}] + {n}) % {2 * half}",
            f"flight[{s}] = flight[{s}] - {n}",
        ]  # fmt: skip
        beyond = f"(count[{s}] - seen[{s}] - {n} + {4 * half}) % {2 * half}"
        return f"{beyond} < {half}", effects, self.watches.of_counter(s)

    def _send(self, event: Event, me: int) -> Written:
        effects, touched = [], ()
        for q, number in event.into:
            effects += [f"assert(reserved[{q}] && number[{q}] == {number})", f"sending[{q}] = sending[{q}] + 1"]
            touched += self.watches.of_reservation(q)
        return "true", effects, touched

    def _fence(self, event: Event, me: int) -> Written:
        effects = [f"sending[{q}] = sending[{q}] - 1" for q, _ in event.into]
        return "true", effects, tuple(w for q, _ in event.into for w in self.watches.of_reservation(q))

    def _unowned(self, event: Event, me: int) -> Written:
        return "true", ["assert(slot_owned)"], ()

    def _unfenced(self, event: Event, me: int) -> Written:
        return "true", ["assert(transfers_fenced)"], ()


def _array(kind: str, names: tuple[str, ...], size: int) -> list[str]:
    return [f"{kind} {name}[{size}];" for name in names] if size else []


def _rank(number: int) -> int:
    """The priority of a process whose next step touches nothing watched."""
    return min(LEAST_PRIORITY + 1 + number, MOST_PRIORITY)


_STEPS: dict[str, Callable[[_Writer, Event, int], Written]] = {
    "begin": _Writer._accesses, "end": _Writer._accesses, "load": _Writer._accesses, "store": _Writer._accesses,
    "bind": _Writer._accesses, "send": _Writer._send, "fence": _Writer._fence, "reserve": _Writer._reserve,
    "push": _Writer._push, "front": _Writer._front, "pop": _Writer._pop, "post": _Writer._post,
    "wait": _Writer._wait, "unowned": _Writer._unowned, "unfenced": _Writer._unfenced,
}  # fmt: skip
