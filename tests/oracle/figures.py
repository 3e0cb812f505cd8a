"""Figures as engines have them: an index is counted in 64 bits, a number is computed with in f32.

The oracle itself counts with integers of any size and computes with doubles; here is what an engine could not follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import msgspec
import numpy as np

from pavane.ir.expr import Reduce, walk
from pavane.ir.program import Compute, Generic, Span
from pavane.ir.quasi import Quasi
from tests.oracle.rounding import rounded
from tests.oracle.spaces import Fault

MOST = 1 << 63
FEW = 1 << 30  # more than any loop that is run has turns, or a buffer rows


def counted(index: Quasi, env: Mapping[str, int]) -> int:
    """The value of an index expression; a Fault where a partial sum of it, or of a numerator, passes 64 bits."""
    total = index.const
    for coefficient, atom in index.terms:
        value = env[atom] if isinstance(atom, str) else counted(atom.numerator, env) // atom.divisor
        total += coefficient * value
        if not (-MOST <= coefficient * value < MOST and -MOST <= total < MOST):
            raise Fault(f"overflow: {index} passes 64 bits at {total}")
    return total


class Counting:
    """Looks at every index of every step that is run, where it may pass 64 bits."""

    def __init__(self, symbols: Mapping[str, int]) -> None:
        self.largest = max((FEW, *map(abs, symbols.values())))
        self.known: dict[int, tuple[Any, tuple[Quasi, ...]]] = {}  # by step, which is kept so that its id is its own

    def look(self, step: Any, env: Mapping[str, int]) -> None:
        if id(step) not in self.known:
            self.known[id(step)] = step, tuple(q for q in _indices(step) if self._bound(q) >= MOST)
        for index in self.known[id(step)][1]:
            for point in _points(step, env):
                if set(index.variables()) <= set(point):
                    counted(index, point)

    def _bound(self, index: Quasi) -> int:
        """Of all partial sums, inside floors too."""
        atoms = (self.largest if isinstance(atom, str) else self._bound(atom.numerator) for _, atom in index.terms)
        return abs(index.const) + sum(abs(c) * atom for (c, _), atom in zip(index.terms, atoms, strict=True))


def _indices(part: Any) -> Iterator[Quasi]:
    if isinstance(part, Quasi):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _indices(item)
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            yield from _indices(getattr(part, name))


def _points(step: Any, env: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The step's own point; of a Generic, the corners of what it counts, and its spans' before them."""
    yield dict(env)
    if not (isinstance(step, Compute) and isinstance(step.op, Generic)):
        return
    sizes = {"LV_GEN_ROW": _length(step.op.rows, env), "LV_GEN_COL": _length(step.op.cols, env)}
    for row, col in product(*({0, max(size - 1, 0)} for size in sizes.values())):
        point = {**env, "LV_GEN_ROW": row, "LV_GEN_COL": col}
        yield point
        for node in walk(step.op.expr):
            if isinstance(node, Reduce):
                yield {**point, node.var: max(counted(node.extent, point) - 1, 0)}


def _length(span: Span, env: Mapping[str, int]) -> int:
    return max(0, min(span.size, counted(span.limit, env) - counted(span.start, env)))


# --- numbers ---


def require_in_f32(numbers: np.ndarray, what: str) -> None:
    """A Generic computes in f32: of a position, or an integer that it is given, it may have another."""
    apart = rounded(numbers, "f32") != numbers
    if np.any(apart):
        raise Fault(f"wrong value: {what} is {np.asarray(numbers)[apart].flat[0]:.12g}, which f32 does not hold")


def require_finite(number: float, dtype: str, what: str) -> None:
    """A number that a program states is one in its type, and in f32."""
    block = np.full((1, 32), number)  # whole blocks of every type
    if not (np.isfinite(rounded(block, "f32")).all() and np.isfinite(rounded(block, dtype)).all()):
        raise Fault(f"wrong value: {what} is {number:g}, which is infinite in {dtype}")
