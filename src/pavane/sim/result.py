"""What a simulation found: numbers, cycles, bytes, and who waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pavane.sim.engine import Agent, Event, Site
from pavane.sim.state import Machine


@dataclass(frozen=True)
class EngineTime:
    """Cycles in which an engine of a site worked, and in which it waited (the rest it had nothing to do)."""

    busy_cycles: int
    blocked_cycles: int


@dataclass(frozen=True)
class ChannelTraffic:
    """One DRAM channel."""

    read_bytes: int
    written_bytes: int
    busy_cycles: int


@dataclass(frozen=True)
class Waited:
    """A line of the who-waits table: a worker on a site, what it waited for, how long in all."""

    worker: str
    site: Site
    what: str
    cycles: int


@dataclass(frozen=True)
class SimResult:
    """`cycles` is the sum of `epoch_cycles`; outputs and state are of the last epoch (empty in time-only mode).
    Of what is sharded, `own_shard_bytes` were read or written by the site that has them, `other_shard_bytes` by others.
    """

    outputs: dict[str, np.ndarray]
    state: dict[str, np.ndarray]
    cycles: int
    epoch_cycles: tuple[int, ...]
    engines: dict[tuple[int, int, str], EngineTime]
    channels: tuple[ChannelTraffic, ...]
    sent_bytes: int
    waits: tuple[Waited, ...]
    events: tuple[Event, ...] = ()
    own_shard_bytes: int = 0
    other_shard_bytes: int = 0


def engine_times(agents: Sequence[Agent]) -> dict[tuple[int, int, str], EngineTime]:
    found: dict[tuple[int, int, str], EngineTime] = {}
    for agent in sorted(agents, key=lambda a: (a.site, a.engine.name)):
        found[(*agent.site, agent.engine.name)] = EngineTime(agent.busy_cycles, sum(agent.waits.values()))
    return found


def wait_table(agents: Sequence[Agent]) -> tuple[Waited, ...]:
    """Longest first."""
    rows = [Waited(a.worker, a.site, what, cycles) for a in agents for what, cycles in a.waits.items()]
    return tuple(sorted(rows, key=lambda w: (-w.cycles, w.worker, w.site, w.what)))


def channel_traffic(machine: Machine) -> tuple[ChannelTraffic, ...]:
    channels = machine.channels
    return tuple(
        ChannelTraffic(*figures)
        for figures in zip(channels.read_bytes, channels.written_bytes, channels.busy_cycles, strict=True)
    )


def summed(results: Sequence[SimResult]) -> SimResult:
    """Several epochs as one result."""
    last = results[-1]
    engines: dict[tuple[int, int, str], EngineTime] = {}
    waits: dict[tuple[str, Site, str], int] = {}
    for result in results:
        for key, time in result.engines.items():
            before = engines.get(key, EngineTime(0, 0))
            engines[key] = EngineTime(
                before.busy_cycles + time.busy_cycles, before.blocked_cycles + time.blocked_cycles
            )
        for w in result.waits:
            waits[w.worker, w.site, w.what] = waits.get((w.worker, w.site, w.what), 0) + w.cycles
    table = sorted(
        (Waited(*key, cycles) for key, cycles in waits.items()), key=lambda w: (-w.cycles, w.worker, w.site, w.what)
    )
    channels = tuple(
        ChannelTraffic(
            sum(c.read_bytes for c in column), sum(c.written_bytes for c in column), sum(c.busy_cycles for c in column)
        )
        for column in zip(*(r.channels for r in results), strict=True)
    )
    return SimResult(
        outputs=last.outputs,
        state=last.state,
        cycles=sum(r.cycles for r in results),
        epoch_cycles=tuple(c for r in results for c in r.epoch_cycles),
        engines=engines,
        channels=channels,
        sent_bytes=sum(r.sent_bytes for r in results),
        waits=tuple(table),
        events=last.events,
        own_shard_bytes=sum(r.own_shard_bytes for r in results),
        other_shard_bytes=sum(r.other_shard_bytes for r in results),
    )
