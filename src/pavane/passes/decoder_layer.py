"""One layer of a decoder as sections: q, k, v, attention, o, gate, up, down, and post norms where a model has any.

Formals: X input, G norm gain, W weight, B bias, N head norm gain, C and S rope table, R what is added or gated, Y
output.
"""

from __future__ import annotations

import math

from pavane.ir.expr import Expr, Var, fn
from pavane.ir.program import Program, Tensor
from pavane.ir.quasi import Quasi
from pavane.passes.attention import AttentionOp, attention_section
from pavane.passes.chain import ZERO, Link, Scope, rms_links
from pavane.passes.decoder_tensors import Decoder
from pavane.passes.product import (
    NOTHING,
    Grid,
    ProductOp,
    block_grid,
    head_grid,
    input_rows,
    normed_row,
    output_block,
    product_section,
    weight_rows,
)
from pavane.passes.rowwise import RowwiseOp, matrix_axes, rowwise_section
from pavane.passes.template import WRITER, Operand, X, extents, window

Prologue = tuple[tuple[Link, ...], tuple[Operand, ...]]


def attention_part(d: Decoder, layer: int, hidden: Tensor) -> tuple[tuple[Program, ...], Tensor]:
    """Sections from the layer's input to the residual sum after attention, and that sum."""
    c, at_layer = d.config, f"layers.{layer}"
    queries = d.scratch(f"{at_layer}.queries", c.heads, c.head_width)
    mixed = d.scratch(f"{at_layer}.mixed", c.heads, c.head_width)
    k_cache, v_cache = d.cache(layer, "k"), d.cache(layer, "v")
    attention = AttentionOp(
        name="attention_local" if d.is_local(layer) else "attention",
        section=f"{at_layer}.attention",
        q=queries,
        k=k_cache,
        v=v_cache,
        o=mixed,
        rows=d.rows,
        live=d.live,
        heads=c.heads,
        kv_heads=c.kv_heads,
        width=c.head_width,
        scale=c.attention_scale or 1.0 / math.sqrt(c.head_width),
        first=d.position,
        window=c.attention_window if d.is_local(layer) else 0,
    )
    projected, attended = _residual(
        d, layer, "o", mixed, c.heads * c.head_width, hidden, "attended", "post_attention_norm"
    )
    return (
        _head_product(d, layer, "q", hidden, queries),
        _head_product(d, layer, "k", hidden, k_cache),
        _head_product(d, layer, "v", hidden, v_cache),
        attention_section(attention, d.target, d.symbols),
        *projected,
    ), attended


def feed_forward_part(d: Decoder, layer: int, hidden: Tensor) -> tuple[tuple[Program, ...], Tensor]:
    """Sections from there to the layer's output, and that output."""
    at_layer = f"layers.{layer}"
    gate = d.scratch(f"{at_layer}.gate_values", d.config.feed_forward)
    gated = d.scratch(f"{at_layer}.gated", d.config.feed_forward)
    down, out = _residual(d, layer, "down", gated, d.config.feed_forward, hidden, "out", "post_ffn_norm")
    return (_gate(d, layer, hidden, gate), _up(d, layer, hidden, gate, gated), *down), out


# --- q, k, v ----------------------------------------------------------------------------------------------------------


def _head_product(d: Decoder, layer: int, which: str, hidden: Tensor, out: Tensor) -> Program:
    """The norm, the product of one head an item, and the head's bias, norm and rope; k and v go to rows `pos` on of
    their cache.
    """
    c = d.config
    heads = c.heads if which == "q" else c.kv_heads
    grid = head_grid(d.rows, heads, c.head_width, d.target, d.symbols, normed_row(c.width, c.head_width))
    is_state = out.role == "STATE"
    turned = which != "v"
    epilogue, row_operands, item_operands = _head_epilogue(d, layer, which, grid, turned)
    weight = d.weights[f"layers.{layer}.{which}"]
    links, operands = norm_prologue(d, f"layers.{layer}.attention_norm")
    return product_section(
        ProductOp(
            name=which,
            section=f"layers.{layer}.{which}",
            k=c.width,
            grid=grid,
            input=input_rows("X", hidden, grid.rows, d.rows, c.width),
            weight=weight_rows("W", weight, grid, c.width),
            output=output_block("Y", out, grid, d.live if is_state else d.rows, d.position if is_state else 0),
            spec_origin=extents(d.position if is_state else 0, 0, 0),
            contract=d.contract,
            epilogue=epilogue,
            row_operands=row_operands,
            item_operands=item_operands,
            prologue=links,
            prologue_operands=operands,
        ),
        d.target,
        d.symbols,
    )


