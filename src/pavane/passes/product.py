"""A product section: y[r, n] = epilogue(SUM_k a[r, k] * w[n, k]), `a` the input or a panel made by a prologue.

    rows of items: [load x, gains] prologue links -> carries, the last one the panel
      items:       load w; acc = 0; acc += a . w^T over the whole K; epilogue links -> carries, the last one the slot;
      store

The weight moves as it is stored. Items are blocks of the output's columns, or (`per_head`) one head each, whose index
guards the ops. Under INT8_ACTIVATIONS a q8_0 weight meets a q8_0 panel; without a prologue one is made from the input.
Refusals: `NoEngine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pavane.ir.expr import Expr, fn
from pavane.ir.program import (
    Carry,
    Init,
    Items,
    MatmulTiles,
    Numerics,
    Program,
    Ref,
    Span,
    Spec,
    Symbol,
    Tensor,
    Window,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.passes.chain import Link, Scope, generic, generic_scope, into_carries, spec_scope
from pavane.passes.matrix_mode import Ride, choose_mode, is_exact, tree_of
from pavane.passes.template import (
    COMPUTE,
    READER_B,
    WRITER,
    Axis,
    On,
    Operand,
    Part,
    axis,
    compute,
    extents,
    fixed_axis,
    front,
    index_axis,
    load,
    loads,
    over_items,
    pop,
    result,
    symbols_domain,
    template_program,
    template_shape,
    whole,
    window,
)
from pavane.targets.descriptor import SpatialTarget

Contract = Literal["FLOAT", "INT8_ACTIVATIONS"]


class Grid(msgspec.Struct, frozen=True):
    """The output as items walk it. `head` None: columns in blocks; else one head of `cols.size` columns an item."""

    rows: Axis
    cols: Axis
    head: Axis | None = None

    @property
    def guard(self) -> tuple[Span, ...]:
        return (self.head.span,) if self.head else ()

    @property
    def items(self) -> Items:
        return Items(self.rows.count, self.head.count if self.head else self.cols.count, self.rows.size, self.cols.size)

    def output_window(self, first_row: Quasi | int = 0) -> Window:
        rows = (self.rows.start + first_row, self.rows.size)
        return window(rows, self.head.dim, self.cols.dim, row=0) if self.head else window(rows, self.cols.dim, row=0)

    def output_shape(self, rows: Quasi) -> tuple[Quasi, ...]:
        return extents(rows, self.head.count, self.cols.limit) if self.head else extents(rows, self.cols.limit)


class ProductOp(msgspec.Struct, frozen=True):
    """What a product section is made of.

    `prologue_operands` are read before the items, `row_operands` stay for all items of a row, `item_operands` come with
    each. The links named last in `prologue` and `epilogue` are the panel and the result; the product's own value is
    `product`.
    """

    name: str
    section: str
    k: int
    grid: Grid
    input: Operand
    weight: Operand
    output: Operand
    spec_origin: tuple[Quasi, ...]
    contract: Contract = "FLOAT"
    prologue: tuple[Link, ...] = ()
    prologue_operands: tuple[Operand, ...] = ()
    epilogue: tuple[Link, ...] = ()
    row_operands: tuple[Operand, ...] = ()
    item_operands: tuple[Operand, ...] = ()

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.input, *self.prologue_operands, self.weight, *self.row_operands, *self.item_operands, self.output)


def block_grid(rows: Quasi, columns: int, target: SpatialTarget, symbols: Sequence[Symbol]) -> Grid:
    """Blocks of a tile's columns."""
    domain = symbols_domain(symbols)
    return Grid(axis(rows, target.tile[0], "LV_ITEM_Y", domain), axis(columns, target.tile[1], "LV_ITEM_X", domain))


def head_grid(rows: Quasi, heads: int, width: int, target: SpatialTarget, symbols: Sequence[Symbol]) -> Grid:
    """One head an item, its whole width in the slot."""
    columns = fixed_axis(width, width)
    return Grid(
        axis(rows, target.tile[0], "LV_ITEM_Y", symbols_domain(symbols)), columns, index_axis(heads, "LV_ITEM_X")
    )


def input_rows(name: str, tensor: Tensor, rows: Axis, extent: Quasi, k: int, first_row: Quasi | int = 0) -> Operand:
    """Whole rows of the input, viewed [extent, k]."""
    return Operand(name, tensor, extents(extent, k), window((rows.start + first_row, rows.size), (0, k), row=0))


def weight_rows(name: str, tensor: Tensor, grid: Grid, k: int) -> Operand:
    """The rows of a weight [N, k] that an item needs; a head's rows where items are heads."""
    if grid.head:
        shape = extents(grid.head.count, grid.cols.limit, k)
        return Operand(name, tensor, shape, window(grid.head.dim, grid.cols.dim, (0, k), row=1), READER_B)
    return Operand(name, tensor, extents(grid.cols.limit, k), window(grid.cols.dim, (0, k), row=0), READER_B)


def output_block(name: str, tensor: Tensor, grid: Grid, rows: Quasi, first_row: Quasi | int = 0) -> Operand:
    """The output's block of an item."""
    return Operand(name, tensor, grid.output_shape(rows), grid.output_window(first_row), WRITER)


