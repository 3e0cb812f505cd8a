"""Capacity: buffers fit the site's memory and do not overlap; FIFOs, counters, their bits and registers are within
the descriptor.

A FIFO takes depth * rows * row bytes at its address, an alias takes none, a carry takes rows * row bytes. Addresses
are the same on all sites of a section, so disjoint intervals are disjoint on every site. Occupancy never passes the
depth because `Reserve` waits for a free slot and each process fills at most one slot of a FIFO at a time
(`ownership`).
"""

from __future__ import annotations

from itertools import pairwise

from pavane.ir.expr import At, walk
from pavane.ir.program import Carry, Compute, Counter, Fifo, Generic, Init, Load, Rect, Send, Store
from pavane.ir.types import row_bytes
from pavane.ir.walk import operands
from pavane.reject import CapacityRefused
from pavane.targets.descriptor import Engine, EngineRole, SpatialTarget
from pavane.verify.check.boxes import box, clashing, within
from pavane.verify.check.intervals import Interval
from pavane.verify.check.section import Actor, Section
from pavane.verify.check.standing import standing

_ROLES: tuple[tuple[tuple[type, ...], EngineRole], ...] = (
    ((Load, Send), "reader"),
    ((Compute, Init), "compute"),
    ((Store,), "writer"),
)


def capacity(section: Section, target: SpatialTarget) -> str:
    """Refuse what the chip does not have."""
    if section.shape.sites:
        standing(section, target)
    for actor in section.actors:
        _where(section, actor, target)
        _engine(section, actor, target)
    for engine in dict.fromkeys(actor.process.engine for actor in section.actors):
        if both := clashing((a.name, a.box) for a in section.actors if a.process.engine == engine):
            raise CapacityRefused(f"{' and '.join(both)} run on one engine of one site", where=section.where)
    intervals = memory_map(section)
    _layout(section, intervals, target)
    _fifos(section, target)
    counters(section.shape.counters, target, section.where)
    end = max((stop for _, stop, _ in intervals), default=0)
    return f"{len(intervals)} buffers, {end} of {target.memory.bytes} bytes a site"


def memory_map(section: Section) -> tuple[Interval[str], ...]:
    """(start, end, name) of every buffer that takes local memory, in order of address."""
    fifos = (fifo for fifo in section.shape.fifos if fifo.kind != "ALIAS")
    buffers: tuple[Fifo | Carry, ...] = (*fifos, *section.shape.carries)
    return tuple(sorted((*place_of(buffer), buffer.name) for buffer in buffers))


def place_of(buffer: Fifo | Carry) -> tuple[int, int]:
    """The local addresses [start, end) of all slots of a FIFO, or of a carry."""
    slots = buffer.depth if isinstance(buffer, Fifo) else 1
    return buffer.address, buffer.address + slots * buffer.rows * row_bytes(buffer.dtype, buffer.cols)


def _where(section: Section, actor: Actor, target: SpatialTarget) -> None:
    if not section.shape.sites:
        on_grid(actor.process.rect, target, actor.where)
    elif not within(actor.box, (0, len(section.shape.sites), 0, 1)):
        what = "a process stands beyond the section's list of sites"
        raise CapacityRefused(what, where=actor.where, available=f"{len(section.shape.sites)} sites in a line")


def _engine(section: Section, actor: Actor, target: SpatialTarget) -> None:
    engine = next((e for e in target.engines if e.name == actor.process.engine), None)
    if engine is None:
        raise CapacityRefused(f"the target has no engine {actor.process.engine!r}", where=actor.where)
    if actor.process.registers not in engine.windows:
        raise CapacityRefused(f"engine {engine.name} has no full sync", where=actor.where)
    for leaf in actor.leaves:
        where = f"{actor.where}, step {leaf.index}"
        role = next((role for kinds, role in _ROLES if isinstance(leaf.step, kinds)), None)
        if role is not None and role not in engine.roles:
            raise CapacityRefused(f"engine {engine.name} is no {role}", where=where)
        if isinstance(leaf.step, Compute) and isinstance(leaf.step.op, Generic):
            _registers(section, actor, leaf.step.op, engine, where)
        if isinstance(leaf.step, Send) and (target.grid.scattered or not target.noc.multicast):
            raise CapacityRefused("the target's network does not multicast along rows and columns", where=where)


