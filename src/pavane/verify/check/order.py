"""Order: every two conflicting accesses to the same bytes are ordered by happens-before, and what is read has been
written.

*Inside a section.* A process touches a slot only while it owns it and after its transfers have ended (`ownership`);
slots go from pusher to popper and back through the FIFO; a carry belongs to one process of a site; buffers are
disjoint (`capacity`); a formal that is stored is not loaded and shares bytes with no other formal (`coverage`,
`bindings`), and its windows are disjoint (`coverage`). So no two accesses of one section to the same bytes are
unordered.

*Between sections* (clocks of `boundaries`). For tensors, an access of a section must know the last conflicting accesses
to any tensor that shares bytes: on every site, or on its own where both touch the same elements on one site only
(`footprints`). For local memory, a section must know that those of other shapes whose buffers overlap are done on the
site; sections of the same shape follow each other through the same FIFOs and carries as turns of one loop do. Two
counters with one id must belong to one engine, and sections of other shapes must be over on all sites before they use
it.

*Initialised.* WEIGHT and INPUT are never written. A prefix of a SCRATCH or OUTPUT tensor is read only after it was
written whole, with no write to bytes it shares in between. STATE: an epoch writes exactly the rows of its transition,
once; rows before them were written in earlier epochs (the launch guards `0 <= pos' <= pos + rows`), rows of the
transition only after this epoch's write.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pavane.ir.program import Instance, Post, Program, Tensor
from pavane.ir.quasi import Domain, Quasi, quasi
from pavane.reject import CapacityRefused, OrderRefused
from pavane.verify.check.bindings import Memory, Place, bound, elements
from pavane.verify.check.boundaries import Access, walk_program
from pavane.verify.check.boxes import box, overlaps, point
from pavane.verify.check.capacity import memory_map
from pavane.verify.check.facts import LOCAL, first_access, tensor_uses
from pavane.verify.check.footprints import Footprint, footprint_of
from pavane.verify.check.inequalities import never_negative, never_positive
from pavane.verify.check.ownership import ownership
from pavane.verify.check.section import Section, buffers_of

Where = tuple[int, str]
Use = tuple[str, int, str]
Accesses = dict[tuple[Where, Use], tuple[int, str]]


def section_order(section: Section) -> str:
    """Ownership of slots and carries inside a section."""
    steps = sum(ownership(section, actor) for actor in section.actors)
    for name in section.carries:
        users = [a for a in section.actors if any(name in buffers_of(leaf.step) for leaf in a.leaves)]
        for i, actor in enumerate(users):
            for other in users[i + 1 :]:
                if overlaps(actor.box, other.box):
                    raise OrderRefused(f"{actor.name} and {other.name} both use carry {name}", where=section.where)
    return f"{steps} steps own what they touch"


@dataclass
class _Ledger:
    """Last accesses so far: per place, (class, engine) and use (shape, process, formal) the last section that read or
    wrote there, and which tensor.

    `stored`: tensors that a section has written to; `written`: how many elements of those written whole. `pending`:
    what the current section accesses, entered when it is over.
    """

    program: Program
    sections: dict[str, Section]
    memory: Memory
    symbols: Domain
    reads: dict[Place, Accesses] = field(default_factory=dict)
    writes: dict[Place, Accesses] = field(default_factory=dict)
    footprints: dict[Use, Footprint] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    written: dict[str, Quasi] = field(default_factory=dict)
    state_written: dict[str, int] = field(default_factory=dict)
    ran: dict[str, int] = field(default_factory=dict)
    overlapping: dict[tuple[str, str], tuple[tuple[int, int, str], ...]] = field(default_factory=dict)
    uses: dict[tuple[str, int], tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    pending: list[tuple[str, Where, Use, bool]] = field(default_factory=list)
    current: int = -1
    pairs: int = 0


def program_order(program: Program, sections: dict[str, Section], memory: Memory, symbols: Domain) -> str:
    """Accesses of different sections, in the order in which the workers run them."""
    ledger = _Ledger(program, sections, memory, symbols)
    _shared_counters(program, sections)

    def visit(access: Access) -> None:
        if access.instance != ledger.current:
            _close(ledger)
            ledger.current = access.instance
            _initialised(ledger, access.section, program.instances[access.instance], access.instance)
        _tensors(ledger, access)
        _local(ledger, access)

    boundaries = walk_program(program, sections, visit)
    _close(ledger)
    _outcome(ledger, program)
    return f"{boundaries}, {ledger.pairs} pairs of accesses"


# --- tensors ----------------------------------------------------------------------------------------------------------


def _tensors(ledger: _Ledger, access: Access) -> None:
    """Compare with the accesses of earlier sections."""
    key = (access.section.shape.name, access.actor.number)
    if key not in ledger.uses:
        ledger.uses[key] = tensor_uses(access.section, access.actor)
    reads, writes = ledger.uses[key]
    names = _bound_names(ledger.program.instances[access.instance])
    place = (access.place.number, access.actor.process.engine)
    for formal in sorted(reads | writes):
        tensor, use = names[formal], (*key, formal)
        if use not in ledger.footprints:
            ledger.footprints[use] = footprint_of(access.section, access.actor, formal)
        at = ledger.memory.places[tensor]
        for other in ledger.memory.meeting[at]:
            alike = (at[1], at[3]) == (other[1], other[3])
            _known(ledger, access, ledger.writes.get(other, {}), tensor, use, alike)
            if formal in writes:
                _known(ledger, access, ledger.reads.get(other, {}), tensor, use, alike)
        ledger.pending.append((tensor, place, use, formal in writes))


def _known(ledger: _Ledger, access: Access, earlier: Accesses, tensor: str, use: Use, alike: bool) -> None:
    """`alike`: the same elements stand at the same bytes."""
    for (place, before), (instance, other) in earlier.items():
        ledger.pairs += 1
        known = access.tensors.all.get(place, -1) >= instance
        if not known and alike:
            not_here = place[0] != access.place.number or access.tensors.own.get(place[1], -1) >= instance
            known = not_here and ledger.footprints[use].meets_on_one_site(ledger.footprints[before])
        if not known:
            raise OrderRefused(
                f"section {access.instance} touches {tensor} while section {instance} may still use {other}",
                where=access.actor.where,
                terms=[f"engine {place[1]} of another site or process is not known to be done with it"],
                remedy="a boundary between the two sections",
            )


def _bound_names(instance: Instance) -> dict[str, str]:
    return {binding.formal: binding.tensor for binding in instance.bindings}


def _close(ledger: _Ledger) -> None:
    """Enter the current section's accesses, and what it has written whole."""
    number = ledger.current
    if number < 0:
        return
    for name, place, use, wrote in ledger.pending:
        table = ledger.writes if wrote else ledger.reads
        table.setdefault(ledger.memory.places[name], {})[(place, use)] = (number, name)
    ledger.pending.clear()
    instance = ledger.program.instances[number]
    section, names = ledger.sections[instance.shape], _bound_names(instance)
    for spec in section.shape.spec:
        tensor = ledger.memory.tensors[names[spec.out]]
        ledger.stored.add(tensor.name)
        for other in tuple(ledger.written):
            if other != tensor.name and ledger.memory.share(tensor.name, other):
                del ledger.written[other]
        formal = section.formals[spec.out]
        whole = all(o == quasi(0) for o in spec.origin) and spec.extents == formal.shape
        count = elements(formal.shape) if whole else None
        if tensor.role == "STATE":
            _transition(ledger, section, spec.out, tensor, number)
        elif count is not None:
            before = ledger.written.get(tensor.name)
            if before is None or never_negative(count - before, ledger.symbols):
                ledger.written[tensor.name] = count
    ledger.ran[instance.shape] = number


