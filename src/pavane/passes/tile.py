"""tile: TEMPLATE -> TILED. Choose the block plan: elements of a block in rows, columns and K.

Of the lattice (`plans`) those are legal whose FIFOs, double-buffered where engines overlap, and carries fit the
site's memory; where none does, those that fit with one slot of each (`size_buffers` says which lose theirs). The cost
model decides, readers shared where that pays (`reader_sharing`, as `fuse_readers` will); ties go to less memory, then
to smaller blocks. The plan, its bottleneck and its runner-up are recorded.

Refuses with NoPlan: the least plan's buffers against the memory, every term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from pavane.cost.model import Blocks, Prediction, predict
from pavane.cost.spread import spread_items
from pavane.cost.traffic import Event, events, expected_values
from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y, LV_KBLOCK, Program, Shape
from pavane.ir.program import Plan as Record
from pavane.ir.quasi import Domain, upper
from pavane.ir.walk import symbol_domain
from pavane.passes.buffers import least_depths, single_depths, usable_bytes
from pavane.passes.plans import Lattice, Plan, block_sizes, buffer_terms, lattice_of, memory_bytes, products, rewritten
from pavane.passes.reader_sharing import Sharable, sharable, share
from pavane.passes.section import section_of, with_section
from pavane.reject import NoPlan
from pavane.targets.descriptor import SpatialTarget


def tile(program: Program, target: SpatialTarget) -> Program:
    """The section with its best legal blocks."""
    shape = section_of(program, "TEMPLATE")
    lattice = lattice_of(shape, symbol_domain(program))
    depths, fitting = _fitting(lattice, target)
    if not fitting:
        raise _no_plan(lattice, depths, target)
    ranked = _ranked(lattice, fitting, depths, program, target)
    tiled = replace(rewritten(lattice, ranked[0].plan), plan=_record(lattice, ranked))
    return with_section(program, tiled, "TILED")


def _fitting(lattice: Lattice, target: SpatialTarget) -> tuple[dict[str, int], list[Plan]]:
    """The depths with which anything fits, and what does; the last depths where nothing does."""
    depths: dict[str, int] = {}
    for depths in (least_depths(lattice.shape), single_depths(lattice.shape)):
        fitting = [p for p in lattice.plans if memory_bytes(lattice, p, target, depths) <= usable_bytes(target)]
        if fitting:
            return depths, fitting
    return depths, []


def _no_plan(lattice: Lattice, depths: dict[str, int], target: SpatialTarget) -> NoPlan:
    least = min(lattice.plans, key=lambda plan: (memory_bytes(lattice, plan, target, depths), [c.block for c in plan]))
    terms = [(name, size) for name, size in buffer_terms(lattice, least, target, depths) if size]
    largest, size = max(terms, key=lambda term: term[1])
    blocks = ", ".join(f"{var} by {block}" for var, block in block_sizes(lattice, least).items())
    return NoPlan(
        f"none of {len(lattice.plans)} block plans fits the local memory of {target.name}",
        where=f"section {lattice.shape.name}",
        needed=f"{sum(size for _, size in terms)} bytes for the least plan ({blocks or 'no variable can be cut'})",
        available=f"{usable_bytes(target)} bytes a site",
        terms=[f"{name} {size} bytes" for name, size in terms],
        remedy=f"a target with at least {_site_bytes(terms, target)} bytes a site, or a narrower op: "
        f"{largest} alone takes {size} bytes",
    )


def _site_bytes(terms: Sequence[tuple[str, int]], target: SpatialTarget) -> int:
    """The least memory of a site that would hold the buffers beside what is reserved."""
    return sum(size for _, size in terms) + target.memory.bytes - usable_bytes(target)


# --- cost -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Candidate:
    """A plan with what it costs."""

    plan: Plan
    prediction: Prediction
    memory_bytes: int

    @property
    def order(self) -> tuple[int, int, tuple[int, ...]]:
        return self.prediction.cycles, self.memory_bytes, tuple(choice.block for choice in self.plan)


def _ranked(
    lattice: Lattice, plans: Sequence[Plan], depths: dict[str, int], program: Program, target: SpatialTarget
) -> list[_Candidate]:
    """The plans, best first."""
    expected, domain = expected_values(program), symbol_domain(program)
    work, shared = events(lattice.shape, target, expected), sharable(lattice.shape, target)

    def candidate(plan: Plan) -> _Candidate:
        prediction = _predicted(lattice, plan, work, shared, domain, expected, target)
        return _Candidate(plan, prediction, memory_bytes(lattice, plan, target, depths))

    return sorted((candidate(plan) for plan in plans), key=lambda c: c.order)


def _predicted(
    lattice: Lattice,
    plan: Plan,
    work: Sequence[Event],
    shared: tuple[Sharable, ...],
    domain: Domain,
    expected: dict[str, int],
    target: SpatialTarget,
) -> Prediction:
    counts = {LV_ITEM_Y: lattice.shape.items.y, LV_ITEM_X: lattice.shape.items.x}
    blocks = {var: Blocks(max(1, turns.evaluate(expected)), 1, cut=False) for var, turns in counts.items()}
    for step, choice in zip(lattice.steps, plan, strict=True):
        extent = step.turns * step.tile if step.extent is None else step.extent
        blocks[step.var] = Blocks(max(1, extent.evaluate(expected)), choice.block)
        counts[step.var] = choice.turns
    spread = spread_items(upper(counts[LV_ITEM_Y], domain), upper(counts[LV_ITEM_X], domain), target.grid)
    return share(shared, spread, target, lambda kinds: predict(work, blocks, spread, target, kinds))[2]


# --- the record -------------------------------------------------------------------------------------------------------


def _record(lattice: Lattice, ranked: Sequence[_Candidate]) -> Record:
    best, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    rows, cols, k = _extents(lattice, best.plan)
    return Record(
        rows=rows,
        cols=cols,
        k=k,
        cycles=best.prediction.cycles,
        runner_up=_extents(lattice, second.plan) if second else None,
        runner_up_cycles=second.prediction.cycles if second else 0,
        bottleneck=best.prediction.bottleneck,
        considered=len(lattice.plans),
    )


def _extents(lattice: Lattice, plan: Plan) -> tuple[int, int, int]:
    """(rows, columns, K) of a block; K is what the widest product contracts at once, 0 where there is no product."""
    shape, block = lattice.shape, block_sizes(lattice, plan)
    k = block.get(LV_KBLOCK, _widest_contraction(shape))
    return block.get(LV_ITEM_Y, shape.items.rows), block.get(LV_ITEM_X, shape.items.cols), k


def _widest_contraction(shape: Shape) -> int:
    return max((op.k.size for op in products(shape)), default=0)
