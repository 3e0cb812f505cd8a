"""Bindings: each formal is its tensor or a legal view of it, may be used as it is, and no written formal shares bytes
within its section.

A view is the tensor's first elements read row-major with the formal's shape. Evidence for `bounds` (an access inside
the formal is inside the tensor), `meaning` (which tensors a section works on) and `order` (which instances touch the
same bytes).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from pavane.ir.program import Formal, Instance, Program, Tensor
from pavane.ir.quasi import Domain, Quasi, upper
from pavane.ir.types import Const, Floats, Ints, block_elements, row_bytes
from pavane.reject import BoundsRefused, CapacityRefused, NumericsRefused, OrderRefused, OutsideFragment
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.check.inequalities import never_negative
from pavane.verify.check.intervals import Interval, sharing
from pavane.verify.check.scope import MAX_PAIRS
from pavane.verify.check.section import Section

Place = tuple[str, int, int, str]


@dataclass(frozen=True)
class Memory:
    """Where every tensor stands, as (arena, first byte, end, dtype), and the places that share bytes with each place.
    SCRATCH of one home is one arena; any other tensor is an arena of its own.

    `part`: the program is one section of another; its SCRATCH has no places, and what it reads of SCRATCH and STATE
    is given.
    """

    tensors: dict[str, Tensor]
    places: dict[str, Place]
    meeting: dict[Place, list[Place]]
    part: bool = False

    def share(self, one: str, other: str) -> bool:
        """Do two tensors share bytes?"""
        (arena, start, end, _), (beside, low, high, _) = self.places[one], self.places[other]
        return arena == beside and start < high and low < end


def memory_of(program: Program, symbols: Domain, target: SpatialTarget, part: bool) -> Memory:
    """Lay out SCRATCH as the program says; refuse places that are missing, unaligned or beyond the chip's memory."""
    tensors = {t.name: t for t in program.tensors}
    places = {t.name: _place(t, symbols, target, part) for t in program.tensors}
    total = max((end for arena, _, end, _ in places.values() if arena == "SCRATCH dram"), default=0)
    total += sum(tensor_bytes(t, symbols) for t in tensors.values() if t.role != "SCRATCH" and t.home == "dram")
    if total > target.dram.bytes:
        raise CapacityRefused(
            "the tensors do not fit the memory", needed=f"{total} bytes", available=f"{target.dram.bytes} bytes"
        )
    return Memory(tensors, places, _meeting(places.values(), program.name), part)


def _meeting(places: Iterable[Place], where: str) -> dict[Place, list[Place]]:
    """Of each place itself and the others that share bytes with it."""
    found = {place: [place] for place in places}
    arenas: dict[str, list[Interval[Place]]] = {}
    for place in found:
        arenas.setdefault(place[0], []).append((place[1], place[2], place))
    pairs = chain.from_iterable(map(sharing, arenas.values()))
    for number, (one, other) in enumerate(pairs):
        if number == MAX_PAIRS:
            raise OutsideFragment("too many tensors share bytes", where=where, available=f"{MAX_PAIRS} pairs")
        found[one].append(other)
        found[other].append(one)
    return found


def _place(tensor: Tensor, symbols: Domain, target: SpatialTarget, part: bool) -> Place:
    """Where a tensor stands; where copies on the sites may stand is `homes`'s."""
    if tensor.role != "SCRATCH" or part:
        return f"tensor {tensor.name}", 0, 1, tensor.dtype
    alignment = (target.dram if tensor.home == "dram" else target.memory).alignment_bytes
    if tensor.offset < 0 or tensor.offset % alignment:
        raise CapacityRefused(
            f"a SCRATCH tensor stands at byte {tensor.offset}",
            where=f"tensor {tensor.name}",
            needed=f"a multiple of {alignment} from 0 on",
        )
    return f"SCRATCH {tensor.home}", tensor.offset, tensor.offset + tensor_bytes(tensor, symbols), tensor.dtype


