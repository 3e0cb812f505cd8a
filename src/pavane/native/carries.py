"""How much of a carry its process touches: what `Init` has to write.

An op that runs over fewer rows or columns than the carry has never reads the rest, so the rest needs no initial value. Only what all
uses agree on, in variables known where the carry is initialised, is taken; otherwise the whole carry is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.expr import At, Reduce, walk
from pavane.ir.program import LV_GEN_COL, LV_GEN_K, LV_GEN_ROW, Compute, Generic, MatmulTiles, Node, Ref, Span
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.walk import leaves

Touch = tuple[Span | None, Quasi | None]
_ZERO = quasi(0)


def touched(body: tuple[Node, ...], carry: str, known: frozenset[str]) -> Touch:
    """(rows, columns below) that every use of the carry stays inside; None where there is no common bound."""
    uses = [use for _, step in leaves(body) if isinstance(step, Compute) for use in _uses(step.op, carry)]
    if not uses:
        return None, None
    rows, columns = uses[0]
    if any(use[0] != rows for use in uses) or rows is None or not _inside(rows.limit - rows.start, known):
        rows = None
    if any(use[1] != columns for use in uses) or columns is None or not _inside(columns, known):
        columns = None
    return rows, columns


def _inside(value: Quasi, known: frozenset[str]) -> bool:
    return all(name in known for name in value.variables())


def _uses(op: Generic | MatmulTiles, carry: str) -> Iterator[Touch]:
    if isinstance(op, MatmulTiles):
        if op.dst.name == carry:
            yield _part(op.dst, op.rows, op.cols)
        if op.a.name == carry:
            yield _part(op.a, op.rows, op.k)
        if op.b.name == carry:
            yield None, None
        return
    if op.dst.name == carry:
        yield _part(op.dst, op.rows, op.cols)
    extent = next((e.extent for e in walk(op.expr) if isinstance(e, Reduce)), None)
    bounds = {quasi(LV_GEN_K): extent, quasi(LV_GEN_COL): op.cols.limit if op.cols.start == _ZERO else None}
    for part in walk(op.expr):
        if isinstance(part, At) and part.name == carry:
            row, column = part.index
            yield (op.rows if row == quasi(LV_GEN_ROW) else None), bounds.get(column)  # type: ignore[arg-type]


def _part(ref: Ref, rows: Span, columns: Span) -> Touch:
    """Columns below the span's limit, where the reference steps with the span's start."""
    return (rows if ref.row == _ZERO else None), (columns.limit if ref.col == columns.start else None)
