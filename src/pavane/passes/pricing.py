"""What every block plan of a TEMPLATE section costs on the sites of a target, whatever their memory.

A plan's time depends on the memory only by the slots that its FIFOs have (`predicting.slots_that_fit`). So plans are
priced when they are first asked for, and `tile` and `Planning` ask for any memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pavane.cost.model import Blocks, Prediction, predict
from pavane.cost.spread import Spread, spread_items
from pavane.cost.traffic import events, expected_values
from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y, Program
from pavane.ir.quasi import upper
from pavane.ir.walk import symbol_domain
from pavane.passes.buffers import aligned, least_depths, single_depths, usable_bytes
from pavane.passes.plans import Plan, buffer_sizes, lattice_of
from pavane.passes.predicting import slots_that_fit
from pavane.passes.reader_sharing import Kinds, sharable, share
from pavane.passes.section import section_of
from pavane.targets.descriptor import SpatialTarget

NEAR = 20  # 94 to 100 % of predictions are within 5 % of the simulator (docs/decisions/0011)

_Slots = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Priced:
    """A plan with what it costs, and the least local memory that it takes with the depths that were possible."""

    plan: Plan
    prediction: Prediction
    memory_bytes: int

    def order(self, least_cycles: int) -> tuple[bool, int, int, int, int, tuple[int, ...]]:
        """Before which others it comes where the quickest takes so long (0: only time counts)."""
        cycles, dram_bytes = self.prediction.cycles, self.prediction.dram_bytes
        near = cycles * NEAR <= least_cycles * (NEAR + 1)
        blocks = tuple(choice.block for choice in self.plan)
        return not near, cycles * max(1, dram_bytes) if near else 0, cycles, dram_bytes, self.memory_bytes, blocks


@dataclass(frozen=True)
class _Sized:
    """A plan with the sites that its items take, the bytes of its buffers, and the memory of all at both depths."""

    plan: Plan
    blocks: dict[str, Blocks]
    spread: Spread
    sizes: dict[str, int]
    doubled_bytes: int
    single_bytes: int


class Prices:
    """The plans of a section on a rectangle of sites; remembers what it has priced."""

    def __init__(self, program: Program, target: SpatialTarget) -> None:
        self._target, self._expected, self._domain = target, expected_values(program), symbol_domain(program)
        self.lattice = lattice_of(section_of(program, "TEMPLATE"), self._domain)
        self.depths = least_depths(self.lattice.shape), single_depths(self.lattice.shape)
        self._work = events(self.lattice.shape, target, self._expected)
        self._shared = sharable(self.lattice.shape, target)
        self._sized = [self._measured(plan) for plan in self.lattice.plans]
        self._known: dict[tuple[int, _Slots], tuple[Kinds, Prediction]] = {}

    def ranked(self, target: SpatialTarget) -> list[Priced]:
        """The plans that fit the target's memory, best first: double-buffered, or where none is, with one slot each.

        Where the program moves what it works on, of those within a `NEAR`th of the quickest, which predictions cannot
        tell apart, the least product of time and traffic beside the chip is best. Ties go to less time, less traffic,
        less memory, smaller blocks.
        """
        usable = usable_bytes(target)
        fitting = [(n, s.doubled_bytes) for n, s in enumerate(self._sized) if s.doubled_bytes <= usable]
        if not fitting:
            fitting = [(n, s.single_bytes) for n, s in enumerate(self._sized) if s.single_bytes <= usable]
        found = [Priced(self._sized[n].plan, self._prediction(n, target), size) for n, size in fitting]
        least = 0 if target.alias else min((priced.prediction.cycles for priced in found), default=0)
        return sorted(found, key=lambda priced: priced.order(least))

    def slots(self, priced: Priced, target: SpatialTarget) -> dict[str, int]:
        """The slots of a plan's FIFOs on that target."""
        return slots_that_fit(self._work, self._sized[self.lattice.plans.index(priced.plan)].sizes, target)

    def beside(self, priced: Priced, target: SpatialTarget, bytes_beside: int) -> Prediction:
        """A plan's time on that target while others move so many bytes through the channels."""
        return self._prediction(self.lattice.plans.index(priced.plan), target, bytes_beside)

    def _measured(self, plan: Plan) -> _Sized:
        lattice, expected, domain = self.lattice, self._expected, self._domain
        counts = {LV_ITEM_Y: lattice.shape.items.y, LV_ITEM_X: lattice.shape.items.x}
        blocks = {var: Blocks(max(1, turns.evaluate(expected)), 1, cut=False) for var, turns in counts.items()}
        for step, choice in zip(lattice.steps, plan, strict=True):
            extent = step.turns * step.tile if step.extent is None else step.extent
            blocks[step.var] = Blocks(max(1, extent.evaluate(expected)), choice.block)
            counts[step.var] = choice.turns
        spread = spread_items(upper(counts[LV_ITEM_Y], domain), upper(counts[LV_ITEM_X], domain), self._target.grid)
        sizes = buffer_sizes(lattice, plan)
        doubled, single = (self._memory_bytes(sizes, depths) for depths in self.depths)
        return _Sized(plan, blocks, spread, sizes, doubled, single)

    def _memory_bytes(self, sizes: Mapping[str, int], depths: Mapping[str, int]) -> int:
        return sum(aligned(depths.get(name, 1) * size, self._target) for name, size in sizes.items())

    def _prediction(self, number: int, target: SpatialTarget, bytes_beside: int = 0) -> Prediction:
        """With the readers shared that are when nobody else moves anything."""
        sized = self._sized[number]
        slots = slots_that_fit(self._work, sized.sizes, target)
        key = number, tuple(slots.items())

        def predicted(kinds: Kinds, bytes_beside: int = 0) -> Prediction:
            return predict(self._work, sized.blocks, sized.spread, self._target, kinds, slots, bytes_beside)

        if key not in self._known:
            taken, _, alone = share(self._shared, sized.spread, self._target, predicted)
            self._known[key] = taken, alone
        kinds, prediction = self._known[key]
        return predicted(kinds, bytes_beside) if bytes_beside else prediction
