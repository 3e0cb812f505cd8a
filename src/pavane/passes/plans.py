"""The lattice of block plans of a section, and the local memory that each needs.

Per variable whose blocks may change (`blocks.stepping`): the template's tile times a power of two, for items also a
half of it where every place is legal, and the whole extent. K is whole where a product's tree runs over
all of it at once, and in whole atoms where a tree has atoms; stored blocks stay whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y, LV_KBLOCK, Compute, MatmulTiles, Shape
from pavane.ir.quasi import Domain, Quasi, quasi, upper
from pavane.ir.types import row_bytes
from pavane.ir.walk import bodies, leaves
from pavane.passes.blocks import COLS, ROWS, Stepping, stepping, steps_by
from pavane.passes.buffers import aligned, buffers_of
from pavane.passes.reblock import reblock
from pavane.targets.descriptor import SpatialTarget

VARIABLES = (LV_ITEM_Y, LV_ITEM_X, LV_KBLOCK)
LARGER = 3  # doublings of the tile that are tried: with its half and the whole at most 6 * 6 * 5 plans
_LEAST_BLOCK = 16


@dataclass(frozen=True)
class Choice:
    """One variable's block in elements; `turns` is the new loop extent."""

    block: int
    turns: Quasi


Plan = tuple[Choice, ...]  # one for each variable that steps


@dataclass(frozen=True)
class Lattice:
    """Every plan of a section."""

    shape: Shape
    steps: tuple[Stepping, ...]
    plans: tuple[Plan, ...]


def lattice_of(shape: Shape, domain: Domain) -> Lattice:
    """All combinations of every variable's blocks."""
    steps = tuple(step for step in (stepping(shape, var) for var in VARIABLES) if step is not None)
    return Lattice(shape, steps, tuple(product(*(_blocks(step, shape, domain) for step in steps))))


def rewritten(lattice: Lattice, plan: Plan) -> Shape:
    """The section with a plan's blocks."""
    shape = lattice.shape
    for step, choice in zip(lattice.steps, plan, strict=True):
        shape = reblock(shape, step, choice.block, choice.turns)
    return shape


def products(shape: Shape) -> Iterator[MatmulTiles]:
    """Every product of the section."""
    for _, body in bodies(shape):
        for _, step in leaves(body):
            if isinstance(step, Compute) and isinstance(step.op, MatmulTiles):
                yield step.op


# --- the blocks of a variable -----------------------------------------------------------------------------------------


def _blocks(step: Stepping, shape: Shape, domain: Domain) -> tuple[Choice, ...]:
    """Ascending, the whole extent last."""
    most = upper(step.turns, domain) * step.tile
    if step.extent is not None:
        most = min(most, upper(step.extent, domain))
    sizes = (size for size in _sizes(step) if size < most and size % step.whole_blocks == 0)
    legal = (size for size in sizes if step.var != LV_KBLOCK or _keeps_trees(shape, size))
    return (*(Choice(size, _turns(step, size)) for size in legal), Choice(most, quasi(1)))


def _sizes(step: Stepping) -> list[int]:
    sizes = [step.tile << n for n in range(LARGER + 1)]
    if step.var == LV_KBLOCK or not step.fine or step.extent is None:
        return sizes
    half = step.tile // 2
    return [half, *sizes] if half >= _LEAST_BLOCK and step.tile % 2 == 0 else sizes


def _turns(step: Stepping, block: int) -> Quasi:
    return step.turns.ceil(block // step.tile) if step.extent is None else step.extent.ceil(block)


def _keeps_trees(shape: Shape, block: int) -> bool:
    """No tree of a product that the K loop walks is cut by the block."""
    trees = [op.tree for op in products(shape) if steps_by(op.k.start, op.k.size, LV_KBLOCK)]
    return all(tree.lanes == 1 or (tree.atom and block % tree.atom == 0) for tree in trees)


# --- memory -----------------------------------------------------------------------------------------------------------


def buffer_terms(
    lattice: Lattice, plan: Plan, target: SpatialTarget, depths: Mapping[str, int]
) -> tuple[tuple[str, int], ...]:
    """Every buffer's bytes under a plan, so many slots of each FIFO."""
    sizes = buffer_sizes(lattice, plan)
    return tuple((name, aligned(depths.get(name, 1) * size, target)) for name, size in sizes.items())


def buffer_sizes(lattice: Lattice, plan: Plan) -> dict[str, int]:
    """Bytes of one slot of each FIFO, and of each carry, under a plan."""
    size = {dimension: c.block for step, c in zip(lattice.steps, plan, strict=True) for dimension in step.grows}
    found = {}
    for buffer in buffers_of(lattice.shape):
        rows, cols = size.get((buffer.name, ROWS), buffer.rows), size.get((buffer.name, COLS), buffer.cols)
        found[buffer.name] = rows * row_bytes(buffer.dtype, cols)
    return found


def memory_bytes(lattice: Lattice, plan: Plan, target: SpatialTarget, depths: Mapping[str, int]) -> int:
    """Local memory that a plan needs."""
    return sum(size for _, size in buffer_terms(lattice, plan, target, depths))


def block_sizes(lattice: Lattice, plan: Sequence[Choice]) -> dict[str, int]:
    """Elements of a block per variable."""
    return {step.var: choice.block for step, choice in zip(lattice.steps, plan, strict=True)}
