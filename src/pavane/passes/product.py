"""A product section: y[r, n] = epilogue(SUM_k a[r, k] * w[n, k]), `a` the input or a panel made by a prologue.

    rows of items: [load x, gains] prologue links -> carries, the last one the panel
      items:       acc = 0; acc += a . w^T; epilogue links -> carries, the last one the slot; store

How w, and a, come (`Streams`) follows from the engine's tree and from the memory:

    whole    lanes run over the whole of K, or w is read in place and takes no slot: w comes in whole rows
    weight   one lane in ascending k, which any cut of K keeps: w comes in blocks along LV_KBLOCK, a is whole
    both     as `weight`, and a is too large for a site: it comes, and its prologue is done, block by block

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
    LV_ITEM_X,
    LV_KBLOCK,
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
from pavane.ir.quasi import Domain, Quasi, quasi, upper
from pavane.ir.types import Q8_BLOCK, Contract, row_bytes
from pavane.passes.buffers import usable_bytes
from pavane.passes.chain import ZERO, Link, Scope, generic, generic_scope, into_carries, spec_scope
from pavane.passes.matrix_mode import Ride, choose_mode, is_exact, tree_of
from pavane.passes.template import (
    COMPUTE,
    READER_B,
    RESIDENT_PART,
    WRITER,
    Around,
    Axis,
    On,
    Operand,
    Part,
    RowBytes,
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
    row_axis,
    symbols_domain,
    template_program,
    template_shape,
    whole,
    window,
)
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.fills import known_fill

Streams = Literal["whole", "weight", "both"]
NOTHING = RowBytes()


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


def block_grid(
    rows: Quasi, columns: int, target: SpatialTarget, symbols: Sequence[Symbol], row: RowBytes = NOTHING
) -> Grid:
    """Blocks of a tile's columns; `row`: what stays of an item's rows."""
    domain = symbols_domain(symbols)
    return Grid(row_axis(rows, row, target, domain), axis(columns, target.tile[1], "LV_ITEM_X", domain))


def head_grid(
    rows: Quasi, heads: int, width: int, target: SpatialTarget, symbols: Sequence[Symbol], row: RowBytes = NOTHING
) -> Grid:
    """One head an item, its whole width in the slot."""
    row_blocks = row_axis(rows, row, target, symbols_domain(symbols))
    return Grid(row_blocks, fixed_axis(width, width), index_axis(heads, "LV_ITEM_X"))


def normed_row(k: int, head_width: int = 0) -> RowBytes:
    """What a row takes that is normed into a panel, and of a head its sum, norm, rope tables and result."""
    return RowBytes(row_bytes("f32", k + 2 * head_width), row_bytes("f32", k + 2 * head_width))


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
    streams = _streams(op, prologue, ride, target, symbols_domain(symbols))
    moved = _in_blocks(op, streams, target)
    parts, carries = _choreography(moved, prologue, ride, target, streams)
    numerics = _numerics(op, prologue, ride, int8)
    shape = template_shape(
        op.name,
        moved.operands,
        (_spec(op, prologue),),
        op.grid.items,
        numerics,
        parts,
        carries,
        target,
        ride.engine.name,
    )
    return template_program(op.section, shape, op.operands, symbols, target)


def _ride(op: ProductOp, prologue: Sequence[Link], int8: bool, target: SpatialTarget) -> Ride:
    weight = op.weight.tensor
    if prologue:
        return choose_mode(target, "q8_0" if int8 else "f32", weight.dtype, None, known_fill(weight))
    return choose_mode(target, op.input.tensor.dtype, weight.dtype, known_fill(op.input.tensor), known_fill(weight))


def _numerics(op: ProductOp, prologue: Sequence[Link], ride: Ride, int8: bool) -> Numerics:
    operands = ((op.weight.formal, ride.b),)
    if prologue:
        return Numerics("INT8_ACTIVATIONS" if int8 else "FLOAT", ride.accumulator, operands)
    exact = not op.epilogue and is_exact(ride.mode, op.k, op.input.tensor, op.weight.tensor, op.output.tensor.dtype)
    return Numerics("FLOAT", ride.accumulator, ((op.input.formal, ride.a), *operands), exact)


def _streams(op: ProductOp, prologue: Sequence[Link], ride: Ride, target: SpatialTarget, domain: Domain) -> Streams:
    """How the operands come. What is summed over a row must have the whole row, whatever it takes."""
    if target.alias or tree_of(ride.mode, True).lanes > 1 or op.k <= _k_tile(target):
        return "whole"
    stay = [o for o in (op.input, *op.prologue_operands) if o.window.size[-1] == op.k]
    rows = upper(op.grid.rows.limit, domain)
    height = min(op.grid.rows.size, rows)
    sizes = [o.slot[0] * row_bytes(o.tensor.dtype, op.k) for o in stay] + [height * row_bytes(ride.a, op.k)]
    large = sum(sizes[: len(stay) + bool(prologue)]) > usable_bytes(target) // RESIDENT_PART
    return "both" if large and not any(link.per_row for link in prologue) else "weight"


def _k_tile(target: SpatialTarget) -> int:
    """Whole blocks of every stored type."""
    return -(-target.tile[1] // Q8_BLOCK) * Q8_BLOCK


def _k_axis(k: int, target: SpatialTarget) -> Axis:
    size = min(k, _k_tile(target))
    return Axis(size * quasi(LV_KBLOCK), size, quasi(k).ceil(size), quasi(k))


def _in_blocks(op: ProductOp, streams: Streams, target: SpatialTarget) -> ProductOp:
    """The operands that come in blocks of K with windows of a block."""
    ks = _k_axis(op.k, target)

    def moved(operand: Operand) -> Operand:
        start, size = operand.window.start, operand.window.size
        if size[-1] != op.k:
            return operand
        block = msgspec.structs.replace(operand.window, start=(*start[:-1], ks.start), size=(*size[:-1], ks.size))
        return msgspec.structs.replace(operand, window=block)

    if streams == "whole":
        return op
    weighed = msgspec.structs.replace(op, weight=moved(op.weight))
    if streams == "weight":
        return weighed
    others = tuple(moved(operand) for operand in op.prologue_operands)
    return msgspec.structs.replace(weighed, input=moved(op.input), prologue_operands=others)


def _choreography(
    op: ProductOp, prologue: Sequence[Link], ride: Ride, target: SpatialTarget, streams: Streams
) -> tuple[tuple[Part, ...], tuple[Carry, ...]]:
    grid, rows, guard = op.grid, op.grid.rows.span, op.grid.guard
    scope = generic_scope(op.operands, rows.start)
    ks = _k_axis(op.k, target)
    k = whole(op.k) if streams == "whole" else ks.span
    panel_ops, panel_carries = into_carries(prologue, scope, rows, ks.span if streams == "both" else whole(op.k))
    cuts, cut_carries = into_carries(_cut(op.epilogue[:-1]), _of_acc(scope), rows, grid.cols.span, guard)
    last = generic(_last(op), _of_acc(scope), op.output.fifo, rows, grid.cols.span, guard)
    source = prologue[-1].name if prologue else op.input.fifo
    a = Ref(source, ZERO, ks.start) if streams == "weight" else Ref(source)
    tree = tree_of(ride.mode, True)
    product = MatmulTiles(Ref("acc"), a, Ref(op.weight.fifo), True, rows, grid.cols.span, k, tree, guard)
    sources = (op.input, *op.prologue_operands)
    bring = (*loads(sources, target), front(*sources), *((compute(*panel_ops),) if panel_ops else ()))
    multiply = (load(op.weight, target), front(op.weight), compute(product), pop(op.weight))
    before, after = _stay(bring, op.row_operands, sources, bool(prologue), streams, target)
    arrive = (*loads(op.item_operands, target), *((front(*op.item_operands),) if op.item_operands else ()))
    finish = (compute(*cuts), *result(op.output, last), pop(*op.item_operands))
    init = On(COMPUTE, (Init("acc"),))
    if streams == "whole":
        first = (load(op.weight, target), *loads(op.item_operands, target), init)
        product_once = (front(op.weight), compute(product), pop(op.weight))
        item: tuple[Part, ...] = (*first, *product_once, front(*op.item_operands), *finish)
    elif streams == "weight":
        item = (init, Around(LV_KBLOCK, ks.count, multiply), *arrive, *finish)
    else:  # what comes once an item comes first: a section is begun by what another process hands over
        item = (*arrive, init, Around(LV_KBLOCK, ks.count, (*bring, *multiply, pop(*sources))), *finish)
    parts = over_items(grid.items, before, item, after)
    acc = Carry("acc", grid.rows.size, grid.cols.size, ride.accumulator)
    return parts, (*panel_carries, acc, *cut_carries)


def _stay(
    bring: tuple[Part, ...],
    held: tuple[Operand, ...],
    sources: tuple[Operand, ...],
    has_panel: bool,
    streams: Streams,
    target: SpatialTarget,
) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """What is done before and after the items of a row: a panel is made, other operands are held."""
    if streams == "both":
        return (*loads(held, target), front(*held)), (pop(*held),)
    if has_panel:
        return (*bring, pop(*sources), *loads(held, target), front(*held)), (pop(*held),)
    return (*loads((*sources, *held), target), front(*sources, *held)), (pop(*sources, *held),)


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

    head = {LV_ITEM_X: quasi("i1")} if op.grid.head else {}
    scope = spec_scope(op.operands, (*prologue, Link("product", product), *op.epilogue), head)
    column = quasi("i2") if head else quasi("i1")
    limits = (op.grid.rows.limit, op.grid.head.count, op.grid.cols.limit) if op.grid.head else (
        op.grid.rows.limit, op.grid.cols.limit)  # fmt: skip
    return Spec(op.output.formal, op.spec_origin, limits, _last(op).build(scope, quasi("i0"), column))
