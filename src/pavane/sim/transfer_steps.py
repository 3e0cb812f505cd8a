"""Load, Store, Send, Fence: transfers that take channels or links, and complete at a time of their own.

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
from pavane.sim.shards import owners
from pavane.sim.state import Machine
from pavane.sim.timing import Split, count_bytes, split_bytes


def bind_load(context: Context, step: Load) -> Handler:
    fifo, agent, place = context.fifo(step.fifo), context.agent, context.place
    machine, formal = context.machine, context.section.formals[step.tensor]
    split, moved = _splitter(context, formal, step), _mover(context, formal, step)
    timed, alias, name = machine.timed, fifo.fifo.kind == "ALIAS", context.label("load", step.tensor)

    def load(address: int, rows: int, cols: int) -> int:
        if fifo.reserved_by is not agent:
            raise misused(place, "the process holds no reserved slot")
        if not rows or not cols:
            return 0
        if alias:
            parts = split(address, rows, cols)
            count_bytes(machine.channels.read_bytes, parts)
            fifo.unpaid[fifo.tail].append(parts)
            return 0
        agent.unfenced += 1
        busy, agent.last_done_at = moved(address, rows, cols)
        if not timed:
            return 0
        agent.done_at = max(agent.done_at, agent.last_done_at)
        agent.worked("load", name, busy)
        return busy

    if not machine.functional:
        return load
    prepare = effects.load(context, step)

    def load_data(env: dict[str, int], address: int, rows: int, cols: int) -> int:
        delay = load(address, rows, cols)
        if rows and cols:
            _complete(agent, machine, prepare(env, rows, cols), at_once=alias)
        return delay

    return load_data


def bind_store(context: Context, step: Store) -> Handler:
    fifo, agent, place = context.fifo(step.fifo), context.agent, context.place
    machine, timed, name = context.machine, context.machine.timed, context.label("store", step.tensor)
    moved = _mover(context, context.section.formals[step.tensor], step)

    def store(address: int, rows: int, cols: int) -> int:
        if fifo.held_by is not agent:
            raise misused(place, "the process holds no slot in front")
        if not rows or not cols:
            return 0
        agent.unfenced += 1
        busy, agent.last_done_at = moved(address, rows, cols)
        if not timed:
            return 0
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


Mover = Callable[[int, int, int], tuple[int, int]]  # (address, rows, columns) -> busy cycles, when all has arrived


def _mover(context: Context, formal: FormalState, step: Load | Store) -> Mover:
    """Moves a window and counts its bytes; times mean nothing untimed."""
    if formal.shard_bytes:
        return _among_sites(context, formal, step)
    return _on_chip(context, formal, step) if formal.on_sites else _through_channels(context, formal, step)


def _through_channels(context: Context, formal: FormalState, step: Load | Store) -> Mover:
    split, requests = _splitter(context, formal, step), _requests(context, formal, step)
    machine, target, site = context.machine, context.machine.target, context.agent.site
    is_load = isinstance(step, Load)
    counts = machine.channels.read_bytes if is_load else machine.channels.written_bytes
    latency = target.dram.latency_cycles if is_load or not target.alias else 0

    def moved(address: int, rows: int, cols: int) -> tuple[int, int]:
        parts = split(address, rows, cols)
        count_bytes(counts, parts)
        if not machine.timed:
            return 0, 0
        busy, now = requests(rows, cols), machine.clock.now
        streamed = machine.channels.stream(now + target.dram.request_cycles, parts, site)
        return busy, max(streamed, now + busy) + latency

    return moved


def _on_chip(context: Context, formal: FormalState, step: Load | Store) -> Mover:
    """A load reads its own site's copy; a store writes those of all sites, one by one where none multicasts."""
    machine, noc, agent = context.machine, context.machine.target.noc, context.agent
    item, pitch = row_bytes(formal.dtype, 1), window_pitch(formal, step.window)
    is_load = isinstance(step, Load)
    times = 1 if is_load or noc.multicast else len(machine.sites)
    sinks = (agent.site,) if is_load else machine.sites

    def moved(_address: int, rows: int, cols: int) -> tuple[int, int]:
        width = units(cols, formal.dtype) * item
        runs = 1 if pitch in (0, width) else rows
        busy = times * runs * machine.target.dram.request_cycles
        return busy, machine.links.send(machine.clock.now + busy, agent.site, sinks, rows * width)

    return moved


def _among_sites(context: Context, formal: FormalState, step: Load | Store) -> Mover:
    """From or to the sites that have the window's bytes: requests as to memory beside the chip, a message each site."""
    machine, links, agent = context.machine, context.machine.links, context.agent
    is_load, dram = isinstance(step, Load), context.machine.target.dram

    def moved(address: int, rows: int, cols: int) -> tuple[int, int]:
        found = owners(formal.box(step.window, address, rows, cols), formal.shard_bytes, len(machine.sites))
        requests = sum(dram.requests(runs, -(-count // runs), runs == 1) for _, count, runs in found)
        busy = dram.request_cycles * requests
        done = 0
        for number, count, _ in found:
            site = machine.sites[number]
            links.count_shard(count, own=site == agent.site)
            if machine.timed:
                exchanged = links.fetch if is_load else links.deliver
                done = max(done, exchanged(machine.clock.now, busy, agent.site, site, count))
        return busy, done

    return moved


def _splitter(context: Context, formal: FormalState, step: Load | Store) -> Callable[[int, int, int], Split]:
    """(address in the formal, rows, columns) -> bytes per channel."""
    dram = context.machine.target.dram
    unit, count = formal.interleave_bytes or dram.interleave_bytes, dram.channels
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
    sites = site_lists()

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