def product_section(op: ProductOp, target: SpatialTarget, symbols: Sequence[Symbol]) -> Program:
    """The TEMPLATE of one product."""
    int8 = op.contract == "INT8_ACTIVATIONS" and op.weight.tensor.dtype == "q8_0"
    prologue = op.prologue or ((Link("panel", lambda s, r, c: s.get(op.input.formal, r, c)),) if int8 else ())
    ride = _ride(op, prologue, int8, target)
    if prologue:
        prologue = (*prologue[:-1], msgspec.structs.replace(prologue[-1], dtype=ride.a))
    parts, carries = _choreography(op, prologue, ride, target)
    numerics = _numerics(op, prologue, ride, int8)
    shape = template_shape(
        op.name, op.operands, (_spec(op, prologue),), op.grid.items, numerics, parts, carries, target, ride.engine.name
    )
    return template_program(op.section, shape, op.operands, symbols, target)


def _ride(op: ProductOp, prologue: Sequence[Link], int8: bool, target: SpatialTarget) -> Ride:
    weight = op.weight.tensor
    if prologue:
        return choose_mode(target, "q8_0" if int8 else "f32", weight.dtype, None, weight.fill)
    return choose_mode(target, op.input.tensor.dtype, weight.dtype, op.input.tensor.fill, weight.fill)


def _numerics(op: ProductOp, prologue: Sequence[Link], ride: Ride, int8: bool) -> Numerics:
    operands = ((op.weight.formal, ride.b),)
    if prologue:
        return Numerics("INT8_ACTIVATIONS" if int8 else "FLOAT", ride.accumulator, operands)
    exact = not op.epilogue and is_exact(ride.mode, op.k, op.input.tensor, op.weight.tensor, op.output.tensor.dtype)
    return Numerics("FLOAT", ride.accumulator, ((op.input.formal, ride.a), *operands), exact)


def _choreography(
    op: ProductOp, prologue: Sequence[Link], ride: Ride, target: SpatialTarget
) -> tuple[tuple[Part, ...], tuple[Carry, ...]]:
    grid, rows, guard = op.grid, op.grid.rows.span, op.grid.guard
    scope = generic_scope(op.operands, rows.start)
    before, held = (op.input, *op.prologue_operands), op.row_operands
    if not prologue:
        before, held = (), (op.input, *held)
    k = whole(op.k)
    panel_ops, panel_carries = into_carries(prologue, scope, rows, k)
    cuts, cut_carries = into_carries(_cut(op.epilogue[:-1]), _of_acc(scope), rows, grid.cols.span, guard)
    last = generic(_last(op), _of_acc(scope), op.output.fifo, rows, grid.cols.span, guard)
    a = prologue[-1].name if prologue else op.input.fifo
    product = MatmulTiles(
        Ref("acc"), Ref(a), Ref(op.weight.fifo), True, rows, grid.cols.span, k, tree_of(ride.mode, True), guard
    )
    prepare = (*loads(before, target), front(*before), compute(*panel_ops), pop(*before)) if prologue else ()
    item = (
        load(op.weight, target), *loads(op.item_operands, target),
        On(COMPUTE, (Init("acc"),)), front(op.weight), compute(product), pop(op.weight),
        front(*op.item_operands), compute(*cuts), *result(op.output, last), pop(*op.item_operands),
    )  # fmt: skip
    parts = over_items(grid.items, (*prepare, *loads(held, target), front(*held)), item, (pop(*held),))
    acc = Carry("acc", grid.rows.size, grid.cols.size, ride.accumulator)
    return parts, (*panel_carries, acc, *cut_carries)


def _cut(links: Sequence[Link]) -> tuple[Link, ...]:
    """The links between Generics that legalisation took apart; a sum over a row cannot be put back."""
    return tuple(msgspec.structs.replace(link, cut=not link.per_row) for link in links)


def _last(op: ProductOp) -> Link:
    return op.epilogue[-1] if op.epilogue else Link("result", lambda s, r, c: s.get("product", r, c))


def _of_acc(scope: Scope) -> Scope:
    """`product` is the accumulator."""
    return Scope(
        lambda name, r, c: scope.get("acc" if name == "product" else name, r, c), scope.variable, scope.first_row
    )


def _spec(op: ProductOp, prologue: Sequence[Link]) -> Spec:
    a = prologue[-1].name if prologue else op.input.formal

    def product(scope: Scope, r: Quasi, c: Quasi) -> Expr:
        return scope.total(op.k, lambda k: fn("mul", scope.get(a, r, k), scope.get(op.weight.formal, c, k)))

    head = quasi("i1") if op.grid.head else None
    scope = spec_scope(op.operands, (*prologue, Link("product", product), *op.epilogue), head)
    column = quasi("i2") if head is not None else quasi("i1")
    limits = (op.grid.rows.limit, op.grid.head.count, op.grid.cols.limit) if op.grid.head else (
        op.grid.rows.limit, op.grid.cols.limit)  # fmt: skip
    return Spec(op.output.formal, op.spec_origin, limits, _last(op).build(scope, quasi("i0"), column))