def tensor_bytes(tensor: Tensor, symbols: Domain) -> int:
    """The most that it takes for any value of the symbols."""
    rows = math.prod(upper(extent, symbols) for extent in tensor.shape[:-1])
    return rows * row_bytes(tensor.dtype, upper(tensor.shape[-1], symbols))


def bindings(program: Program, sections: dict[str, Section], memory: Memory, symbols: Domain) -> str:
    """Refuse the first binding that is no legal view or no legal use."""
    for number, instance in enumerate(program.instances):
        where = f"section {number} ({instance.name or instance.shape})"
        section = sections[instance.shape]
        stored = {spec.out for spec in section.shape.spec}
        for formal, tensor in bound(section, instance, memory):
            _view(formal, tensor, symbols, f"{where}, {formal.name} = {tensor.name}")
            if formal.name in stored and tensor.role in ("INPUT", "WEIGHT"):
                raise OrderRefused(f"a section writes {tensor.role} memory", where=f"{where}, {formal.name}")
        _apart(section, instance, memory, where)
    return f"{len(program.instances)} sections bound"


def bound(section: Section, instance: Instance, memory: Memory) -> Iterator[tuple[Formal, Tensor]]:
    """Each formal of an instance with its tensor."""
    for binding in instance.bindings:
        yield section.formals[binding.formal], memory.tensors[binding.tensor]


def _view(formal: Formal, tensor: Tensor, symbols: Domain, where: str) -> None:
    if formal.dtype != tensor.dtype:
        raise BoundsRefused(f"a formal of {formal.dtype} is bound to a tensor of {tensor.dtype}", where=where)
    if formal.role != "OUT" and not _fill_holds(formal, tensor):
        raise NumericsRefused("the section assumes values that the tensor does not promise", where=where)
    if formal.shape == tensor.shape:
        return
    inner, whole = _inner(formal.shape), _inner(tensor.shape)
    if inner is None or whole is None or (block_elements(formal.dtype) > 1 and formal.shape[-1] != tensor.shape[-1]):
        raise BoundsRefused("a formal is no view of its tensor: only the first dimension may be symbolic", where=where)
    if not never_negative(tensor.shape[0] * whole - formal.shape[0] * inner, symbols):
        raise BoundsRefused(
            "a formal has more elements than its tensor",
            where=where,
            needed=f"{formal.shape[0] * inner}",
            available=f"{tensor.shape[0] * whole}",
        )


def _inner(shape: tuple[Quasi, ...]) -> int | None:
    """Elements of a row of the first dimension, when constant."""
    return math.prod(extent.const for extent in shape[1:]) if all(e.is_const for e in shape[1:]) else None


def elements(shape: tuple[Quasi, ...]) -> Quasi | None:
    """How many elements a shape has, when only its first extent is symbolic."""
    inner = _inner(shape)
    return None if inner is None else shape[0] * inner


def _fill_holds(formal: Formal, tensor: Tensor) -> bool:
    """Only what comes from outside is checked to have its fill, at launch."""
    stated, given = formal.fill, tensor.fill
    if isinstance(stated, Floats) or tensor.role not in ("INPUT", "WEIGHT"):
        return isinstance(stated, Floats)
    if isinstance(given, Const) and given.value == int(given.value):
        given = Ints(int(given.value), int(given.value))
    within = isinstance(stated, Ints) and isinstance(given, Ints) and stated.lo <= given.lo and given.hi <= stated.hi
    return stated == tensor.fill or within


def _apart(section: Section, instance: Instance, memory: Memory, where: str) -> None:
    pairs = list(bound(section, instance, memory))
    stored = {spec.out for spec in section.shape.spec}
    for formal, tensor in pairs:
        if formal.name not in stored:
            continue
        for other, beside in pairs:
            if other is not formal and memory.share(tensor.name, beside.name):
                raise OrderRefused(
                    f"{formal.name} is written and shares bytes with {other.name}",
                    where=where,
                    terms=[tensor.name, beside.name],
                )
