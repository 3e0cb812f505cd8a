"""DRAM channels, and how a window's bytes lie in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush, heapreplace
from math import lcm

from pavane.sim.engine import Site
from pavane.sim.transfers import Transfer
from pavane.targets.descriptor import SpatialTarget

Split = tuple[tuple[int, int], ...]  # (channel, bytes) of every channel that has any


@dataclass(frozen=True)
class Requests:
    """What moves a window: its requests in the order in which they are made, and all of them together."""

    splits: tuple[Split, ...]
    split: Split
    count_bytes: int


class _Streaming(Transfer):
    """`passed`: the part of a cycle at which the last byte served so far has passed."""

    __slots__ = ("latency_cycles", "passed")

    def __init__(self, asked_at: int, done_at: int, latency_cycles: int = 0) -> None:
        super().__init__(asked_at, done_at)
        self.latency_cycles = latency_cycles
        self.passed = 0


# When a request arrives; of those that arrive at once the order; its number; what all requests of a transfer share: the
# list of them, the channel beside their site (-1: none).
_Asked = tuple[int, int, int, tuple[Split, ...], int, _Streaming]


class Channels:
    """Each channel streams one request after the other, in order of arrival (`transfers`).

    Time is kept in parts of a cycle, so many that a byte takes a whole number of them at every rate.
    """

    def __init__(self, target: SpatialTarget) -> None:
        dram = target.dram
        self._parts = lcm(dram.far_rate, dram.bytes_per_cycle)
        self._far, self._near = self._parts // dram.far_rate, self._parts // dram.bytes_per_cycle
        self._beside = {site: channel for channel, site in enumerate(dram.adjacent)}
        self._request_cycles = dram.request_cycles
        self._link_rate = 0 if target.alias else target.noc.bytes_per_cycle
        self._free = [0] * dram.channels
        self._busy = [0] * dram.channels
        self._coming: list[_Asked] = []  # of each transfer its next request
        self._asked = 0
        self.read_bytes = [0] * dram.channels
        self.written_bytes = [0] * dram.channels

    @property
    def busy_cycles(self) -> tuple[int, ...]:
        return tuple(-(-busy // self._parts) for busy in self._busy)

    def ask(self, now: int, requests: Requests, site: Site, latency_cycles: int) -> Transfer:
        """Make a window's requests from now on, one after the other, for a site."""
        first = now + self._request_cycles
        last = now + len(requests.splits) * self._request_cycles
        end = first + -(-requests.count_bytes // self._link_rate) if self._link_rate else first
        transfer = _Streaming(last, max(end, last) + latency_cycles, latency_cycles)
        self._asked += 1
        beside = self._beside.get(site, -1)
        heappush(self._coming, (first, self._asked, 0, requests.splits, beside, transfer))
        return transfer

    def serve(self, now: int) -> None:
        """Take what has arrived by now."""
        coming, interval, parts = self._coming, self._request_cycles, self._parts
        free, busy, far, near = self._free, self._busy, self._far, self._near
        while coming and coming[0][0] <= now:
            time, order, number, splits, beside, transfer = coming[0]
            start = time * parts
            for channel, count in splits[number]:
                taken = count * (near if channel == beside else far)
                end = (free[channel] if free[channel] > start else start) + taken
                free[channel] = end
                busy[channel] += taken
                if end > transfer.passed:
                    transfer.passed = end
            number += 1
            if number < len(splits):
                heapreplace(coming, (time + interval, order, number, splits, beside, transfer))
            else:
                heappop(coming)
                passed = -(-transfer.passed // parts) + transfer.latency_cycles
                transfer.done_at = max(transfer.done_at, passed)

    def stream(self, now: int, requests: Requests) -> int:
        """What is asked for and arrives now, in one go; the time at which its last byte has passed."""
        transfer = _Streaming(now, now)
        self._asked += 1
        heappush(self._coming, (now, self._asked, 0, (requests.split,), -1, transfer))
        self.serve(now)
        return transfer.done_at


# --- where bytes lie --------------------------------------------------------------------------------------------------


def count_bytes(counts: list[int], split: Split) -> None:
    for channel, count in split:
        counts[channel] += count


@lru_cache(maxsize=1 << 14)
def requests_of(
    address: int, rows: int, row_bytes: int, pitch: int, unit: int, channels: int, page_bytes: int
) -> Requests:
    """`rows` runs of `row_bytes`, `pitch` apart, where address units go round the channels: a request a page, or one
    for everything where there are no pages.
    """
    if pitch == row_bytes:
        rows, row_bytes = 1, rows * row_bytes
    period = unit * channels
    runs = [(address + row * pitch) % period for row in range(rows)]
    if not page_bytes:
        split = _added([_run(start, row_bytes, unit, channels) for start in runs])
        return Requests((split,), split, rows * row_bytes)
    pages = [(page, min(page_bytes, row_bytes - page)) for page in range(0, row_bytes, page_bytes)]
    splits = tuple(_run((start + page) % period, size, unit, channels) for start in runs for page, size in pages)
    return Requests(splits, _added(splits), rows * row_bytes)


def _added(splits: Sequence[Split]) -> Split:
    total: dict[int, int] = {}
    for split in splits:
        for channel, count in split:
            total[channel] = total.get(channel, 0) + count
    return tuple(sorted(total.items()))


@lru_cache(maxsize=1 << 16)
def _run(address: int, count_bytes: int, unit: int, channels: int) -> Split:
    """Bytes per channel of a run."""
    before = (_bytes_below(address, channel, unit, channels) for channel in range(channels))
    after = (_bytes_below(address + count_bytes, channel, unit, channels) for channel in range(channels))
    return tuple((channel, b - a) for channel, (a, b) in enumerate(zip(before, after, strict=True)) if b > a)


def _bytes_below(address: int, channel: int, unit: int, channels: int) -> int:
    """How many bytes below an address lie in a channel."""
    whole, rest = divmod(address, unit * channels)
    return whole * unit + max(0, min(unit, rest - channel * unit))
