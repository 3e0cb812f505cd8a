"""What one turn of an event costs its engine, and on the way of its bytes.

    load, store   from the first request on the bytes, at the rate of the site's link (`site_rate`, or what the channel
                  beside it gives), and the other requests; between sites all requests, then the bytes at the network's
                  rate; on the sites a load of the own copy takes its link only, a store goes to all, one after the
                  other where the network has no multicast; what is sharded goes there and back over half of the grid
    fence         the latency of memory beside the chip
    compute       the engine's rates; the first value of a carry is written like any other; in full sync the result
                  also has to leave the registers
    push, post    the handover, a post
    bind          a request and a new stream's latency

A multicast FIFO's leader also pays the send, the credits and the validity posts. Integers only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pavane.cost.spread import Spread
from pavane.cost.traffic import Event, Lengths, event_bytes, event_requests, event_runs, event_shards
from pavane.ir.types import row_bytes
from pavane.ir.walk import named
from pavane.targets.descriptor import SpatialTarget

WAITING = ("reserve", "front", "pop")  # take no time themselves
_MULTICAST = ("MULTICAST_ROW", "MULTICAST_COLUMN")


@dataclass(frozen=True)
class Transfer:
    """Cycles of a load or store: the engine's, with requests; the link's, with the bytes; until they are there; and of
    the requests those that are made while bytes pass.
    """

    request_cycles: int
    link_cycles: int
    way_cycles: int
    meanwhile_cycles: int = 0

    @property
    def cycles(self) -> int:
        return self.request_cycles + max(0, self.link_cycles - self.meanwhile_cycles) + self.way_cycles


def event_cycles(event: Event, lengths: Lengths, *, target: SpatialTarget, spread: Spread, rate: int = 0) -> int:
    """Cycles of one turn of an event on its engine, where it waits for its transfers; `rate`: see `transfer`."""
    if event.kind in ("load", "store"):
        return transfer(event, lengths, target, spread, rate).cycles
    if event.kind == "fence":
        return 0 if target.alias or event.home != "dram" else target.dram.latency_cycles
    if event.kind == "push":
        return target.fifos.handover_cycles
    if event.kind == "wait":
        return target.counters.post_cycles
    if event.kind in WAITING or 0 in lengths:
        return 0
    if event.kind == "bind":
        return target.dram.request_cycles + target.dram.latency_cycles
    return _COMPUTE[event.kind](event, lengths, target) + _pack_cycles(event, lengths, target)


def transfer(event: Event, lengths: Lengths, target: SpatialTarget, spread: Spread, rate: int = 0) -> Transfer:
    """A load or store of these lengths, where nobody else moves any; without the latency of memory beside the chip.

    `rate`: bytes a cycle of the channel beside the site, where that is the only one; 0 elsewhere.
    """
    if 0 in lengths:
        return Transfer(0, 0, 0)
    noc, request = target.noc, target.dram.request_cycles
    moved = event_bytes(event, lengths)
    link = -(-moved // noc.bytes_per_cycle)
    if event.home == "dram":
        requests = request * event_requests(event, lengths, target)
        found = Transfer(requests, -(-moved // _link_rate(rate, target)), 0, requests - request)
    elif event.home == "sharded":
        found = _from_shards(event, lengths, target)
    elif event.kind == "load":
        found = Transfer(request * event_runs(event, lengths), link, noc.start_cycles)
    else:
        found = _to_all_sites(event_runs(event, lengths), moved, target)
    if event.fifo_kind not in _MULTICAST:
        return found
    receivers = spread.width if event.fifo_kind == "MULTICAST_ROW" else spread.height
    return replace(found, way_cycles=found.way_cycles + _send_cycles(moved, target, receivers))


def _link_rate(rate: int, target: SpatialTarget) -> int:
    """Of one channel to the site beside it, where it gives that site more than others; else what any site gets."""
    return min(rate, target.noc.bytes_per_cycle) if rate > target.dram.far_rate else site_rate(target)


def site_rate(target: SpatialTarget) -> int:
    """Bytes a cycle between one site and DRAM when nobody else moves any."""
    return min(target.noc.bytes_per_cycle, target.dram.channels * target.dram.far_rate)


def _both_ways(target: SpatialTarget) -> int:
    noc, grid = target.noc, target.grid
    return noc.start_cycles + 2 * (noc.hop_cycles * (grid.width + grid.height) // 2)


def _from_shards(event: Event, lengths: Lengths, target: SpatialTarget) -> Transfer:
    """A message each site: few find their whole way free, so none hides the start of the one before."""
    noc, sites = target.noc, event_shards(event, lengths)
    requests = max(sites, event_requests(event, lengths, target))
    message = noc.start_cycles + -(-event_bytes(event, lengths) // (sites * noc.bytes_per_cycle))
    return Transfer(target.dram.request_cycles * requests, sites * message, _both_ways(target))


def _to_all_sites(runs: int, moved: int, target: SpatialTarget) -> Transfer:
    noc, grid = target.noc, target.grid
    times = 1 if noc.multicast else target.sites
    way = noc.start_cycles + noc.hop_cycles * (grid.width + grid.height - 2)
    return Transfer(times * runs * target.dram.request_cycles, times * -(-moved // noc.bytes_per_cycle), way)


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


def _init_cycles(event: Event, lengths: Lengths, target: SpatialTarget) -> int:
    """Nothing where engines address memory in place: there an accumulator begins in registers."""
    rows, cols = lengths
    return 0 if target.alias else -(-rows * cols // _elements_per_cycle(event.engine, target))


_COMPUTE = {"matmul": _matmul_cycles, "init": _init_cycles, "generic": _generic_cycles}


def _pack_cycles(event: Event, lengths: Lengths, target: SpatialTarget) -> int:
    """Nothing in half sync, where the result leaves while the next step computes."""
    if not event.packed_dtype:
        return 0
    return named(target.engines, event.engine).pack_cycles(lengths[0] * row_bytes(event.packed_dtype, lengths[1]))


def _elements_per_cycle(engine: str, target: SpatialTarget) -> int:
    return max(1, named(target.engines, engine).generic_elements_per_cycle)
