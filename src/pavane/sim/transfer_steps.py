"""Load, Store, Send, Fence: transfers that take channels or links, and complete at a time of their own.

In functional mode a transfer also moves data (effects.py) when it completes; untimed, at its fence, as late as is
allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pavane.ir.program import Fence, Load, Send, Store
from pavane.ir.types import row_bytes
from pavane.sim import effects
from pavane.sim.channels import Requests, count_bytes, requests_of
from pavane.sim.engine import Agent, sites_in
from pavane.sim.memory import slot_bytes
from pavane.sim.process import Handler
from pavane.sim.section import Context, FormalState, misused, units, window_pitch
from pavane.sim.shards import owners
from pavane.sim.state import Machine
from pavane.sim.transfers import Transfer


def bind_load(context: Context, step: Load) -> Handler:
    fifo, agent, place = context.fifo(step.fifo), context.agent, context.place
    machine, formal = context.machine, context.section.formals[step.tensor]
    requests, moved = _requests(context, formal, step), _mover(context, formal, step)
    timed, alias, name = machine.timed, fifo.fifo.kind == "ALIAS", context.label("load", step.tensor)

    def load(address: int, rows: int, cols: int) -> int:
        if fifo.reserved_by is not agent:
            raise misused(place, "the process holds no reserved slot")
        if not rows or not cols:
            return 0
        if alias:
            asked = requests(address, rows, cols)
            count_bytes(machine.channels.read_bytes, asked.split)
            fifo.unpaid[fifo.tail].append(asked)
            return 0
        busy, transfer = moved(address, rows, cols)
        agent.transfers.append(transfer)
        return agent.worked("load", name, busy) if timed else 0

    if not machine.functional:
        return load
    prepare = effects.load(context, step)

    def load_data(env: dict[str, int], address: int, rows: int, cols: int) -> int:
        delay = load(address, rows, cols)
        if rows and cols:
            effect = prepare(env, rows, cols)
            if alias:
                effect()
            else:
                _complete(agent, machine, effect)
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
        busy, transfer = moved(address, rows, cols)
        agent.transfers.append(transfer)
        return agent.worked("store", name, busy) if timed else 0

    if not machine.functional:
        return store
    prepare = effects.store(context, step)

    def store_data(env: dict[str, int], address: int, rows: int, cols: int) -> int:
        delay = store(address, rows, cols)
        if rows and cols:
            _complete(agent, machine, prepare(env, address, rows, cols))
        return delay

    return store_data


Mover = Callable[[int, int, int], tuple[int, Transfer]]  # (address, rows, columns) -> busy cycles, what is under way


def _mover(context: Context, formal: FormalState, step: Load | Store) -> Mover:
    """Moves a window and counts its bytes; untimed at once."""
    if formal.shard_bytes:
        return _among_sites(context, formal, step)
    return _on_chip(context, formal, step) if formal.on_sites else _through_channels(context, formal, step)


def _through_channels(context: Context, formal: FormalState, step: Load | Store) -> Mover:
    requests, site = _requests(context, formal, step), context.agent.site
    machine, target = context.machine, context.machine.target
    is_load = isinstance(step, Load)
    counts = machine.channels.read_bytes if is_load else machine.channels.written_bytes
    latency = target.dram.latency_cycles if is_load or not target.alias else 0
    request_cycles = target.dram.request_cycles

    def moved(address: int, rows: int, cols: int) -> tuple[int, Transfer]:
        asked = requests(address, rows, cols)
        count_bytes(counts, asked.split)
        if not machine.timed:
            return 0, Transfer()
        return request_cycles * len(asked.splits), machine.channels.ask(machine.clock.now, asked, site, latency)

    return moved


def _on_chip(context: Context, formal: FormalState, step: Load | Store) -> Mover:
    """A load reads its own site's copy; a store writes those of all sites, one by one where none multicasts."""
    machine, noc, agent = context.machine, context.machine.target.noc, context.agent
    item, pitch = row_bytes(formal.dtype, 1), window_pitch(formal, step.window)
    is_load = isinstance(step, Load)
    times = 1 if is_load or noc.multicast else len(machine.sites)
    grid = machine.target.grid
    everywhere = 0, grid.width, 0, grid.height

    def moved(_address: int, rows: int, cols: int) -> tuple[int, Transfer]:
        width = units(cols, formal.dtype) * item
        runs = 1 if pitch in (0, width) else rows
        busy, transfer = times * runs * machine.target.dram.request_cycles, Transfer()
        if is_load:
            machine.links.keep(transfer, machine.clock.now + busy, rows * width)
        else:
            machine.links.send(transfer, machine.clock.now + busy, agent.site, everywhere, rows * width)
        return busy, transfer

    return moved


