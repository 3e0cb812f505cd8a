"""Predicted cycles of a section on a target: those of the worker with most to do, beside all others.

    engine    what one does, step after step (`event_cycles`)
    dram      bytes of all workers at the rate of the channels that they lie in (workers take the same turn at the same
              time; rows a multiple of a page apart lie in few; large units fill the last round of a turn); the rate is
              that of sites far from the channels, but for blocks that fall on the sites beside theirs (`adjacent`);
              what a worker binds beyond its share, at a site's rate; each bound block starts with a latency
    noc       bytes of all stores to every site: a multicast holds the links of the whole grid; and of what is sharded:
              a message holds its whole way, so few pass at once (`_abreast`)

Where a site has several engines they overlap, as their FIFOs allow, and the section takes as long as `pipeline` says.
Where it has one, that does all in turn, while the channels serve it: the section takes as long as the busier of the
two, and a turn of the other (DRAM that is addressed in place is read and written as the engine goes: no turns). That
is also the answer where `pipeline` has none.

Integers only. A multicast FIFO is read once a row (column) and sent on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import ceil, isqrt

from pavane.cost.adjacent import filled_rounds, own_channel_only
from pavane.cost.event_cycles import WAITING, event_cycles, site_rate, transfer
from pavane.cost.pipeline import Timed, pipeline_cycles
from pavane.cost.spread import Run, Spread, slowest_runs
from pavane.cost.traffic import Event, Lengths, Turns, event_bytes, event_channels, event_requests, total
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
    """Cycles of the slowest worker, what bounds them, every resource's busy cycles, and the bytes that all workers move
    from and to DRAM.
    """

    cycles: int
    bottleneck: str
    busy: tuple[tuple[str, int], ...]
    dram_bytes: int


def predict(
    events: Sequence[Event],
    blocks: dict[str, Blocks],
    spread: Spread,
    target: SpatialTarget,
    kinds: Mapping[str, str] | None = None,
    slots: Mapping[str, int] | None = None,
    bytes_beside: int = 0,
) -> Prediction:
    """The section's time in these blocks on the sites of `spread`.

    `kinds`: FIFOs taken to be of another kind; `slots`: of FIFOs, where not as many as `pipeline.least_slots`;
    `bytes_beside`: what others move through the channels meanwhile.
    """
    slowest, everyone = _turns(blocks, spread), _all_turns(blocks)
    own = tuple(_of_kinds(events, kinds or {}))
    idle = WAITING if len(target.engines) == 1 else (*WAITING, "push")  # who pushes does not wait for the handover
    work = [_work(event, slowest, everyone, blocks, spread, target) for event in own if event.kind not in idle]
    busy = _busy(work, spread, target)
    bottleneck = max(busy, key=lambda name: (busy[name], name))
    overlapping = None
    if len(target.engines) > 1:
        overlapping = _overlapping(own, work, slowest, slots or {}, bytes_beside, spread, target)
    if overlapping is None:
        cycles = busy[bottleneck] + (0 if target.alias else _turn_of_the_other(busy, bottleneck, work))
    else:
        cycles = max(busy[bottleneck], overlapping)
    return Prediction(cycles, bottleneck, tuple(sorted(busy.items())), _dram_bytes(work))


# --- how much there is to do ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """An event in all turns of the slowest worker: its engine's cycles; the bytes that all workers move by it, in one
    turn from or to so many channels, or between sites (no channels) so many messages `abreast`.
    """

    event: Event
    cycles: int
    turns: int
    moved_bytes: int = 0
    channels: int = 0
    bound_bytes: int = 0
    rate: int = 0
    abreast: int = 1


def _of_kinds(events: Sequence[Event], kinds: Mapping[str, str]) -> Iterator[Event]:
    for event in events:
        yield replace(event, fifo_kind=kinds[event.fifo]) if event.fifo in kinds else event


def _work(
    event: Event, slowest: Turns, everyone: Turns, blocks: dict[str, Blocks], spread: Spread, target: SpatialTarget
) -> _Work:
    rate = _channel_rate(event, blocks, spread, target)
    cycles = total(event, slowest, partial(event_cycles, event, target=target, spread=spread, rate=rate))
    turns = max(1, total(event, slowest, lambda n: 1))
    own_copy = event.home == "sites" and event.kind == "load"
    if event.kind not in ("load", "bind", "store") or own_copy:
        return _Work(event, cycles, turns)
    moved = _bytes_of_all(event, everyone, blocks, spread)
    if event.home != "dram":
        return _Work(event, cycles, turns, moved, abreast=_abreast(event, target))
    bound = total(event, slowest, partial(event_bytes, event)) if event.kind == "bind" else 0
    moved = filled_rounds(moved, event, _sizes(blocks), spread, target)
    return _Work(event, cycles, turns, moved, _channels_at_once(event, blocks, spread, target), bound, rate)


def _abreast(event: Event, target: SpatialTarget) -> int:
    """Messages between sites that pass at once: of what is sharded half a square grid's side (9 to 16 were simulated
    on 48 x 24 sites, where their ways have 24 links on average), and two in any grid.
    """
    return max(2, isqrt(target.sites) // 2) if event.home == "sharded" else 1


def _channel_rate(event: Event, blocks: dict[str, Blocks], spread: Spread, target: SpatialTarget) -> int:
    """Bytes a cycle that a channel gives to those who move a window."""
    own = event.unit_bytes and event.kind == "load" and own_channel_only(event, _sizes(blocks), spread, target)
    return target.dram.bytes_per_cycle if own else target.dram.far_rate


def _sizes(blocks: dict[str, Blocks]) -> dict[str, int]:
    """Elements of a block by variable, where they are known."""
    return {var: b.block for var, b in blocks.items() if b.cut}


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


def _turns(blocks: dict[str, Blocks], spread: Spread) -> Turns:
    """The slowest worker's turns along every blocked variable."""
    sites = {LV_ITEM_Y: spread.sites_y, LV_ITEM_X: spread.sites_x}
    return {var: b.runs(sites.get(var, 1)) for var, b in blocks.items()}


