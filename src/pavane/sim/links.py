"""The mesh between sites: X first, then Y; a message holds every link of its path while its bytes pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush

from pavane.sim.engine import Sinks, Site, hops, sites_in
from pavane.sim.transfers import Transfer
from pavane.targets.descriptor import SpatialTarget

_IN, _OUT = "in", "out"  # a site's ports to the network


class _Link:
    """One way from a site to its neighbour, or a port. `held`: when messages hold it; `free`: from when on none."""

    __slots__ = ("free", "held")

    def __init__(self) -> None:
        self.free = 0
        self.held: list[tuple[int, int]] = []


class Links:
    """Messages take their links in the order in which they arrive at the network (`transfers`). Untimed they only count
    their bytes.
    """

    def __init__(self, target: SpatialTarget, timed: bool = True) -> None:
        self._noc = target.noc
        self._timed = timed
        self._coming: list[tuple[int, int, Transfer, Callable[[int], int]]] = []  # when, order, of what, end
        self._asked = 0
        self._links: dict[tuple[Site, object], _Link] = {}
        self._straight: dict[tuple[Site, Site], tuple[_Link, ...]] = {}
        self._trees: dict[tuple[Site, Sinks], tuple[_Link, ...]] = {}
        self.sent_bytes = 0
        self.own_shard_bytes = 0
        self.other_shard_bytes = 0

    def serve(self, now: int) -> None:
        """Let messages that have arrived by now take their links."""
        coming = self._coming
        while coming and coming[0][0] <= now:
            time, _, transfer, end = heappop(coming)
            transfer.done_at = max(transfer.done_at, end(time))

    def _ask(self, transfer: Transfer, time: int, end: Callable[[int], int]) -> None:
        transfer.asked_at = max(transfer.asked_at, time)
        self._asked += 1
        heappush(self._coming, (time, self._asked, transfer, end))

    def _cycles(self, count_bytes: int) -> int:
        return -(-count_bytes // self._noc.bytes_per_cycle)

    # --- from a site to others ---

    def keep(self, transfer: Transfer, time: int, count_bytes: int) -> None:
        """Move bytes within a site's memory, from a time on: over its link, which is its own."""
        if self._timed:
            transfer.done_at = max(transfer.done_at, time + self._noc.start_cycles + self._cycles(count_bytes))

    def send(self, transfer: Transfer, time: int, source: Site, sinks: Sinks, count_bytes: int) -> None:
        """Carry bytes to all sinks, from a time on: at once, or where the network has no multicast to one after the
        other.
        """
        x0, x1, y0, y1 = sinks
        inside = x0 <= source[0] < x1 and y0 <= source[1] < y1
        self.sent_bytes += count_bytes * ((x1 - x0) * (y1 - y0) - inside)
        if not self._timed:
            return
        each = ((x, x + 1, y, y + 1) for x, y in sites_in(sinks))
        for some in (sinks,) if self._noc.multicast else each:
            self._ask(transfer, time, partial(self._carried, source, some, count_bytes))

    def _carried(self, source: Site, sinks: Sinks, count_bytes: int, time: int) -> int:
        links, start = self._tree(source, sinks), time + self._noc.start_cycles
        for link in links:
            if link.free > start:
                start = link.free
        end = start + self._cycles(count_bytes)
        _take(links, start, end, time)
        x0, x1, y0, y1 = sinks
        return end + self._noc.hop_cycles * max(hops(source, (x, y)) for x in (x0, x1 - 1) for y in (y0, y1 - 1))

    # --- between a site and the shares of others ---

    def count_shard(self, count_bytes: int, own: bool) -> None:
        """Bytes that a site reads or writes of a share, its own or another's."""
        if own:
            self.own_shard_bytes += count_bytes
        else:
            self.other_shard_bytes += count_bytes

    def fetch(self, transfer: Transfer, time: int, here: Site, owner: Site, count_bytes: int) -> None:
        """Ask, from a time on, for bytes that another site has."""
        asked = time + self._noc.hop_cycles * hops(here, owner)
        self._exchange(transfer, asked, owner, here, count_bytes, 0)

    def deliver(self, transfer: Transfer, time: int, here: Site, owner: Site, count_bytes: int) -> None:
        """Send bytes, from a time on, to another site that has them, and wait for its answer."""
        self._exchange(transfer, time, here, owner, count_bytes, self._noc.hop_cycles * hops(here, owner))

    def _exchange(
        self, transfer: Transfer, time: int, source: Site, sink: Site, count_bytes: int, answer_cycles: int
    ) -> None:
        self.sent_bytes += count_bytes
        if self._timed:
            self._ask(transfer, time, partial(self._exchanged, source, sink, count_bytes, answer_cycles))

    def _exchanged(self, source: Site, sink: Site, count_bytes: int, answer_cycles: int, time: int) -> int:
        """One message, which holds the ports of both sites too."""
        links = (self._link(source, _OUT), *self._path(source, sink), self._link(sink, _IN))
        cycles = self._cycles(count_bytes)
        start = _first_gap(links, time + self._noc.start_cycles, cycles)
        _take(links, start, start + cycles, time)
        return start + cycles + self._noc.hop_cycles * hops(source, sink) + answer_cycles

    # --- ways ---

    def _tree(self, source: Site, sinks: Sinks) -> tuple[_Link, ...]:
        """The links of the ways to all sinks: along the row of the source both ways, then along each column."""
        if (source, sinks) not in self._trees:
            (x, y), (x0, x1, y0, y1) = source, sinks
            ends = [(end, y) for end in (min(x, x0), max(x, x1 - 1))]
            links = [link for end in ends for link in self._run(source, end)]
            for column in range(x0, x1):
                for end in (min(y, y0), max(y, y1 - 1)):
                    links += self._run((column, y), (column, end))
            self._trees[source, sinks] = tuple(links)
        return self._trees[source, sinks]

    def _path(self, source: Site, sink: Site) -> tuple[_Link, ...]:
        corner = sink[0], source[1]
        return self._run(source, corner) + self._run(corner, sink)

    def _run(self, source: Site, sink: Site) -> tuple[_Link, ...]:
        """The links of a straight way."""
        if (source, sink) not in self._straight:
            (x, y), (to_x, to_y) = source, sink
            step_x, step_y = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
            passed = [(x + step_x * i, y + step_y * i) for i in range(hops(source, sink))]
            self._straight[source, sink] = tuple(self._link(site, (step_x, step_y)) for site in passed)
        return self._straight[source, sink]

    def _link(self, site: Site, way: object) -> _Link:
        return self._links.setdefault((site, way), _Link())


def _first_gap(links: Sequence[_Link], start: int, cycles: int) -> int:
    """The first time at which all links are free for so long: short messages go between others."""
    again = True
    while again:
        again = False
        for link in links:
            if link.free > start:
                for low, high in link.held:
                    if low < start + cycles and start < high:
                        start, again = high, True
    return start


def _take(links: Sequence[_Link], start: int, end: int, now: int) -> None:
    """Hold the links, and forget who held them before now."""
    for link in links:
        held = link.held
        if link.free <= now:
            held.clear()
        else:
            while held[0][1] <= now:
                del held[0]
        if held and held[-1][1] == start:
            held[-1] = held[-1][0], end
        else:
            held.append((start, end))
        if end > link.free:
            link.free = end