def _among_sites(context: Context, formal: FormalState, step: Load | Store) -> Mover:
    """From or to the sites that have the window's bytes: requests as to memory beside the chip, a message each site."""
    machine, links, agent = context.machine, context.machine.links, context.agent
    is_load, dram = isinstance(step, Load), context.machine.target.dram

    def moved(address: int, rows: int, cols: int) -> tuple[int, Transfer]:
        found = owners(formal.box(step.window, address, rows, cols), formal.shard_bytes, len(machine.sites))
        requests = sum(dram.requests(runs, -(-count // runs), runs == 1) for _, count, runs in found)
        busy, transfer = dram.request_cycles * requests, Transfer()
        time = machine.clock.now + busy
        for number, count, _ in found:
            site = machine.sites[number]
            links.count_shard(count, own=site == agent.site)
            if site == agent.site:
                links.keep(transfer, time, count)
            elif is_load:
                links.fetch(transfer, time, agent.site, site, count)
            else:
                links.deliver(transfer, time, agent.site, site, count)
        return busy, transfer

    return moved


def _requests(context: Context, formal: FormalState, step: Load | Store) -> Callable[[int, int, int], Requests]:
    """(address in the formal, rows, columns) -> what moves a window."""
    dram = context.machine.target.dram
    unit, count, page = formal.interleave_bytes or dram.interleave_bytes, dram.channels, dram.page_bytes
    period, pitch, item = unit * count, window_pitch(formal, step.window), row_bytes(formal.dtype, 1)

    def requests(address: int, rows: int, cols: int) -> Requests:
        width = units(cols, formal.dtype) * item
        return requests_of((formal.base + address) % period, rows, width, pitch or width, unit, count, page)

    return requests


def bind_send(context: Context, step: Send) -> Handler:
    fifo, agent, place, machine = context.fifo(step.fifo), context.agent, context.place, context.machine
    size = slot_bytes(fifo.fifo.rows, fifo.fifo.cols, fifo.fifo.dtype)
    start_cycles, name = machine.target.noc.start_cycles, context.label("send", step.fifo)

    def send(x0: int, x1: int, y0: int, y1: int) -> int:
        if fifo.reserved_by is not agent:
            raise misused(place, "the process holds no reserved slot")
        transfer = Transfer()
        agent.transfers.append(transfer)
        machine.links.send(transfer, machine.clock.now, agent.site, (x0, x1, y0, y1), size)
        return agent.worked("send", name, start_cycles) if machine.timed else 0

    if not machine.functional:
        return send
    prepare = effects.send(context, step)

    def send_data(_env: dict[str, int], x0: int, x1: int, y0: int, y1: int) -> int:
        delay = send(x0, x1, y0, y1)
        _complete(agent, machine, prepare(sites_in((x0, x1, y0, y1))))
        return delay

    return send_data


def _complete(agent: Agent, machine: Machine, effect: Callable[[], None]) -> None:
    """Let the transfer just begun move data when it is done; untimed, at the fence."""
    transfer = agent.transfers[-1]
    transfer.effect = effect
    if machine.timed:
        machine.clock.schedule(max(transfer.asked_at, machine.clock.now), partial(_served, machine, transfer))


def _served(machine: Machine, transfer: Transfer) -> None:
    machine.serve()
    machine.clock.schedule(transfer.done_at, transfer.land)


def bind_fence(context: Context, step: Fence) -> Handler:
    agent, machine, clock = context.agent, context.machine, context.machine.clock

    def fence(*_: dict[str, int]) -> int:
        transfers = agent.transfers
        if not transfers:
            return 0
        delay = max(transfer.asked_at for transfer in transfers) - clock.now
        if delay <= 0:
            machine.serve()
            delay = max(transfer.done_at for transfer in transfers) - clock.now
        if delay > 0:
            agent.waited("a fence", clock.now, delay)
            return delay
        for transfer in transfers:
            transfer.land()
        transfers.clear()
        return 0

    return fence
