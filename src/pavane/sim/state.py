"""What the processes share: FIFOs and counters of each site, site memories, carries, channels and links.

A FIFO, a carry and (with an id of its own) a counter belong to a site and to the shape, not to an instance: two
instances of one shape use the same slots and the same counter, as they would on the chip. Counters keep their values
from launch to launch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from functools import partial

import numpy as np

from pavane.ir.program import Carry, Counter, Fifo, Formal, Program, Shape, Tensor
from pavane.reject import MemoryExceeded
from pavane.sim.channels import Channels, Requests
from pavane.sim.engine import Agent, Clock, Event, Sinks, Site, hops, sites_in
from pavane.sim.faults import ProtocolFault
from pavane.sim.links import Links
from pavane.sim.memory import Buffer, Memory, Region, alias_buffer, local_buffer, region, slot_bytes
from pavane.sim.shards import Shards
from pavane.sim.tensors import greatest_bytes
from pavane.targets.descriptor import SpatialTarget

_END = 1 << 62  # after everything


class FifoState:
    """Slots go round: `tail` is the next to reserve, `head` the next to hold. `ready`: when pushed slots are there."""

    __slots__ = (
        "depth", "fifo", "free", "front_waiter", "head", "held_by", "ready", "reserve_waiter", "reserved_by", "slots",
        "tail", "unpaid",
    )  # fmt: skip

    def __init__(self, fifo: Fifo, slots: list[Buffer]) -> None:
        self.fifo = fifo
        self.depth = self.free = max(1, fifo.depth)
        self.ready: deque[int] = deque()
        self.head = self.tail = 0
        self.reserved_by: Agent | None = None
        self.held_by: Agent | None = None
        self.front_waiter: Agent | None = None
        self.reserve_waiter: Agent | None = None
        self.slots = slots
        self.unpaid: list[list[Requests]] = [[] for _ in range(self.depth)]  # alias windows that no op has read yet

    @property
    def idle(self) -> bool:
        return self.free == self.depth and self.held_by is None and self.reserved_by is None


class CounterState:
    """A counter of one site. `registers`: per waiting worker, what it has consumed, modulo the counter's range.

    `coming`: when each post on its way arrives; it counts from then on. A waiter that still wants `wanted` of them is
    woken once, at `wake_at`, when enough have come.
    """

    __slots__ = ("ahead", "bits", "coming", "credit", "registers", "value", "waiter", "wake_at", "wanted")

    def __init__(self, counter: Counter) -> None:
        self.bits = counter.bits
        self.ahead = counter.ahead
        self.credit = counter.kind == "CREDIT"
        self.value = counter.ahead if self.credit else 0
        self.registers: dict[int, int] = {}
        self.waiter: Agent | None = None
        self.wanted = 0
        self.wake_at = -1
        self.coming: list[int] = []

    def post(self, n: int, time: int, clock: Clock) -> None:
        """n posts that arrive at a time."""
        coming = self.coming
        coming += (time,) * n
        if self.credit and (self.value + len(coming)) >> self.bits:
            self.settle(clock.now)
        if self.waiter is not None and len(coming) >= self.wanted and not 0 <= self.wake_at <= time:
            self._plan(clock)

    def settle(self, now: int) -> None:
        """Count what has arrived."""
        coming = self.coming
        coming.sort()
        arrived = bisect_right(coming, now)
        del coming[:arrived]
        self.wanted -= arrived
        self.value += arrived
        if self.credit and self.value >> self.bits:
            raise ProtocolFault(f"a counter of {self.bits} bits holds {self.value} credits")
        self.value &= (1 << self.bits) - 1

    def await_posts(self, agent: Agent, n: int, clock: Clock) -> None:
        """Wake the agent when it may consume n, which it may not now."""
        mask = (1 << self.bits) - 1
        goal = self.registers.get(agent.worker_index, -self.ahead) + n
        self.waiter, self.wake_at = agent, -1
        self.wanted = n - self.value if self.credit else (goal - self.value) & mask
        if len(self.coming) >= self.wanted:
            self._plan(clock)

    def _plan(self, clock: Clock) -> None:
        """Enough are coming: wake the waiter when the last of them is there."""
        self.coming.sort()
        time = self.coming[self.wanted - 1]
        if not 0 <= self.wake_at <= time:
            self.wake_at = time
            clock.schedule(time, partial(self._wake, time))

    def _wake(self, time: int) -> None:
        if self.waiter is not None and self.wake_at == time:
            waiter, self.waiter, self.wake_at = self.waiter, None, -1
            waiter.wake(time)

    def consume(self, worker: int, n: int) -> bool:
        """Take n posts if they have come: the distance to the register, modulo the range, is below half of it."""
        if self.credit:
            if self.value < n:
                return False
            self.value -= n
            return True
        mask = (1 << self.bits) - 1
        wanted = (self.registers.get(worker, -self.ahead) + n) & mask
        if (self.value - wanted) & mask >= 1 << (self.bits - 1):
            return False
        self.registers[worker] = wanted
        return True


Reached = list[tuple[int, CounterState]]  # counters, each after so many cycles on the way


class Machine:
    """The chip's state between and during launches."""

    def __init__(self, program: Program, target: SpatialTarget, functional: bool, timed: bool, trace: bool) -> None:
        self.program = program
        self.target = target
        self.functional = functional
        self.timed = timed
        self.clock = Clock()
        self.channels = Channels(target)
        self.links = Links(target, timed)
        self.sites = tuple((x, y) for y in range(target.grid.height) for x in range(target.grid.width))
        self.events: list[Event] | None = [] if trace else None
        self._memories: dict[Site, Memory] = {}
        self._fifos: dict[tuple[Site, str, str], FifoState] = {}
        self._carries: dict[tuple[Site, str, str], Buffer] = {}
        self._counters: dict[tuple[Site, str, str | int], CounterState] = {}
        self._reached: dict[tuple[Site, str, str, Sinks], Reached] = {}
        self._copies: dict[tuple[Site, str], tuple[Memory, int]] = {}  # with the owner that a tensor has there
        self._shards: dict[str, Shards] = {}

    def restart(self) -> None:
        """A launch: time, channels, links and their counts begin again; counters, FIFOs and memories stay."""
        self.clock.now = 0
        self.channels = Channels(self.target)
        self.links = Links(self.target, self.timed)
        if self.events is not None:
            self.events.clear()

    def serve(self) -> None:
        """Let channels and links take what has arrived by now."""
        self.channels.serve(self.clock.now)
        self.links.serve(self.clock.now)

    def fifo(self, site: Site, shape: Shape, fifo: Fifo) -> FifoState:
        key = (site, shape.name, fifo.name)
        state = self._fifos.get(key)
        if state is None:
            state = self._fifos[key] = FifoState(fifo, self._slots(site, fifo) if self.functional else [])
        return state

    def _slots(self, site: Site, fifo: Fifo) -> list[Buffer]:
        if fifo.kind == "ALIAS":
            return [alias_buffer(fifo.dtype) for _ in range(max(1, fifo.depth))]
        size = slot_bytes(fifo.rows, fifo.cols, fifo.dtype)
        return [self._local(site, fifo, fifo.address + i * size) for i in range(fifo.depth)]

    def carry(self, site: Site, shape: Shape, carry: Carry) -> Buffer:
        key = (site, shape.name, carry.name)
        if key not in self._carries:
            self._carries[key] = self._local(site, carry, carry.address)
        return self._carries[key]

    def _local(self, site: Site, part: Fifo | Carry, address: int) -> Buffer:
        end = address + slot_bytes(part.rows, part.cols, part.dtype)
        if address < 0 or end > self.target.memory.bytes:
            raise MemoryExceeded(
                f"the buffer {part.name!r} is not inside its site's memory",
                where=f"site {site}",
                needed=f"bytes {address} to {end}",
                available=f"0 to {self.target.memory.bytes}",
                remedy="size_buffers gives every buffer its address",
            )
        return local_buffer(self._memory(site), address, part.rows, part.cols, part.dtype)

    def _memory(self, site: Site) -> Memory:
        if site not in self._memories:
            self._memories[site] = Memory(self.target.memory.bytes)
        return self._memories[site]

    def copy(self, tensor: Tensor, formal: Formal, extents: tuple[int, ...], site: Site) -> Region:
        """A site's copy of a tensor, as a formal sees it."""
        memory, owner = self._copy(tensor, site)
        return region(memory, tensor.offset, extents, formal.dtype, owner)

    def _copy(self, tensor: Tensor, site: Site) -> tuple[Memory, int]:
        if (site, tensor.name) not in self._copies:
            memory = self._memory(site)
            self._copies[site, tensor.name] = memory, memory.new_owner()
        return self._copies[site, tensor.name]

    def shards(self, tensor: Tensor) -> Shards:
        """A sharded tensor's bytes."""
        if tensor.name not in self._shards:
            memories = [self._memory(site) for site in self.sites]
            self._shards[tensor.name] = Shards(tensor, greatest_bytes(self.program, tensor), memories)
        return self._shards[tensor.name]

    def share(self, other: Machine) -> None:
        """Stand on the other's chip: the same site memories, with what is sharded in them."""
        self._memories, self._shards = other._memories, other._shards

    def fill_copies(self, tensor: Tensor, raw: np.ndarray) -> None:
        """Put a weight's bytes on every site."""
        for site in self.sites:
            memory, owner = self._copy(tensor, site)
            memory.data[tensor.offset : tensor.offset + len(raw)] = raw
            memory.owner[tensor.offset : tensor.offset + len(raw)] = owner  # type: ignore[index]

    def forget_copies(self) -> None:
        """Nothing has written the sites' copies of SCRATCH tensors."""
        sizes = {t.name: greatest_bytes(self.program, t) for t in self.program.tensors if t.role == "SCRATCH"}
        starts = {t.name: t.offset for t in self.program.tensors}
        for (_, name), (memory, writer) in self._copies.items():
            owner = memory.owner[starts[name] : starts[name] + sizes.get(name, 0)]  # type: ignore[index]
            owner[owner == writer] = 0

    def counter(self, site: Site, scope: str, counter: Counter) -> CounterState:
        key = (site, "", counter.id) if counter.id >= 0 else (site, scope, counter.name)
        state = self._counters.get(key)
        if state is None:
            state = self._counters[key] = CounterState(counter)
        if (state.bits, state.ahead, state.credit) != (counter.bits, counter.ahead, counter.kind == "CREDIT"):
            raise ProtocolFault(
                f"counter {counter.name!r} shares id {counter.id} with one of other bits, kind or start"
            )
        return state

    def reached(self, source: Site, scope: str, counter: Counter, sinks: Sinks) -> Reached:
        """A counter of each site of a rectangle, with the way of a post from a site; untimed there is none."""
        key = source, scope, counter.name, sinks
        if key not in self._reached:
            hop_cycles = self.target.noc.hop_cycles if self.timed else 0
            self._reached[key] = [
                (hop_cycles * hops(source, site), self.counter(site, scope, counter)) for site in sites_in(sinks)
            ]
        return self._reached[key]

    def settle_counters(self) -> None:
        """All posts have arrived when a launch has ended."""
        for counter in self._counters.values():
            counter.settle(_END)

    def busy_fifos(self) -> list[str]:
        """FIFOs that are not as they were before the launch."""
        return [f"{shape}.{name} of site {site}" for (site, shape, name), f in self._fifos.items() if not f.idle]
