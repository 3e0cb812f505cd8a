"""An attention section: o[r, h, :] = softmax over the visible j of q[r, h] . K[j, h / group] * scale, times V.

The scores of a whole row stay on the chip: keys come in blocks along LV_KBLOCK, then the row's maximum, the weights
and their sum, then values in blocks. Query row r is at position `first + r`; it sees j <= first + r (`causal`) and,
with a window, only j > first + r - window. Which rows of which heads an item takes is `attention_items`': where heads
share keys and moving them costs anything, so that they are read once for all. Where engines work in local memory, what
is needed one after the other lies in one place (`Places`): so blocks of keys and values may be longer, and their reader
waits seldomer for the memory beside the chip. Refusals: `NoEngine` from the products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pavane.ir.expr import Expr, Var, fn
from pavane.ir.program import (
    LV_ITEM_Y,
    LV_KBLOCK,
    Carry,
    Init,
    MatmulTiles,
    Numerics,
    Program,
    Ref,
    Span,
    Spec,
    Symbol,
    Tensor,
)
from pavane.ir.quasi import Quasi, quasi, upper
from pavane.ir.types import row_bytes
from pavane.passes.attention_items import AttentionItems, by_heads, by_members
from pavane.passes.buffers import usable_bytes
from pavane.passes.chain import ZERO, Link, Scope, generic, generic_scope, spec_scope
from pavane.passes.matrix_mode import Ride, choose_mode, tree_of
from pavane.passes.plans import LARGER
from pavane.passes.template import (
    COMPUTE,
    READER_A,
    READER_B,
    RESIDENT_PART,
    WRITER,
    Around,
    On,
    Operand,
    Part,
    RowBytes,
    axis,
    compute,
    extents,
    front,
    load,
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

MASKED = -3.0e38


class Places(msgspec.Struct, frozen=True):
    """Which reader brings the keys, whether one FIFO takes keys and values, and the carry of the weights: that of the
    scores, or one of their own.
    """

    reader_of_keys: str
    one_fifo: bool
    weights: Literal["S", "P"]


class AttentionOp(msgspec.Struct, frozen=True):
    """q [rows, heads, width], keys and values [live, kv_heads, width] (prefixes of their tensors), o like q."""

    name: str
    section: str
    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    rows: Quasi
    live: Quasi
    heads: int
    kv_heads: int
    width: int
    scale: float
    first: Quasi
    causal: bool = True
    window: int = 0


def attention_section(op: AttentionOp, target: SpatialTarget, symbols: Sequence[Symbol]) -> Program:
    """The TEMPLATE of one attention."""
    scores = choose_mode(target, op.q.dtype, op.k.dtype, known_fill(op.q), known_fill(op.k))
    values = choose_mode(target, "f32", op.v.dtype, None, known_fill(op.v))
    most = upper(op.live, symbols_domain(symbols))
    block = _key_block(op, most, target)
    columns = -(-most // block) * block
    places = _places(op, scores, values, target, symbols)
    carried = row_bytes("f32", columns + op.width) + (row_bytes(values.a, columns) if places.weights == "P" else 0)
    row = RowBytes(carried, row_bytes(op.q.dtype, op.width) + row_bytes(op.o.dtype, op.width))
    items = _items(op, row, target, symbols)
    operands = _operands(op, items, block, places)
    carries = _carries(op, items, columns, values, places.weights)
    parts = _choreography(op, items, block, columns, operands, scores, values, places.weights, target)
    numerics = Numerics(
        accumulator=scores.accumulator,
        operands=(("Q", scores.a), ("K", scores.b), ("V", values.b)),
    )
    shape = template_shape(
        op.name,
        operands,
        (_spec(op, items, operands),),
        items.items,
        numerics,
        parts,
        carries,
        target,
        scores.engine.name,
    )
    return template_program(op.section, shape, operands, symbols, target)


def _key_block(op: AttentionOp, most: int, target: SpatialTarget) -> int:
    """Positions of a block of keys or values: a tile's, halved until two slots of each take a quarter of the memory."""
    block = min(target.tile[1], most)
    while block > 1 and 4 * block * row_bytes(op.k.dtype, op.width) > usable_bytes(target) // 4:
        block = -(-block // 2)
    return block


def _items(op: AttentionOp, row: RowBytes, target: SpatialTarget, symbols: Sequence[Symbol]) -> AttentionItems:
    """By members where that moves less: heads share keys, and a binding in place would move nothing anyway."""
    if op.rows == quasi(1) and op.heads > op.kv_heads and not target.alias:
        return by_members(op.heads, op.kv_heads, op.width)
    rows = row_axis(op.rows, row, target, symbols_domain(symbols))
    if not target.alias:  # heads alone may be fewer than sites: `tile` chooses how many rows a site takes
        rows = axis(op.rows, max(1, rows.size >> LARGER), LV_ITEM_Y, symbols_domain(symbols))
    return by_heads(rows, op.heads, op.kv_heads, op.width)


def _places(op: AttentionOp, scores: Ride, values: Ride, target: SpatialTarget, symbols: Sequence[Symbol]) -> Places:
    """Weights in the place of scores of their type; keys and values that one reader brings, and that products take
    alike, through one FIFO, but for blocks of rows: those of one head may have one reader for all (`fuse_readers`).
    """
    reader = _reader_of_keys(op, target, symbols)
    alike = op.k.dtype == op.v.dtype and (scores.a, scores.b) == (values.a, values.b)
    return Places(
        reader_of_keys=reader,
        one_fifo=alike and reader == READER_B and op.rows == quasi(1) and not target.alias,
        weights="S" if values.a == "f32" and not target.alias else "P",
    )


def _reader_of_keys(op: AttentionOp, target: SpatialTarget, symbols: Sequence[Symbol]) -> str:
    """Its own where reading takes longest (one row of queries) and a head's live values have room to come meanwhile."""
    if target.alias or op.rows != quasi(1):
        return READER_B
    live = op.live.evaluate({s.name: s.expected for s in symbols})
    ahead = live * row_bytes(op.v.dtype, op.width) <= usable_bytes(target) // RESIDENT_PART
    return READER_A if ahead else READER_B


def _operands(
    op: AttentionOp, items: AttentionItems, block: int, places: Places
) -> tuple[Operand, Operand, Operand, Operand]:
    keys = window((block * quasi(LV_KBLOCK), block), (items.kv_head, 1), (0, op.width), row=0)
    cached, through = extents(op.live, op.kv_heads, op.width), "KV" if places.one_fifo else ""
    return (
        Operand("Q", op.q, items.shape, items.window),
        Operand("K", op.k, cached, keys, places.reader_of_keys, through=through),
        Operand("V", op.v, cached, keys, READER_B, through=through),
        Operand("O", op.o, items.shape, items.window, WRITER),
    )


def _carries(op: AttentionOp, items: AttentionItems, columns: int, values: Ride, weights: str) -> tuple[Carry, ...]:
    rows = items.rows.size
    return (
        Carry("S", rows, columns, "f32"),
        Carry("mx", rows, 1, "f32"),
        *((Carry("P", rows, columns, values.a),) if weights == "P" else ()),
        Carry("l", rows, 1, "f32"),
        Carry("acc", rows, op.width, values.accumulator),
    )


def _links(op: AttentionOp, positions: bool) -> tuple[Link, Link, Link, Link]:
    """Maximum, weights, their sum and the quotient."""

    def masked(scope: Scope, r: Quasi, j: Quasi) -> Expr:
        position = op.first + scope.first_row + r if positions else op.first
        score = fn("mul", scope.get("S", r, j), op.scale)
        if op.causal and op.window:
            score = fn("select", fn("lt", Var(position - op.window), Var(j)), score, MASKED)
        return fn("select", fn("le", Var(j), Var(position)), score, MASKED) if op.causal else score

    def weight(scope: Scope, r: Quasi, j: Quasi) -> Expr:
        return fn("exp", fn("sub", masked(scope, r, j), scope.get("mx", r, ZERO)))

    return (
        Link("mx", lambda s, r, c: s.greatest(op.live, lambda j: masked(s, r, j)), per_row=True),
        Link("P", weight),
        Link("l", lambda s, r, c: s.total(op.live, lambda j: s.get("P", r, j)), per_row=True),
        Link("O", lambda s, r, c: fn("div", s.get("acc", r, c), s.get("l", r, ZERO))),
    )


def _choreography(
    op: AttentionOp,
    items: AttentionItems,
    block: int,
    columns: int,
    operands: tuple[Operand, ...],
    scores: Ride,
    values: Ride,
    weights: str,
    target: SpatialTarget,
) -> tuple[Part, ...]:
    q, k, v, o = operands
    scope = _with_weights_in(weights, generic_scope((q, k, v), items.rows.start))
    rows, real, block_start = items.rows.span, items.guard, block * quasi(LV_KBLOCK)
    keys, live = Span(block_start, block, op.live), Span(quasi(0), columns, op.live)
    guard = (*real, *(span for span in items.kv_guard if span not in real))
    dot = MatmulTiles(
        Ref("S", ZERO, block_start),
        Ref(q.fifo),
        Ref(k.fifo),
        True,
        rows,
        keys,
        whole(op.width),
        tree_of(scores.mode, True),
        guard,
    )
    sum_values = MatmulTiles(
        Ref("acc"),
        Ref(weights, ZERO, block_start),
        Ref(v.fifo),
        False,
        rows,
        whole(op.width),
        keys,
        tree_of(values.mode, False),
        guard,
    )
    mx, p, total, out = _links(op, items.positions)
    steps = (mx, mx.name), (p, weights), (total, total.name)
    weigh = tuple(generic(link, scope, dst, rows, live, real) for link, dst in steps)
    blocks = op.live.ceil(block)
    item = (
        load(q, target), front(q), On(COMPUTE, (Init("S"),)),
        Around(LV_KBLOCK, blocks, (load(k, target), front(k), compute(dot), pop(k))),
        pop(q), compute(*weigh), On(COMPUTE, (Init("acc"),)),
        Around(LV_KBLOCK, blocks, (load(v, target), front(v), compute(sum_values), pop(v))),
        *result(o, generic(out, scope, o.fifo, rows, whole(op.width), real)),
    )  # fmt: skip
    return over_items(items.items, (), item)


def _with_weights_in(carry: str, scope: Scope) -> Scope:
    """The weights are read in this carry."""
    return Scope(lambda name, r, c: scope.get(carry if name == "P" else name, r, c), scope.variable, scope.first_row)


def _spec(op: AttentionOp, items: AttentionItems, operands: tuple[Operand, ...]) -> Spec:
    q, k, v, o = operands

    def score(scope: Scope, r: Quasi, j: Quasi) -> Expr:
        return scope.total(op.width, lambda d: fn("mul", scope.get("Q", r, d), scope.get("K", j, d)))

    def total(scope: Scope, r: Quasi, c: Quasi) -> Expr:
        return scope.total(op.live, lambda j: fn("mul", scope.get("P", r, j), scope.get("V", j, c)))

    links = (*_links(op, items.positions), Link("S", score), Link("acc", total))
    scope = spec_scope((q, k, v), links, items.variables)
    return Spec(o.formal, extents(*(0 for _ in o.shape)), o.shape, links[3].build(scope, items.row, items.column))
