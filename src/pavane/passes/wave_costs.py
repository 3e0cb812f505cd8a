"""What the waves of packed sections cost, wherever tensors lie and whatever memory is left. Asked by `forward`.

Sections run where `pack` has put them, each with the plan that is best then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from pavane.ir.program import Program
from pavane.passes.pack import Packed, Place, part_of
from pavane.passes.planning import Planning
from pavane.targets.descriptor import SpatialTarget


@dataclass(frozen=True)
class WaveCost:
    """Cycles of a wave, and bytes that it moves from and to the memory beside the chip."""

    cycles: int
    dram_bytes: int


def cost_of_all(costs: Sequence[WaveCost]) -> tuple[int, int]:
    """Time first, then traffic beside the chip."""
    return sum(cost.cycles for cost in costs), sum(cost.dram_bytes for cost in costs)


@dataclass(frozen=True)
class _Member:
    """A section of a wave: what it is but for names, its name, its rectangle, the tensors of its formals."""

    key: str
    name: str
    place: Place
    tensors: tuple[str, ...]


_Homes = tuple[bool, ...]  # of each formal: is it on the sites?
_Wave = tuple[tuple[str, Place, _Homes], ...]


class WaveCosts:
    """Remembers what it was asked, for the length of one compilation."""

    def __init__(self, packed: Packed, planning: Planning) -> None:
        self._planning = planning
        self._sections = {planning.key(section): section for section in reversed(packed.sections)}
        self._waves = _members(packed, planning)
        self._known: dict[tuple[_Wave, int], WaveCost | None] = {}
        self._moved: dict[tuple[str, _Homes], Program] = {}
        self._touching: dict[str, list[int]] = {}
        for number, wave in enumerate(self._waves):
            for name in dict.fromkeys(name for member in wave for name in member.tensors):
                self._touching.setdefault(name, []).append(number)

    def touching(self, tensor: str) -> list[int]:
        """The waves that use a tensor."""
        return self._touching.get(tensor, [])

    def names(self, wave: int, tensors: frozenset[str]) -> Iterator[str]:
        """The members of a wave that use one of the tensors."""
        return (member.name for member in self._waves[wave] if not tensors.isdisjoint(member.tensors))

    def users(self, tensor: str) -> tuple[object, ...]:
        """The same for tensors that the same kinds of waves use in the same places."""
        return tuple(
            tuple((m.key, m.place, _homes(m, frozenset((tensor,)))) for m in self._waves[wave])
            for wave in self.touching(tensor)
        )

    def all(self, names: frozenset[str], target: SpatialTarget) -> tuple[WaveCost, ...] | None:
        """Of every wave with these tensors on the sites; None where a section has no plan."""
        return self.some(range(len(self._waves)), names, target)

    def some(self, waves: Sequence[int], names: frozenset[str], target: SpatialTarget) -> tuple[WaveCost, ...] | None:
        found = []
        for number in waves:
            wave = tuple((member.key, member.place, _homes(member, names)) for member in self._waves[number])
            key = wave, target.memory.bytes
            if key not in self._known:
                self._known[key] = self._cost(wave, target)
            cost = self._known[key]
            if cost is None:
                return None
            found.append(cost)
        return tuple(found)

    def _cost(self, wave: _Wave, target: SpatialTarget) -> WaveCost | None:
        members = [(self._section(key, homes), part_of(target, place)) for key, place, homes in wave]
        cycles = self._planning.wave_cycles(members)
        if cycles is None:
            return None
        alone = (self._planning.predicted(*member) for member in members)
        return WaveCost(cycles, sum(prediction.dram_bytes for prediction in alone if prediction is not None))

    def _section(self, key: str, homes: _Homes) -> Program:
        if (key, homes) not in self._moved:
            self._moved[key, homes] = _with_homes(self._sections[key], homes)
        return self._moved[key, homes]


def _members(packed: Packed, planning: Planning) -> list[tuple[_Member, ...]]:
    """The sections of each wave, in order."""
    together: dict[int, list[_Member]] = {}
    for section, place, wave in zip(packed.sections, packed.places, packed.waves, strict=True):
        (shape,), bound = section.shapes, {b.formal: b.tensor for b in section.instances[0].bindings}
        tensors = tuple(bound[formal.name] for formal in shape.formals)
        together.setdefault(wave, []).append(_Member(planning.key(section), shape.name, place, tensors))
    return [tuple(members) for members in together.values()]


def _homes(member: _Member, names: frozenset[str]) -> _Homes:
    return tuple(tensor in names for tensor in member.tensors)


def _with_homes(section: Program, homes: _Homes) -> Program:
    (shape,) = section.shapes
    formals = (replace(f, home="sites") if here else f for f, here in zip(shape.formals, homes, strict=True))
    return replace(section, shapes=(replace(shape, formals=tuple(formals)),))
