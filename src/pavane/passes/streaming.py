"""A streaming product: C = epilogue(A . B) in tiles, both operands brought tile by tile along LV_KBLOCK.

    items: acc = 0; for LV_KBLOCK: front A, B; acc += A . B; pop    then the epilogue's links and the store

For b as it is used by the product's own order of terms (one lane, ascending k); a transposed b is streamed where the
engine sums one lane too. Exact where `matrix_mode.is_exact` says so and nothing follows the product.
"""

from __future__ import annotations

from collections.abc import Sequence

from pavane.ir.expr import Expr, fn
from pavane.ir.program import (
    LV_ITEM_X,
    LV_ITEM_Y,
    LV_KBLOCK,
    Carry,
    Init,
    Items,
    MatmulTiles,
    Numerics,
    Program,
    Ref,
    Spec,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import block_elements
from pavane.passes.chain import Link, Scope, generic, generic_scope, into_carries, spec_scope
from pavane.passes.linking import link_of, operand_over
from pavane.passes.matrix_mode import Ride, is_exact, tree_of
from pavane.passes.template import (
    COMPUTE,
    READER_B,
    WRITER,
    Around,
    Axis,
    On,
    Operand,
    axis,
    compute,
    extents,
    front,
    load,
    loads,
    over_items,
    pop,
    result,
    symbols_domain,
    template_program,
    template_shape,
    window,
)
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.recognised import ProductOp

RESULT = Link("result", lambda scope, r, c: scope.get("product", r, c))


def streaming_section(op: ProductOp, ride: Ride, target: SpatialTarget) -> Program:
    """The TEMPLATE of one product on the mode that was chosen for it."""
    rows, cols, ks = _axes(op, target)
    a = Operand("A", op.a.tensor, extents(op.rows, op.k), window(rows.dim, ks.dim, row=0))
    along = (cols, ks) if op.transposed else (ks, cols)
    b_shape = extents(*(x.limit for x in along))
    b = Operand("B", op.b.tensor, b_shape, window(*(x.dim for x in along), row=0), READER_B)
    others = tuple(operand_over(given, rows, cols) for given in op.epilogue_inputs)
    c = Operand("C", op.output, extents(op.rows, op.cols), window(rows.dim, cols.dim, row=0), WRITER)
    links = tuple(link_of(link) for link in op.epilogue) or (RESULT,)
    scope = _of_acc(generic_scope((a, b, *others), rows.start))
    cuts, carries = into_carries(links[:-1], scope, rows.span, cols.span)
    product = MatmulTiles(
        Ref("acc"), Ref(a.fifo), Ref(b.fifo), op.transposed, rows.span, cols.span, ks.span,
        tree_of(ride.mode, op.transposed),
    )  # fmt: skip
    turn = (load(a, target), load(b, target), front(a, b), compute(product), pop(a, b))
    arrive = (*loads(others, target), front(*others)) if others else ()
    leave = (pop(*others),) if others else ()
    item = (
        On(COMPUTE, (Init("acc"),)), Around(LV_KBLOCK, ks.count, turn), *arrive, *((compute(*cuts),) if cuts else ()),
        *result(c, generic(links[-1], scope, c.fifo, rows.span, cols.span)), *leave,
    )  # fmt: skip
    items = Items(rows.count, cols.count, rows.size, cols.size)
    acc = Carry("acc", rows.size, cols.size, ride.accumulator)
    operands = (a, b, *others, c)
    shape = template_shape(
        "matmul", operands, (_spec(op, operands, links),), items, _numerics(op, ride), over_items(items, (), item),
        (acc, *carries), target, ride.engine.name,
    )  # fmt: skip
    return template_program(op.name, shape, operands, op.symbols, target)


def _axes(op: ProductOp, target: SpatialTarget) -> tuple[Axis, Axis, Axis]:
    """Rows, columns and K in tiles; dimensions that hold stored blocks in whole ones."""
    domain = symbols_domain(op.symbols)
    tile_rows, tile_cols = target.tile
    stored = max(block_elements(op.output.dtype), 1 if op.transposed else block_elements(op.b.tensor.dtype))
    in_blocks = max(block_elements(op.a.tensor.dtype), block_elements(op.b.tensor.dtype) if op.transposed else 1)
    k = min(op.k, _whole_blocks(tile_cols, in_blocks))
    ks = Axis(k * quasi(LV_KBLOCK), k, quasi(op.k).ceil(k), quasi(op.k))
    return (
        axis(op.rows, tile_rows, LV_ITEM_Y, domain),
        axis(op.cols, _whole_blocks(tile_cols, stored), LV_ITEM_X, domain),
        ks,
    )


def _whole_blocks(tile: int, block: int) -> int:
    return -(-tile // block) * block


def _of_acc(scope: Scope) -> Scope:
    return Scope(
        lambda name, r, c: scope.get("acc" if name == "product" else name, r, c), scope.variable, scope.first_row
    )


def _numerics(op: ProductOp, ride: Ride) -> Numerics:
    exact = not op.epilogue and is_exact(ride.mode, op.k, op.a.tensor, op.b.tensor, op.output.dtype)
    return Numerics(accumulator=ride.accumulator, operands=(("A", ride.a), ("B", ride.b)), exact=exact)


def _spec(op: ProductOp, operands: Sequence[Operand], links: Sequence[Link]) -> Spec:
    def product(scope: Scope, r: Quasi, c: Quasi) -> Expr:
        return scope.total(
            op.k,
            lambda k: fn("mul", scope.get("A", r, k), scope.get("B", c, k) if op.transposed else scope.get("B", k, c)),
        )

    scope = spec_scope(operands, (Link("product", product), *links))
    return Spec("C", extents(0, 0), extents(op.rows, op.cols), links[-1].build(scope, quasi("i0"), quasi("i1")))
