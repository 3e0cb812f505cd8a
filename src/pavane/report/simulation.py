"""What a simulation found, in lines for people: a line an engine, a channel of DRAM and a wait, each over all sites;
or, `per_site`, all of them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from pavane.sim.result import ChannelTraffic, EngineTime, SimResult, Waited
from pavane.targets.descriptor import SpatialTarget

_MOST_WAITS = 10
Place = tuple[int, int, str]


def simulation_lines(
    result: SimResult, target: SpatialTarget, symbols: Mapping[str, int], per_site: bool = False
) -> Iterator[str]:
    """Time first, then who was busy, what memory moved, who waited for whom."""
    at = ", ".join(f"{name}={value}" for name, value in symbols.items())
    milliseconds = 1e3 * result.cycles / target.clock_hz
    yield f"{result.cycles:,} cycles, {milliseconds:.3f} ms on {target.name}{f' at {at}' if at else ''}"
    if per_site:
        yield from _each_site(result)
        return
    yield from _busy_lines(result)
    yield _dram_line(result.channels, result.cycles)
    if result.own_shard_bytes or result.other_shard_bytes:
        own, other = result.own_shard_bytes, result.other_shard_bytes
        yield f"  sharded: {own:,} bytes moved by the sites that have them, {other:,} between sites"
    yield from _wait_lines(result.waits)


def _busy_lines(result: SimResult) -> Iterator[str]:
    engines: dict[str, list[tuple[Place, EngineTime]]] = {}
    for place, time in result.engines.items():
        engines.setdefault(place[2], []).append((place, time))
    width = max((len(name) for name in engines), default=0)
    for name in sorted(engines):
        yield f"  {name:<{width}}  {_busy(engines[name], result.cycles)}"


def _busy(sites: Sequence[tuple[Place, EngineTime]], cycles: int) -> str:
    """Of one engine: the least, the median and the most loaded site, which is named."""
    shares = [_share(time.busy_cycles, cycles) for _, time in sites]
    waiting = median(time.blocked_cycles for _, time in sites)
    (x, y, _), _ = max(sites, key=lambda site: site[1].busy_cycles)
    if len(sites) == 1:
        return f"{shares[0]:.1f} % busy on site ({x}, {y}), {waiting:,.0f} cycles waiting"
    return (
        f"{len(sites)} sites, {min(shares):.1f} to {max(shares):.1f} % busy, median {median(shares):.1f}, "
        f"most on ({x}, {y}); median {waiting:,.0f} cycles waiting"
    )


def _dram_line(channels: Sequence[ChannelTraffic], cycles: int) -> str:
    read, written = sum(c.read_bytes for c in channels), sum(c.written_bytes for c in channels)
    shares = [_share(c.busy_cycles, cycles) for c in channels]
    busy = f"{min(shares):.1f} to {max(shares):.1f}" if len(shares) > 1 else f"{shares[0]:.1f}"
    many = f"{len(channels)} channel{'' if len(channels) == 1 else 's'}"
    return f"  DRAM: {read:,} bytes read, {written:,} written; {many}, {busy} % busy"


def _wait_lines(waits: Sequence[Waited]) -> Iterator[str]:
    """The longest first, one a worker and reason: where it took longest, and on how many sites at all."""
    grouped: dict[tuple[str, str], list[Waited]] = {}
    for wait in waits:
        grouped.setdefault((wait.worker, wait.what), []).append(wait)
    for (worker, what), found in list(grouped.items())[:_MOST_WAITS]:
        also = f", the longest of {len(found)} sites" if len(found) > 1 else ""
        yield f"  {worker} waited {found[0].cycles:,} cycles for {what} on {found[0].site}{also}"
    if len(grouped) > _MOST_WAITS:
        yield f"  and {len(grouped) - _MOST_WAITS} shorter waits"


def _each_site(result: SimResult) -> Iterator[str]:
    for (x, y, engine), time in result.engines.items():
        share = _share(time.busy_cycles, result.cycles)
        yield f"  site ({x}, {y}) {engine}: {share:.1f} % busy, {time.blocked_cycles:,} cycles waiting"
    for number, channel in enumerate(result.channels):
        moved = f"{channel.read_bytes:,} bytes read, {channel.written_bytes:,} written"
        yield f"  channel {number}: {moved}, {_share(channel.busy_cycles, result.cycles):.1f} % busy"
    for wait in result.waits:
        yield f"  {wait.worker} on {wait.site} waited {wait.cycles:,} cycles for {wait.what}"


def _share(cycles: int, of: int) -> float:
    return 100 * cycles / max(1, of)
