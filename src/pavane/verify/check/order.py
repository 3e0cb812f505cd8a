"""Order: every two conflicting accesses to the same bytes are ordered by happens-before; what is read has been written
(`initialised`).

*Inside a section.* A process touches a slot only while it owns it and after its transfers have ended (`ownership`);
slots go from pusher to popper and back through the FIFO; a carry belongs to one process of a site; buffers are
disjoint (`capacity`); a formal that is stored is not loaded and shares bytes with no other formal (`coverage`,
`bindings`), and its windows are disjoint (`coverage`). So no two accesses of one section to the same bytes are
unordered.

*Between sections* (clocks of `boundaries`). For tensors, an access of a section must know the last conflicting accesses
to any tensor that shares bytes: on every site, or on its own, its row's or its column's where both touch one element on
such sites only; or not at all where they touch none in common (`footprints`), or the FIFOs of their shape keep the one
behind the other (`lag`). For local memory, a process must know that those of other shapes are done on the site which
use bytes that it uses, unless both only read (`local_bytes`); sections of the same shape follow each other through the
same FIFOs and carries as turns of one loop do. Two counters with one id must belong to one engine, and sections of
other shapes must be over on all sites before they use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from pavane.ir.program import SITE_X, SITE_Y, Post, Program, Store
from pavane.ir.quasi import Domain
from pavane.reject import CapacityRefused, OrderRefused, OutsideFragment
from pavane.verify.check.bindings import Memory, Place
from pavane.verify.check.boundaries import Access, walk_program
from pavane.verify.check.boxes import box, overlaps, point
from pavane.verify.check.capacity import memory_map
from pavane.verify.check.clocks import Class
from pavane.verify.check.facts import LOCAL, TENSORS, first_access, touching
from pavane.verify.check.footprints import Footprint, footprint_of
from pavane.verify.check.initialised import initialised
from pavane.verify.check.lag import loads_after
from pavane.verify.check.local_bytes import Bytes, all_bytes, bytes_read, changes
from pavane.verify.check.ownership import ownership
from pavane.verify.check.section import Section
from pavane.verify.check.standing import stands_on
from pavane.verify.check.values import Evidence

MAX_PAIRS = 1 << 23
Where = tuple[int, str]
Use = tuple[str, int, str]  # shape, process, formal or buffer
Accesses = dict[tuple[Where, Use], tuple[int, str]]


def section_order(section: Section) -> str:
    """Ownership of slots and carries inside a section."""
    steps = sum(ownership(section, actor) for actor in section.actors)
    for name in section.carries:
        users = section.users(name)
        for i, actor in enumerate(users):
            for other in users[i + 1 :]:
                if overlaps(actor.box, other.box):
                    raise OrderRefused(f"{actor.name} and {other.name} both use carry {name}", where=section.where)
    return f"{steps} steps own what they touch"


@dataclass
class _Ledger:
    """Last accesses so far: per place, (class, engine) and use (shape, process, formal) the last section that read or
    wrote there, and which tensor.

    `touched`: by process the formals that it touches, and whether it writes them. `readable`: by shape, buffer
    and class what can be read there. `pending`: what the current section accesses, entered when it is over.
    """

    program: Program
    sections: dict[str, Section]
    evidence: dict[str, Evidence]
    memory: Memory
    reads: dict[Place, Accesses] = field(default_factory=dict)
    writes: dict[Place, Accesses] = field(default_factory=dict)
    footprints: dict[Use, Footprint] = field(default_factory=dict)
    meetings: dict[tuple[Use, Use, bool], tuple[str, ...] | None] = field(default_factory=dict)
    ran: dict[str, int] = field(default_factory=dict)
    overlapping: dict[tuple[str, str], dict[int, list[tuple[int, str, str]]]] = field(default_factory=dict)
    readable: dict[tuple[str, str, int], Bytes | None] = field(default_factory=dict)
    touched: dict[tuple[str, int], dict[str, bool]] = field(default_factory=dict)
    pending: list[tuple[str, Where, Use, bool]] = field(default_factory=list)
    current: int = -1
    pairs: int = 0

    def compare(self) -> None:
        """Count a pair of accesses; refuse more than can be compared in bounded time."""
        self.pairs += 1
        if self.pairs > MAX_PAIRS:
            raise OutsideFragment(
                "its sections touch the same bytes too often", where=self.program.name, available=f"{MAX_PAIRS} pairs"
            )


def program_order(
    program: Program,
    sections: dict[str, Section],
    evidence: dict[str, Evidence],
    memory: Memory,
    symbols: Domain,
) -> str:
    """Accesses of different sections, in the order in which the workers run them; sections and evidence by shape."""
    initialised(program, sections, memory, symbols)
    _shared_counters(program, sections)
    untold: frozenset[str] = frozenset()
    while True:
        ledger = _Ledger(program, sections, evidence, memory)
        walk = walk_program(program, sections, partial(_visit, ledger), untold)
        if walk.ahead <= untold:
            break
        untold |= walk.ahead
    rounds = max(walk.waits.values(), default=0)
    counts = f"{len(program.instances)} sections, {len(program.workers)} workers, {rounds} boundaries"
    return f"{counts}, {ledger.pairs} pairs of accesses"


def _visit(ledger: _Ledger, access: Access) -> None:
    if access.instance != ledger.current:
        _close(ledger)
        ledger.current = access.instance
    _tensors(ledger, access)
    _local(ledger, access)


# --- tensors ----------------------------------------------------------------------------------------------------------


def _tensors(ledger: _Ledger, access: Access) -> None:
    """Compare with the accesses of earlier sections."""
    key = (access.section.shape.name, access.actor.number)
    if key not in ledger.touched:
        steps = (leaf.step for _, leaf in touching(access.section, access.actor))
        ledger.touched[key] = {step.tensor: isinstance(step, Store) for step in steps}  # type: ignore[union-attr]
    bound = {binding.formal: binding.tensor for binding in ledger.program.instances[access.instance].bindings}
    place = (access.place.number, access.actor.process.engine)
    for formal, writes in ledger.touched[key].items():
        tensor, use = bound[formal], (*key, formal)
        at = ledger.memory.places[tensor]
        for other in ledger.memory.meeting[at]:
            alike = (at[1], at[3]) == (other[1], other[3])
            _known(ledger, access, ledger.writes.get(other, {}), tensor, use, alike)
            if writes:
                _known(ledger, access, ledger.reads.get(other, {}), tensor, use, alike)
        ledger.pending.append((tensor, place, use, writes))


def _known(ledger: _Ledger, access: Access, earlier: Accesses, tensor: str, use: Use, alike: bool) -> None:
    """`alike`: the same elements stand at the same bytes."""
    clock = access.before(TENSORS)
    for (place, before), (instance, other) in earlier.items():
        ledger.compare()
        if clock.all.get(place, -1) >= instance:
            continue
        agree = _meeting(ledger, use, before, alike)
        if agree is None:
            continue
        in_column = SITE_X in agree and clock.column.get(place, -1) >= instance
        in_row = SITE_Y in agree and clock.row.get(place, -1) >= instance
        here = place[0] != access.place.number or clock.own.get(place[1], -1) >= instance
        if not (in_column or in_row or (here and len(agree) == 2)):
            raise OrderRefused(
                f"section {access.instance} touches {tensor} while section {instance} may still use {other}",
                where=access.actor.where,
                terms=[f"engine {place[1]} of another site or process is not known to be done with it"],
                remedy="a boundary between the two sections",
            )


def _meeting(ledger: _Ledger, use: Use, before: Use, alike: bool) -> tuple[str, ...] | None:
    """The coordinates that are the same wherever two uses touch one element; None where they need no further order."""
    key = (use, before, alike)
    if key not in ledger.meetings:
        mine, theirs, section = _footprint(ledger, use), _footprint(ledger, before), ledger.sections[use[0]]
        (shape, loader, loaded), (other, storer, stored) = use, before
        numbered = alike and shape == other and mine.inner == theirs.inner
        needless = mine.apart(theirs, alike, section.symbols) or (
            numbered and loads_after(section, section.actors[loader], loaded, section.actors[storer], stored)
        )
        ledger.meetings[key] = None if needless else mine.agree(theirs, alike)
    return ledger.meetings[key]


def _footprint(ledger: _Ledger, use: Use) -> Footprint:
    if use not in ledger.footprints:
        section = ledger.sections[use[0]]
        ledger.footprints[use] = footprint_of(section, section.actors[use[1]], use[2])
    return ledger.footprints[use]


def _close(ledger: _Ledger) -> None:
    """Enter the accesses of the section that was current."""
    if ledger.current < 0:
        return
    for name, place, use, writes in ledger.pending:
        table = ledger.writes if writes else ledger.reads
        table.setdefault(ledger.memory.places[name], {})[(place, use)] = (ledger.current, name)
    ledger.pending.clear()
    ledger.ran[ledger.program.instances[ledger.current].shape] = ledger.current


# --- local memory and counters ----------------------------------------------------------------------------------------


def _local(ledger: _Ledger, access: Access) -> None:
    """Sections of other shapes that used the bytes of this process's buffers are over on this site."""
    here = access.section
    for shape, last in ledger.ran.items():
        if shape == here.shape.name:
            continue
        key = (shape, here.shape.name)
        if key not in ledger.overlapping:
            ledger.overlapping[key] = _overlapping(ledger.sections[shape], here)
        _counters_free(access, ledger.sections[shape], last)
        for before, old, name in ledger.overlapping[key].get(access.actor.number, ()):
            ledger.compare()
            earlier = ledger.sections[shape].actors[before]
            done = access.before(first_access(name)).own.get(earlier.process.engine, -1) >= last
            if done or not stands_on(ledger.sections[shape], earlier, point(access.place.site)):
                continue
            theirs = _used(ledger, (shape, before, old), access.place)
            mine = _used(ledger, (here.shape.name, access.actor.number, name), access.place)
            if mine and theirs and mine.meets(theirs):
                raise OrderRefused(
                    f"section {access.instance} lays out {name} over buffers that section {last} may still use",
                    where=access.actor.where,
                    terms=[f"{earlier.name} of {shape} on the same site"],
                    remedy=f"let engine {access.actor.process.engine} wait at the boundary",
                )


