"""forward: TEMPLATE sections -> TEMPLATE sections that hand results over on the chip, never through memory beside it.

A SCRATCH tensor may have a copy on every site: its producers send each block to all sites, its consumers read their
own. So any partition of the one side meets any of the other, any number of readers is served, and nothing crosses
the memory beside the chip. A WEIGHT that every reader needs (a gain) may lie there too, for good, where all that are
used alike fit. For each tensor the time of the waves that touch it, on the sites and beside the chip, each
section with the plan that is best then: the sites are worth it when that is less. Asked twice: with all others beside
the chip, then with the others where the first answers put them. Those that gain most a byte come first, until their
arena (by lifetime, counted in waves) would take more than half of a site's memory. The sections are then planned again
with what is left of it; the same with half of that memory, a quarter and so on, and with none: what takes least in
all is taken.

Refuses never: what does not fit or does not pay stays beside the chip. Where engines address memory in place there is
nothing to bring closer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from msgspec.structs import replace

from pavane.ir.program import Home, Join, Program, Tensor
from pavane.ir.walk import symbol_domain
from pavane.passes.arena import Lifetimes, end_of_memory
from pavane.passes.buffers import usable_bytes
from pavane.passes.memory_beside import tensor_bytes
from pavane.passes.pack import Packed, Place, part_of, with_join
from pavane.passes.planning import Planning
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.restrict import restricted

_ROUNDS = 2
_HALVINGS = 4


@dataclass(frozen=True)
class Forwarded:
    """The packed sections, and the chip with the local memory that the copies leave."""

    packed: Packed
    target: SpatialTarget


def forward(packed: Packed, target: SpatialTarget, planning: Planning) -> Forwarded:
    """Decide for every tensor between sections where it lies."""
    if target.alias:
        return Forwarded(packed, target)
    names: frozenset[str] = frozenset()
    for _ in range(_ROUNDS):
        rest = with_copies(packed, names, target)
        found = candidates(rest.packed, rest.target, planning)
        wanted = sorted((c for c in found if c.on_sites < c.beside), key=lambda c: c.order)
        names = _that_fit(packed, wanted, usable_bytes(target) >> 1, target)
    choices = (_that_fit(packed, wanted, usable_bytes(target) >> 1 + n, target) for n in range(_HALVINGS))
    best = min(
        dict.fromkeys((*choices, frozenset[str]())), key=lambda n: _total(with_copies(packed, n, target), planning)
    )
    moved = with_copies(packed, best, target)
    return Forwarded(_recorded(moved.packed, found, best), moved.target)


def with_copies(packed: Packed, names: frozenset[str], target: SpatialTarget) -> Forwarded:
    """The sections with these tensors, and the formals bound to them, on the sites, and the memory that they leave."""
    sizes = {tensor: size for tensor, size in _sizes(packed).items() if tensor.name in names}
    taken = _taken_bytes(sizes, _lifetimes(packed), target)
    moved = packed.with_sections(_with_homes(section, names) for section in packed.sections)
    return Forwarded(moved, restricted(target, memory_bytes=target.memory.bytes - taken))


def _total(forwarded: Forwarded, planning: Planning) -> int:
    """Predicted cycles of all sections, one wave after the other; more than any where one has no plan."""
    waves: dict[int, int] = {}
    packed = forwarded.packed
    for section, place, wave in zip(packed.sections, packed.places, packed.waves, strict=True):
        prediction = planning.predicted(section, part_of(forwarded.target, place))
        if prediction is None:
            return 1 << 62
        waves[wave] = max(waves.get(wave, 0), prediction.cycles)
    return sum(waves.values())


# --- candidates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Member:
    """A section of a wave: what it is but for names, its rectangle, and which of its formals a tensor is bound to."""

    key: str
    place: Place
    formals: tuple[int, ...]


_Wave = tuple[_Member, ...]


@dataclass(frozen=True)
class Candidate:
    """Tensors of equal users, the cycles of the waves that touch one of them, the bytes of one."""

    tensors: tuple[Tensor, ...]
    users: tuple[str, ...]
    on_sites: int
    beside: int
    bytes: int

    @property
    def order(self) -> tuple[Fraction, str]:
        return Fraction(self.on_sites - self.beside, self.bytes), self.tensors[0].name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)


def candidates(packed: Packed, target: SpatialTarget, planning: Planning) -> tuple[Candidate, ...]:
    """Every tensor that may move, the others where they are; those with equal users are one candidate."""
    waves, sections = _waves(packed, planning), {planning.key(s): s for s in reversed(packed.sections)}
    alike: dict[tuple[tuple[_Wave, ...], int, str], list[Tensor]] = {}
    for tensor, size in _sizes(packed).items():
        alike.setdefault((waves.get(tensor.name, ()), size, tensor.role), []).append(tensor)
    known: dict[tuple[_Wave, Home], int | None] = {}

    def cycles(of: Sequence[_Wave], home: Home) -> int | None:
        for wave in of:
            if (wave, home) not in known:
                known[wave, home] = _wave_cycles(wave, home, sections, target, planning)
        times = [time for wave in of if (time := known[wave, home]) is not None]
        return sum(times) if times and len(times) == len(of) else None

    found = []
    for (of, size, role), tensors in alike.items():
        if role == "WEIGHT" and len(tensors) * size > usable_bytes(target) >> 1:
            continue
        on_sites, beside = cycles(of, "sites"), cycles(of, "dram")
        if on_sites is not None and beside is not None:
            users = dict.fromkeys(sections[m.key].shapes[0].name for wave in of for m in wave if m.formals)
            found.append(Candidate(tuple(tensors), tuple(users), on_sites, beside, size))
    return tuple(found)


def _sizes(packed: Packed) -> dict[Tensor, int]:
    """Bytes of the tensors that may move, wherever they are, in order of first use."""
    sizes: dict[str, tuple[Tensor, int]] = {}
    for section in packed.sections:
        domain = symbol_domain(section)
        for tensor in section.tensors:
            if tensor.role in ("SCRATCH", "WEIGHT") and tensor.name not in sizes:
                sizes[tensor.name] = tensor, tensor_bytes(tensor, domain)
    return dict(sizes.values())


def _waves(packed: Packed, planning: Planning) -> dict[str, tuple[_Wave, ...]]:
    """Of each tensor the waves that touch it."""
    together: dict[int, list[Program]] = {}
    for section, wave in zip(packed.sections, packed.waves, strict=True):
        together.setdefault(wave, []).append(section)
    places = iter(packed.places)
    found: dict[str, list[_Wave]] = {}
    for sections in together.values():
        members = [(section, planning.key(section), next(places)) for section in sections]
        for name in dict.fromkeys(b.tensor for section in sections for b in section.instances[0].bindings):
            touched = tuple(_Member(key, place, _formals(section, name)) for section, key, place in members)
            found.setdefault(name, []).append(touched)
    return {name: tuple(waves) for name, waves in found.items()}


def _formals(section: Program, tensor: str) -> tuple[int, ...]:
    """The formals that are bound to a tensor, by number."""
    bound = {b.formal for b in section.instances[0].bindings if b.tensor == tensor}
    return tuple(i for i, formal in enumerate(section.shapes[0].formals) if formal.name in bound)


def _wave_cycles(
    wave: _Wave, home: Home, sections: Mapping[str, Program], target: SpatialTarget, planning: Planning
) -> int | None:
    """A wave's time with its tensor there, each member with the plan that is best then; None where one has none."""
    slowest = 0
    for member in wave:
        section = sections[member.key]
        (shape,) = section.shapes
        formals = tuple(replace(f, home=home) if i in member.formals else f for i, f in enumerate(shape.formals))
        moved = replace(section, shapes=(replace(shape, formals=formals),))
        prediction = planning.predicted(moved, part_of(target, member.place))
        if prediction is None:
            return None
        slowest = max(slowest, prediction.cycles)
    return slowest


