"""Predicted cycles of a boundary: all sites meet before the next section begins."""

from __future__ import annotations

from pavane.targets.descriptor import SpatialTarget


def boundary_cycles(target: SpatialTarget) -> int:
    """A post along the row, one along the column, one that lets the site's readers go, and the way of the first two."""
    if target.sites == 1:
        return target.counters.post_cycles
    ways = target.noc.hop_cycles * (target.grid.width + target.grid.height - 2)
    return 3 * target.counters.post_cycles + ways
