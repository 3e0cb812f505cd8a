"""A small invented chip on which four scattered sites stand beside the DRAM channels."""

from __future__ import annotations

from msgspec.structs import replace

from pavane.targets.check import check_target
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target

ADJACENT = ((2, 0), (0, 1), (1, 2), (2, 2))


def chip(adjacent: tuple[tuple[int, int], ...] = ADJACENT, far: int = 8) -> SpatialTarget:
    """3 x 3 sites with four channels of 16 B a cycle, `far` for sites that are not beside them; quick products."""
    toy = load_target("toy")
    engines = tuple(replace(e, matrix=tuple(replace(m, cycles=4) for m in e.matrix)) for e in toy.engines)
    dram = replace(toy.dram, channels=4, page_bytes=512, latency_cycles=20, adjacent=adjacent, far_bytes_per_cycle=far)
    return check_target(
        replace(
            toy,
            grid=replace(toy.grid, width=3, height=3),
            memory=replace(toy.memory, bytes=1 << 18),
            engines=engines,
            counters=replace(toy.counters, bits=16),
            noc=replace(toy.noc, bytes_per_cycle=64),
            dram=dram,
        )
    )
