"""What each step does, as a handler bound to its agent: the contract of process.py.

The timed half (cycles, FIFOs, counters, transfers) is the same in all modes; in functional mode a handler also moves
data, through effects.py: a compute at once, a transfer when it completes. Untimed, a transfer completes at its
fence, as late as is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pavane.ir.program import (
    Compute,
    Counter,
    Fence,
    Front,
    Generic,
    Init,
    Load,
    MatmulTiles,
    Pop,
    Post,
    Push,
    Reserve,
    Send,
    Step,
    Store,
    Wait,
)
from pavane.ir.types import row_bytes
from pavane.ir.walk import named, operands
from pavane.reject import NoEngine
from pavane.sim import effects
from pavane.sim.engine import Agent, Place, Site
from pavane.sim.faults import ProtocolFault
from pavane.sim.memory import slot_bytes
from pavane.sim.process import Handler
from pavane.sim.section import Context, FormalState, Section, buffer_of, product_types, units, window_pitch
from pavane.sim.state import CounterState, FifoState, Machine
from pavane.sim.timing import Channels, count_bytes, generic_cycles, product_cycles, split_bytes

Sinks = list[tuple[Site, CounterState]]


def bind(section: Section, agent: Agent, process: str, steps: tuple[Step, ...]) -> list[Handler]:
    """A handler for each step of a process."""
    return [
        _BINDERS[type(step)](Context(section, agent, Place(agent, section.name, process, number, step)), step)
        for number, step in enumerate(steps)
    ]


# --- FIFOs --------------------------------------------------------------------------------------------------


def _reserve(context: Context, step: Reserve) -> Handler:
    fifo, agent, place = context.fifo(step.fifo), context.agent, context.place
    label = context.label("a free slot of", step.fifo)

    def reserve() -> int:
        if fifo.reserved_by is not None:
            raise _misused(place, "a slot is reserved already")
        if not fifo.free:
            fifo.reserve_waiter = agent
            return agent.park(
                place, label, lambda: f"waits for a free slot, {len(fifo.ready)} of {fifo.depth} are pushed"
            )
        fifo.free -= 1
        fifo.reserved_by = agent
        fifo.unpaid[fifo.tail] = []
        return 0

    if not context.machine.functional:
        return reserve

    def reserve_and_forget(_env: dict[str, int]) -> int:
        delay = reserve()
        if not delay:
            buffer = fifo.slots[fifo.tail]
            buffer.fresh, buffer.pieces, buffer.origin = True, [], None
        return delay

    return reserve_and_forget


def _push(context: Context, step: Push) -> Handler:
    fifo, agent, place, machine = context.fifo(step.fifo), context.agent, context.place, context.machine
    handover = machine.target.fifos.handover_cycles if machine.timed else 0

    def push(*_: dict[str, int]) -> int:
        if fifo.reserved_by is not agent:
            raise _misused(place, "the process holds no reserved slot")
        time = machine.clock.now + handover
        fifo.reserved_by = None
        fifo.tail = (fifo.tail + 1) % fifo.depth
        fifo.ready.append(time)
        if fifo.front_waiter is not None:
            waiter, fifo.front_waiter = fifo.front_waiter, None
            waiter.wake(time)
        return 0

    return push


def _front(context: Context, step: Front) -> Handler:
    fifo, agent, place, clock = context.fifo(step.fifo), context.agent, context.place, context.machine.clock
    label = context.label("a pushed slot of", step.fifo)

    def front(*_: dict[str, int]) -> int:
        if not fifo.ready:
            fifo.front_waiter = agent
            return agent.park(place, label, lambda: f"waits for a pushed slot, {fifo.free} of {fifo.depth} are free")
        if fifo.held_by is not None:
            raise _misused(place, "a slot is held already")
        delay = fifo.ready[0] - clock.now
        if delay > 0:
            agent.waited(label, clock.now, delay)
            return delay
        fifo.held_by = agent
        return 0

    return front


def _pop(context: Context, step: Pop) -> Handler:
    fifo, agent, place, clock = context.fifo(step.fifo), context.agent, context.place, context.machine.clock

    def pop(*_: dict[str, int]) -> int:
        if fifo.held_by is not agent:
            raise _misused(place, "the process holds no slot in front")
        fifo.held_by = None
        fifo.ready.popleft()
        fifo.head = (fifo.head + 1) % fifo.depth
        fifo.free += 1
        if fifo.reserve_waiter is not None:
            waiter, fifo.reserve_waiter = fifo.reserve_waiter, None
            waiter.wake(clock.now)
        return 0

    return pop


def _misused(place: Place, why: str) -> ProtocolFault:
    return ProtocolFault(f"a step has no meaning here: {why}", where=str(place))


# --- transfers --------------------------------------------------------------------------------------------


def _load(context: Context, step: Load) -> Handler:
    fifo, agent, place = context.fifo(step.fifo), context.agent, context.place
    split = _splitter(context, context.section.formals[step.tensor], step)
    channels, clock, dram = context.machine.channels, context.machine.clock, context.machine.target.dram
    timed, alias, name = context.machine.timed, fifo.fifo.kind == "ALIAS", context.label("load", step.tensor)

    def load(address: int, rows: int, cols: int) -> int:
        if fifo.reserved_by is not agent:
            raise _misused(place, "the process holds no reserved slot")
        if not rows or not cols:
            return 0
        parts = split(address, rows, cols)
        count_bytes(channels.read_bytes, parts)
        if alias:
            fifo.unpaid[fifo.tail].append(parts)
            return 0
        agent.unfenced += 1
        if not timed:
            return 0
        agent.last_done_at = channels.stream(clock.now + dram.request_cycles, parts) + dram.latency_cycles
        agent.done_at = max(agent.done_at, agent.last_done_at)
        agent.worked("load", name, dram.request_cycles)
        return dram.request_cycles

    if not context.machine.functional:
        return load
    prepare = effects.load(context, step)

    def load_data(env: dict[str, int], address: int, rows: int, cols: int) -> int:
        delay = load(address, rows, cols)
        if rows and cols:
            _complete(agent, context.machine, prepare(env, rows, cols), at_once=alias)
        return delay

    return load_data


def _store(context: Context, step: Store) -> Handler:
    fifo, agent, place = context.fifo(step.fifo), context.agent, context.place
    split = _splitter(context, context.section.formals[step.tensor], step)
    machine, target = context.machine, context.machine.target
    channels, clock, dram = machine.channels, machine.clock, target.dram
    latency = 0 if target.alias else dram.latency_cycles
    timed, name = machine.timed, context.label("store", step.tensor)

    def store(address: int, rows: int, cols: int) -> int:
        if fifo.held_by is not agent:
            raise _misused(place, "the process holds no slot in front")
        if not rows or not cols:
            return 0
        parts = split(address, rows, cols)
        count_bytes(channels.written_bytes, parts)
        agent.unfenced += 1
        if not timed:
            return 0
        agent.last_done_at = channels.stream(clock.now + dram.request_cycles, parts) + latency
        agent.done_at = max(agent.done_at, agent.last_done_at)
        agent.worked("store", name, dram.request_cycles)
        return dram.request_cycles

    if not machine.functional:
        return store
    prepare = effects.store(context, step)

    def store_data(env: dict[str, int], address: int, rows: int, cols: int) -> int:
        delay = store(address, rows, cols)
        if rows and cols:
            _complete(agent, machine, prepare(env, address, rows, cols))
        return delay

    return store_data


def _splitter(context: Context, formal: FormalState, step: Load | Store) -> Callable[[int, int, int], tuple[int, ...]]:
    """(address in the formal, rows, columns) -> bytes per channel."""
    dram = context.machine.target.dram
    unit, count = dram.alignment_bytes, dram.channels
    period, pitch, item = unit * count, window_pitch(formal, step.window), row_bytes(formal.dtype, 1)

    def split(address: int, rows: int, cols: int) -> tuple[int, ...]:
        width = units(cols, formal.dtype) * item
        return split_bytes((formal.base + address) % period, rows, width, pitch or width, unit, count)

    return split


def _send(context: Context, step: Send) -> Handler:
    fifo, agent, place, machine = context.fifo(step.fifo), context.agent, context.place, context.machine
    size = slot_bytes(fifo.fifo.rows, fifo.fifo.cols, fifo.fifo.dtype)
    start_cycles, name = machine.target.noc.start_cycles, context.label("send", step.fifo)
    sites = _site_lists(context)

    def send(*rect: int) -> int:
        if fifo.reserved_by is not agent:
            raise _misused(place, "the process holds no reserved slot")
        agent.unfenced += 1
        if not machine.timed:
            return 0
        agent.last_done_at = machine.links.send(machine.clock.now, agent.site, sites(rect), size)
        agent.done_at = max(agent.done_at, agent.last_done_at)
        agent.worked("send", name, start_cycles)
        return start_cycles

    if not machine.functional:
        return send
    prepare = effects.send(context, step)

    def send_data(_env: dict[str, int], *rect: int) -> int:
        delay = send(*rect)
        _complete(agent, machine, prepare(sites(rect)))
        return delay

    return send_data


def _complete(agent: Agent, machine: Machine, effect: Callable[[], None], at_once: bool = False) -> None:
    """Let a transfer happen at its time; untimed, at the fence."""
    if at_once:
        effect()
    elif machine.timed:
        machine.clock.schedule(agent.last_done_at, effect)
    else:
        agent.pending.append(effect)


def _fence(context: Context, step: Fence) -> Handler:
    agent, clock = context.agent, context.machine.clock

    def fence(*_: dict[str, int]) -> int:
        agent.unfenced = 0
        for effect in agent.pending:
            effect()
        agent.pending.clear()
        delay = agent.done_at - clock.now
        if delay <= 0:
            return 0
        agent.waited("a fence", clock.now, delay)
        return delay

    return fence


# --- counters ---------------------------------------------------------------------------------------------


def _site_lists(context: Context) -> Callable[[tuple[int, ...]], tuple[Site, ...]]:
    """The sites of a rectangle that a step names, on the chip; each rectangle is expanded once."""
    home_x, home_y = context.section.home
    known: dict[tuple[int, ...], tuple[Site, ...]] = {}

    def sites(rect: tuple[int, ...]) -> tuple[Site, ...]:
        if rect not in known:
            x0, x1, y0, y1 = rect
            known[rect] = tuple((home_x + x, home_y + y) for y in range(y0, y1) for x in range(x0, x1))
        return known[rect]

    return sites


def _post(context: Context, step: Post) -> Handler:
    counter = named(context.section.shape.counters, step.counter)
    machine, shape, sites = context.machine, context.section.shape, _site_lists(context)

    def sinks(rect: tuple[int, ...]) -> Sinks:
        return [(site, machine.counter(site, shape.name, counter)) for site in sites(rect)]

    return post_handler(context.agent, machine, step.n, step.counter, sinks)


def post_handler(
    agent: Agent, machine: Machine, n: int, name: str, sinks: Callable[[tuple[int, ...]], Sinks]
) -> Handler:
    """Post n to the counters that `sinks` gives for a rectangle; each arrives after its hops."""
    clock, links = machine.clock, machine.links
    post_cycles, hop_cycles = machine.target.counters.post_cycles, machine.target.noc.hop_cycles

    def post(*arguments: int) -> int:
        rect = arguments[-4:]
        if not machine.timed:
            for _, counter in sinks(rect):
                counter.add(n, clock.now)
            return 0
        for site, counter in sinks(rect):
            time = clock.now + post_cycles + hop_cycles * links.hops(agent.site, site)
            clock.schedule(time, partial(counter.add, n, time))
        agent.worked("post", name, post_cycles)
        return post_cycles

    return post


def _wait(context: Context, step: Wait) -> Handler:
    counter = named(context.section.shape.counters, step.counter)
    state = context.machine.counter(context.agent.site, context.section.shape.name, counter)
    return wait_handler(context.place, counter, state, step.n, context.label("counter", step.counter))


def wait_handler(place: Place, counter: Counter, state: CounterState, n: int, label: str) -> Handler:
    agent = place.agent

    def needs() -> str:
        have = f"value {state.value}, register {state.registers.get(agent.worker_index, -state.ahead)}"
        return f"waits for {n} further post{'s' if n > 1 else ''} of counter {counter.name} ({have}, {state.bits} bits)"

    def wait(*_: dict[str, int]) -> int:
        if state.consume(agent.worker_index, n):
            return 0
        if state.waiter is not None and state.waiter is not agent:
            raise _misused(place, f"counter {counter.name} has two waiting processes on one site")
        state.waiter = agent
        return agent.park(place, label, needs)

    return wait


# --- computing --------------------------------------------------------------------------------------------


def _compute(context: Context, step: Compute) -> Handler:
    agent, machine, op = context.agent, context.machine, step.op
    cost = _op_cycles(context, step)
    aliases = [context.fifo(name) for name in operands(op) if _is_alias(context, name)]
    clock, channels, timed = machine.clock, machine.channels, machine.timed
    kind, name = type(op).__name__, context.label("->", op.dst.name)
    product = isinstance(op, MatmulTiles)

    def compute(rows: int, cols: int, last: int) -> int:
        if not rows or not cols or (product and not last):
            return 0
        if not timed:
            return 0
        cycles = cost(rows, cols, last)
        agent.worked(kind, name, cycles)
        end = clock.now + cycles
        for fifo in aliases:
            end = max(end, _paid(fifo, channels, clock.now))
        agent.waited("memory in place", clock.now + cycles, end - clock.now - cycles)
        return end - clock.now

    if not machine.functional:
        return compute
    effect = effects.product(context, op) if isinstance(op, MatmulTiles) else effects.generic(context, op)

    def compute_data(env: dict[str, int], rows: int, cols: int, last: int) -> int:
        if rows and cols and (last or not product):
            effect(env, rows, cols, last)
        return compute(rows, cols, last)

    return compute_data


def _op_cycles(context: Context, step: Compute) -> Callable[[int, int, int], int]:
    engine, op = context.agent.engine, step.op
    if isinstance(op, Generic):
        return generic_cycles(op.expr, engine)
    a, b = product_types(context.section, op)
    mode = next((m for m in engine.matrix if (m.a, m.b) == (a, b)), None)
    if mode is None:
        raise NoEngine(f"engine {engine.name} has no product of {a} by {b}", where=str(context.place))
    return product_cycles(mode)


def _is_alias(context: Context, name: str) -> bool:
    return getattr(buffer_of(context.section.shape, name), "kind", "") == "ALIAS"


def _paid(fifo: FifoState, channels: Channels, now: int) -> int:
    """Stream what no op has read yet of an alias slot; when the last byte has passed."""
    slot = fifo.head if fifo.held_by is not None else fifo.tail
    end = now
    for parts in fifo.unpaid[slot]:
        end = max(end, channels.stream(now, parts))
    fifo.unpaid[slot] = []
    return end


def _init(context: Context, step: Init) -> Handler:
    carry, agent = named(context.section.shape.carries, step.carry), context.agent
    rate = max(1, agent.engine.generic_elements_per_cycle)
    cycles = -(-carry.rows * carry.cols // rate) if context.machine.timed else 0
    name = context.label("init", step.carry)

    def init() -> int:
        agent.worked("init", name, cycles)
        return cycles

    if not context.machine.functional:
        return init
    effect = effects.init(context, step)

    def init_data(_env: dict[str, int]) -> int:
        effect()
        return init()

    return init_data


_BINDERS: dict[type, Callable[[Context, Any], Handler]] = {
    Reserve: _reserve,
    Load: _load,
    Push: _push,
    Front: _front,
    Compute: _compute,
    Pop: _pop,
    Store: _store,
    Send: _send,
    Fence: _fence,
    Post: _post,
    Wait: _wait,
    Init: _init,
}
