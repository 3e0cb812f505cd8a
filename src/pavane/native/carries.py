"""The initial value of a carry as code, over as much of it as its process touches.

An op that runs over fewer rows or columns than the carry has never reads the rest, so the rest needs no initial value.
Only what all uses agree on, in variables known where the carry is initialised, is taken; otherwise the whole carry is
written.
"""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.expr import At, Reduce, walk
from pavane.ir.program import (
    LV_GEN_COL,
    LV_GEN_K,
    LV_GEN_ROW,
    Carry,
    Compute,
    Generic,
    Loop,
    MatmulTiles,
    Node,
    Ref,
    Span,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import block_elements
from pavane.ir.walk import leaves
from pavane.native.elements import byte_offset, store_lanes
from pavane.native.functions import f32_text
from pavane.native.generic import Operand
from pavane.native.index import Scope, emit_index, emit_length
from pavane.native.outside import outside
from pavane.native.text import F32, LANES, Code

Touch = tuple[Span | None, Quasi | None]
_ZERO = quasi(0)


def touched(body: tuple[Node, ...], carry: str, around: tuple[Loop, ...], outside: frozenset[str]) -> Touch:
    """(rows, columns below) that every use of the carry stays inside; None where there is no common bound.

    The bounds are in the variables `outside` all loops, and of those loops `around` the Init that every use is in too.
    """
    found = [(nest, use) for nest, step in leaves(body) if isinstance(step, Compute) for use in _uses(step.op, carry)]
    if not found:
        return None, None
    shared = [loop for loop in around if all(any(loop is other for other in nest) for nest, _ in found)]
    known = outside | {loop.var for loop in shared}
    uses = [use for _, use in found]
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
            columns = bounds.get(column) if isinstance(column, Quasi) else None
            yield (op.rows if row == quasi(LV_GEN_ROW) else None), columns


def _part(ref: Ref, rows: Span, columns: Span) -> Touch:
    """Columns below the span's limit, where the reference steps with the span's start."""
    return (rows if ref.row == _ZERO else None), (columns.limit if ref.col == columns.start else None)


def emit_init(code: Code, carry: Carry, operand: Operand, part: Touch, scope: Scope) -> None:
    """Set the touched part of a carry to its initial value."""
    rows = str(carry.rows) if part[0] is None else emit_length(code, part[0], scope)
    columns = str(carry.cols)
    if part[1] is not None and block_elements(carry.dtype) == 1:
        columns = code.greatest(code.least(emit_index(code, part[1], scope), columns), "0")
    if carry.initial == 0.0 and part[1] is None:
        _zero(code, operand.base, code.mul(rows, operand.row_bytes))
        return
    if block_elements(carry.dtype) > 1 and carry.initial != 0.0:
        raise outside(f"a {carry.dtype} carry starts at 0 only", carry.name, str(carry.initial))
    with code.loop(rows) as row:
        pointer = code.at(operand.base, code.mul(row, operand.row_bytes))
        if carry.initial == 0.0:
            _zero(code, pointer, byte_offset(code, carry.dtype, columns))
        else:
            _fill_row(code, carry, pointer, columns)


def _zero(code: Code, pointer: str, size: str) -> None:
    code.call("llvm.memset.p0.i64", "void", f"ptr {pointer}, i8 0, i64 {size}, i1 false", "ptr, i8, i64, i1")


def _fill_row(code: Code, carry: Carry, pointer: str, columns: str) -> None:
    dtype, value = carry.dtype, code.splat("float", LANES, f32_text(carry.initial))
    if dtype == "i32":  # as words: no f32 holds every one
        words = code.splat("i32", LANES, str(int(carry.initial)))
        dtype, value = "f32", code.value(f"bitcast <{LANES} x i32> {words} to {F32}")
    with code.loop(columns, step=LANES) as column:
        store_lanes(code, dtype, pointer, column, value, code.mask(code.sub(columns, column)))
