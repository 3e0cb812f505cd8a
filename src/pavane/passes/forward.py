"""forward: TEMPLATE sections -> TEMPLATE sections that hand results over on the chip, never through memory beside it.

A SCRATCH tensor may have a copy on every site: its producers send each block to all sites, its consumers read their
own. So any partition of the one side meets any of the other, any number of readers is served, and nothing crosses
the memory beside the chip. A WEIGHT that every reader needs (a gain) may lie there too, for good, where all that are
used alike fit. What it costs is memory: the arena of the copies (by lifetime, counted in waves) is taken from what
sections are planned with.

What is compared is the predicted time of all waves (`wave_costs`), each section with the plan that is best in the
memory that is left; where that is the same, the traffic beside the chip. Tensors that are used alike move together.
Those that gain most a byte are tried first; each goes to the sites, or comes back, where that costs less, until none
by itself would.

Refuses never: what does not fit or does not pay stays beside the chip. Where engines address memory in place there is
nothing to bring closer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pavane.ir.program import Join, Tensor
from pavane.ir.walk import symbol_domain
from pavane.passes.arena import Lifetimes, end_of_memory
from pavane.passes.buffers import usable_bytes
from pavane.passes.memory_beside import tensor_bytes
from pavane.passes.pack import Packed, with_join
from pavane.passes.planning import Planning
from pavane.passes.section import with_tensors
from pavane.passes.wave_costs import WaveCost, WaveCosts, cost_of_all
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.restrict import restricted

_MOST_ROUNDS = 8
ON_SITES, BESIDE = "a copy on every site", "beside the chip"


@dataclass(frozen=True)
class Forwarded:
    """The packed sections, and the chip with the local memory that the copies leave."""

    packed: Packed
    target: SpatialTarget


def forward(packed: Packed, target: SpatialTarget, planning: Planning) -> Forwarded:
    """Decide for every tensor between sections where it lies."""
    if target.alias:
        return Forwarded(packed, target)
    moving = _Moving(packed, target, planning)
    chosen: frozenset[str] = frozenset()
    candidates = sorted(moving.candidates(), key=moving.order)
    for _ in range(_MOST_ROUNDS):
        before = chosen
        for candidate in candidates:
            chosen = moving.better(chosen, chosen ^ candidate.names)
        if chosen == before:
            break
    moved = with_copies(packed, chosen, target)
    joins = {name: join for c in candidates if (join := moving.join(c, chosen)) is not None for name in c.tensors}
    return Forwarded(_recorded(moved.packed, joins), moved.target)


def with_copies(packed: Packed, names: frozenset[str], target: SpatialTarget) -> Forwarded:
    """The sections with these tensors, and the formals bound to them, on the sites, and the memory that they leave."""
    sizes = {tensor: size for tensor, size in _sizes(packed).items() if tensor.name in names}
    taken = _taken_bytes(sizes, _lifetimes(packed), target)
    here = {name: {"home": "sites"} for name in names}
    moved = packed.with_sections(with_tensors(section, here) for section in packed.sections)
    return Forwarded(moved, restricted(target, memory_bytes=target.memory.bytes - taken))


# --- the choice -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """Tensors that are used alike, in order of first use; the bytes of one; the waves that touch them, by number."""

    tensors: tuple[str, ...]
    bytes: int
    waves: tuple[int, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.tensors)


class _Moving:
    """What it costs to have tensors here or there; remembers what it was asked."""

    def __init__(self, packed: Packed, target: SpatialTarget, planning: Planning) -> None:
        self._packed, self._target = packed, target
        self._waves = WaveCosts(packed, planning)
        self._sizes, self._lives = _sizes(packed), _lifetimes(packed)
        self._known: dict[frozenset[str], tuple[WaveCost, ...] | None] = {}

    def candidates(self) -> list[Candidate]:
        """Every tensor that may move; of weights only those of which all that are used alike fit."""
        alike: dict[tuple[object, int, str], list[str]] = {}
        for tensor, size in self._sizes.items():
            alike.setdefault((self._waves.users(tensor.name), size, tensor.role), []).append(tensor.name)
        found = []
        for (_, size, role), names in alike.items():
            if role != "WEIGHT" or len(names) * size <= usable_bytes(self._target):
                waves = sorted({wave for name in names for wave in self._waves.touching(name)})
                found.append(Candidate(tuple(names), size, tuple(waves)))
        return found

    def order(self, candidate: Candidate) -> tuple[Fraction, str]:
        """What the candidate gains a byte by itself, most first."""
        apart, here = self.costs(frozenset()), self._alone(candidate)
        if apart is None or here is None:
            return Fraction(0), candidate.tensors[0]
        gain = _cycles(apart, candidate.waves) - sum(cost.cycles for cost in here)
        return Fraction(-gain, candidate.bytes), candidate.tensors[0]

    def better(self, names: frozenset[str], others: frozenset[str]) -> frozenset[str]:
        """Whichever of the two costs less; the first where they cost the same."""
        costs, other_costs = self.costs(names), self.costs(others)
        if other_costs is None:
            return names
        return others if costs is None or cost_of_all(other_costs) < cost_of_all(costs) else names

    def costs(self, names: frozenset[str]) -> tuple[WaveCost, ...] | None:
        """Of every wave with these tensors on the sites; None where a section has no plan left."""
        if names not in self._known:
            self._known[names] = self._waves.all(names, self._left(names))
        return self._known[names]

    def _left(self, names: frozenset[str]) -> SpatialTarget:
        sizes = {tensor: size for tensor, size in self._sizes.items() if tensor.name in names}
        taken = _taken_bytes(sizes, self._lives, self._target)
        return restricted(self._target, memory_bytes=max(0, self._target.memory.bytes - taken))

    def _alone(self, candidate: Candidate) -> tuple[WaveCost, ...] | None:
        """Its waves where it takes no memory."""
        return self._waves.some(candidate.waves, candidate.names, self._target)

    def join(self, candidate: Candidate, chosen: frozenset[str]) -> Join | None:
        """The time of the waves that the candidate changes, as chosen and with it the other way."""
        users = dict.fromkeys(name for wave in candidate.waves for name in self._waves.names(wave, candidate.names))
        what = f"forward {candidate.tensors[0]} ({', '.join(users)})"
        mine, other = self.costs(chosen), self.costs(chosen ^ candidate.names)
        if mine is None:
            return None
        if other is None:
            alone = self._alone(candidate)
            waves = candidate.waves
            return None if alone is None else Join(
                what, f"{BESIDE}, for want of room", _cycles(mine, waves), ON_SITES, sum(cost.cycles for cost in alone)
            )  # fmt: skip
        changed = {*candidate.waves, *(number for number, cost in enumerate(mine) if cost != other[number])}
        taken, not_taken = (ON_SITES, BESIDE) if candidate.names <= chosen else (BESIDE, ON_SITES)
        return Join(what, taken, _cycles(mine, changed), not_taken, _cycles(other, changed))


def _cycles(costs: Sequence[WaveCost], waves: Iterable[int]) -> int:
    return sum(costs[wave].cycles for wave in waves)


def _sizes(packed: Packed) -> dict[Tensor, int]:
    """Bytes of the tensors that may move, wherever they are, in order of first use."""
    sizes: dict[str, tuple[Tensor, int]] = {}
    for section in packed.sections:
        domain = symbol_domain(section)
        for tensor in section.tensors:
            if tensor.role in ("SCRATCH", "WEIGHT") and tensor.home != "sharded" and tensor.name not in sizes:
                sizes[tensor.name] = tensor, tensor_bytes(tensor, domain)
    return dict(sizes.values())


def _taken_bytes(sizes: Mapping[Tensor, int], lives: Lifetimes, target: SpatialTarget) -> int:
    """What tensors take of a site's memory."""
    weights = {tensor.name: size for tensor, size in sizes.items() if tensor.role == "WEIGHT"}
    results = {tensor.name: size for tensor, size in sizes.items() if tensor.role != "WEIGHT"}
    return end_of_memory([weights], results, lives, target.memory.bytes, target.memory.alignment_bytes).bytes


def _lifetimes(packed: Packed) -> dict[str, tuple[int, int]]:
    """The first and last wave in which each tensor is used."""
    lives: dict[str, tuple[int, int]] = {}
    for section, wave in zip(packed.sections, packed.waves, strict=True):
        for binding in section.instances[0].bindings:
            lives[binding.tensor] = (lives.get(binding.tensor, (wave, wave))[0], wave)
    return lives


def _recorded(packed: Packed, joins: Mapping[str, Join]) -> Packed:
    """Each comparison, as a join of the sections that touch one of its tensors."""
    sections = []
    for section in packed.sections:
        for name in dict.fromkeys(b.tensor for b in section.instances[0].bindings):
            section = with_join(section, joins.get(name))
        sections.append(section)
    return packed.with_sections(sections)