def _counters_free(access: Access, earlier: Section, last: int) -> None:
    """Before a process posts to a counter, every waiter of another shape's counter of that id is done, on all sites.

    Posts go to sites of their counter only (`balance`): counters that share no site are two.
    """
    if not earlier.shape.counters:
        return
    names = {leaf.step.counter for leaf in access.actor.leaves if isinstance(leaf.step, Post)}
    posted = [(access.section.counters[name].id, box(access.section.counters[name].rect, name)) for name in names]
    local = access.before(LOCAL) if posted else None
    for counter in earlier.shape.counters:
        edges = box(counter.rect, counter.name)
        if not any(number == counter.id and overlaps(there, edges) for number, there in posted):
            continue
        for place in access.classes:
            inside = overlaps(edges, point(place.site))
            if inside and local and local.all.get((place.number, counter.engine), -1) < last:
                raise OrderRefused(
                    f"section {access.instance} posts to a counter that section {last} may still wait for",
                    where=access.actor.where,
                    terms=[f"counter {counter.name}, id {counter.id}"],
                    remedy="a boundary between the two sections, or another id",
                )


def _used(ledger: _Ledger, use: Use, place: Class) -> Bytes | None:
    """What a process of a shape uses of a buffer on the sites of a class."""
    shape, process, name = use
    section, key = ledger.sections[shape], (shape, name, place.number)
    if changes(section, section.actors[process], name):
        return all_bytes(section, name)
    if key not in ledger.readable:
        ledger.readable[key] = bytes_read(section, ledger.evidence[shape].regions.get(name, ()), name, place.within)
    return ledger.readable[key]


