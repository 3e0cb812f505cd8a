"""The order in which a contraction adds its terms (docs/ir.md, Sums): one that no plan may change, for it changes bits.

Terms come in ascending k; what is added in lanes is added in one step; and of two contractions in one accumulator one
is done before the other begins. All that is known by the tensors that the operands were loaded from, and where both
were computed nothing is. Where all is exact the order is no matter, but for that of k, which the op states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pavane.ir.program import MatmulTiles, Ref
from tests.oracle.spaces import Fault

if TYPE_CHECKING:
    from tests.oracle.machine import Slot

Env = dict[str, int]
Side = tuple[str, tuple[int, ...]]  # the tensor, and where in it: in the other dimensions than k


@dataclass(frozen=True)
class Part:
    """The terms first <= k < end of one contraction, added to a rectangle (rows, columns) of an accumulator."""

    contraction: tuple[Side | None, Side | None]
    first: int
    end: int
    rows: range
    cols: range

    def meets(self, other: Part) -> bool:
        pairs = ((self.rows, other.rows), (self.cols, other.cols))
        return all(one.start < two.stop and two.start < one.stop for one, two in pairs)


def part_of(op: MatmulTiles, a: Slot, b: Slot, lengths: tuple[int, int, int], env: Env) -> Part | None:
    """What a product adds; None where neither operand was loaded. `lengths`: of rows, columns and k."""
    row, col = op.dst.row.evaluate(env), op.dst.col.evaluate(env)
    left, right = _side(a, op.a, row, False, env), _side(b, op.b, col, not op.transposed, env)
    known = left or right
    if known is None or not lengths[2]:
        return None
    contraction = (left and left[0], right and right[0])
    rows, cols = range(row, row + lengths[0]), range(col, col + lengths[1])
    return Part(contraction, known[1], known[1] + lengths[2], rows, cols)


def add(parts: list[Part], new: Part, op: MatmulTiles, exact: bool) -> None:
    """Note a part behind those before it; raise a Fault where its place is not there."""
    before = [part for part in parts if part.meets(new)]
    same = [part for part in before if part.contraction == new.contraction]
    what = f"{op.dst.name} adds k = {new.first} of {_worded(new)}"
    if any(part.first == new.end for part in same):
        raise Fault(f"wrong order: {what} after k = {new.end}")
    goes_on = bool(before) and before[-1] in same and before[-1].end == new.first
    if not goes_on and not exact and any(part.end == new.first for part in same):
        raise Fault(f"wrong order: {what} after terms of another contraction, whose blocks it follows in turn")
    if goes_on and not exact and op.tree.lanes > 1:
        raise Fault(f"wrong order: {what} in lanes of its own, apart from the terms before it")
    if goes_on:
        new = replace(new, first=before[-1].first)
        if (before[-1].rows, before[-1].cols) == (new.rows, new.cols):
            parts.remove(before[-1])
    parts.append(new)


def _side(slot: Slot, ref: Ref, origin: int, k_in_rows: bool, env: Env) -> tuple[Side, int] | None:
    """Where an operand comes from, and the k of its first element. `origin`: where its other axis begins in dst."""
    if slot.origin is None:
        return None
    starts, row = list(slot.origin[0]), slot.origin[1]
    if k_in_rows and row < 0:
        return None
    if row >= 0:
        starts[row] += ref.row.evaluate(env) - (0 if k_in_rows else origin)
    starts[-1] += ref.col.evaluate(env) - (origin if k_in_rows else 0)
    first = starts.pop(row if k_in_rows else -1)
    return (slot.formal, tuple(starts)), first


def _worded(part: Part) -> str:
    return " x ".join("?" if side is None else side[0] for side in part.contraction)
