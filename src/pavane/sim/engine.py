"""The clock and the processes: a heap of (time, sequence, what happens), so that equal runs are equal to the cycle.

An *agent* is one worker on one site. It runs its generator until that yields: cycles to let pass, or a negative
number when the agent is parked and somebody must wake it. When the heap is empty and agents are left, nobody can:
`Deadlock`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush

from pavane.ir.program import Step, Turn
from pavane.sim.faults import Deadlock
from pavane.sim.transfers import Transfer
from pavane.targets.descriptor import Engine

Site = tuple[int, int]
Sinks = tuple[int, int, int, int]  # the sites x0 <= x < x1, y0 <= y < y1
PARKED = -1


@lru_cache(maxsize=1 << 12)
def sites_in(sinks: Sinks) -> tuple[Site, ...]:
    """Row by row."""
    x0, x1, y0, y1 = sinks
    return tuple((x, y) for y in range(y0, y1) for x in range(x0, x1))


def hops(source: Site, sink: Site) -> int:
    """Of a way through the mesh."""
    return abs(source[0] - sink[0]) + abs(source[1] - sink[1])


@dataclass(frozen=True)
class Event:
    """Something that an engine of a site did, or waited for (`kind` is "wait"), in cycles of the launch."""

    site: Site
    engine: str
    worker: str
    kind: str
    name: str
    start: int
    cycles: int


@dataclass(frozen=True)
class Place:
    """A step of a process, as an agent runs it (in the section that it is at, none for a turn of its own)."""

    agent: Agent
    process: str
    number: int
    step: Step | Turn

    def __str__(self) -> str:
        x, y = self.agent.site
        what = f"step {self.number} `{_words(self.step)}`"
        where = f"process {self.process} on {self.agent.engine.name} of site ({x}, {y})"
        return f"{where}, {what}" + (f", section {self.agent.section}" if self.agent.section else "")


def _words(step: Step | Turn) -> str:
    name = type(step).__name__.lower()
    target = getattr(step, "fifo", getattr(step, "counter", getattr(step, "carry", "")))
    if hasattr(step, "op"):
        target = f"{type(step.op).__name__} -> {step.op.dst.name}"
    return f"{name} {target}".strip()


class Clock:
    """Simulated time. `run` ends when nothing is left to happen."""

    __slots__ = ("_sequence", "heap", "now")

    def __init__(self) -> None:
        self.now = 0
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def schedule(self, time: int, happening: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self.heap, (time, self._sequence, happening))

    def run(self) -> None:
        while self.heap:
            self.now, _, happening = heappop(self.heap)
            happening()


class Agent:
    """One worker on one site, during one launch."""

    __slots__ = (
        "_since", "_steps", "busy_cycles", "clock", "ended_at", "engine", "events", "parked", "section", "site",
        "transfers", "waits", "worker", "worker_index",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, worker: str, worker_index: int, site: Site, engine: Engine, events: list[Event] | None
    ) -> None:
        self.clock = clock
        self.worker = worker
        self.worker_index = worker_index
        self.site = site
        self.engine = engine
        self.events = events
        self.busy_cycles = 0
        self.waits: dict[str, int] = {}
        self.section = ""  # the instance whose process it runs
        self.transfers: list[Transfer] = []  # begun since the last fence
        self.parked: tuple[Place, str, Callable[[], str]] | None = None
        self.ended_at: int | None = None
        self._since = 0
        self._steps: Generator[int, None, None] = iter_nothing()

    def begin(self, steps: Generator[int, None, None], time: int) -> None:
        self._steps = steps
        self.clock.schedule(time, self.resume)

    def resume(self) -> None:
        """Go on until the generator waits or ends; time passes here as long as nothing else happens before."""
        clock, steps = self.clock, self._steps
        if self.parked is not None:
            label = self.parked[1]
            self.parked = None
            self.waited(label, self._since, clock.now - self._since)
        heap = clock.heap
        for delay in steps:
            if delay < 0:
                return
            time = clock.now + delay
            if heap and heap[0][0] <= time:
                clock.schedule(time, self.resume)
                return
            clock.now = time
        self.ended_at = clock.now

    def park(self, place: Place, label: str, needs: Callable[[], str]) -> int:
        self.parked = (place, label, needs)
        self._since = self.clock.now
        return PARKED

    def wake(self, time: int) -> None:
        self.clock.schedule(time, self.resume)

    def waited(self, label: str, start: int, cycles: int) -> None:
        if cycles > 0:
            self.waits[label] = self.waits.get(label, 0) + cycles
            if self.events is not None:
                self.events.append(Event(self.site, self.engine.name, self.worker, "wait", label, start, cycles))

    def worked(self, kind: str, name: str, cycles: int) -> int:
        """Count what takes so many cycles from now on."""
        self.busy_cycles += cycles
        if self.events is not None and cycles > 0:
            self.events.append(Event(self.site, self.engine.name, self.worker, kind, name, self.clock.now, cycles))
        return cycles


def iter_nothing() -> Generator[int, None, None]:
    yield from ()


def run_to_end(clock: Clock, agents: Sequence[Agent]) -> None:
    """Until every agent has ended; `Deadlock` names those that cannot."""
    clock.run()
    stuck = [a for a in agents if a.ended_at is None]
    if stuck:
        raise Deadlock(
            f"nothing can move after cycle {clock.now}: {len(stuck)} of {len(agents)} processes wait for ever",
            terms=[_complaint(agent) for agent in stuck],
            remedy="find the first of these whose FIFO or counter nobody serves",
        )


def _complaint(agent: Agent) -> str:
    if agent.parked is None:
        return f"worker {agent.worker} of site {agent.site} has not ended"
    place, _, needs = agent.parked
    return f"{place}: {needs()}"