def _transition(ledger: _Ledger, section: Section, out: str, tensor: Tensor, number: int) -> None:
    """The one write of an epoch to a STATE tensor: exactly the rows of its transition."""
    where = f"section {number}, {out} = {tensor.name}"
    change = tensor.transition
    if change is None or tensor.name in ledger.state_written:
        raise OrderRefused("a STATE tensor is written twice, or without a transition", where=where)
    spec = next(s for s in section.shape.spec if s.out == out)
    shape = section.formals[out].shape
    rows = (spec.origin[0], spec.extents[0]) == (change.row, change.rows)
    rest = all(o == quasi(0) for o in spec.origin[1:]) and spec.extents[1:] == shape[1:]
    same_rows = _row_elements(shape) == _row_elements(tensor.shape)
    if not (rows and rest and same_rows):
        raise OrderRefused(
            "the section does not write exactly the rows of the transition",
            where=where,
            needed=f"rows {change.row} +: {change.rows}",
            available=f"rows {spec.origin[0]} +: {spec.extents[0]}",
        )
    ledger.state_written[tensor.name] = number


def _row_elements(shape: tuple[Quasi, ...]) -> Quasi | None:
    return elements((quasi(1), *shape[1:]))


def _initialised(ledger: _Ledger, section: Section, instance: Instance, number: int) -> None:
    stored = {spec.out for spec in section.shape.spec}
    for formal, tensor in bound(section, instance, ledger.memory):
        where = f"section {number}, {formal.name} = {tensor.name}"
        if formal.name in stored or tensor.role in ("INPUT", "WEIGHT"):
            continue
        if tensor.role == "STATE":
            _state_read(ledger, formal.shape, tensor, where)
            continue
        if ledger.memory.part:
            continue
        count, written = elements(formal.shape), ledger.written.get(tensor.name)
        whole = formal.shape == tensor.shape and written is not None and written == elements(tensor.shape)
        if not whole and (count is None or written is None or not never_negative(written - count, ledger.symbols)):
            raise OrderRefused(
                "a section reads elements that no section before it has written",
                where=where,
                needed=f"{count}",
                available=f"{written}",
            )


