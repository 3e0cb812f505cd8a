"""Cycles, from the descriptor's figures only: engines, DRAM channels, network links.

    product      ceil(rows / m) * ceil(cols / n) * ceil(k / kk) steps of the engine's mode, `cycles` each
    Generic      operators (exp and its like `function_cycles`; a copy 1) x elements / generic_elements_per_cycle
    load         the engine is busy request_cycles a request; from the first one on each channel streams its bytes in
                 order of arrival, to the site beside it at bytes_per_cycle, to others at far_bytes_per_cycle, in all no
                 faster than the site's link (not where the target is `alias`); latency_cycles after both
    store        the same; no latency where the target is `alias` (an engine's own write needs no answer)
    on the sites a load of a site's own copy takes its link only, start_cycles after its requests; a store is sent to
                 all sites (`send`), once, or where the network has no multicast once a site
    sharded      requests as of DRAM, at least one a site that has bytes of the window, and a message each: of the own
                 site as its own copy; of another, once the request has gone there (a load) or before the answer is
                 back (a store), over the links and through the two sites' ports
    alias load   nothing; the first op that reads the slot lasts at least until the channels have streamed the window
    send         the engine is busy start_cycles; each link of the path (multicast: tree) is held while bytes pass
    post         the engine is busy post_cycles; it arrives hop_cycles a hop later

Bytes are interleaved over the channels by address, a tensor's own `interleave_bytes` or a page (without pages
`dram.alignment_bytes`) at a time; a tensor starts at channel 0, SCRATCH at its offset in the arena. Where DRAM has
pages each page of each row is a request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from pavane.ir.expr import Expr, Fn, Reduce, children
from pavane.targets.descriptor import Engine, MatrixMode, SpatialTarget

Site = tuple[int, int]
Link = tuple[Site, Site]
Interval = tuple[int, int]
Split = tuple[int, ...]
FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf")


def product_cycles(mode: MatrixMode) -> Callable[[int, int, int], int]:
    """(rows, cols, k) -> cycles."""
    m, kk, n = mode.tile
    return lambda rows, cols, k: -(-rows // m) * -(-cols // n) * -(-k // kk) * mode.cycles


def generic_cycles(expr: Expr, engine: Engine) -> Callable[[int, int, int], int]:
    """(rows, cols, extent of the reduction) -> cycles."""
    inside = next((e for e in _nodes(expr) if isinstance(e, Reduce)), None)
    turns = 1 + _weight(inside.body, engine) if inside is not None else 0
    once = _weight(expr, engine) - (_weight(inside.body, engine) if inside is not None else 0)
    rate = max(1, engine.generic_elements_per_cycle)
    if not turns:
        once = max(1, once)
    return lambda rows, cols, extent: -(-rows * cols * (once + turns * extent) // rate)


def _nodes(expr: Expr) -> list[Expr]:
    return [expr, *(node for child in children(expr) for node in _nodes(child))]


def _weight(expr: Expr, engine: Engine) -> int:
    """Operators of an expression, a function counting as many as it costs."""
    return sum((engine.function_cycles if e.op in FUNCTIONS else 1) for e in _nodes(expr) if isinstance(e, Fn))


class Channels:
    """DRAM channels: each streams one request after the other."""

    def __init__(self, target: SpatialTarget) -> None:
        dram = target.dram
        self._far = (dram.far_rate,) * dram.channels
        self._rates = {site: _with(self._far, n, dram.bytes_per_cycle) for n, site in enumerate(dram.adjacent)}
        self._link_rate = 0 if target.alias else target.noc.bytes_per_cycle
        self._free = [0] * target.dram.channels
        self.read_bytes = [0] * target.dram.channels
        self.written_bytes = [0] * target.dram.channels
        self.busy_cycles = [0] * target.dram.channels

    def stream(self, now: int, split: Split, site: Site | None = None) -> int:
        """Take the channels for so many bytes each, from `now` on, for a site; the time at which the last byte has
        passed.
        """
        rates = self._rates.get(site, self._far) if site is not None else self._far
        end = now + (-(-sum(split) // self._link_rate) if self._link_rate else 0)
        for channel, count in enumerate(split):
            if count:
                cycles = -(-count // rates[channel])
                start = self._free[channel]
                start = now if start < now else start
                self._free[channel] = start + cycles
                self.busy_cycles[channel] += cycles
                if start + cycles > end:
                    end = start + cycles
        return end


def _with(rates: tuple[int, ...], channel: int, rate: int) -> tuple[int, ...]:
    return (*rates[:channel], rate, *rates[channel + 1 :])


def count_bytes(counts: list[int], split: Split) -> None:
    for channel, count in enumerate(split):
        counts[channel] += count


@lru_cache(maxsize=1 << 16)
def split_bytes(address: int, rows: int, row_bytes: int, pitch: int, unit: int, channels: int) -> Split:
    """Bytes per channel of `rows` runs of `row_bytes`, `pitch` apart, when address units go round the channels."""
    if pitch == row_bytes:
        rows, row_bytes = 1, rows * row_bytes
    starts = [address + r * pitch for r in range(rows)]
    before = [[_bytes_below(a, c, unit, channels) for c in range(channels)] for a in starts]
    after = [[_bytes_below(a + row_bytes, c, unit, channels) for c in range(channels)] for a in starts]
    return tuple(sum(a[c] - b[c] for a, b in zip(after, before, strict=True)) for c in range(channels))


def _bytes_below(address: int, channel: int, unit: int, channels: int) -> int:
    """How many bytes below an address lie in a channel."""
    whole, rest = divmod(address, unit * channels)
    return whole * unit + max(0, min(unit, rest - channel * unit))


_IN, _OUT = (-1, 0), (-1, 1)  # no sites: a site's port to the network is a link to or from there
_NEVER: Interval = (0, 0)


class Links:
    """The mesh between sites: X first, then Y; a message holds every link of its path while its bytes pass."""

    def __init__(self, target: SpatialTarget) -> None:
        self._noc = target.noc
        self._free: dict[Link, int] = {}  # from when on nobody holds it
        self._sent: dict[Link, Interval] = {}  # by the last message to several sites
        self._taken: dict[Link, list[Interval]] = {}  # by messages from and to shares
        self.sent_bytes = 0
        self.own_shard_bytes = 0
        self.other_shard_bytes = 0

    def hops(self, source: Site, sink: Site) -> int:
        return abs(source[0] - sink[0]) + abs(source[1] - sink[1])

    def send(self, now: int, source: Site, sinks: Sequence[Site], count_bytes: int) -> int:
        """Carry bytes to all sinks; the time at which the last has them."""
        if self._noc.multicast:
            return self._carry(now, source, sinks, count_bytes)
        return max(self._carry(now, source, (sink,), count_bytes) for sink in sinks)

    def _carry(self, now: int, source: Site, sinks: Sequence[Site], count_bytes: int) -> int:
        links, hops = _tree(source, tuple(sinks))
        start = max([now + self._noc.start_cycles, *(self._free.get(link, 0) for link in links)])
        cycles = -(-count_bytes // self._noc.bytes_per_cycle)
        for link in links:
            self._free[link] = start + cycles
            self._sent[link] = start, start + cycles
        self.sent_bytes += count_bytes * sum(sink != source for sink in sinks)
        return start + cycles + self._noc.hop_cycles * hops

    # --- between a site and the shares of others ---

    def count_shard(self, count_bytes: int, own: bool) -> None:
        """Bytes that a site reads or writes of a share, its own or another's."""
        if own:
            self.own_shard_bytes += count_bytes
        else:
            self.other_shard_bytes += count_bytes

    def fetch(self, now: int, busy: int, here: Site, owner: Site, count_bytes: int) -> int:
        """`busy` cycles from now ask for bytes that a site has; the time at which they are here."""
        asked = now + busy + self._noc.hop_cycles * self.hops(here, owner)
        return self._exchange(now, asked, owner, here, count_bytes)

    def deliver(self, now: int, busy: int, here: Site, owner: Site, count_bytes: int) -> int:
        """`busy` cycles from now send bytes to the site that has them; the time at which its answer is back."""
        answered = self._noc.hop_cycles * self.hops(here, owner)
        return self._exchange(now, now + busy, here, owner, count_bytes) + answered

    def _exchange(self, now: int, ready: int, source: Site, sink: Site, count_bytes: int) -> int:
        """One message, which holds the ports of both sites too; from the own memory there is no way and no port."""
        cycles = -(-count_bytes // self._noc.bytes_per_cycle)
        start = ready + self._noc.start_cycles
        if source != sink:
            self.sent_bytes += count_bytes
            links = (*_path(source, sink), (source, _OUT), (_IN, sink))
            start = self._first_gap(links, start, cycles)
            self._take(links, start, start + cycles, now)
        return start + cycles + self._noc.hop_cycles * self.hops(source, sink)

    def _first_gap(self, links: Sequence[Link], start: int, cycles: int) -> int:
        """The first time at which all links are free for so long: short messages go between others."""
        again = True
        while again:
            again = False
            for link in links:
                for low, high in (*self._taken.get(link, ()), self._sent.get(link, _NEVER)):
                    if low < start + cycles and start < high:
                        start, again = high, True
        return start

    def _take(self, links: Sequence[Link], start: int, end: int, now: int) -> None:
        """Hold the links, and forget who held them before now."""
        for link in links:
            held = [interval for interval in self._taken.get(link, ()) if interval[1] > now]
            if held and held[-1][1] == start:
                held[-1] = held[-1][0], end
            else:
                held.append((start, end))
            self._taken[link] = held
            self._free[link] = max(self._free.get(link, 0), end)


@lru_cache(maxsize=1 << 12)
def _tree(source: Site, sinks: tuple[Site, ...]) -> tuple[tuple[Link, ...], int]:
    """The links of the ways to all sinks, and the hops of the longest."""
    ways = [_path(source, sink) for sink in sinks]
    return tuple(dict.fromkeys(link for way in ways for link in way)), max(map(len, ways))


@lru_cache(maxsize=1 << 14)
def _path(source: Site, sink: Site) -> tuple[Link, ...]:
    links = []
    here = source
    while here != sink:
        x, y = here
        there = (x + (1 if sink[0] > x else -1), y) if x != sink[0] else (x, y + (1 if sink[1] > y else -1))
        links.append((here, there))
        here = there
    return tuple(links)
