"""tile: TEMPLATE -> TILED. Choose the block plan: elements of a block in rows, columns and K.

Of the lattice (`plans`) those are legal whose FIFOs, double-buffered where engines overlap, and carries fit the
site's memory; where none does, those that fit with one slot of each (`size_buffers` says which lose theirs). The cost
model decides, readers shared where that pays (`reader_sharing`, as `fuse_readers` will); `Prices.ranked` says which of
plans that it cannot tell apart. The plan, its bottleneck and its runner-up are recorded.

Refuses with NoPlan: the least plan's buffers against the memory, every term.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y, LV_KBLOCK, Program, Shape
from pavane.ir.program import Plan as Record
from pavane.ir.walk import symbol_domain
from pavane.passes.buffers import single_depths, usable_bytes
from pavane.passes.plans import Lattice, Plan, block_sizes, buffer_terms, lattice_of, memory_bytes, products, rewritten
from pavane.passes.pricing import Priced, Prices
from pavane.passes.section import section_of, with_section
from pavane.reject import NoPlan
from pavane.targets.descriptor import SpatialTarget


def tile(program: Program, target: SpatialTarget) -> Program:
    """The section with its best legal blocks."""
    prices = Prices(program, target)
    ranked = prices.ranked(target)
    if not ranked:
        raise _no_plan(prices.lattice, target)
    return tiled(program, prices.lattice, ranked)


def tiled(program: Program, lattice: Lattice, ranked: Sequence[Priced]) -> Program:
    """The section with the first of the ranked plans."""
    shape = replace(rewritten(lattice, ranked[0].plan), plan=_record(lattice, ranked))
    return with_section(program, shape, "TILED")


def least_bytes(program: Program, target: SpatialTarget) -> int:
    """The local memory without which the TEMPLATE section has no plan."""
    lattice = lattice_of(section_of(program, "TEMPLATE"), symbol_domain(program))
    depths = single_depths(lattice.shape)
    return min(memory_bytes(lattice, plan, target, depths) for plan in lattice.plans)


def _no_plan(lattice: Lattice, target: SpatialTarget) -> NoPlan:
    depths = single_depths(lattice.shape)
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


# --- the record -------------------------------------------------------------------------------------------------------


def _record(lattice: Lattice, ranked: Sequence[Priced]) -> Record:
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
