"""What a section would cost on a target: tiled and its readers fused, no further. Asked by `pack` and `forward`.

Sections that are equal but for their names are planned once.
"""

from __future__ import annotations

from pavane.cost.model import Prediction
from pavane.ir.digest import digest
from pavane.ir.program import Program, Store
from pavane.ir.walk import bodies, leaves, symbol_domain
from pavane.passes.fuse_readers import fuse_readers
from pavane.passes.predicting import section_prediction, section_spread
from pavane.passes.section_shape import section_shape
from pavane.passes.tile import tile
from pavane.reject import NoPlan
from pavane.targets.descriptor import SpatialTarget, target_digest


class Planning:
    """Remembers what it has planned, for the length of one compilation."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}
        self._fused: dict[tuple[str, str], Program | None] = {}
        self._predicted: dict[tuple[str, str], Prediction | None] = {}

    def key(self, section: Program) -> str:
        """The same for sections that differ in names only."""
        letter = digest([section.phase, section.target_digest, section.symbols, section.shapes])
        if letter not in self._keys:
            self._keys[letter] = section_shape(section)
        return self._keys[letter]

    def fused(self, section: Program, target: SpatialTarget) -> Program | None:
        """The TEMPLATE section at FUSED; None where no plan fits the target."""
        key = self.key(section), target_digest(target)
        if key not in self._fused:
            try:
                self._fused[key] = fuse_readers(tile(section, target), target)
            except NoPlan:
                self._fused[key] = None
        return self._fused[key]

    def predicted(self, section: Program, target: SpatialTarget) -> Prediction | None:
        """Its time on the target; None where no plan fits."""
        key = self.key(section), target_digest(target)
        if key not in self._predicted:
            fused = self.fused(section, target)
            self._predicted[key] = None if fused is None else predicted(fused, target)
        return self._predicted[key]


def predicted(fused: Program, target: SpatialTarget) -> Prediction:
    """The time of a section at FUSED, as it is."""
    shape = fused.shapes[0]
    spread = section_spread(shape, symbol_domain(fused), target)
    return section_prediction(fused, shape, spread, target)({})


def uses(section: Program) -> tuple[frozenset[str], frozenset[str]]:
    """Tensors that a section reads, and writes."""
    (shape,), (instance,) = section.shapes, section.instances
    stored = {step.tensor for _, body in bodies(shape) for _, step in leaves(body) if isinstance(step, Store)}
    roles = {formal.name: formal.role for formal in shape.formals}
    reads = frozenset(b.tensor for b in instance.bindings if roles[b.formal] != "OUT")
    return reads, frozenset(b.tensor for b in instance.bindings if b.formal in stored)