def _overlapping(before: Section, after: Section) -> dict[int, list[tuple[int, str, str]]]:
    """By process of the second shape: the processes of the first, the buffer of each, and the process's own buffer,
    where the buffers overlap in local memory.
    """
    pairs: set[tuple[int, int, str, str]] = set()
    left, right = list(memory_map(before)), list(memory_map(after))
    while left and right:
        (start, end, name), (low, high, other) = left[0], right[0]
        if low < end and start < high:
            pairs |= {(b.number, a.number, name, other) for a in before.users(name) for b in after.users(other)}
        (left if end <= high else right).pop(0)
    found: dict[int, list[tuple[int, str, str]]] = {}
    for process, *earlier in sorted(pairs):
        found.setdefault(process, []).append(tuple(earlier))  # type: ignore[arg-type]
    return found


def _shared_counters(program: Program, sections: dict[str, Section]) -> None:
    """Counters of different shapes, and the program's own, with one id on one site."""
    listed = [(f"{s.shape.name}.{c.name}", c, s.shape.name) for s in sections.values() for c in s.shape.counters]
    own = [(c.name, c, "") for c in program.counters]
    for i, (name, counter, shape) in enumerate((*listed, *own)):
        for other_name, other, other_shape in (*listed, *own)[i + 1 :]:
            if shape == other_shape or counter.id != other.id:
                continue
            if not overlaps(box(counter.rect, name), box(other.rect, other_name)):
                continue
            if not other_shape or counter.engine != other.engine:
                raise CapacityRefused(f"{name} and {other_name} share id {counter.id} on a site", where=program.name)
