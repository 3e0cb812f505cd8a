"""pack: independent TEMPLATE sections -> a wave: at once, on disjoint rectangles of the chip.

Neighbours in the order of sections of which none reads or writes what another writes are a candidate. The grid is cut
into slabs of whole columns, or of whole rows: each member begins with one, and the slowest gets the next until none
is left (`Planning` plans each on its rectangle, which is a target like any other). So no other sharing out of slabs
ends sooner, as far as more sites make a section no slower. The wave takes as long as its slowest member beside the
traffic of the others; it is taken when that is less than one after the other, each on the whole grid, or along the
sites beside the channels (`adjacent`), with a boundary of its own. Where a site has one engine, independent sections
follow each other without boundaries, and nothing is packed.

Refuses never: members that depend on each other are no candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from pavane.cost.boundary import boundary_cycles
from pavane.cost.model import Prediction
from pavane.ir.program import Join, Program
from pavane.ir.rects import shifted
from pavane.passes.adjacent import ADJACENT, Place, by_itself
from pavane.passes.planning import Planning
from pavane.passes.section import uses
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.restrict import adjacent_sites, restricted


@dataclass(frozen=True)
class Packed:
    """The sections with their joins; of each the rectangle it has, and its wave (numbers rise; alone: of its own)."""

    sections: tuple[Program, ...]
    places: tuple[Place, ...]
    waves: tuple[int, ...]

    def with_sections(self, sections: Iterable[Program]) -> Packed:
        """The same places and waves for these sections."""
        return Packed(tuple(sections), self.places, self.waves)

    @property
    def shared_waves(self) -> tuple[int, ...]:
        """The waves of more than one section; -1 for a section by itself."""
        return tuple(wave if self.waves.count(wave) > 1 else -1 for wave in self.waves)


@dataclass(frozen=True)
class Wave:
    """The rectangle of each member, and the predicted cycles of all."""

    places: tuple[Place, ...]
    cycles: int


def pack(sections: Sequence[Program], target: SpatialTarget, planning: Planning) -> Packed:
    """Decide for every run of independent sections whether it becomes a wave."""
    packed: list[Program] = []
    places: list[Place] = []
    waves: list[int] = []
    known: dict[tuple[str, ...], tuple[Wave | None, Join | None]] = {}
    for run in independent_runs(sections, target):
        members = [sections[i] for i in run]
        key = tuple(planning.key(member) for member in members)
        if key not in known:
            known[key] = _decided(members, target, planning) if len(run) > 1 else (None, None)
        wave, join = known[key]
        members = [with_join(member, join) for member in members]
        alone = [by_itself(member, target, planning) for member in members] if wave is None else []
        packed.extend(members if wave else (with_join(m, own) for m, (_, _, own) in zip(members, alone, strict=True)))
        places.extend(wave.places if wave else (place for place, _, _ in alone))
        first = waves[-1] + 1 if waves else 0
        waves.extend([first] * len(run) if wave else range(first, first + len(run)))
    return Packed(tuple(packed), tuple(places), tuple(waves))


def part_of(target: SpatialTarget, place: Place) -> SpatialTarget:
    """A rectangle of the chip, or the sites beside its channels, as a target."""
    if place == ADJACENT:
        return adjacent_sites(target)
    return restricted(target, width=place[2], height=place[3])


def at_place(section: Program, place: Place, wave: int, target: SpatialTarget) -> Program:
    """The section compiled for a rectangle at the chip's origin, or for a line, moved to where it runs."""
    (shape,), (instance,) = section.shapes, section.instances
    beside = place == ADJACENT
    moved = replace(shape, sites=target.dram.adjacent) if beside else shifted(shape, place[0], place[1])
    return replace(section, shapes=(moved,), instances=(replace(instance, wave=wave),))


def independent_runs(sections: Sequence[Program], target: SpatialTarget) -> Iterator[range]:
    """The longest runs of neighbours that do not depend on each other, no longer than the grid has columns or rows."""
    most = max(target.grid.width, target.grid.height) if len(target.engines) > 1 else 1
    first, read, written = 0, frozenset[str](), frozenset[str]()
    for number, section in enumerate(sections):
        reads, writes = uses(section.shapes[0], section.instances[0])
        conflict = written & (reads | writes) or read & writes
        if number > first and (conflict or number - first >= most):
            yield range(first, number)
            first, read, written = number, frozenset(), frozenset()
        read, written = read | reads, written | writes
    yield range(first, len(sections))


def with_join(section: Program, join: Join | None) -> Program:
    """The section with one comparison more."""
    if join is None:
        return section
    (shape,) = section.shapes
    return replace(section, shapes=(replace(shape, joins=(*shape.joins, join)),))


def _decided(members: Sequence[Program], target: SpatialTarget, planning: Planning) -> tuple[Wave | None, Join | None]:
    """The best wave where it beats one after the other, and the comparison; neither where no wave is possible."""
    alone = [by_itself(member, target, planning)[1] for member in members]
    best = best_wave(members, target, planning)
    if best is None or any(prediction is None for prediction in alone):
        return None, None
    boundary = boundary_cycles(target)
    apart = sum(prediction.cycles + boundary for prediction in alone if prediction is not None)
    together = best.cycles + boundary
    what = "pack " + ", ".join(member.shapes[0].name for member in members)
    at_once = "at once on " + ", ".join(f"{w} x {h}" for _, _, w, h in best.places)
    if together < apart:
        return best, Join(what, at_once, together, "one after the other", apart)
    return None, Join(what, "one after the other", apart, at_once, together)


def best_wave(members: Sequence[Program], target: SpatialTarget, planning: Planning) -> Wave | None:
    """The members at once, in columns or in rows, whichever ends sooner; None where that is not possible."""
    waves = [w for w in (_shared_out(members, target, planning, columns) for columns in (True, False)) if w]
    return min(waves, key=lambda wave: wave.cycles, default=None)


def _shared_out(members: Sequence[Program], target: SpatialTarget, planning: Planning, columns: bool) -> Wave | None:
    """Slabs of the grid, each to the member that would end last; None where a member fits none."""
    slabs = target.grid.width if columns else target.grid.height
    if slabs < len(members):
        return None

    def on(member: Program, count: int) -> Prediction | None:
        part = restricted(target, width=count) if columns else restricted(target, height=count)
        return planning.predicted(member, part)

    counts = [1] * len(members)
    times = [on(member, 1) for member in members]
    for _ in range(slabs - len(members)):
        slowest = max(range(len(members)), key=lambda i: (_cycles(times[i]), -i))
        counts[slowest] += 1
        times[slowest] = on(members[slowest], counts[slowest])
    places = _places(counts, target, columns)
    cycles = planning.wave_cycles([(m, part_of(target, place)) for m, place in zip(members, places, strict=True)])
    return Wave(places, cycles) if cycles is not None else None


def _cycles(prediction: Prediction | None) -> int:
    """What fits nowhere yet is slowest."""
    return prediction.cycles if prediction is not None else 1 << 62


def _places(counts: Sequence[int], target: SpatialTarget, columns: bool) -> tuple[Place, ...]:
    places: list[Place] = []
    start = 0
    for count in counts:
        places.append((start, 0, count, target.grid.height) if columns else (0, start, target.grid.width, count))
        start += count
    return tuple(places)
