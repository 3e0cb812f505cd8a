"""Where a section stands on the chip: on its rectangles, or along a list of the chip's sites.

A shape with `sites` has rectangles of a line [0, n) x [0, 1): site (i, 0) of it is sites[i] of the grid. The sites are
n different ones, so the two namings are one to one: whatever holds of a process on a rectangle for every SITE_X,
SITE_Y holds of it there, and every rule inside a section counts along the line. No step of such a section names a site
(it has no counters, posts, waits or sends), so only who runs where (`boundaries`), who was there before (`order`) and
who touches the same elements on one site (`footprints`) ask for the chip's sites.
"""

from __future__ import annotations

from itertools import product

from pavane.ir.program import Post, Send, Wait
from pavane.reject import CapacityRefused, OutsideFragment
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.check.boxes import Box, within
from pavane.verify.check.section import Actor, Section


def standing(section: Section, target: SpatialTarget) -> None:
    """Refuse a list that is not of different sites of a chip whose engines move what they work on, one for each place
    of the line; and steps that name sites.
    """
    sites, where = section.shape.sites, section.where
    if target.alias:
        raise CapacityRefused("a list of sites is for a chip whose engines move what they work on", where=where)
    for x, y in sites:
        if not (0 <= x < target.grid.width and 0 <= y < target.grid.height):
            what = f"({x}, {y}) is outside the grid"
            raise CapacityRefused(what, where=where, available=f"{target.grid.width} x {target.grid.height} sites")
    if len(set(sites)) < len(sites):
        raise CapacityRefused("one site stands twice in the section's list", where=where)
    steps = (leaf.step for actor in section.actors for leaf in actor.leaves)
    if section.shape.counters or any(isinstance(step, Post | Wait | Send) for step in steps):
        raise OutsideFragment("a section along a list of sites posts, waits or sends", where=where)


def stands_on(section: Section, actor: Actor, edges: Box) -> bool:
    """Is the process on every site of a rectangle of the chip?"""
    if not section.shape.sites:
        return within(edges, actor.box)
    x0, x1, _, _ = actor.box
    mine = set(section.shape.sites[x0:x1])
    return all(site in mine for site in product(range(edges[0], edges[1]), range(edges[2], edges[3])))
