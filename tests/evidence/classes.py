"""All named classes of mistakes."""

from __future__ import annotations

from tests.evidence import (
    mistakes_of_blocks,
    mistakes_of_buffers,
    mistakes_of_caches,
    mistakes_of_maps,
    mistakes_of_meaning,
    mistakes_of_order,
    mistakes_of_places,
    mistakes_of_statements,
)
from tests.evidence.mistakes import CLASSES, MistakeClass, Mutant

MODULES = (
    mistakes_of_order, mistakes_of_buffers, mistakes_of_maps, mistakes_of_meaning, mistakes_of_caches,
    mistakes_of_places, mistakes_of_blocks, mistakes_of_statements,
)  # fmt: skip

__all__ = ["CLASSES", "MODULES", "MistakeClass", "Mutant"]
