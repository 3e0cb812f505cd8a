"""tile: TEMPLATE -> TILED. Choose the block plan: elements of a block in rows, columns and K.

The lattice has, per variable whose blocks may change (`blocks.stepping`), powers of two around the template's tile
and the whole extent; K is whole where a product's tree runs over all of it at once. Legal is a plan whose FIFOs,
double-buffered where engines overlap, and carries fit the site's memory. The cost model (`cost.model`) decides; ties
go to less memory, then to smaller blocks. The plan, its bottleneck and its runner-up are recorded.

Refuses with NoPlan: the least plan's buffers against the memory, every term.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from msgspec.structs import replace

from pavane.cost.model import Blocks, Prediction, predict
from pavane.cost.spread import spread_items
from pavane.cost.traffic import Event, events, expected_values
from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y, LV_KBLOCK, Compute, MatmulTiles, Plan, Program, Shape
from pavane.ir.quasi import Domain, Quasi, quasi, upper
from pavane.ir.types import row_bytes
from pavane.ir.walk import bodies, leaves, symbol_domain
from pavane.passes.blocks import COLS, ROWS, Stepping, stepping, steps_by
from pavane.passes.buffers import aligned, buffers_of, least_depths, usable_bytes
from pavane.passes.reblock import reblock
from pavane.passes.section import section_of, with_section
from pavane.reject import NoPlan
from pavane.targets.descriptor import SpatialTarget

VARIABLES = (LV_ITEM_Y, LV_ITEM_X, LV_KBLOCK)
_LARGER, _SMALLER = (
    4,
    2,
)  # powers of two above and below the tile that are tried: at most 7 * 7 * 5 plans with the whole
_LEAST_BLOCK = 8


@dataclass(frozen=True)
class _Choice:
    """One variable's block; `turns` is the new loop extent."""

    block: int
    turns: Quasi


@dataclass(frozen=True)
class _Candidate:
    """A plan with what it costs. Ordered by cycles, then memory, then blocks."""

    choices: tuple[_Choice, ...]
    prediction: Prediction
    memory_bytes: int

    @property
    def order(self) -> tuple:
        return self.prediction.cycles, self.memory_bytes, tuple(c.block for c in self.choices)


def tile(program: Program, target: SpatialTarget) -> Program:
    """The section with its best legal blocks."""
    shape = section_of(program, "TEMPLATE")
    domain, expected = symbol_domain(program), expected_values(program)
    steps = tuple(step for step in (stepping(shape, var) for var in VARIABLES) if step is not None)
    lattice = tuple(product(*(_blocks(step, shape, domain) for step in steps)))
    fitting = [choices for choices in lattice if _memory_bytes(shape, steps, choices, target) <= usable_bytes(target)]
    if not fitting:
        raise _no_plan(shape, steps, lattice, target)
    work = events(shape, target, expected)
    candidates = sorted(
        (_candidate(shape, steps, c, work, domain, expected, target) for c in fitting), key=lambda c: c.order
    )
    tiled = _rewritten(shape, steps, candidates[0].choices)
    return with_section(program, replace(tiled, plan=_plan(tiled, shape, steps, candidates, len(lattice))), "TILED")


# --- the lattice ------------------------------------------------------------------------------------------------------


def _blocks(step: Stepping, shape: Shape, domain: Domain) -> tuple[_Choice, ...]:
    """A variable's blocks, ascending, the whole extent last."""
    most = upper(step.turns, domain) * step.tile
    if step.extent is not None:
        most = min(most, upper(step.extent, domain))
    whole = _Choice(most, quasi(1))
    if step.var == LV_KBLOCK and any(_needs_whole_k(op) for op in _stepped_products(shape)):
        return (whole,)
    sizes = [step.tile << n for n in range(_LARGER + 1)]
    if step.var != LV_KBLOCK and step.fine and step.extent is not None:
        sizes = [
            step.tile >> n
            for n in range(_SMALLER, 0, -1)
            if (step.tile >> n) >= _LEAST_BLOCK and not step.tile % (1 << n)
        ] + sizes
    legal = [
        size for size in sizes if size < most and size % step.whole_blocks == 0 and _keeps_atoms(step, shape, size)
    ]
    return (*(_Choice(size, _turns(step, size)) for size in legal), whole)


