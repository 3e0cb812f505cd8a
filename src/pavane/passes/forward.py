"""forward: TEMPLATE sections -> TEMPLATE sections that hand results over on the chip, never through memory beside it.

A SCRATCH tensor may have a copy on every site: its producers send each block to all sites, its consumers read their
own. So any partition of the one side meets any of the other, any number of readers is served, and nothing crosses
the memory beside the chip. For each tensor the time of the sections that touch it, with the plans they have, on the
sites and beside the chip: the sites are worth it when that is less. Those that gain most a byte come first, until
their arena (by lifetime, counted in waves) would take more than half of a site's memory. The sections are then planned
again with what is left of it; when they would take no less in all than before, half as much is tried, and so on.

Refuses never: what does not fit or does not pay stays beside the chip. Where engines address memory in place there is
nothing to bring closer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as with_sections
from fractions import Fraction

from msgspec.structs import replace

from pavane.ir.program import Formal, Join, Program, Tensor
from pavane.ir.walk import symbol_domain
from pavane.passes.arena import arena
from pavane.passes.buffers import usable_bytes
from pavane.passes.memory_beside import tensor_bytes
from pavane.passes.pack import Packed, Place, part_of, with_join
from pavane.passes.planning import Planning, predicted
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.restrict import restricted

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
    found = candidates(packed, target, planning)
    wanted = sorted((c for c in found if c.on_sites < c.beside), key=lambda c: c.order)
    before = _total(packed, target, planning)
    for halving in range(_HALVINGS):
        names = _that_fit(packed, wanted, usable_bytes(target) >> (halving + 1), target)
        moved = with_copies(packed, names, target)
        after = _total(moved.packed, moved.target, planning)
        if names and after is not None and (before is None or after < before):
            return Forwarded(_recorded(moved.packed, found, names), moved.target)
    return Forwarded(_recorded(packed, found, frozenset()), target)


def with_copies(packed: Packed, names: frozenset[str], target: SpatialTarget) -> Forwarded:
    """The sections with these tensors, and the formals bound to them, on the sites, and the memory that they leave."""
    sizes = {name: size for name, size in _scratch_bytes(packed).items() if name in names}
    alignment = target.memory.alignment_bytes
    taken = arena(sizes, _lifetimes(packed), alignment).bytes + (target.memory.bytes % alignment if names else 0)
    moved = with_sections(packed, sections=tuple(_with_homes(section, names) for section in packed.sections))
    return Forwarded(moved, restricted(target, memory_bytes=target.memory.bytes - taken))


def _total(packed: Packed, target: SpatialTarget, planning: Planning) -> int | None:
    """Predicted cycles of all sections, one wave after the other; None where one has no plan."""
    waves: dict[int, int] = {}
    for section, place, wave in zip(packed.sections, packed.places, packed.waves, strict=True):
        prediction = planning.predicted(section, part_of(target, place))
        if prediction is None:
            return None
        waves[wave] = max(waves.get(wave, 0), prediction.cycles)
    return sum(waves.values())


# --- candidates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _User:
    """A section that touches a tensor: what it is but for names, its rectangle, and which of its formals are bound."""

    key: str
    place: Place
    formals: tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """Tensors of equal users: their names, the users' cycles on the sites and beside the chip, the bytes of one."""

    names: tuple[str, ...]
    users: tuple[str, ...]
    on_sites: int
    beside: int
    bytes: int

    @property
    def order(self) -> tuple[Fraction, str]:
        return Fraction(self.on_sites - self.beside, self.bytes), self.names[0]


def candidates(packed: Packed, target: SpatialTarget, planning: Planning) -> tuple[Candidate, ...]:
    """Every SCRATCH tensor; those with equal users are one candidate."""
    users = _users(packed, planning)
    alike: dict[tuple[tuple[_User, ...], int], list[str]] = {}
    for name, size in _scratch_bytes(packed).items():
        alike.setdefault((users.get(name, ()), size), []).append(name)
    sections = {planning.key(s): s for s in reversed(packed.sections)}
    known: dict[_User, tuple[int, int] | None] = {}
    found = []
    for (of, size), names in alike.items():
        for user in of:
            if user not in known:
                known[user] = _costs(user, sections[user.key], target, planning)
        times = [time for time in (known[user] for user in of) if time is not None]
        if of and len(times) == len(of):
            on_sites, beside = (sum(column) for column in zip(*times, strict=True))
            shapes = tuple(dict.fromkeys(sections[user.key].shapes[0].name for user in of))
            found.append(Candidate(tuple(names), shapes, on_sites, beside, size))
    return tuple(found)


def _scratch_bytes(packed: Packed) -> dict[str, int]:
    """SCRATCH tensors in order of first use."""
    sizes: dict[str, int] = {}
    for section in packed.sections:
        domain = symbol_domain(section)
        sizes.update(
            (t.name, tensor_bytes(t, domain)) for t in section.tensors if _is_scratch(t) and t.name not in sizes
        )
    return sizes


def _is_scratch(tensor: Tensor) -> bool:
    return tensor.role == "SCRATCH"


def _users(packed: Packed, planning: Planning) -> dict[str, tuple[_User, ...]]:
    users: dict[str, list[_User]] = {}
    for section, place in zip(packed.sections, packed.places, strict=True):
        numbers = {formal.name: i for i, formal in enumerate(section.shapes[0].formals)}
        bound: dict[str, list[int]] = {}
        for binding in section.instances[0].bindings:
            bound.setdefault(binding.tensor, []).append(numbers[binding.formal])
        for name, formals in bound.items():
            users.setdefault(name, []).append(_User(planning.key(section), place, tuple(sorted(formals))))
    return {name: tuple(found) for name, found in users.items()}


def _costs(user: _User, section: Program, target: SpatialTarget, planning: Planning) -> tuple[int, int] | None:
    """Cycles of the section with these formals on the sites, and beside the chip; None where it has no plan."""
    part = part_of(target, user.place)
    fused = planning.fused(section, part)
    if fused is None:
        return None
    (shape,) = fused.shapes
    formals = tuple(_at_home(f) if i in user.formals else f for i, f in enumerate(shape.formals))
    on_sites = replace(fused, shapes=(replace(shape, formals=formals),))
    return predicted(on_sites, part).cycles, predicted(fused, part).cycles


def _at_home(formal: Formal) -> Formal:
    return replace(formal, home="sites")


# --- the choice -------------------------------------------------------------------------------------------------------


def _that_fit(packed: Packed, wanted: Sequence[Candidate], most_bytes: int, target: SpatialTarget) -> frozenset[str]:
    """The first of the wanted whose arena is within the bytes."""
    lives, alignment = _lifetimes(packed), target.memory.alignment_bytes
    chosen: dict[str, int] = {}
    for candidate in wanted:
        more = chosen | dict.fromkeys(candidate.names, candidate.bytes)
        if arena(more, lives, alignment).bytes <= most_bytes:
            chosen = more
    return frozenset(chosen)


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
    formals = tuple(_at_home(f) if f.name in here else f for f in shape.formals)
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
    return with_sections(packed, sections=tuple(sections))


def _join(candidate: Candidate, chosen: frozenset[str]) -> Join:
    what = f"forward {candidate.names[0]} ({', '.join(candidate.users)})"
    here, beside = ("a copy on every site", candidate.on_sites), ("beside the chip", candidate.beside)
    taken, other = (here, beside) if candidate.names[0] in chosen else (beside, here)
    return Join(what, *taken, *other)
