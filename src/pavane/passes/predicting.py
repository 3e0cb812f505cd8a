"""Ask the cost model about a section from TILED on: its blocks as they stand, on the sites that `place` will choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pavane.cost.model import Blocks, Prediction, predict
from pavane.cost.pipeline import least_slots, useful_slots
from pavane.cost.spread import Spread, spread_items
from pavane.cost.traffic import Event, events, expected_values
from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y, LV_KBLOCK, Program, Shape
from pavane.ir.quasi import Domain, upper
from pavane.passes.blocks import stepping
from pavane.passes.buffers import aligned, buffer_bytes, buffers_of, is_multicast, usable_bytes
from pavane.passes.reader_sharing import Kinds
from pavane.targets.descriptor import SpatialTarget


def section_spread(shape: Shape, domain: Domain, target: SpatialTarget) -> Spread:
    """The sites for the section's items; multicast needs rows and columns of sites to be rows and columns of items."""
    only_grid = any(is_multicast(fifo) for fifo in shape.fifos)
    return spread_items(upper(shape.items.y, domain), upper(shape.items.x, domain), target.grid, only_grid)


def section_prediction(
    program: Program, shape: Shape, spread: Spread, target: SpatialTarget
) -> Callable[[Kinds], Prediction]:
    """The section's time with the blocks it has, as a function of what is multicast."""
    expected = expected_values(program)
    work, blocks = events(shape, target, expected), section_blocks(shape, expected)
    sizes = {buffer.name: buffer_bytes(buffer) for buffer in buffers_of(shape)}
    slots = slots_that_fit(work, sizes, target)
    return lambda kinds: predict(work, blocks, spread, target, kinds, slots)


def slots_that_fit(work: Sequence[Event], sizes: Mapping[str, int], target: SpatialTarget) -> dict[str, int]:
    """Slots of FIFOs as `size_buffers` will give them: those with which engines overlap, but one of the largest FIFOs
    until they fit; then more of those that gain from it, as many as fit.

    `sizes`: bytes of a slot of each FIFO, and of each carry.
    """
    slots = least_slots(work)
    free = usable_bytes(target) - sum(aligned(slots.get(name, 1) * size, target) for name, size in sizes.items())
    for fifo in sorted(slots, key=lambda name: (-sizes[name], name)):
        if free < 0 and slots[fifo] > 1:
            free += aligned(slots[fifo] * sizes[fifo], target) - aligned(sizes[fifo], target)
            slots[fifo] = 1
    most = {fifo: count for fifo, count in useful_slots(work).items() if slots[fifo] > 1}
    while most:
        for fifo in tuple(most):
            if slots[fifo] >= most[fifo] or sizes[fifo] > free:
                del most[fifo]
            else:
                slots[fifo], free = slots[fifo] + 1, free - sizes[fifo]
    return slots


def section_blocks(shape: Shape, expected: dict[str, int]) -> dict[str, Blocks]:
    """Every variable's extent and block at the symbols' expected values."""
    turns = {LV_ITEM_Y: shape.items.y, LV_ITEM_X: shape.items.x}
    blocks = {var: Blocks(max(1, count.evaluate(expected)), 1, cut=False) for var, count in turns.items()}
    for step in (stepping(shape, var) for var in (LV_ITEM_Y, LV_ITEM_X, LV_KBLOCK)):
        if step is not None and step.extent is not None:
            blocks[step.var] = Blocks(max(1, step.extent.evaluate(expected)), step.tile)
    return blocks
