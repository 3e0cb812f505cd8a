"""Bindings: each formal is its tensor or a legal view of it, may be used as it is, and no written formal shares bytes
within its section.

A view is the tensor's first elements read row-major with the formal's shape. Evidence for `bounds` (an access inside
the formal is inside the tensor), `meaning` (which tensors a section works on) and `order` (which instances touch the
same bytes).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, permutations

from pavane.ir.program import Formal, Program, Tensor
from pavane.ir.quasi import Domain, Quasi, upper
from pavane.ir.types import Const, Floats, Ints, block_elements, row_bytes
from pavane.ir.walk import symbol_domain
from pavane.reject import BoundsRefused, CapacityRefused, NumericsRefused, OrderRefused, OutsideFragment
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.check.inequalities import never_negative
from pavane.verify.check.intervals import Interval, sharing
from pavane.verify.check.scope import MAX_SHARING
from pavane.verify.check.section import Section

Place = tuple[str, int, int, str]


@dataclass(frozen=True)
class Memory:
    """A program's sections (by shape) and tensors: where every tensor stands, as (arena, first byte, end, dtype), and
    the places that share bytes with each place. SCRATCH of one home is one arena; any other tensor is an arena of its
    own.

    `part`: the program is one section of another; its SCRATCH has no places, and what it reads of SCRATCH and STATE
    is given.
    """

    program: Program
    sections: dict[str, Section]
    symbols: Domain
    part: bool
    places: dict[str, Place]
    meeting: dict[Place, list[Place]]

    @cached_property
    def bound(self) -> tuple[tuple[str, Section, list[tuple[Formal, Tensor]]], ...]:
        """Every instance: where, its section, and each formal with its tensor."""
        tensors = {t.name: t for t in self.program.tensors}
        found = []
        for number, instance in enumerate(self.program.instances):
            section = self.sections[instance.shape]
            pairs = [(section.formals[b.formal], tensors[b.tensor]) for b in instance.bindings]
            found.append((f"section {number} ({instance.name or instance.shape})", section, pairs))
        return tuple(found)

    @property
    def lasting(self) -> list[Tensor]:
        """What lies beside the chip outside the arena."""
        return [t for t in self.program.tensors if t.role != "SCRATCH" and t.home == "dram"]

    @property
    def arena_end(self) -> int:
        """The bytes of the arena beside the chip."""
        return max((end for arena, _, end, _ in self.places.values() if arena == "SCRATCH dram"), default=0)

    def bytes_of(self, tensor: Tensor) -> int:
        """The most that a tensor takes for any value of the symbols."""
        return tensor_bytes(tensor, self.symbols)

    def share(self, one: str, other: str) -> bool:
        """Do two tensors share bytes?"""
        (arena, start, end, _), (beside, low, high, _) = self.places[one], self.places[other]
        return arena == beside and start < high and low < end


def memory_of(program: Program, sections: dict[str, Section], target: SpatialTarget, part: bool) -> Memory:
    """Lay out SCRATCH as the program says; refuse places that are missing, unaligned or beyond the chip's memory."""
    symbols = symbol_domain(program)
    places = {t.name: _place(t, symbols, target, part) for t in program.tensors}
    memory = Memory(program, sections, symbols, part, places, _meeting(places.values(), program.name))
    total = memory.arena_end + sum(map(memory.bytes_of, memory.lasting))
    if total > target.dram.bytes:
        raise CapacityRefused(
            "the tensors do not fit the memory", needed=f"{total} bytes", available=f"{target.dram.bytes} bytes"
        )
    return memory


def _meeting(places: Iterable[Place], where: str) -> dict[Place, list[Place]]:
    """Of each place itself and the others that share bytes with it."""
    found = {place: [place] for place in places}
    arenas: dict[str, list[Interval[Place]]] = {}
    for place in found:
        arenas.setdefault(place[0], []).append((place[1], place[2], place))
    pairs = chain.from_iterable(map(sharing, arenas.values()))
    for number, (one, other) in enumerate(pairs):
        if number == MAX_SHARING:
            raise OutsideFragment("too many tensors share bytes", where=where, available=f"{MAX_SHARING} pairs")
        found[one].append(other)
        found[other].append(one)
    return found


