"""What stands before and after a decoder's layers: rope tables of the epoch, the embedding's rows, final norm and
logits.
"""

from __future__ import annotations

from collections.abc import Callable

from pavane.ir.expr import Expr, Op, Var, fn
from pavane.ir.program import Program, Tensor
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import Ints
from pavane.passes.chain import ZERO, Link, Scope
from pavane.passes.decoder_layer import norm_prologue
from pavane.passes.decoder_tensors import LOCAL_ROPE_TABLE, ROPE_TABLE, Decoder
from pavane.passes.gather import GatherOp, gather_section
from pavane.passes.product import (
    Grid,
    ProductOp,
    block_grid,
    input_rows,
    normed_row,
    output_block,
    product_section,
    weight_rows,
)
from pavane.passes.rowwise import RowwiseOp, matrix_axes, rowwise_section
from pavane.passes.template import WRITER, Operand, extents, fixed_axis, window


def rope_tables(d: Decoder) -> tuple[Program, ...]:
    """cos and sin of (position * inverse frequency) for the rows of the epoch; a second pair for layers with a rope of
    their own.
    """
    if d.config.rope == "none":
        return ()
    used = {d.rope_table(layer) for layer in range(d.config.layers)}
    return tuple(_rope_table(d, table) for table in (ROPE_TABLE, LOCAL_ROPE_TABLE) if table in used)


def embedding(d: Decoder) -> tuple[Program, Tensor]:
    """The rows of the embedding that the ids name."""
    c = d.config
    hidden = d.scratch("hidden", c.width)
    ids = Tensor("ids", extents(d.rows), "i32", "INPUT", Ints(0, c.vocabulary - 1))
    op = GatherOp(
        "embedding", "embedding", ids, d.weights["embedding"], hidden, d.rows, c.vocabulary, c.width, c.embedding_scale
    )
    return gather_section(op, d.target, d.symbols), hidden


def logits(d: Decoder, hidden: Tensor, every_row: bool) -> Program:
    """Final norm and the product with the output weight (the embedding when tied), of every row or of the last one."""
    c = d.config
    weight = d.weights["embedding" if c.tied_embeddings else "output"]
    grid = block_grid(d.rows, c.vocabulary, d.target, d.symbols, normed_row(c.width))
    first, rows = ZERO, d.rows
    if not every_row:
        first, rows = d.rows - 1, quasi(1)
        grid = Grid(fixed_axis(1, 1), grid.cols)
    links, operands = norm_prologue(d, "output_norm")
    out = Tensor("logits", extents(rows, c.vocabulary), "f32", "OUTPUT")
    return product_section(
        ProductOp(
            name="logits",
            section="logits",
            k=c.width,
            grid=grid,
            input=input_rows("X", hidden, grid.rows, d.rows, c.width, first),
            weight=weight_rows("W", weight, grid, c.width),
            output=output_block("Y", out, grid, rows),
            spec_origin=extents(0, 0),
            contract=d.contract,
            prologue=links,
            prologue_operands=operands,
        ),
        d.target,
        d.symbols,
    )


def _rope_table(d: Decoder, table: str) -> Program:
    half = d.config.head_width // 2
    rows, cols = matrix_axes(d.rows, half, True, d.target, d.symbols)
    frequencies = Operand("F", d.weights[f"{table}_inverse_frequencies"], extents(half), window(cols.dim))
    block = window(rows.dim, cols.dim, row=0)
    functions: tuple[tuple[str, Op], ...] = (("C", "cos"), ("S", "sin"))
    outputs = tuple(
        (
            Operand(formal, d.scratch(f"{table}_{function}", half), extents(d.rows, half), block, WRITER),
            Link(function, _turn(d, function)),
        )
        for formal, function in functions
    )
    return rowwise_section(
        RowwiseOp("rope_table", f"{table}_table", rows, cols, (frequencies,), (), outputs), d.target, d.symbols
    )


def _turn(d: Decoder, function: Op) -> Callable[[Scope, Quasi, Quasi], Expr]:
    def build(s: Scope, r: Quasi, c: Quasi) -> Expr:
        return fn(function, fn("mul", Var(d.position + s.first_row + r), s.get("F", ZERO, c)))

    return build
