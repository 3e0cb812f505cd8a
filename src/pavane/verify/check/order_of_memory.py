"""Order of accesses to local memory and counters, between sections of different shapes. (Those of one shape follow each
other through the same FIFOs, carries and counters as turns of one loop do.)

A process knows that those of other shapes are done on the site which use bytes that it uses, unless both only read
(`local_bytes`). A shape's FIFOs are on a site until all its processes there are done: those of all shapes that may
still be there, with its own, are no more than the chip has. Two counters with one id belong to one engine; before a
process posts to one, every waiter of the other is done, on all sites.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations

from pavane.ir.program import Counter, Post
from pavane.reject import CapacityRefused, OrderRefused, OutsideFragment
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.check.bindings import Memory
from pavane.verify.check.boundaries import Access
from pavane.verify.check.boxes import Box, box, overlaps, point
from pavane.verify.check.capacity import memory_map
from pavane.verify.check.clocks import Class, over_everywhere
from pavane.verify.check.facts import LOCAL, first_access
from pavane.verify.check.intervals import sharing
from pavane.verify.check.local_bytes import Bytes, all_bytes, bytes_read, changes
from pavane.verify.check.scope import MAX_SHARING
from pavane.verify.check.section import Actor, Section
from pavane.verify.check.standing import stands_on
from pavane.verify.check.values import Evidence

Use = tuple[str, int, str]  # shape, process, buffer
Overlaps = dict[int, dict[str, list[tuple[str, Use]]]]


@dataclass
class LocalUses:
    """`ran`: the last section of each shape so far, in their order. What is known of shapes, found when first asked
    for: `overlapping` buffers of two, and counters `reused` by a process of one. `readable`: by shape, buffer and class
    what can be read; `engines`: by shape and class those that run it.
    """

    memory: Memory
    evidence: dict[str, Evidence]
    target: SpatialTarget
    ran: dict[str, int] = field(default_factory=dict)
    overlapping: dict[tuple[str, str], Overlaps] = field(default_factory=dict)
    reused: dict[tuple[str, int], list[tuple[str, Counter, Box]]] = field(default_factory=dict)
    readable: dict[tuple[str, str, int], Bytes | None] = field(default_factory=dict)
    engines: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    current: int = -1
    compared: int = 0


def local_order(uses: LocalUses, access: Access) -> None:
    """Refuse a use of buffers and counters that sections of other shapes may still use."""
    if access.instance != uses.current:
        if uses.current >= 0:
            over = uses.memory.program.instances[uses.current].shape
            uses.ran.pop(over, None)
            uses.ran[over] = uses.current
        uses.current = access.instance
    _counters_free(uses, access)
    known = access.before(LOCAL).own
    over_here = min(known.get(engine, -1) for engine in access.place.workers)  # others use nothing on the site
    there = [access.section.shape.name]
    for shape, last in reversed(uses.ran.items()):
        if last <= over_here:
            break
        uses.compared += 1
        if shape != access.section.shape.name:
            _buffers_free(uses, access, shape, last)
            if any(known.get(engine, -1) < last for engine in _engines(uses, shape, access.place)):
                there.append(shape)
    _fifos_free(uses, access, there)


def _engines(uses: LocalUses, shape: str, place: Class) -> frozenset[str]:
    """Those that run a shape on a class of sites."""
    if (shape, place.number) not in uses.engines:
        section, here = uses.memory.sections[shape], point(place.site)
        found = frozenset(a.process.engine for a in section.actors if stands_on(section, a, here))
        uses.engines[(shape, place.number)] = found
    return uses.engines[(shape, place.number)]


def _fifos_free(uses: LocalUses, access: Access, shapes: list[str]) -> None:
    """The site has FIFOs for all shapes that may be there at once."""
    counts = {shape: len(uses.memory.sections[shape].shape.fifos) for shape in shapes}
    if len(shapes) > 1 and sum(counts.values()) > uses.target.fifos.per_site:
        raise CapacityRefused(
            f"section {access.instance} begins where too many FIFOs may still be in use",
            where=access.actor.where,
            needed=f"{sum(counts.values())} on a site",
            available=f"{uses.target.fifos.per_site}",
            terms=[f"{shape}: {count}" for shape, count in counts.items()],
            remedy=f"let engine {access.actor.process.engine} wait at the boundary",
        )


def _buffers_free(uses: LocalUses, access: Access, shape: str, last: int) -> None:
    """The last section of a shape is done with the bytes that a process is about to use, or has not used them."""
    key = (shape, access.section.shape.name)
    if key not in uses.overlapping:
        uses.overlapping[key] = _overlapping(uses.memory.sections[shape], access.section)
    for engine, pairs in uses.overlapping[key].get(access.actor.number, {}).items():
        uses.compared += 1
        if access.before(LOCAL).own.get(engine, -1) < last:
            for name, use in pairs:
                if access.before(first_access(name)).own.get(engine, -1) < last:
                    _apart(uses, access, name, use, last)


def _apart(uses: LocalUses, access: Access, name: str, use: Use, last: int) -> None:
    """A buffer has no byte in common with what a process of an earlier section, which may still run, uses there."""
    uses.compared += 1
    shape, process, _ = use
    earlier = uses.memory.sections[shape].actors[process]
    if not stands_on(uses.memory.sections[shape], earlier, point(access.place.site)):
        return
    theirs = _used(uses, use, access.place)
    mine = _used(uses, (access.section.shape.name, access.actor.number, name), access.place)
    if mine and theirs and mine.meets(theirs):
        raise OrderRefused(
            f"section {access.instance} lays out {name} over buffers that section {last} may still use",
            where=access.actor.where,
            terms=[f"{earlier.name} of {shape} on the same site"],
            remedy=f"let engine {access.actor.process.engine} wait at the boundary",
        )


def _counters_free(uses: LocalUses, access: Access) -> None:
    """Before a process posts to a counter, every waiter of another shape's counter of that id is done, on all sites."""
    key = (access.section.shape.name, access.actor.number)
    if key not in uses.reused:
        uses.reused[key] = list(_reused(uses.memory.sections, access.section, access.actor))
    for shape, counter, edges in uses.reused[key]:
        local, last = access.before(LOCAL), uses.ran.get(shape, -1)
        for place in access.classes:
            uses.compared += 1
            inside = overlaps(edges, point(place.site))
            if inside and over_everywhere(local, access.place, place.number, counter.engine) < last:
                raise OrderRefused(
                    f"section {access.instance} posts to a counter that section {last} may still wait for",
                    where=access.actor.where,
                    terms=[f"counter {counter.name}, id {counter.id}"],
                    remedy="a boundary between the two sections, or another id",
                )