def _place(tensor: Tensor, symbols: Domain, target: SpatialTarget, part: bool) -> Place:
    """Where a tensor stands; where copies on the sites may stand is `homes`'s."""
    if tensor.role != "SCRATCH" or part:
        return f"tensor {tensor.name}", 0, 1, tensor.dtype
    alignment = (target.dram if tensor.home == "dram" else target.memory).alignment_bytes
    if tensor.offset < 0 or tensor.offset % alignment:
        what = f"a SCRATCH tensor stands at byte {tensor.offset}"
        raise CapacityRefused(what, where=f"tensor {tensor.name}", needed=f"a multiple of {alignment} from 0 on")
    return f"SCRATCH {tensor.home}", tensor.offset, tensor.offset + tensor_bytes(tensor, symbols), tensor.dtype


def tensor_bytes(tensor: Tensor, symbols: Domain) -> int:
    """The most that it takes for any value of the symbols."""
    rows = math.prod(upper(extent, symbols) for extent in tensor.shape[:-1])
    return rows * row_bytes(tensor.dtype, upper(tensor.shape[-1], symbols))


def bindings(memory: Memory) -> str:
    """Refuse the first binding that is no legal view or no legal use."""
    for where, section, pairs in memory.bound:
        for formal, tensor in pairs:
            _view(formal, tensor, memory.symbols, f"{where}, {formal.name} = {tensor.name}")
            if formal.name in section.specs and tensor.role in ("INPUT", "WEIGHT"):
                raise OrderRefused(f"a section writes {tensor.role} memory", where=f"{where}, {formal.name}")
        _apart(section, pairs, memory, where)
    return f"{len(memory.bound)} sections bound"


def _view(formal: Formal, tensor: Tensor, symbols: Domain, where: str) -> None:
    if formal.dtype != tensor.dtype:
        raise BoundsRefused(f"a formal of {formal.dtype} is bound to a tensor of {tensor.dtype}", where=where)
    if formal.role != "OUT" and not _fill_holds(formal, tensor):
        raise NumericsRefused("the section assumes values that the tensor does not promise", where=where)
    if formal.shape == tensor.shape:
        return
    needed, given = elements(formal.shape), elements(tensor.shape)
    if needed is None or given is None or (block_elements(formal.dtype) > 1 and formal.shape[-1] != tensor.shape[-1]):
        raise BoundsRefused("a formal is no view of its tensor: only the first dimension may be symbolic", where=where)
    if not never_negative(given - needed, symbols):
        what = "a formal has more elements than its tensor"
        raise BoundsRefused(what, where=where, needed=f"{needed}", available=f"{given}")


def elements(shape: tuple[Quasi, ...]) -> Quasi | None:
    """How many elements a shape has, when only its first extent is symbolic."""
    return shape[0] * math.prod(e.const for e in shape[1:]) if all(e.is_const for e in shape[1:]) else None


def _fill_holds(formal: Formal, tensor: Tensor) -> bool:
    """Only what comes from outside is checked to have its fill, at launch."""
    stated, given = formal.fill, tensor.fill
    if isinstance(stated, Floats) or tensor.role not in ("INPUT", "WEIGHT"):
        return isinstance(stated, Floats)
    if isinstance(given, Const) and given.value == int(given.value):
        given = Ints(int(given.value), int(given.value))
    within = isinstance(stated, Ints) and isinstance(given, Ints) and stated.lo <= given.lo and given.hi <= stated.hi
    return stated == tensor.fill or within


def _apart(section: Section, pairs: list[tuple[Formal, Tensor]], memory: Memory, where: str) -> None:
    for (formal, tensor), (other, beside) in permutations(pairs, 2):
        if formal.name in section.specs and memory.share(tensor.name, beside.name):
            what = f"{formal.name} is written and shares bytes with {other.name}"
            raise OrderRefused(what, where=where, terms=[tensor.name, beside.name])