def _registers(section: Section, actor: Actor, op: Generic, engine: Engine, where: str) -> None:
    """No more tiles than the process's window has, all as wide as the widest that is held, or that its products add in.

    (A product holds one tile, of its sums, and every window has one.)
    """
    buffers = dict.fromkeys((op.dst.name, *operands(op)))
    tiles = (section.buffer(name).dtype for name in (*buffers, *actor.sums))
    limit = engine.tiles_held(tiles, actor.process.registers)
    held = max(list(buffers), _places(op), key=len)
    if limit and len(held) > limit:
        what, needed = "a compute step holds too many tiles", f"{len(held)}"
        raise CapacityRefused(what, where=where, needed=needed, available=f"{limit}", terms=held)


def _places(op: Generic) -> list[str]:
    """What it reads at once: a buffer at two indices may be two tiles. The result may lie where one of them lay."""
    read = dict.fromkeys((at.name, at.index) for at in walk(op.expr) if isinstance(at, At))
    return [f"{name}[{', '.join(map(str, index))}]" for name, index in read]


def on_grid(rect: Rect, target: SpatialTarget, where: str) -> None:
    """Refuse a rectangle with sites that the chip does not have."""
    edges = box(rect, where)
    if edges[1] > target.grid.width or edges[3] > target.grid.height:
        needed, there = f"sites up to ({edges[1]}, {edges[3]})", f"{target.grid.width} x {target.grid.height}"
        raise CapacityRefused("a rectangle has sites outside the grid", where=where, needed=needed, available=there)


def _layout(section: Section, intervals: tuple[Interval[str], ...], target: SpatialTarget) -> None:
    memory = target.memory
    for start, end, name in intervals:
        where = f"{section.where}, {name}"
        if start < memory.reserved_bytes or start % memory.alignment_bytes:
            needed = f"a multiple of {memory.alignment_bytes} from {memory.reserved_bytes} on"
            raise CapacityRefused(f"the buffer stands at byte {start}", where=where, needed=needed)
        if end > memory.bytes:
            what, needed = "the buffer passes the end of memory", f"{end} bytes"
            raise CapacityRefused(what, where=where, needed=needed, available=f"{memory.bytes}")
    for (_, end, name), (start, _, other) in pairwise(intervals):
        if start < end:
            what, needed = f"{name} and {other} overlap", f"{name} ends at {end}"
            raise CapacityRefused(what, where=section.where, needed=needed, available=f"{start}")


def _fifos(section: Section, target: SpatialTarget) -> None:
    for name, fifo in section.fifos.items():
        where = f"{section.where}, {name}"
        if fifo.depth < 1:
            raise CapacityRefused("a FIFO has no slot", where=where, needed="depth 1")
        if fifo.kind == "ALIAS" and not target.alias:
            raise CapacityRefused("the target's engines cannot address memory in place", where=where)
    count, most = len(section.fifos), target.fifos.per_site
    if count > most:
        raise CapacityRefused("too many FIFOs", where=section.where, needed=f"{count}", available=f"{most} a site")


def counters(listed: tuple[Counter, ...], target: SpatialTarget, where: str) -> None:
    """Ids distinct where two counters share a site, within the chip's number; bits and kind are the chip's."""
    limit = target.counters
    for counter in listed:
        place = f"{where}, counter {counter.name}"
        if not 0 <= counter.id < limit.per_site:
            what = f"the counter has id {counter.id}"
            raise CapacityRefused(what, where=place, available=f"0 .. {limit.per_site - 1}")
        mine, there = (f"{c.bits} bits, {c.kind}" for c in (counter, limit))
        if mine != there:
            raise CapacityRefused("the counter is not what the chip has", where=place, needed=mine, available=there)
        on_grid(counter.rect, target, place)
    for id_ in dict.fromkeys(counter.id for counter in listed):
        if both := clashing((c.name, box(c.rect, where)) for c in listed if c.id == id_):
            raise CapacityRefused(f"{' and '.join(both)} share id {id_} on a site", where=where)
