"""fuse_readers: TILED -> FUSED. Where workers of a row (column) need the same tile, may one reader bring it for all
of them?

It may, when the cost model predicts fewer cycles with it: DRAM bytes saved against the send and its handshakes. Which
FIFOs can be shared, and the comparison, FIFO by FIFO, are `reader_sharing`'s, as `tile` used them; each is recorded
as a Join. A shared FIFO moves with its steps to a stage of a leader group of its own.

Refuses never: the comparison decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pavane.ir.program import Fence, Group, Load, Loop, Node, Program, Push, Shape, Stage
from pavane.ir.walk import leaves, symbol_domain
from pavane.passes.predicting import section_prediction, section_spread
from pavane.passes.reader_sharing import Kinds, sharable, share
from pavane.passes.section import section_of, with_section
from pavane.targets.descriptor import SpatialTarget

LEADER_PREFIX = "lead_"


def fuse_readers(program: Program, target: SpatialTarget) -> Program:
    """The section with every reader fused that the comparison favours."""
    shape = section_of(program, "TILED")
    spread = section_spread(shape, symbol_domain(program), target)
    predict = section_prediction(program, shape, spread, target)
    kinds, joins, _ = share(sharable(shape, target), spread, target, predict)
    return with_readers(with_section(program, replace(shape, joins=(*shape.joins, *joins)), "TILED"), kinds)


def with_readers(program: Program, kinds: Kinds) -> Program:
    """The TILED section with these FIFOs of these kinds, each read by a leader group of its own."""
    fused = _of_kinds(section_of(program, "TILED"), kinds)
    for name in kinds:
        fused = _with_leader(fused, name)
    return with_section(program, fused, "FUSED")


def _of_kinds(shape: Shape, kinds: Kinds) -> Shape:
    return replace(shape, fifos=tuple(replace(f, kind=kinds.get(f.name, f.kind)) for f in shape.fifos))


def _with_leader(shape: Shape, name: str) -> Shape:
    """The FIFO's steps leave their stage for one of a leader group."""
    groups: list[Group] = []
    leader: Stage | None = None
    for group in shape.groups:
        stages: list[Stage] = []
        for stage in group.stages:
            own = tuple(_only(stage.body, {name}))
            if any(isinstance(step, Push) for _, step in leaves(own)):
                leader = Stage(LEADER_PREFIX + name, stage.engine, own)
                stages.extend(_rest(stage, name))
            else:
                stages.append(stage)
        groups.append(replace(group, stages=tuple(stages)))
    fused = sum(group.name.startswith(LEADER_PREFIX) for group in groups)
    added = (Group(leader.name, (leader,)),) if leader else ()
    return replace(shape, groups=(*groups[:fused], *added, *(g for g in groups[fused:] if g.stages)))


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
