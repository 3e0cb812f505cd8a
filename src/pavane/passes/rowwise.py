"""A section without a product: element-wise chains, row reductions and norms over a matrix [rows, cols].

Items are blocks of rows, and blocks of columns too where no value needs its whole row. Each item loads its blocks,
computes the links into carries and the outputs into slots, and stores them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y, Items, Numerics, Program, Spec, Symbol
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import row_bytes
from pavane.passes.chain import Link, generic, generic_scope, into_carries, spec_scope
from pavane.passes.template import (
    Axis,
    Operand,
    RowBytes,
    axis,
    compute,
    extents,
    fixed_axis,
    front,
    loads,
    over_items,
    pop,
    result,
    row_axis,
    symbols_domain,
    template_program,
    template_shape,
)
from pavane.targets.descriptor import SpatialTarget


class RowwiseOp(msgspec.Struct, frozen=True):
    """`links` go to carries; each output is a formal and the link that it holds. A per-row output has one column."""

    name: str
    section: str
    rows: Axis
    cols: Axis
    inputs: tuple[Operand, ...]
    links: tuple[Link, ...]
    outputs: tuple[tuple[Operand, Link], ...]


def matrix_axes(
    rows: Quasi | int, cols: int, whole_rows: bool, target: SpatialTarget, symbols: Sequence[Symbol]
) -> tuple[Axis, Axis]:
    """Blocks of a tile's rows, and of a tile's columns unless a whole row is needed; then of as many rows as have room
    for three operands and a carry.
    """
    domain = symbols_domain(symbols)
    if not whole_rows:
        return axis(rows, target.tile[0], LV_ITEM_Y, domain), axis(cols, target.tile[1], LV_ITEM_X, domain)
    one = row_bytes("f32", cols)
    return row_axis(rows, RowBytes(one, 3 * one), target, domain), fixed_axis(cols, cols)


def rowwise_section(op: RowwiseOp, target: SpatialTarget, symbols: Sequence[Symbol]) -> Program:
    """The TEMPLATE of one such section."""
    rows, cols = op.rows, op.cols
    scope = generic_scope(op.inputs, rows.start)
    ops, carries = into_carries(op.links, scope, rows.span, cols.span)
    items = Items(rows.count, cols.count, rows.size, cols.size)
    stored = tuple(
        on
        for operand, link in op.outputs
        for on in result(operand, generic(link, scope, operand.fifo, rows.span, cols.span))
    )
    arrive = (*loads(op.inputs, target), front(*op.inputs)) if op.inputs else ()
    leave = (pop(*op.inputs),) if op.inputs else ()
    computed = (compute(*ops),) if ops else ()
    parts = over_items(items, (), (*arrive, *computed, *stored, *leave))
    operands = (*op.inputs, *(operand for operand, _ in op.outputs))
    specs = tuple(_spec(op, operand, link) for operand, link in op.outputs)
    shape = template_shape(op.name, operands, specs, items, Numerics(), parts, carries, target)
    return template_program(op.section, shape, operands, symbols, target)


def _spec(op: RowwiseOp, operand: Operand, link: Link) -> Spec:
    scope = spec_scope(op.inputs, op.links)
    column = quasi(0) if link.per_row else quasi("i1")
    cols = quasi(1) if link.per_row else op.cols.limit
    return Spec(operand.formal, extents(0, 0), (op.rows.limit, cols), link.build(scope, quasi("i0"), column))
