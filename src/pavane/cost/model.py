"""Predicted cycles of a section on a target: the busiest resource of the slowest worker, and the pipeline's fill.

    engine    sum over the worker's steps (load: requests and bytes at the network's rate; fence: DRAM latency;
              compute: the engine's rates; push: the handover; a bound block: a request and a new stream's latency)
    dram      bytes of all workers at the rate of the channels that they lie in (workers take the same turn at the same
              time; rows a multiple of a page apart lie in few); what a worker binds beyond its share, at a site's rate;
              each bound block starts with a latency
    noc       bytes of all stores to every site: a multicast holds the links of the whole grid; the last ones follow
              everything else
    section   max(engines, dram) + the time of one turn of every other one of them (DRAM that is addressed
              in place is read and written as an engine goes: no turns)

What a row of items needs before its first item (the steps outside the loop over LV_ITEM_X: inputs, gains, a norm) goes
before them where engines are several: the section is then that, of one row, and the items'.

Integers only. A multicast FIFO is read once a row (column) and sent on; its leader pays the send, the credits and the
validity posts. On one engine a load that moves bytes, a compute and a store follow each other, which the sum over the
engine's steps says already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pavane.cost.spread import Run, Spread, slowest_runs
from pavane.cost.traffic import Event, Lengths, Turns, event_bytes, event_channels, event_requests, event_runs, total
from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y
from pavane.targets.descriptor import SpatialTarget

DRAM, NOC = "dram", "noc"


@dataclass(frozen=True)
class Blocks:
    """A variable's extent in elements, the block that it steps by, at the symbols' expected values.

    `cut` False: nothing is known but the turns (`extent`, with `block` 1); lengths are as written.
    """

    extent: int
    block: int
    cut: bool = True

    def runs(self, sites: int) -> tuple[Run, ...]:
        """The slowest of `sites` sites' items along the variable."""
        found = slowest_runs(self.extent, self.block, sites)
        return found if self.cut else ((None, sum(count for _, count in found)),)


@dataclass(frozen=True)
class Prediction:
    """Cycles of the slowest worker, what bounds them, and every resource's busy cycles."""

    cycles: int
    bottleneck: str
    busy: tuple[tuple[str, int], ...]