def _all_turns(blocks: dict[str, Blocks]) -> Turns:
    return {var: b.runs(1) for var, b in blocks.items()}


# --- every resource's busy cycles -------------------------------------------------------------------------------------


def _busy(work: Sequence[_Work], spread: Spread, target: SpatialTarget) -> dict[str, int]:
    """Engines, channels and, where anything is sent to all sites, the network."""
    busy: dict[str, int] = {}
    for w in work:
        busy[w.event.engine] = busy.get(w.event.engine, 0) + w.cycles
    stalled = sum(w.turns for w in work if w.event.kind == "bind") * target.dram.latency_cycles
    busy[DRAM] = _streaming_cycles([w for w in work if w.channels], spread, target) + stalled
    sent = sum(-(-w.moved_bytes // (w.abreast * target.noc.bytes_per_cycle)) for w in work if not w.channels)
    return {**busy, NOC: sent} if sent else busy


def _dram_bytes(work: Sequence[_Work]) -> int:
    return sum(w.moved_bytes for w in work if w.channels)


def _streaming_cycles(work: Sequence[_Work], spread: Spread, target: SpatialTarget) -> int:
    """All workers' bytes together, then what the slowest one binds beyond its share; no faster than it can alone."""
    moved: dict[tuple[int, int], int] = {}
    for w in work:
        moved[w.channels, w.rate] = moved.get((w.channels, w.rate), 0) + w.moved_bytes
    bound = sum(w.bound_bytes for w in work)
    together = sum(-(-size // (channels * rate)) for (channels, rate), size in moved.items())
    alone = max(0, bound - sum(moved.values()) // spread.sites)
    return max(together + -(-alone // site_rate(target)), -(-bound // site_rate(target)))


# --- how long it takes ------------------------------------------------------------------------------------------------


def _turn_of_the_other(busy: Mapping[str, int], bottleneck: str, work: Sequence[_Work]) -> int:
    """What an engine does before the channels have anything to do, or these before it."""
    turns = max(w.turns for w in work)
    return sum(-(-cycles // turns) for name, cycles in busy.items() if name != bottleneck)


def _overlapping(
    events: Sequence[Event],
    work: Sequence[_Work],
    slowest: Turns,
    slots: Mapping[str, int],
    bytes_beside: int,
    spread: Spread,
    target: SpatialTarget,
) -> int | None:
    works = {id(w.event): w for w in work}
    beside = Fraction(bytes_beside, max(1, _dram_bytes(work)))

    def cost(event: Event, lengths: Lengths) -> Timed:
        if event.kind not in ("load", "store"):
            return Timed(event_cycles(event, lengths, target=target, spread=spread))
        return _timed(works[id(event)], lengths, slowest, beside, spread, target)

    return pipeline_cycles(events, slowest, slots, target.fifos.handover_cycles, cost)


def _timed(
    w: _Work, lengths: Lengths, slowest: Turns, beside: Fraction, spread: Spread, target: SpatialTarget
) -> Timed:
    """A load or store of these lengths; what all workers move meanwhile is to it as all that they move is to all.

    `beside`: bytes that others move for each byte of theirs, which may lie in any channel.
    """
    found = transfer(w.event, lengths, target, spread, w.rate)
    own = max(1, total(w.event, slowest, partial(event_bytes, w.event)))
    moved = -(-event_bytes(w.event, lengths) * w.moved_bytes // own)
    if w.event.home != "dram":
        shared = -(-moved // (w.abreast * target.noc.bytes_per_cycle))
        return Timed(
            found.request_cycles, found.link_cycles, shared, found.way_cycles, network=True, apart_cycles=shared
        )
    shared = -(-moved // (w.channels * w.rate)) + ceil(moved * beside / (target.dram.channels * target.dram.far_rate))
    return Timed(
        found.request_cycles,
        found.link_cycles,
        shared,
        found.way_cycles + target.dram.latency_cycles,
        meanwhile_cycles=found.meanwhile_cycles,
        apart_cycles=-(-shared // max(1, event_requests(w.event, lengths, target))),
    )