def norm_prologue(d: Decoder, gain: str) -> Prologue:
    """The RMS norm before a product: its links and its operand."""
    c = d.config
    total, panel = rms_links("X", "G", c.width, c.norm_epsilon, c.norm_offset, "ss", "panel")
    operand = Operand("G", d.weights[gain], extents(c.width), window((0, c.width)))
    return (total, panel), (operand,)


def _head_epilogue(
    d: Decoder, layer: int, which: str, grid: Grid, turned: bool
) -> tuple[tuple[Link, ...], tuple[Operand, ...], tuple[Operand, ...]]:
    """(links, operands of all items of a row, operands of each item) after the product of a head."""
    c, value = d.config, "product"
    links: list[Link] = []
    row_operands: list[Operand] = []
    item_operands: list[Operand] = []
    if c.qkv_biases:
        bias = d.weights[f"layers.{layer}.{which}_bias"]
        shape = extents(c.heads if which == "q" else c.kv_heads, c.head_width)
        item_operands.append(Operand("B", bias, shape, window((X, 1), (0, c.head_width))))
        links.append(_sum_link("biased", value, "B"))
        value = "biased"
    if c.qk_norm and turned:
        gain = d.weights[f"layers.{layer}.{which}_norm"]
        row_operands.append(Operand("N", gain, extents(c.head_width), window((0, c.head_width))))
        links.extend(rms_links(value, "N", c.head_width, c.norm_epsilon, c.norm_offset, "head_ss", "head_normed"))
        value = "head_normed"
    if c.rope != "none" and turned:
        half, table = c.head_width // 2, d.rope_table(layer)
        dims = window(grid.rows.dim, (0, half), row=0)
        row_operands.extend(
            Operand(formal, d.scratch(f"{table}_{function}", half), extents(d.rows, half), dims)
            for formal, function in (("C", "cos"), ("S", "sin"))
        )
        links.append(_rope_link(c.rope, value, c.head_width))
    return tuple(links), tuple(row_operands), tuple(item_operands)


def _sum_link(name: str, value: str, formal: str) -> Link:
    return Link(name, lambda s, r, c: fn("add", s.get(value, r, c), s.get(formal, _row_of(formal, r), c)))


def _row_of(formal: str, r: Quasi) -> Quasi:
    return ZERO if formal == "B" else r


