"""A section by itself: on the whole grid, or along the sites beside the DRAM channels, whichever ends sooner.

There each site reads its own channel only, where the weight lies so (`interleave`): fewer sites, each channel at its
full rate. The comparison is a join of the section.
"""

from __future__ import annotations

from pavane.cost.model import Prediction
from pavane.ir.program import Join, Program
from pavane.passes.planning import Planning
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.restrict import adjacent_sites

Place = tuple[int, int, int, int]  # x, y, width, height
ADJACENT: Place = (-1, -1, 0, 0)  # no rectangle: the sites beside the channels


def by_itself(
    section: Program, target: SpatialTarget, planning: Planning
) -> tuple[Place, Prediction | None, Join | None]:
    """Where it stands, how long it takes (None where no plan fits), and the comparison, if there was one."""
    whole: Place = (0, 0, target.grid.width, target.grid.height)
    everywhere = planning.predicted(section, target)
    (shape,) = section.shapes
    if everywhere is None or not any(formal.interleave_bytes for formal in shape.formals):
        return whole, everywhere, None
    beside = planning.predicted(section, adjacent_sites(target))
    if beside is None:
        return whole, everywhere, None
    what, here = f"channels {shape.name}", f"on the {target.dram.channels} sites beside the channels"
    if beside.cycles < everywhere.cycles:
        return ADJACENT, beside, Join(what, here, beside.cycles, "on all sites", everywhere.cycles)
    return whole, everywhere, Join(what, "on all sites", everywhere.cycles, here, beside.cycles)
