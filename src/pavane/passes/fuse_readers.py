"""fuse_readers: TILED -> FUSED. Where workers of a row (column) need the same tile, may one reader bring it for all
of them?

A FIFO may be read once a row when no load that fills it mentions LV_ITEM_X (once a column: LV_ITEM_Y), its stage only
reads, and the items fall on the sites as rows and columns (`cost.spread`). It is, when the cost model predicts fewer
cycles with it: DRAM bytes saved against the send and its handshakes. The comparison is repeated FIFO by FIFO, each
given the ones before, and recorded as a Join. A FIFO that is read once moves with its steps to a stage of a leader
group of its own.

Refuses never: the comparison decides. Counters that the handshakes would need and the chip has not are a reason to
decide against.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pavane.cost.spread import Spread
from pavane.ir.expr import Indirect
from pavane.ir.program import (
    LV_ITEM_X,
    LV_ITEM_Y,
    Fence,
    Fifo,
    Front,
    Group,
    Join,
    Load,
    Loop,
    Node,
    Program,
    Push,
    Shape,
    Stage,
)
from pavane.ir.quasi import Quasi
from pavane.ir.walk import leaves, symbol_domain
from pavane.passes.predicting import MULTICAST, section_cycles, section_spread
from pavane.passes.section import section_of, with_section
from pavane.targets.descriptor import SpatialTarget

COUNTERS_EACH = 2  # credit and valid
LEADER_PREFIX = "lead_"


def fuse_readers(program: Program, target: SpatialTarget) -> Program:
    """The section with every reader fused that the comparison favours."""
    shape = section_of(program, "TILED")
    spread = section_spread(shape, symbol_domain(program), target)
    for name in [fifo.name for fifo in shape.fifos]:
        kind = _possible_kind(shape, name, spread, target)
        if kind is not None:
            shape = _decide(program, shape, name, kind, target)
    return with_section(program, shape, "FUSED")


def _decide(program: Program, shape: Shape, name: str, kind: str, target: SpatialTarget) -> Shape:
    fused = replace(shape, fifos=tuple(replace(f, kind=kind) if f.name == name else f for f in shape.fifos))
    alone, shared = section_cycles(program, shape, target).cycles, section_cycles(program, fused, target).cycles
    what, word = f"reader of {name}", kind.lower().replace("_", " ")
    if shared < alone:
        return replace(_with_leader(fused, name), joins=(*shape.joins, Join(what, word, shared, "local", alone)))
    return replace(shape, joins=(*shape.joins, Join(what, "local", alone, word, shared)))


def _possible_kind(shape: Shape, name: str, spread: Spread, target: SpatialTarget) -> str | None:
    """The multicast that this FIFO's loads allow on those sites; None when there is none."""
    fifo = next(f for f in shape.fifos if f.name == name)
    loads = _loads(shape, fifo)
    if not target.noc.multicast or spread.mapping != "GRID" or fifo.kind != "LOCAL" or loads is None:
        return None
    fused = sum(f.kind in MULTICAST for f in shape.fifos)
    if (fused + 1) * COUNTERS_EACH > target.counters.per_site:
        return None
    most = 1 << (target.counters.bits - 1)
    if 1 < spread.width <= most + 1 and not any(_mentions(load, LV_ITEM_X) for load in loads):
        return "MULTICAST_ROW"
    if 1 < spread.height <= most + 1 and not any(_mentions(load, LV_ITEM_Y) for load in loads):
        return "MULTICAST_COLUMN"
    return None


def _loads(shape: Shape, fifo: Fifo) -> tuple[Load, ...] | None:
    """The loads that fill a FIFO in the one stage that only reads; None where it is filled otherwise."""
    for group in shape.groups:
        for stage in group.stages:
            steps = [step for _, step in leaves(stage.body)]
            if any(isinstance(step, Push) and step.fifo == fifo.name for step in steps):
                loads = tuple(step for step in steps if isinstance(step, Load) and step.fifo == fifo.name)
                pure = loads and not any(isinstance(step, Front) for step in steps)
                return loads if pure and not any(_is_indirect(load) for load in loads) else None
    return None


def _is_indirect(load: Load) -> bool:
    return any(isinstance(start, Indirect) for start in load.window.start)


def _mentions(load: Load, var: str) -> bool:
    starts = (start for start in (*load.window.start, load.row) if isinstance(start, Quasi))
    return any(var in start.variables() for start in starts)


def _with_leader(shape: Shape, name: str) -> Shape:
    """The FIFO's steps leave their stage for one of a leader group."""
    groups: list[Group] = []
    leader: Stage | None = None
    for group in shape.groups:
        stages: list[Stage] = []
        for stage in group.stages:
            own = tuple(_only(stage.body, {name}))
            if any(isinstance(step, Push) for _, step in leaves(own)):
                leader = Stage(stage.name, stage.engine, own)
                stages.extend(_rest(stage, name))
            else:
                stages.append(stage)
        groups.append(replace(group, stages=tuple(stages)))
    leaders = (Group(LEADER_PREFIX + name, (leader,)),) if leader else ()
    return replace(shape, groups=(*leaders, *(g for g in groups if g.stages)))


def _rest(stage: Stage, name: str) -> Iterator[Stage]:
    others = {step.fifo for _, step in leaves(stage.body) if isinstance(step, Push)} - {name}
    body = tuple(_only(stage.body, others))
    if body:
        yield replace(stage, body=body)


def _only(body: tuple[Node, ...], fifos: set[str]) -> Iterator[Node]:
    """The steps on these FIFOs, with the loops around them and the fences that end their loads."""
    open_loads = False
    for node in body:
        if isinstance(node, Loop):
            inner = tuple(_only(node.body, fifos))
            if inner:
                yield Loop(node.var, node.extent, inner)
        elif isinstance(node, Fence):
            if open_loads:
                yield node
            open_loads = False
        elif getattr(node, "fifo", None) in fifos:
            open_loads = open_loads or isinstance(node, Load)
            yield node