def _state_read(ledger: _Ledger, shape: tuple[Quasi, ...], tensor: Tensor, where: str) -> None:
    change = tensor.transition
    if change is None or _row_elements(shape) != _row_elements(tensor.shape):
        raise OrderRefused("a STATE tensor is read in other rows than its own, or has no transition", where=where)
    written = tensor.name in ledger.state_written or ledger.memory.part
    end = change.row + change.rows if written else change.row
    if not never_positive(shape[0] - end, ledger.symbols):
        raise OrderRefused(
            "rows of a STATE tensor are read that have not been written",
            where=where,
            needed=f"rows below {shape[0]}",
            available=f"{end}",
        )


def _outcome(ledger: _Ledger, program: Program) -> None:
    """Outputs are written whole; every STATE tensor that changes makes its transition, all of the same rows."""
    changes = {(t.transition.row, t.transition.rows) for t in program.tensors if t.transition is not None}
    if len(changes) > 1:
        raise OrderRefused("STATE tensors have different transitions", where=program.name)
    for tensor in program.tensors:
        where = f"tensor {tensor.name}"
        if tensor.transition is not None:
            if tensor.role != "STATE" or tensor.transition.row != quasi("pos"):
                raise OrderRefused("a transition belongs to a STATE tensor and begins at row pos", where=where)
            if tensor.name not in ledger.state_written and not ledger.memory.part:
                raise OrderRefused("an epoch does not write the rows of the transition", where=where)
        count = elements(tensor.shape)
        given = ledger.memory.part and tensor.name not in ledger.stored
        if tensor.role == "OUTPUT" and not given and (count is None or ledger.written.get(tensor.name) != count):
            raise OrderRefused("an output is not written whole", where=where)


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
        for before, after, name in ledger.overlapping[key]:
            earlier = ledger.sections[shape].actors[before]
            if after != access.actor.number or not overlaps(earlier.box, point(access.place.site)):
                continue
            ledger.pairs += 1
            if access.local(first_access(name)).own.get(earlier.process.engine, -1) < last:
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
    names = {leaf.step.counter for leaf in access.actor.leaves if isinstance(leaf.step, Post)}
    posted = [(access.section.counters[name].id, box(access.section.counters[name].rect, name)) for name in names]
    local = access.local(LOCAL) if posted else None
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


def _overlapping(before: Section, after: Section) -> tuple[tuple[int, int, str], ...]:
    """Pairs of processes of two shapes that use overlapping bytes of local memory, the second by that buffer."""
    pairs: set[tuple[int, int, str]] = set()
    left, right = list(memory_map(before)), list(memory_map(after))
    while left and right:
        (start, end, name), (low, high, other) = left[0], right[0]
        if low < end and start < high:
            pairs |= {(a, b, other) for a in _users(before, name) for b in _users(after, other)}
        (left if end <= high else right).pop(0)
    return tuple(sorted(pairs))


def _users(section: Section, name: str) -> tuple[int, ...]:
    return tuple(a.number for a in section.actors if any(name in buffers_of(leaf.step) for leaf in a.leaves))


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