# --- the choice -------------------------------------------------------------------------------------------------------


def _that_fit(packed: Packed, wanted: Sequence[Candidate], most_bytes: int, target: SpatialTarget) -> frozenset[str]:
    """The first of the wanted that take no more than the bytes."""
    lives = _lifetimes(packed)
    chosen: dict[Tensor, int] = {}
    for candidate in wanted:
        more = chosen | dict.fromkeys(candidate.tensors, candidate.bytes)
        if _taken_bytes(more, lives, target) <= most_bytes:
            chosen = more
    return frozenset(tensor.name for tensor in chosen)


def _taken_bytes(sizes: Mapping[Tensor, int], lives: Lifetimes, target: SpatialTarget) -> int:
    """What tensors take of a site's memory."""
    weights = {tensor.name: size for tensor, size in sizes.items() if tensor.role == "WEIGHT"}
    results = {tensor.name: size for tensor, size in sizes.items() if tensor.role != "WEIGHT"}
    return end_of_memory(weights, results, lives, target.memory.bytes, target.memory.alignment_bytes).bytes


def _lifetimes(packed: Packed) -> dict[str, tuple[int, int]]:
    """The first and last wave in which each tensor is used."""
    lives: dict[str, tuple[int, int]] = {}
    for section, wave in zip(packed.sections, packed.waves, strict=True):
        for binding in section.instances[0].bindings:
            lives[binding.tensor] = (lives.get(binding.tensor, (wave, wave))[0], wave)
    return lives


def _with_homes(section: Program, names: frozenset[str]) -> Program:
    (shape,), (instance,) = section.shapes, section.instances
    here = {b.formal for b in instance.bindings if b.tensor in names}
    if not here and not any(t.name in names for t in section.tensors):
        return section
    formals = tuple(replace(f, home="sites") if f.name in here else f for f in shape.formals)
    tensors = tuple(replace(t, home="sites") if t.name in names else t for t in section.tensors)
    return replace(section, tensors=tensors, shapes=(replace(shape, formals=formals),))


def _recorded(packed: Packed, candidates: Sequence[Candidate], chosen: frozenset[str]) -> Packed:
    """Each comparison, as a join of the sections that touch the tensor."""
    joins: dict[str, Join] = {}
    for candidate in candidates:
        join = _join(candidate, chosen)
        joins.update((name, join) for name in candidate.names)
    sections = []
    for section in packed.sections:
        touched = dict.fromkeys(b.tensor for b in section.instances[0].bindings)
        for name in touched:
            section = with_join(section, joins.get(name))
        sections.append(section)
    return packed.with_sections(sections)


def _join(candidate: Candidate, chosen: frozenset[str]) -> Join:
    what = f"forward {candidate.names[0]} ({', '.join(candidate.users)})"
    here, beside = ("a copy on every site", candidate.on_sites), ("beside the chip", candidate.beside)
    if candidate.names[0] in chosen:
        return Join(what, *here, *beside)
    no_room = candidate.on_sites < candidate.beside
    return Join(what, "beside the chip, for want of room" if no_room else beside[0], candidate.beside, *here)