def _rope_link(pairing: str, value: str, width: int) -> Link:
    """Each pair turned by its angle: x * cos + sign * partner * sin, sign -1 for the first of a pair and 1 for the
    second.
    """
    half = width // 2

    def build(s: Scope, r: Quasi, c: Quasi) -> Expr:
        if pairing == "interleaved":
            second = c - 2 * (c // 2)
            pair, partner = c // 2, c + 1 - 2 * second
        else:
            second = c // half
            pair, partner = c - half * second, (c + half) - width * ((c + half) // width)
        turned = fn("mul", fn("mul", Var(2 * second - 1), s.get(value, r, partner)), s.get("S", r, pair))
        return fn("add", fn("mul", s.get(value, r, c), s.get("C", r, pair)), turned)

    return Link("turned", build)


# --- products over blocks of columns ----------------------------------------------------------------------------------


def _gate(d: Decoder, layer: int, hidden: Tensor, gate: Tensor) -> Program:
    return _block_product(
        d, layer, "gate", hidden, d.config.width, gate, prologue=norm_prologue(d, f"layers.{layer}.ffn_norm")
    )


def _up(d: Decoder, layer: int, hidden: Tensor, gate: Tensor, gated: Tensor) -> Program:
    """activation(gate) * up."""
    activated = Link("activated", lambda s, r, c: _activation(d.config.activation, s.get("R", r, c)))
    product = Link("gated", lambda s, r, c: fn("mul", s.get("activated", r, c), s.get("product", r, c)))
    return _block_product(
        d, layer, "up", hidden, d.config.width, gated, (activated, product), gate,
        norm_prologue(d, f"layers.{layer}.ffn_norm"),
    )  # fmt: skip


def _activation(kind: str, x: Expr) -> Expr:
    if kind == "silu":
        return fn("div", x, fn("add", fn("exp", fn("sub", 0.0, x)), 1.0))
    cubic = fn("add", x, fn("mul", fn("mul", fn("mul", x, x), x), 0.044715))
    return fn("mul", fn("mul", x, 0.5), fn("add", fn("tanh", fn("mul", cubic, math.sqrt(2.0 / math.pi))), 1.0))


def _residual(
    d: Decoder, layer: int, which: str, value: Tensor, k: int, hidden: Tensor, out_name: str, post_norm: str
) -> tuple[tuple[Program, ...], Tensor]:
    """hidden + product, or hidden + norm(product) in a second section where the model has post norms."""
    out = d.scratch(f"layers.{layer}.{out_name}", d.config.width)
    if not d.config.post_norms:
        return (_block_product(d, layer, which, value, k, out, (_sum_link("summed", "product", "R"),), hidden),), out
    bare = d.scratch(f"layers.{layer}.{which}_values", d.config.width)
    return (_block_product(d, layer, which, value, k, bare), _norm_sum(d, layer, post_norm, bare, hidden, out)), out


def _block_product(
    d: Decoder,
    layer: int,
    which: str,
    value: Tensor,
    k: int,
    out: Tensor,
    epilogue: tuple[Link, ...] = (),
    other: Tensor | None = None,
    prologue: Prologue = ((), ()),
) -> Program:
    """A product over blocks of the output's columns; `other` is read block by block as R."""
    weight = d.weights[f"layers.{layer}.{which}"]
    stays = normed_row(k) if prologue[0] else NOTHING
    grid = block_grid(d.rows, weight.shape[0].const, d.target, d.symbols, stays)
    block = () if other is None else (Operand("R", other, grid.output_shape(d.rows), grid.output_window()),)
    return product_section(
        ProductOp(
            name=which,
            section=f"layers.{layer}.{which}",
            k=k,
            grid=grid,
            input=input_rows("X", value, grid.rows, d.rows, k),
            weight=weight_rows("W", weight, grid, k),
            output=output_block("Y", out, grid, d.rows),
            spec_origin=extents(0, 0),
            contract=d.contract,
            epilogue=epilogue,
            item_operands=block,
            prologue=prologue[0],
            prologue_operands=prologue[1],
        ),
        d.target,
        d.symbols,
    )


def _norm_sum(d: Decoder, layer: int, gain: str, value: Tensor, hidden: Tensor, out: Tensor) -> Program:
    """hidden + norm(value), a whole row an item."""
    c = d.config
    rows, cols = matrix_axes(d.rows, c.width, True, d.target, d.symbols)
    block = window(rows.dim, cols.dim, row=0)
    shape = extents(d.rows, c.width)
    total, normed = rms_links("X", "G", c.width, c.norm_epsilon, c.norm_offset, "ss", "normed")
    inputs = (
        Operand("X", value, shape, block),
        Operand("G", d.weights[f"layers.{layer}.{gain}"], extents(c.width), window(cols.dim)),
        Operand("R", hidden, shape, block),
    )
    links = (total, Link(normed.name, normed.build, cut=True))
    outputs = ((Operand("Y", out, shape, block, WRITER), _sum_link("summed", "normed", "R")),)
    return rowwise_section(
        RowwiseOp("norm_sum", f"layers.{layer}.{gain}", rows, cols, inputs, links, outputs), d.target, d.symbols
    )
