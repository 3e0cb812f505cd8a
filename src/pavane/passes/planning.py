"""What a section would cost on a target: tiled and its readers fused, no further. Asked by `pack` and `forward`.

Sections that are equal but for their names are planned once.
"""

from __future__ import annotations

from pavane.cost.model import Prediction
from pavane.ir.digest import digest
from pavane.ir.program import Program
from pavane.ir.walk import symbol_domain
from pavane.passes.fuse_readers import fuse_readers
from pavane.passes.predicting import section_prediction, section_spread
from pavane.passes.section_shape import section_shape
from pavane.passes.tile import tile
from pavane.reject import NoPlan
from pavane.targets.descriptor import SpatialTarget


class Planning:
    """Remembers what it has planned, for the length of one compilation."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}
        self._fused: dict[tuple[str, SpatialTarget], Program | None] = {}
        self._predicted: dict[tuple[str, SpatialTarget], Prediction | None] = {}

    def key(self, section: Program) -> str:
        """The same for sections that differ in names only."""
        letter = digest([section.phase, section.target_digest, section.symbols, section.shapes])
        if letter not in self._keys:
            self._keys[letter] = section_shape(section)
        return self._keys[letter]

    def fused(self, section: Program, target: SpatialTarget) -> Program | None:
        """The TEMPLATE section at FUSED; None where no plan fits the target."""
        key = self.key(section), target
        if key not in self._fused:
            try:
                self._fused[key] = fuse_readers(tile(section, target), target)
            except NoPlan:
                self._fused[key] = None
        return self._fused[key]

    def predicted(self, section: Program, target: SpatialTarget) -> Prediction | None:
        """Its time on the target; None where no plan fits."""
        key = self.key(section), target
        if key not in self._predicted:
            fused = self.fused(section, target)
            self._predicted[key] = None if fused is None else predicted(fused, target)
        return self._predicted[key]


def predicted(fused: Program, target: SpatialTarget) -> Prediction:
    """The time of a section at FUSED, as it is."""
    shape = fused.shapes[0]
    spread = section_spread(shape, symbol_domain(fused), target)
    return section_prediction(fused, shape, spread, target)({})
