"""How terms were made, so that one can be written out: the operations of a run, the latest few thousand of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

import numpy as np

from tests.oracle.cells import Cells, is_constant

Point = tuple[int, ...]
Parts = Callable[[Point], list[Cells]]
MOST_OPERATIONS, MOST_LEVELS, MOST_PARTS = 4096, 5, 3


class Record:
    """Leaves by tensor; operations with what they took for each element of their result."""

    def __init__(self) -> None:
        self.leaves: dict[str, np.ndarray] = {}
        self.operations: deque[tuple[str, np.ndarray, Parts]] = deque(maxlen=MOST_OPERATIONS)

    def leaf(self, tensor: str, terms: np.ndarray) -> None:
        self.leaves[tensor] = terms

    def operation(self, name: str, result: np.ndarray, parts: Parts) -> None:
        self.operations.append((name, result, parts))

    def worded(self, cell: Cells, levels: int = MOST_LEVELS) -> str:
        """A cell's term as a person reads it, cut short below a few levels."""
        if is_constant(cell):
            return f"{float(cell['number']):g}"
        for tensor, terms in self.leaves.items():
            place = _place(terms, cell["term"])
            if place is not None:
                return f"{tensor}[{', '.join(map(str, place))}]"
        for name, result, parts in reversed(tuple(self.operations)) if levels else ():
            place = _place(result, cell["term"])
            taken = [] if place is None else parts(place)
            if place is not None and all(part["term"] != cell["term"] for part in taken):  # not a + 0, max(a, a)
                return self._operation(name, taken, levels - 1)
        return "..."

    def _operation(self, name: str, parts: list[Cells], levels: int) -> str:
        shown = ", ".join(self.worded(part, levels) for part in islice(parts, MOST_PARTS))
        more = len(parts) - MOST_PARTS
        return f"{name}({shown}{f', and {more} more' if more > 0 else ''})"


def _place(terms: np.ndarray, term: np.uint64) -> Point | None:
    found = np.argwhere(terms == term)
    return tuple(map(int, found[0])) if len(found) else None
