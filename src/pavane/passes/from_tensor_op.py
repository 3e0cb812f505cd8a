"""`from_tensor_op`: one recognised op -> its TEMPLATE section.

    product          streamed in tiles (`streaming`); with a prologue, on an engine that sums K in lanes, or of a tile's
                     rows over a weight in block floats, rows whole in slots
    q8_0 product     `from_q8`
    rows             element-wise chains in blocks; with a reduction over rows, blocks of whole rows
    attention        scores of whole rows on the chip (`attention`)
    gather           rows of a table (`gather`)

Numerics are fixed here. Integers ride on the cheapest mode that multiplies them in full; a product is claimed exact
only while its operands fit that mode and K * max|a| * max|b| fits the accumulator (`matrix_mode.is_exact`). Refuses
with `NoEngine` when no mode or no engine takes the types.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pavane.ir.program import Program, Tensor
from pavane.ir.quasi import quasi, upper
from pavane.ir.types import MAGNITUDE_BITS, block_elements
from pavane.passes.attention import AttentionOp as AttentionSection
from pavane.passes.attention import attention_section
from pavane.passes.from_q8 import from_q8, whole_row_product
from pavane.passes.gather import GatherOp as GatherSection
from pavane.passes.gather import gather_section
from pavane.passes.linking import link_of, operand_over
from pavane.passes.matrix_mode import choose_mode
from pavane.passes.rowwise import RowwiseOp, matrix_axes, rowwise_section
from pavane.passes.stored_types import require_types
from pavane.passes.streaming import streaming_section
from pavane.passes.template import WRITER, Operand, symbols_domain, window
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.fills import known_fill
from pavane.tensor_graph.recognised import AttentionOp, GatherOp, ProductOp, RecognisedOp, RowsOp
from pavane.tensor_graph.recognised import Operand as OpOperand


def from_tensor_op(op: RecognisedOp, target: SpatialTarget) -> Program:
    """The TEMPLATE of one op."""
    require_types(op.name, _tensors(op), target)
    if isinstance(op, ProductOp):
        return _product(op, target)
    if isinstance(op, RowsOp):
        return _rows(op, target)
    return _attention(op, target) if isinstance(op, AttentionOp) else _gather(op, target)


def _tensors(op: RecognisedOp) -> Iterator[Tensor]:
    """What the op reads and writes."""
    for value in msgspec.structs.astuple(op):
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, OpOperand | Tensor):
                yield part if isinstance(part, Tensor) else part.tensor


def _product(op: ProductOp, target: SpatialTarget) -> Program:
    a, b = op.a.tensor, op.b.tensor
    if b.dtype == "q8_0" and op.transposed:
        return from_q8(op, target)
    few = upper(quasi(op.rows), symbols_domain(op.symbols)) <= target.tile[0]
    if op.prologue or (op.transposed and few and b.dtype in MAGNITUDE_BITS):
        return whole_row_product(op, target)
    ride = choose_mode(target, a.dtype, b.dtype, known_fill(a), known_fill(b))
    if op.transposed and ride.mode.lanes > 1:
        return whole_row_product(op, target)
    return streaming_section(op, ride, target)


def _rows(op: RowsOp, target: SpatialTarget) -> Program:
    in_blocks = max(block_elements(t.dtype) for t in (*(i.tensor for i in op.inputs), op.output))
    whole = op.whole_rows or (in_blocks > 1 and target.tile[1] % in_blocks != 0)
    rows, cols = matrix_axes(op.rows, op.cols, whole, target, op.symbols)
    inputs = tuple(operand_over(given, rows, cols) for given in op.inputs)
    links = tuple(link_of(link) for link in op.links)
    out = links[-1]
    one = (rows.limit, cols.limit) if not out.per_row else (rows.limit, rows.limit * 0 + 1)
    dims = window(rows.dim, cols.dim if not out.per_row else (rows.start * 0, 1), row=0)
    output = Operand("Y", op.output, one, dims, WRITER)
    section = RowwiseOp("rows", op.name, rows, cols, inputs, links[:-1], ((output, out),))
    return rowwise_section(section, target, op.symbols)


def _attention(op: AttentionOp, target: SpatialTarget) -> Program:
    rows, heads, width = op.q.shape
    live, kv_heads, _ = op.k.shape
    section = AttentionSection(
        name="attention", section=op.name, q=op.q, k=op.k, v=op.v, o=op.output, rows=rows, live=live,
        heads=heads.const, kv_heads=kv_heads.const, width=width.const, scale=op.scale, first=live - rows,
        causal=op.causal, window=op.window,
    )  # fmt: skip
    return attention_section(section, target, op.symbols)


def _gather(op: GatherOp, target: SpatialTarget) -> Program:
    entries, width = (extent.const for extent in op.table.shape)
    rows = op.ids.shape[0]
    return gather_section(
        GatherSection("gather", op.name, op.ids, op.table, op.output, rows, entries, width), target, op.symbols
    )
