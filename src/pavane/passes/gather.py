"""A gather section: y[r, :] = table[ids[r], :] * scale, rows of a table that an i32 tensor names.

The reader brings the ids, holds them, and fills a slot with one row a turn of LV_SUB_H; items are blocks of the table's
columns (whole blocks where the table is stored in blocks).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pavane.ir.expr import Expr, Indirect, fn
from pavane.ir.program import (
    LV_SUB_H,
    Fence,
    Front,
    Items,
    Load,
    Numerics,
    Pop,
    Program,
    Push,
    Reserve,
    Spec,
    Symbol,
    Tensor,
)
from pavane.ir.quasi import Quasi, quasi, upper
from pavane.ir.types import block_elements
from pavane.passes.chain import Link, Scope, generic, generic_scope, spec_scope
from pavane.passes.template import (
    READER_A,
    WRITER,
    Around,
    Axis,
    On,
    Operand,
    axis,
    extents,
    fixed_axis,
    front,
    load,
    over_items,
    pop,
    result,
    symbols_domain,
    template_program,
    template_shape,
    window,
)
from pavane.targets.descriptor import SpatialTarget


class GatherOp(msgspec.Struct, frozen=True):
    """ids i32[rows] with values below `entries`, table [entries, width], y [rows, width]."""

    name: str
    section: str
    ids: Tensor
    table: Tensor
    y: Tensor
    rows: Quasi
    entries: int
    width: int
    scale: float = 1.0


def gather_section(op: GatherOp, target: SpatialTarget, symbols: Sequence[Symbol]) -> Program:
    """The TEMPLATE of one gather."""
    domain = symbols_domain(symbols)
    rows = fixed_axis(op.rows, upper(op.rows, domain))
    block = block_elements(op.table.dtype)
    cols = axis(op.width, -(-target.tile[1] // block) * block, "LV_ITEM_X", domain)
    ids, table, y = _operands(op, rows, cols)
    scaled = Link("y", lambda s, r, c: _scaled(s, r, c, op.scale))
    scope = generic_scope((table,))
    store = result(y, generic(scaled, scope, y.fifo, rows.span, cols.span))
    items = Items(rows.count, cols.count, rows.size, cols.size)
    item = (*_gathered(op, table, cols), front(table), *store, pop(table))
    held = (load(ids, target), On(READER_A, (Front(ids.fifo),)))
    parts = over_items(items, held, item, (On(READER_A, (Pop(ids.fifo),)),))
    spec = Spec(y.formal, extents(0, 0), extents(op.rows, op.width), _spec(op, table, scaled))
    operands = (ids, table, y)
    shape = template_shape(op.name, operands, (spec,), items, Numerics(), parts, (), target)
    return template_program(op.section, shape, operands, symbols, target)


def _operands(op: GatherOp, rows: Axis, cols: Axis) -> tuple[Operand, Operand, Operand]:
    row = Indirect("I", (quasi("i0"),), 0, op.entries)
    return (
        Operand("I", op.ids, extents(op.rows), window(rows.dim)),
        Operand("E", op.table, extents(op.entries, op.width), window((row, rows.size), cols.dim, row=0), gather=True),
        Operand("Y", op.y, extents(op.rows, op.width), window(rows.dim, cols.dim, row=0), WRITER),
    )


def _gathered(op: GatherOp, table: Operand, cols: Axis) -> tuple[On | Around, ...]:
    """Reserve a slot, fill it row by row, hand it over."""
    turn = quasi(LV_SUB_H)
    one = window((Indirect("I", (turn,), 0, op.entries, "fI"), 1), cols.dim, row=0)
    fill = On(READER_A, (Load(table.fifo, table.formal, one, turn),))
    return (
        On(READER_A, (Reserve(table.fifo),)),
        Around(LV_SUB_H, op.rows, (fill,)),
        On(READER_A, (Fence(), Push(table.fifo))),
    )


def _scaled(scope: Scope, r: Quasi, c: Quasi, scale: float) -> Expr:
    value = scope.get("E", r, c)
    return value if scale == 1.0 else fn("mul", value, scale)


def _spec(op: GatherOp, table: Operand, scaled: Link) -> Expr:
    """The row's index is the id of the output's row: an opaque term, equal in value and spec."""
    return scaled.build(spec_scope((table,), ()), quasi("i0"), quasi("i1"))