def _reused(sections: dict[str, Section], here: Section, actor: Actor) -> Iterator[tuple[str, Counter, Box]]:
    """The counters of other shapes, with their sites, whose ids a process posts to.

    Posts go to sites of their counter only (`multicast`): counters that share no site are two.
    """
    names = dict.fromkeys(leaf.step.counter for leaf in actor.leaves if isinstance(leaf.step, Post))
    posted: dict[int, list[Box]] = {}
    for name in names:
        posted.setdefault(here.counters[name].id, []).append(box(here.counters[name].rect, name))
    for shape, section in sections.items():
        for counter in section.shape.counters if posted and section is not here else ():
            edges = box(counter.rect, counter.name)
            if any(overlaps(there, edges) for there in posted.get(counter.id, ())):
                yield shape, counter, edges


def _used(uses: LocalUses, use: Use, place: Class) -> Bytes | None:
    """What a process of a shape uses of a buffer on the sites of a class."""
    shape, process, name = use
    section, key = uses.memory.sections[shape], (shape, name, place.number)
    if changes(section, section.actors[process], name):
        return all_bytes(section, name)
    if key not in uses.readable:
        uses.readable[key] = bytes_read(section, uses.evidence[shape].regions.get(name, ()), name, place.within)
    return uses.readable[key]


def _overlapping(before: Section, after: Section) -> Overlaps:
    """Where buffers of two shapes overlap in local memory: by process of the second and engine of the first, a buffer
    of that process and a use of one there.
    """
    placed = ((low, high, (n, name)) for n, each in enumerate((before, after)) for low, high, name in memory_map(each))
    buffers = ((name, other) for (_, name), (_, other) in map(sorted, sharing(placed)))  # those of one shape share none
    uses = (
        (b.number, a.number, *both) for both in buffers for a in before.users(both[0]) for b in after.users(both[1])
    )
    found: Overlaps = {}
    for process, earlier, name, other in sorted(uses):
        listed = found.setdefault(process, {}).setdefault(before.actors[earlier].process.engine, [])
        listed.append((other, (before.shape.name, earlier, name)))
    return found


def shared_counters(memory: Memory) -> None:
    """Counters of different shapes, and the program's own, with one id on one site."""
    program = memory.program
    shapes = [(shape.name, counter) for shape in program.shapes for counter in shape.counters]
    by_id: dict[int, list[tuple[str, Counter, Box]]] = {}
    for shape, counter in (*shapes, *(("", c) for c in program.counters)):
        by_id.setdefault(counter.id, []).append((shape, counter, box(counter.rect, f"counter {counter.name}")))
    pairs = chain.from_iterable(combinations(listed, 2) for listed in by_id.values())
    for number, ((shape, counter, edges), (other_shape, other, beside)) in enumerate(pairs):
        if number == MAX_SHARING:
            raise OutsideFragment("too many counters have one id", where=program.name, available=f"{MAX_SHARING} pairs")
        if shape == other_shape or not overlaps(edges, beside):
            continue
        if not other_shape or counter.engine != other.engine:
            names = f"{shape}.{counter.name}", f"{other_shape}.{other.name}".lstrip(".")
            raise CapacityRefused(f"{names[0]} and {names[1]} share id {counter.id} on a site", where=program.name)
