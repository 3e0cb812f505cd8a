"""reside: TEMPLATE sections -> TEMPLATE sections whose weights and caches are resident, dealt over the sites' memories.

A WEIGHT or STATE tensor of several rows may be *sharded*: its rows in blocks, block b on site `b mod sites`, each byte
once on the chip (`ir.shards`), where it stays from launch to launch. A block is as many rows as a site's even part,
at most a tile's columns: so all sites have nearly equal shares, and a product of many tiles finds a tile's rows on one
site.

Programs of one deployment must find the same tensors at the same places, so the answer is the same whichever of them
asks: it depends on the tensors, on the chip, and on the sections of all these programs together (`beside`: those of
decode and of prompts, whichever of them is compiled; a program by itself has none). Shares take at most three quarters
of a site's memory and leave every section its least plan. First come weights that are read whole, then caches, then
weights of which rows are picked (an embedding of its own); in each kind the smallest shares first, which gain most a
byte, since each saves the latency of memory beside the chip too. All that fit, the weights of them, or nothing:
whichever is predicted to take least, a row of each program counted once. Residents take memory from blocks, so less
than half of what all these tensors take is never sharded; nor is anything where sites reach each other more slowly than
memory beside the chip. But what that memory cannot hold comes first: then whichever leaves it least too small. Where
engines address memory in place nothing is sharded.

Refuses never. The sections are then planned with the memory that the shares leave; a Join in each section that has a
weight or a cache says what it costs both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from msgspec.structs import replace

from pavane.cost.traffic import expected_values
from pavane.ir.program import Join, Load, Program, Tensor
from pavane.ir.quasi import Domain, Quasi
from pavane.ir.types import row_bytes
from pavane.ir.walk import bodies, leaves
from pavane.passes.arena import end_of_memory
from pavane.passes.buffers import aligned, usable_bytes
from pavane.passes.memory_beside import bytes_at_home, missing_bytes, tensor_bytes
from pavane.passes.pack import with_join
from pavane.passes.planning import Planning
from pavane.passes.section import with_tensors
from pavane.passes.tile import least_bytes
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.restrict import restricted

_HERE, _BESIDE = "resident on the sites", "beside the chip"
_TOO_SLOW = 1 << 62
_NOTHING = Domain(())  # the extents of what lasts are constants
Sections = Sequence[Program]  # of one program, in order


@dataclass(frozen=True)
class Candidate:
    """A tensor that may be sharded, as it would be, and what a site's share of it takes."""

    tensor: Tensor
    share_bytes: int


@dataclass(frozen=True)
class Resident:
    """The sections, and the chip with the local memory that the shares leave."""

    sections: tuple[Program, ...]
    target: SpatialTarget


def reside(sections: Sections, beside: Sequence[Sections], target: SpatialTarget, planning: Planning) -> Resident:
    """Decide which tensors are resident."""
    programs = beside or (sections,)
    too_large = not target.alias and _missing_bytes(programs, (), target) > 0
    if target.alias or not (too_large or _nearer_than_memory(target)):
        return Resident(tuple(sections), target)
    everywhere = [*sections, *(section for program in beside for section in program)]
    candidates = _candidates(everywhere, target)
    fitting = _that_fit(candidates, _room(everywhere, target, planning))
    weights = tuple(c for c in fitting if c.tensor.role == "WEIGHT")
    enough = (c for c in (weights, fitting) if too_large or 2 * _bytes_in_all(c) >= _bytes_in_all(candidates))

    def cost(some: Sequence[Candidate]) -> tuple[int, Fraction]:
        cycles = _cycles_a_row(programs, some, _left_by(some, target), planning)
        return _missing_bytes(programs, some, target), cycles

    chosen = min(((), *enough), key=cost)
    made = _Making(candidates, chosen, target, _left_by(chosen, target), planning)
    return Resident(tuple(_recorded(section, made) for section in sections), made.left)


def _nearer_than_memory(target: SpatialTarget) -> bool:
    """Do sites give each other more bytes a cycle than the channels give, and sooner?"""
    noc, dram, grid = target.noc, target.dram, target.grid
    there_and_back = noc.hop_cycles * (grid.width + grid.height)
    wider = target.sites * noc.bytes_per_cycle > dram.channels * dram.bytes_per_cycle
    return wider and noc.start_cycles + there_and_back < dram.latency_cycles


# --- candidates -------------------------------------------------------------------------------------------------------


def _candidates(sections: Sequence[Program], target: SpatialTarget) -> tuple[Candidate, ...]:
    """Every tensor that may be sharded, in the order in which they are given room."""
    tensors = {t.name: t for section in sections for t in section.tensors if _may_be(t)}
    whole = {name for section in sections for name in _read_whole(section)}
    found = (_in_blocks(tensor, target) for tensor in tensors.values())

    def order(candidate: Candidate) -> tuple[int, int, str]:
        name = candidate.tensor.name
        kind = 1 if candidate.tensor.role == "STATE" else 0 if name in whole else 2
        return kind, candidate.share_bytes, name

    return tuple(sorted(found, key=order))


def _may_be(tensor: Tensor) -> bool:
    return tensor.role in ("WEIGHT", "STATE") and all(e.is_const for e in tensor.shape) and _rows(tensor) > 1


def _rows(tensor: Tensor) -> int:
    return prod(extent.const for extent in tensor.shape[:-1])


def _read_whole(section: Program) -> Iterator[str]:
    """The tensors that the section reads otherwise than by rows that an index picks."""
    (shape,), (instance,) = section.shapes, section.instances
    loads = (step for _, body in bodies(shape) for _, step in leaves(body) if isinstance(step, Load))
    plain = {load.tensor for load in loads if all(isinstance(start, Quasi) for start in load.window.start)}
    return (binding.tensor for binding in instance.bindings if binding.formal in plain)


