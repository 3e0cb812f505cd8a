"""Load, Store, Send, Fence: transfers that take channels and links, and complete at a time of their own.

In functional mode a transfer also moves data (effects.py) when it completes; untimed, at its fence, as late as is
allowed.
"""

from __future__ import annotations

from collections.abc import Callable

from pavane.ir.program import Fence, Load, Send, Store
from pavane.ir.types import row_bytes
from pavane.sim import effects
from pavane.sim.engine import Agent
from pavane.sim.memory import slot_bytes
from pavane.sim.process import Handler
from pavane.sim.section import Context, FormalState, misused, site_lists, units, window_pitch
from pavane.sim.state import Machine
from pavane.sim.timing import Split, count_bytes, split_bytes


def bind_load(context: Context, step: Load) -> Handler:
    fifo, agent, place = context.fifo(step.fifo), context.agent, context.place
    split = _splitter(context, context.section.formals[step.tensor], step)
    requests = _requests(context, context.section.formals[step.tensor], step)
    channels, clock, dram = context.machine.channels, context.machine.clock, context.machine.target.dram
    timed, alias, name = context.machine.timed, fifo.fifo.kind == "ALIAS", context.label("load", step.tensor)

    def load(address: int, rows: int, cols: int) -> int:
        if fifo.reserved_by is not agent:
            raise misused(place, "the process holds no reserved slot")
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
        busy = requests(rows, cols)
        agent.last_done_at = channels.stream(clock.now + busy, parts) + dram.latency_cycles
        agent.done_at = max(agent.done_at, agent.last_done_at)
        agent.worked("load", name, busy)
        return busy

    if not context.machine.functional:
        return load
    prepare = effects.load(context, step)

    def load_data(env: dict[str, int], address: int, rows: int, cols: int) -> int:
        delay = load(address, rows, cols)
        if rows and cols:
            _complete(agent, context.machine, prepare(env, rows, cols), at_once=alias)
        return delay

    return load_data


def bind_store(context: Context, step: Store) -> Handler:
    fifo, agent, place = context.fifo(step.fifo), context.agent, context.place
    split = _splitter(context, context.section.formals[step.tensor], step)
    requests = _requests(context, context.section.formals[step.tensor], step)
    machine, target = context.machine, context.machine.target
    channels, clock, dram = machine.channels, machine.clock, target.dram
    latency = 0 if target.alias else dram.latency_cycles
    timed, name = machine.timed, context.label("store", step.tensor)

    def store(address: int, rows: int, cols: int) -> int:
        if fifo.held_by is not agent:
            raise misused(place, "the process holds no slot in front")
        if not rows or not cols:
            return 0
        parts = split(address, rows, cols)
        count_bytes(channels.written_bytes, parts)
        agent.unfenced += 1
        if not timed:
            return 0
        busy = requests(rows, cols)
        agent.last_done_at = channels.stream(clock.now + busy, parts) + latency
        agent.done_at = max(agent.done_at, agent.last_done_at)
        agent.worked("store", name, busy)
        return busy

    if not machine.functional:
        return store
    prepare = effects.store(context, step)

    def store_data(env: dict[str, int], address: int, rows: int, cols: int) -> int:
        delay = store(address, rows, cols)
        if rows and cols:
            _complete(agent, machine, prepare(env, address, rows, cols))
        return delay

    return store_data


def _splitter(context: Context, formal: FormalState, step: Load | Store) -> Callable[[int, int, int], Split]:
    """(address in the formal, rows, columns) -> bytes per channel."""
    dram = context.machine.target.dram
    unit, count = dram.interleave_bytes, dram.channels
    period, pitch, item = unit * count, window_pitch(formal, step.window), row_bytes(formal.dtype, 1)

    def split(address: int, rows: int, cols: int) -> Split:
        width = units(cols, formal.dtype) * item
        return split_bytes((formal.base + address) % period, rows, width, pitch or width, unit, count)

    return split


def _requests(context: Context, formal: FormalState, step: Load | Store) -> Callable[[int, int], int]:
    """(rows, columns) -> cycles that the engine is busy with the requests of a window."""
    dram, pitch, item = context.machine.target.dram, window_pitch(formal, step.window), row_bytes(formal.dtype, 1)

    def cycles(rows: int, cols: int) -> int:
        width = units(cols, formal.dtype) * item
        return dram.request_cycles * dram.requests(rows, width, pitch in (0, width))

    return cycles


def bind_send(context: Context, step: Send) -> Handler:
    fifo, agent, place, machine = context.fifo(step.fifo), context.agent, context.place, context.machine
    size = slot_bytes(fifo.fifo.rows, fifo.fifo.cols, fifo.fifo.dtype)
    start_cycles, name = machine.target.noc.start_cycles, context.label("send", step.fifo)
    sites = site_lists(context)

    def send(*rect: int) -> int:
        if fifo.reserved_by is not agent:
            raise misused(place, "the process holds no reserved slot")
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


def bind_fence(context: Context, step: Fence) -> Handler:
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