def _turns(step: Stepping, block: int) -> Quasi:
    if step.extent is not None:
        return step.extent.ceil(block)
    return step.turns.ceil(block // step.tile)


def _stepped_products(shape: Shape) -> Iterator[MatmulTiles]:
    """Products whose contraction the K loop walks."""
    for _, body in bodies(shape):
        for _, step in leaves(body):
            if isinstance(step, Compute) and isinstance(step.op, MatmulTiles):
                op = step.op
                if steps_by(op.k.start, op.k.size, LV_KBLOCK):
                    yield op


def _needs_whole_k(op: MatmulTiles) -> bool:
    return op.tree.lanes > 1 and op.tree.atom == 0


def _keeps_atoms(step: Stepping, shape: Shape, block: int) -> bool:
    if step.var != LV_KBLOCK:
        return True
    return all(block % op.tree.atom == 0 for op in _stepped_products(shape) if op.tree.atom)


# --- memory -----------------------------------------------------------------------------------------------------------


def _buffer_terms(
    shape: Shape, steps: Sequence[Stepping], choices: Sequence[_Choice], target: SpatialTarget
) -> list[tuple[str, int]]:
    """Every buffer's bytes under a plan; FIFOs at their least depths."""
    size = {dimension: choice.block for step, choice in zip(steps, choices, strict=True) for dimension in step.grows}
    depths = least_depths(shape)
    terms = []
    for buffer in buffers_of(shape):
        rows, cols = size.get((buffer.name, ROWS), buffer.rows), size.get((buffer.name, COLS), buffer.cols)
        slots = depths.get(buffer.name, 1)
        terms.append((buffer.name, aligned(slots * rows * row_bytes(buffer.dtype, cols), target)))
    return terms


def _memory_bytes(shape: Shape, steps: Sequence[Stepping], choices: Sequence[_Choice], target: SpatialTarget) -> int:
    return sum(size for _, size in _buffer_terms(shape, steps, choices, target))


def _no_plan(
    shape: Shape, steps: Sequence[Stepping], lattice: Sequence[tuple[_Choice, ...]], target: SpatialTarget
) -> NoPlan:
    least = min(lattice, key=lambda c: (_memory_bytes(shape, steps, c, target), tuple(choice.block for choice in c)))
    terms = [(name, size) for name, size in _buffer_terms(shape, steps, least, target) if size]
    largest = max(terms, key=lambda term: term[1])
    blocks = ", ".join(f"{s.var} by {c.block}" for s, c in zip(steps, least, strict=True)) or "no variable can be cut"
    return NoPlan(
        f"none of {len(lattice)} block plans fits the local memory of {target.name}",
        where=f"section {shape.name}",
        needed=f"{sum(size for _, size in terms)} bytes for the least plan ({blocks})",
        available=f"{usable_bytes(target)} bytes a site",
        terms=[f"{name} {size} bytes" for name, size in terms],
        remedy=f"a target with more local memory, or a narrower op: {largest[0]} alone takes {largest[1]} bytes",
    )


# --- cost -------------------------------------------------------------------------------------------------------------


def _candidate(
    shape: Shape,
    steps: Sequence[Stepping],
    choices: tuple[_Choice, ...],
    work: Sequence[Event],
    domain: Domain,
    expected: dict[str, int],
    target: SpatialTarget,
) -> _Candidate:
    counts = {LV_ITEM_Y: shape.items.y, LV_ITEM_X: shape.items.x}
    blocks = {var: Blocks(max(1, _at(turns, expected)), 1, cut=False) for var, turns in counts.items()}
    for step, choice in zip(steps, choices, strict=True):
        extent = step.extent if step.extent is not None else step.turns * step.tile
        blocks[step.var] = Blocks(max(1, _at(extent, expected)), choice.block)
        counts[step.var] = choice.turns
    spread = spread_items(upper(counts[LV_ITEM_Y], domain), upper(counts[LV_ITEM_X], domain), target.grid)
    return _Candidate(choices, predict(work, blocks, spread, target), _memory_bytes(shape, steps, choices, target))


def _at(value: Quasi, expected: dict[str, int]) -> int:
    return value.evaluate(expected)


# --- the result -------------------------------------------------------------------------------------------------------


def _rewritten(shape: Shape, steps: Sequence[Stepping], choices: Sequence[_Choice]) -> Shape:
    for step, choice in zip(steps, choices, strict=True):
        shape = reblock(shape, step, choice.block, choice.turns)
    return shape


def _plan(
    tiled: Shape, shape: Shape, steps: Sequence[Stepping], candidates: Sequence[_Candidate], considered: int
) -> Plan:
    best = candidates[0]
    second = candidates[1] if len(candidates) > 1 else None
    rows, cols, k = _extents(tiled, steps, best.choices)
    return Plan(
        rows=rows,
        cols=cols,
        k=k,
        cycles=best.prediction.cycles,
        runner_up=_extents(shape, steps, second.choices) if second else None,
        runner_up_cycles=second.prediction.cycles if second else 0,
        bottleneck=best.prediction.bottleneck,
        considered=considered,
    )


def _extents(shape: Shape, steps: Sequence[Stepping], choices: Sequence[_Choice]) -> tuple[int, int, int]:
    """(rows, columns, K) of a plan; K is what one product contracts at once, 0 without a contraction."""
    block = {step.var: choice.block for step, choice in zip(steps, choices, strict=True)}
    whole_k = max((op.k.size for op in _products(shape)), default=0)
    k = block.get(LV_KBLOCK, whole_k)
    return block.get(LV_ITEM_Y, shape.items.rows), block.get(LV_ITEM_X, shape.items.cols), k


def _products(shape: Shape) -> Iterator[MatmulTiles]:
    for _, body in bodies(shape):
        for _, step in leaves(body):
            if isinstance(step, Compute) and isinstance(step.op, MatmulTiles):
                yield step.op