def predict(
    events: Sequence[Event],
    blocks: dict[str, Blocks],
    spread: Spread,
    target: SpatialTarget,
    kinds: Mapping[str, str] | None = None,
) -> Prediction:
    """The section's time in these blocks on the sites of `spread`; `kinds`: FIFOs taken to be of another kind."""
    slowest, everyone = _turns(blocks, spread), _all_turns(blocks)
    work = [_work(event, slowest, everyone, blocks, spread, target) for event in _of_kinds(events, kinds or {})]
    whole = _together(work, spread, target)
    before = [w for w in work if all(var != LV_ITEM_X for var, _ in w.event.nest)]
    if len(target.engines) == 1 or len(before) in (0, len(work)):
        return whole
    rows = sum(count for _, count in slowest[LV_ITEM_Y]) if LV_ITEM_Y in slowest else 1
    items = whole if rows > 1 else _together([w for w in work if w not in before], spread, target)
    first = -(-_together(before, spread, target).cycles // max(1, rows))
    return Prediction(first + items.cycles, whole.bottleneck, whole.busy)


@dataclass(frozen=True)
class _Work:
    """An event in all turns of the slowest worker: its engine's cycles; the bytes that all workers move by it, in one
    turn from or to so many channels.
    """

    event: Event
    cycles: int
    turns: int
    moved_bytes: int = 0
    channels: int = 0
    bound_bytes: int = 0


def _work(
    event: Event, slowest: Turns, everyone: Turns, blocks: dict[str, Blocks], spread: Spread, target: SpatialTarget
) -> _Work:
    cycles = total(event, slowest, partial(event_cycles, event, target=target, spread=spread))
    turns = max(1, total(event, slowest, lambda n: 1))
    if event.kind not in ("load", "bind", "store") or (event.home == "sites" and event.kind != "store"):
        return _Work(event, cycles, turns)
    moved = _bytes_of_all(event, everyone, blocks, spread)
    if event.home == "sites":
        return _Work(event, cycles, turns, moved)
    bound = total(event, slowest, partial(event_bytes, event)) if event.kind == "bind" else 0
    return _Work(event, cycles, turns, moved, _channels_at_once(event, blocks, spread, target), bound)


def _together(work: Sequence[_Work], spread: Spread, target: SpatialTarget) -> Prediction:
    """Engines, channels and network at once."""
    busy: dict[str, int] = {}
    units: dict[str, int] = {}
    for w in work:
        busy[w.event.engine] = busy.get(w.event.engine, 0) + w.cycles
        units[w.event.engine] = max(units.get(w.event.engine, 0), w.turns)
    stalled = sum(w.turns for w in work if w.event.kind == "bind") * target.dram.latency_cycles
    through = [w for w in work if w.channels]
    busy[DRAM] = _streaming_cycles(through, spread, target) + stalled
    units[DRAM] = max((units[w.event.engine] for w in through), default=1)
    bounded = _bounded(busy, units, (DRAM,) if target.alias else ())
    sends = [w for w in work if w.moved_bytes and not w.channels]
    if not sends:
        return bounded
    sending = -(-sum(w.moved_bytes for w in sends) // target.noc.bytes_per_cycle)
    return _with_sends(bounded, sending, max(w.turns for w in sends))


def _streaming_cycles(work: Sequence[_Work], spread: Spread, target: SpatialTarget) -> int:
    """All workers' bytes together, then what the slowest one binds beyond its share; no faster than it can alone."""
    moved: dict[int, int] = {}
    for w in work:
        moved[w.channels] = moved.get(w.channels, 0) + w.moved_bytes
    bound = sum(w.bound_bytes for w in work)
    together = sum(-(-size // (channels * target.dram.bytes_per_cycle)) for channels, size in moved.items())
    alone = max(0, bound - sum(moved.values()) // spread.sites)
    return max(together + -(-alone // site_rate(target)), -(-bound // site_rate(target)))


def _of_kinds(events: Sequence[Event], kinds: Mapping[str, str]) -> Iterator[Event]:
    for event in events:
        yield replace(event, fifo_kind=kinds[event.fifo]) if event.fifo in kinds else event


def event_cycles(event: Event, lengths: Lengths, *, target: SpatialTarget, spread: Spread) -> int:
    """Cycles of one turn of an event on its engine."""
    if event.kind == "matmul":
        return _matmul_cycles(event, lengths, target)
    if event.kind == "generic":
        return _generic_cycles(event, lengths, target)
    if event.kind == "push":
        return target.fifos.handover_cycles
    if event.kind == "fence":
        return 0 if target.alias or event.home == "sites" else target.dram.latency_cycles
    if event.kind == "wait":
        return target.counters.post_cycles
    if 0 in lengths:
        return 0
    if event.kind == "bind":
        return target.dram.request_cycles + target.dram.latency_cycles
    if event.home == "sites":
        return _on_chip_cycles(event, lengths, target)
    moved = event_bytes(event, lengths)
    cycles = target.dram.request_cycles * event_requests(event, lengths, target) + -(-moved // site_rate(target))
    if event.fifo_kind in ("MULTICAST_ROW", "MULTICAST_COLUMN"):
        cycles += _send_cycles(moved, target, spread.width if event.fifo_kind == "MULTICAST_ROW" else spread.height)
    return cycles


def _on_chip_cycles(event: Event, lengths: Lengths, target: SpatialTarget) -> int:
    """A load of a site's own copy; a store to the copies of all sites, one after the other where none multicasts."""
    noc, grid = target.noc, target.grid
    moved = -(-event_bytes(event, lengths) // noc.bytes_per_cycle)
    requests = target.dram.request_cycles * event_runs(event, lengths)
    if event.kind == "load":
        return requests + noc.start_cycles + moved
    times = 1 if noc.multicast else target.sites
    return times * (requests + moved) + noc.start_cycles + noc.hop_cycles * (grid.width + grid.height - 2)


def site_rate(target: SpatialTarget) -> int:
    """Bytes a cycle between one site and DRAM when nobody else moves any."""
    return min(target.noc.bytes_per_cycle, target.dram.channels * target.dram.bytes_per_cycle)


def _send_cycles(moved: int, target: SpatialTarget, receivers: int) -> int:
    noc = target.noc
    return (
        noc.start_cycles
        + (receivers - 1) * noc.hop_cycles
        + -(-moved // noc.bytes_per_cycle)
        + 2 * target.counters.post_cycles
    )


def _matmul_cycles(event: Event, lengths: Lengths, target: SpatialTarget) -> int:
    rows, cols, k = lengths
    if event.mode is None:
        return -(-rows * cols * k * 2 // _elements_per_cycle(event.engine, target))
    m, depth, n = event.mode.tile
    return -(-rows // m) * -(-k // depth) * -(-cols // n) * event.mode.cycles


def _generic_cycles(event: Event, lengths: Lengths, target: SpatialTarget) -> int:
    rows, cols, k = lengths
    outside, inside = event.weights
    rate = _elements_per_cycle(event.engine, target)
    return rows * (-(-cols * outside // rate) + cols * -(-k * inside // rate))


def _elements_per_cycle(engine: str, target: SpatialTarget) -> int:
    return next(max(1, e.generic_elements_per_cycle) for e in target.engines if e.name == engine)


def _turns(blocks: dict[str, Blocks], spread: Spread) -> Turns:
    """The slowest worker's turns along every blocked variable."""
    sites = {LV_ITEM_Y: spread.sites_y, LV_ITEM_X: spread.sites_x}
    return {var: b.runs(sites.get(var, 1)) for var, b in blocks.items()}


def _all_turns(blocks: dict[str, Blocks]) -> Turns:
    return {var: b.runs(1) for var, b in blocks.items()}


def _bytes_of_all(event: Event, everyone: Turns, blocks: dict[str, Blocks], spread: Spread) -> int:
    """Bytes that all workers move: items once each, a step outside an item loop once a site that runs it."""
    turns: dict[str, tuple[Run, ...]] = dict(everyone)
    times = 1
    for var, sites, kind in (
        (LV_ITEM_X, spread.sites_x, "MULTICAST_ROW"),
        (LV_ITEM_Y, spread.sites_y, "MULTICAST_COLUMN"),
    ):
        if event.fifo_kind == kind:
            if any(name == var for name, _ in event.nest):
                turns[var] = blocks[var].runs(sites)
        elif all(name != var for name, _ in event.nest):
            times *= sites
    return times * total(event, turns, partial(event_bytes, event))


def _channels_at_once(event: Event, blocks: dict[str, Blocks], spread: Spread, target: SpatialTarget) -> int:
    """DRAM channels that all workers' windows of one turn lie in: they take the same turn at the same time."""
    sites = {LV_ITEM_X: spread.sites_x, LV_ITEM_Y: spread.sites_y}
    stepped = {dim.var for dim in event.dims}
    if any(var not in stepped and sites[var] > 1 for var in event.items):
        return target.dram.channels
    rows, cols = (
        min(blocks[dim.var].extent, blocks[dim.var].block * sites.get(dim.var, 1))
        if dim.var in blocks and blocks[dim.var].cut
        else dim.size * sites.get(dim.var, 1)
        for dim in event.dims
    )
    return event_channels(event, (rows, cols), target)


def _with_sends(rest: Prediction, sending: int, stores: int) -> Prediction:
    """Sends to every site take the whole network one after the other, each worker's in so many `stores`: the first ones
    follow that part of the rest, the last ones follow all of it.
    """
    cycles = max(rest.cycles + -(-sending // stores), sending + -(-rest.cycles // stores))
    bottleneck = NOC if sending > rest.cycles else rest.bottleneck
    return Prediction(cycles, bottleneck, tuple(sorted((*rest.busy, (NOC, sending)))))


def _bounded(busy: dict[str, int], units: dict[str, int], at_once: Collection[str]) -> Prediction:
    """`at_once`: resources whose turns no other one waits for, nor they for others'."""
    bottleneck = max(busy, key=lambda name: (busy[name], name))
    in_turns = [name for name in busy if name not in at_once]
    longest = max(in_turns, key=lambda name: (busy[name], name))
    fill = sum(-(-busy[name] // max(1, units[name])) for name in in_turns if name != longest)
    return Prediction(max(busy[bottleneck], busy[longest] + fill), bottleneck, tuple(sorted(busy.items())))