def _in_blocks(tensor: Tensor, target: SpatialTarget) -> Candidate:
    """A site's even part in one block, or blocks of a tile's columns."""
    rows = min(target.tile[1], -(-_rows(tensor) // target.sites))
    sharded = replace(tensor, **_in_blocks_of(rows * row_bytes(tensor.dtype, tensor.shape[-1].const)))
    return Candidate(sharded, aligned(bytes_at_home(sharded, _NOTHING, target), target))


# --- the choice -------------------------------------------------------------------------------------------------------


def _room(sections: Sequence[Program], target: SpatialTarget, planning: Planning) -> int:
    """What shares may take of a site's memory."""
    distinct = {planning.key(section): section for section in sections}
    least = max(least_bytes(section, target) for section in distinct.values())
    return max(0, min(usable_bytes(target) * 3 // 4, usable_bytes(target) - least))


def _that_fit(candidates: Sequence[Candidate], most_bytes: int) -> tuple[Candidate, ...]:
    """In order, each that there is still room for."""
    chosen: list[Candidate] = []
    taken = 0
    for candidate in candidates:
        if taken + candidate.share_bytes <= most_bytes:
            chosen.append(candidate)
            taken += candidate.share_bytes
    return tuple(chosen)


def _bytes_in_all(candidates: Sequence[Candidate]) -> int:
    return sum(tensor_bytes(candidate.tensor, _NOTHING) for candidate in candidates)


def _missing_bytes(programs: Sequence[Sections], sharded: Sequence[Candidate], target: SpatialTarget) -> int:
    """What memory beside the chip lacks for the program that needs most of it."""
    names = frozenset(candidate.tensor.name for candidate in sharded)
    return max(missing_bytes(program, names, target) for program in programs)


def _cycles_a_row(
    programs: Sequence[Sections], chosen: Sequence[Candidate], target: SpatialTarget, planning: Planning
) -> Fraction:
    """Predicted for a row of each program."""
    return sum(
        (Fraction(_cycles(program, chosen, target, planning), _rows_of(program)) for program in programs), Fraction(0)
    )


def _rows_of(program: Sections) -> int:
    """The rows that an epoch is expected to add to its state; 1 where it has none."""
    rows = [
        tensor.transition.rows.evaluate(expected_values(section))
        for section in program
        for tensor in section.tensors
        if tensor.transition is not None
    ]
    return max(1, *rows) if rows else 1


def _cycles(program: Sections, sharded: Sequence[Candidate], target: SpatialTarget, planning: Planning) -> int:
    """Predicted cycles of all sections, one after the other; more than any where one has no plan."""
    names = {candidate.tensor.name for candidate in sharded}
    kinds: dict[tuple[str, tuple[int, ...]], list[Program]] = {}
    for section in program:
        moved = tuple(i for i, b in enumerate(section.instances[0].bindings) if b.tensor in names)
        kinds.setdefault((planning.key(section), moved), []).append(section)
    cycles = 0
    for alike in kinds.values():
        prediction = planning.predicted(with_shards(alike[0], _bound(alike[0], sharded)), target)
        cycles += len(alike) * (prediction.cycles if prediction is not None else _TOO_SLOW)
    return cycles


def _bound(section: Program, candidates: Sequence[Candidate]) -> list[Tensor]:
    """Those of the tensors that the section works on."""
    names = {binding.tensor for binding in section.instances[0].bindings}
    return [candidate.tensor for candidate in candidates if candidate.tensor.name in names]


def _left_by(chosen: Sequence[Candidate], target: SpatialTarget) -> SpatialTarget:
    """The chip with the memory below the shares, which `compose` lays out at its end."""
    sizes = {candidate.tensor.name: candidate.share_bytes for candidate in chosen}
    taken = end_of_memory([sizes], {}, {}, target.memory.bytes, target.memory.alignment_bytes).bytes
    return restricted(target, memory_bytes=target.memory.bytes - taken)


# --- the sections -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Making:
    """What was decided, and who knows what sections cost."""

    candidates: tuple[Candidate, ...]
    chosen: tuple[Candidate, ...]
    target: SpatialTarget
    left: SpatialTarget
    planning: Planning


def _recorded(section: Program, made: _Making) -> Program:
    """The section with its tensors where they lie, and what it costs so and otherwise."""
    able, here = _bound(section, made.candidates), _bound(section, made.chosen)
    moved = with_shards(section, here)
    if not able:
        return moved
    resident = made.planning.predicted(with_shards(section, able), made.left)
    beside = made.planning.predicted(section, made.target)
    taken = made.planning.predicted(moved, made.left)
    if resident is None or beside is None or taken is None:
        return moved
    what = f"reside {', '.join(tensor.name for tensor in able)} ({section.shapes[0].name})"
    if len(here) == len(able):
        return with_join(moved, Join(what, _HERE, resident.cycles, _BESIDE, beside.cycles))
    if here:
        some = f"only {', '.join(tensor.name for tensor in here)} {_HERE}"
        return with_join(moved, Join(what, some, taken.cycles, "all of them", resident.cycles))
    why = ", for want of room" if resident.cycles < beside.cycles else ""
    return with_join(moved, Join(what, _BESIDE + why, beside.cycles, _HERE, resident.cycles))


def with_shards(section: Program, sharded: Sequence[Tensor]) -> Program:
    """The section with these tensors, and the formals bound to them, sharded."""
    return with_tensors(section, {t.name: _in_blocks_of(t.shard_bytes) for t in sharded})


def _in_blocks_of(shard_bytes: int) -> dict[str, object]:
    return {"home": "sharded", "shard_bytes": shard_bytes}
