"""synthesize_handshakes: SIZED -> SYNCHRONIZED. Counters, posts and waits where a FIFO crosses sites.

Only multicast FIFOs do; within a site FIFOs order everything, within an engine its written order does. Each multicast
FIFO gets two counters and its pushes are written out (docs/ir.md, Multicast), leader and members in the same loop
nest:

    leader   reserve; load; fence; wait credit, members; send -> members; fence; post valid -> members; push
    member   reserve; post credit -> leader; wait valid, 1; push

A member posts again only after `wait valid`, so the credits of all members may be summed and one a member is in flight.
Between sections that follow each other `compose` puts boundaries.

Refuses with OutOfCounters: more counters than a site has, or more posters than a counter's bits tell apart.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.program import (
    SITE_X,
    SITE_Y,
    Counter,
    Fence,
    Fifo,
    Front,
    Group,
    Loop,
    Node,
    Post,
    Program,
    Push,
    Rect,
    Reserve,
    Send,
    Shape,
    Stage,
    Wait,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.walk import leaves, rebuild
from pavane.passes.buffers import is_multicast
from pavane.passes.section import rect_of, section_of, with_section
from pavane.reject import OutOfCounters
from pavane.targets.descriptor import SpatialTarget

_MEMBER_PREFIX = "receive_"


def synthesize_handshakes(program: Program, target: SpatialTarget) -> Program:
    """The section with every multicast written out."""
    shape = section_of(program, "SIZED")
    fifos = [fifo for fifo in shape.fifos if is_multicast(fifo)]
    _require_counters(shape, len(fifos), target)
    for number, fifo in enumerate(fifos):
        shape = _handshaken(shape, fifo, 2 * number, target)
    return with_section(program, shape, "SYNCHRONIZED")


def _require_counters(shape: Shape, fifos: int, target: SpatialTarget) -> None:
    if 2 * fifos > target.counters.per_site:
        raise OutOfCounters(
            "the section's multicasts need more counters than a site has",
            where=f"section {shape.name}",
            needed=f"{2 * fifos} counters",
            available=f"{target.counters.per_site} on a site of {target.name}",
            terms=[f"{f.name}: credit and valid" for f in shape.fifos if is_multicast(f)],
            remedy="a target with more counters, or one without multicast",
        )


def _handshaken(shape: Shape, fifo: Fifo, first_id: int, target: SpatialTarget) -> Shape:
    """One FIFO's leader written out, its receive stages and its counters added."""
    group, stage = _leader(shape, fifo.name)
    members, to, leader = _lines(rect_of(group), _sites_of_fifo(shape, fifo.name), fifo.kind)
    count = _count(members, fifo.kind)
    _require_bits(shape, fifo, count, target)
    credit, valid = f"credit_{fifo.name}", f"valid_{fifo.name}"
    leading = rebuild(stage.body, lambda node: _lead(node, fifo.name, credit, valid, to, count))
    receiving = rebuild(stage.body, lambda node: _receive(node, fifo.name, credit, valid, leader))
    groups = tuple(_with_stage(g, stage, leading) if g is group else g for g in shape.groups)
    name = _MEMBER_PREFIX + fifo.name
    receivers = Group(name, (Stage(name, stage.engine, receiving),), members)
    place = groups.index(next(g for g in groups if g.name == group.name)) + 1
    kind, bits = target.counters.kind, target.counters.bits
    return replace(
        shape,
        groups=(*groups[:place], receivers, *groups[place:]),
        counters=(
            *shape.counters,
            Counter(credit, rect_of(group), stage.engine, kind, bits, id=first_id),
            Counter(valid, members, stage.engine, kind, bits, id=first_id + 1),
        ),
    )


def _leader(shape: Shape, name: str) -> tuple[Group, Stage]:
    return next(
        (group, stage)
        for group in shape.groups
        for stage in group.stages
        if any(isinstance(step, Push) and step.fifo == name for _, step in leaves(stage.body))
    )


def _sites_of_fifo(shape: Shape, name: str) -> Rect:
    """Where the FIFO is drained: leader and members."""
    return next(
        rect_of(group)
        for group in shape.groups
        for stage in group.stages
        if any(isinstance(step, Front) and step.fifo == name for _, step in leaves(stage.body))
    )


def _lines(leaders: Rect, sites: Rect, kind: str) -> tuple[Rect, Rect, Rect]:
    """The members' rectangle; a leader's members, in its SITE coordinates; a member's leader, in the member's."""
    x, y = quasi(SITE_X), quasi(SITE_Y)
    if kind == "MULTICAST_ROW":
        row = _one(y + sites.y0)
        return (
            Rect(leaders.x1, sites.x1, sites.y0, sites.y1),
            Rect(leaders.x1, sites.x1, *row),
            Rect(leaders.x0, leaders.x1, *row),
        )
    column = _one(x + sites.x0)
    return (
        Rect(sites.x0, sites.x1, leaders.y1, sites.y1),
        Rect(*column, leaders.y1, sites.y1),
        Rect(*column, leaders.y0, leaders.y1),
    )


def _one(start: Quasi) -> tuple[Quasi, Quasi]:
    return start, start + 1


def _count(members: Rect, kind: str) -> int:
    extent = members.x1 - members.x0 if kind == "MULTICAST_ROW" else members.y1 - members.y0
    return extent.const


def _require_bits(shape: Shape, fifo: Fifo, members: int, target: SpatialTarget) -> None:
    most = 1 << (target.counters.bits - 1)
    if members > most:
        raise OutOfCounters(
            "a leader's counter cannot tell the credits of all its members apart",
            where=f"section {shape.name}, {fifo.name}",
            needed=f"{members} posts in flight",
            available=f"{most} with counters of {target.counters.bits} bits on {target.name}",
            remedy="a grid with shorter lines, or wider counters",
        )


def _with_stage(group: Group, stage: Stage, body: tuple[Node, ...]) -> Group:
    return replace(group, stages=tuple(replace(s, body=body) if s is stage else s for s in group.stages))


def _lead(node: Node, name: str, credit: str, valid: str, to: Rect, members: int) -> tuple[Node, ...]:
    if isinstance(node, Push) and node.fifo == name:
        return (Wait(credit, members), Send(name, to), Fence(), Post(valid, to), node)
    return (node,)


def _receive(node: Node, name: str, credit: str, valid: str, leader: Rect) -> tuple[Node, ...]:
    if isinstance(node, Loop):
        return (node,) if node.body else ()
    if isinstance(node, Reserve) and node.fifo == name:
        return (node, Post(credit, leader))
    if isinstance(node, Push) and node.fifo == name:
        return (Wait(valid), node)
    return ()
