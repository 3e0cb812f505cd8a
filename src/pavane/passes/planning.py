"""What a section would cost on a target: tiled and its readers fused, no further. Asked by `pack` and `forward`.

Sections that are equal but for their names are planned once.
"""

from __future__ import annotations

from collections.abc import Sequence

from pavane.cost.model import Prediction
from pavane.ir.digest import digest
from pavane.ir.program import Program
from pavane.passes.fuse_readers import fuse_readers
from pavane.passes.pricing import Priced, Prices
from pavane.passes.section_shape import section_shape
from pavane.passes.tile import tiled
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.restrict import restricted


class Planning:
    """Remembers what it has planned, for the length of one compilation."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}
        self._prices: dict[tuple[str, SpatialTarget], Prices] = {}
        self._ranked: dict[tuple[str, SpatialTarget], list[Priced]] = {}

    def key(self, section: Program) -> str:
        """The same for sections that differ in names only."""
        letter = digest([section.phase, section.target_digest, section.symbols, section.shapes])
        if letter not in self._keys:
            self._keys[letter] = section_shape(section)
        return self._keys[letter]

    def predicted(self, section: Program, target: SpatialTarget) -> Prediction | None:
        """Its time on the target; None where no plan fits."""
        ranked = self.ranked(section, target)
        return ranked[0].prediction if ranked else None

    def wave_cycles(self, members: Sequence[tuple[Program, SpatialTarget]]) -> int | None:
        """The time of sections at once, each on its part of a chip, beside the traffic of the others."""
        alone = [self.predicted(*member) for member in members]
        found = [prediction for prediction in alone if prediction is not None]
        if len(found) < len(members):
            return None
        moved = sum(prediction.dram_bytes for prediction in found)
        return max(
            self._beside(*member, moved - prediction.dram_bytes)
            for member, prediction in zip(members, found, strict=True)
        )

    def _beside(self, section: Program, target: SpatialTarget, bytes_beside: int) -> int:
        best = self.ranked(section, target)[0]
        if not bytes_beside:
            return best.prediction.cycles
        return self._prices_of(section, target).beside(best, target, bytes_beside).cycles

    def ranked(self, section: Program, target: SpatialTarget) -> list[Priced]:
        """The plans of a TEMPLATE section that fit the target, best first."""
        key = self.key(section), target
        if key not in self._ranked:
            self._ranked[key] = self._prices_of(section, target).ranked(target)
        return self._ranked[key]

    def fused(self, section: Program, target: SpatialTarget) -> Program | None:
        """The TEMPLATE section at FUSED; None where no plan fits the target."""
        ranked = self.ranked(section, target)
        if not ranked:
            return None
        return fuse_readers(tiled(section, self._prices_of(section, target).lattice, ranked), target)

    def _prices_of(self, section: Program, target: SpatialTarget) -> Prices:
        """The same for targets that differ in the memory of their sites."""
        key = self.key(section), restricted(target, memory_bytes=_ANY)
        if key not in self._prices:
            self._prices[key] = Prices(section, target)
        return self._prices[key]


_ANY = 0
