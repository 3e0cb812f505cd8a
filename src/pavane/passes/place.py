"""place: FUSED -> PLACED. Pin items, stages and buffers to sites.

`cost.spread` says which rectangle and which of its axes the items walk; its item variables become cyclic in the site:

    GRID       LV_ITEM_Y := SITE_Y + H*LV_ITEM_Y      LV_ITEM_X := SITE_X + W*LV_ITEM_X
    LINEAR_X   LV_ITEM_X := SITE_X + W*SITE_Y + W*H*LV_ITEM_X      (LINEAR_Y alike)

Loop extents are the same on every site; items beyond the grid are ghost items, whose windows are empty. The leaders
of a multicast stand in column 0 of each row (row 0 of each column). Stages keep their engines: they were pinned when
the op became a template.

Refuses with TooFewSites when a multicast has nobody to send to.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.cost.spread import Spread
from pavane.ir.program import (
    LV_ITEM_X,
    LV_ITEM_Y,
    SITE_X,
    SITE_Y,
    Group,
    Loop,
    Node,
    Program,
    Push,
    Rect,
    Shape,
    Stage,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.walk import leaves, substituted, symbol_domain
from pavane.passes.buffers import is_multicast
from pavane.passes.predicting import section_spread
from pavane.passes.section import section_of, with_section
from pavane.reject import TooFewSites
from pavane.targets.descriptor import SpatialTarget

X, Y, SX, SY = quasi(LV_ITEM_X), quasi(LV_ITEM_Y), quasi(SITE_X), quasi(SITE_Y)
Item = tuple[Quasi, int]  # an item's number from the site and the loop, and among how many sites items are shared


def place(program: Program, target: SpatialTarget) -> Program:
    """The section with every group on a rectangle of sites."""
    shape = section_of(program, "FUSED")
    spread = section_spread(shape, symbol_domain(program), target)
    _require_receivers(shape, spread, target)
    items = item_numbers(spread)
    groups = tuple(_placed(group, shape, spread, items) for group in shape.groups)
    return with_section(program, replace(shape, groups=groups), "PLACED")


def item_numbers(spread: Spread) -> dict[str, Item]:
    """What each item variable becomes; a variable that is not shared is left out."""
    width, height = spread.width, spread.height
    line = SX + width * SY if height > 1 else SX
    if spread.mapping == "GRID":
        choices = {LV_ITEM_Y: (SY + height * Y, height), LV_ITEM_X: (SX + width * X, width)}
    elif spread.mapping == "LINEAR_X":
        choices = {LV_ITEM_X: (line + spread.sites * X, spread.sites)}
    else:
        choices = {LV_ITEM_Y: (line + spread.sites * Y, spread.sites)}
    return {var: item for var, item in choices.items() if item[1] > 1}


def _require_receivers(shape: Shape, spread: Spread, target: SpatialTarget) -> None:
    wanted = {"MULTICAST_ROW": ("column", spread.width), "MULTICAST_COLUMN": ("row", spread.height)}
    for fifo in shape.fifos:
        line, count = wanted.get(fifo.kind, ("", 2))
        if count < 2:
            raise TooFewSites(
                f"{fifo.name} is sent from the first {line} of sites to the others, and there is only one {line}",
                where=f"section {shape.name}",
                needed=f"2 {line}s of sites",
                available=f"{count} ({target.name} has {target.grid.width} x {target.grid.height} sites)",
                remedy="fuse the readers for the target that the section is placed on",
            )


def _placed(group: Group, shape: Shape, spread: Spread, items: dict[str, Item]) -> Group:
    stages = tuple(replace(stage, body=_cyclic(stage.body, items)) for stage in group.stages)
    return replace(group, stages=stages, rect=_rectangle(stages, shape, spread))


def _rectangle(stages: tuple[Stage, ...], shape: Shape, spread: Spread) -> Rect:
    """All sites, or the first column or row for a group that leads a multicast."""
    filled = {step.fifo for stage in stages for _, step in leaves(stage.body) if isinstance(step, Push)}
    kinds = {fifo.kind for fifo in shape.fifos if is_multicast(fifo) and fifo.name in filled}
    width = 1 if "MULTICAST_ROW" in kinds else spread.width
    height = 1 if "MULTICAST_COLUMN" in kinds else spread.height
    return Rect(quasi(0), quasi(width), quasi(0), quasi(height))


def _cyclic(body: tuple[Node, ...], items: dict[str, Item]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in body:
        if isinstance(node, Loop):
            inner = _cyclic(node.body, items)
            number, sites = items.get(node.var, (quasi(node.var), 1))
            out.append(Loop(node.var, node.extent.ceil(sites), substituted(inner, {node.var: number})))
        else:
            out.append(node)
    return tuple(out)
