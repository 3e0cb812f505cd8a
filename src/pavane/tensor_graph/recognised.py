"""What `recognize_stages` finds: one op a section, as data that names formals and not graph nodes.

A `LinkExpr` is a value over rows `i0` and columns `i1` of the op's matrix; its `At`s name formals or earlier links,
indexed (row, column), and the product's own value is `product`. At most one reduction, outermost, in each.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pavane.ir.expr import Expr
from pavane.ir.program import Symbol, Tensor
from pavane.ir.quasi import Quasi
from pavane.ir.types import Contract

Spread = Literal["full", "per_row", "per_column", "single"]


class Operand(msgspec.Struct, frozen=True):
    """A formal, its tensor, and how it lies over the op's matrix: all of it, one column, one row, or one element."""

    formal: str
    tensor: Tensor
    spread: Spread = "full"


class LinkExpr(msgspec.Struct, frozen=True):
    """`cut`: taken apart only because an engine's Generic is small; it may be put back."""

    name: str
    expr: Expr
    per_row: bool = False
    cut: bool = False


class RowsOp(msgspec.Struct, frozen=True, tag="rows"):
    """Links over a matrix [rows, cols]; the last one is the output. `whole_rows`: some link reduces over a row."""

    name: str
    symbols: tuple[Symbol, ...]
    rows: Quasi
    cols: int
    whole_rows: bool
    inputs: tuple[Operand, ...]
    links: tuple[LinkExpr, ...]
    output: Tensor


class ProductOp(msgspec.Struct, frozen=True, tag="product"):
    """epilogue(prologue(a) . b): a [rows, k] (formal A), b [k, cols], or [cols, k] when transposed (formal B).

    Links of the prologue lie over [rows, k], those of the epilogue over [rows, cols]; either may be empty.
    """

    name: str
    symbols: tuple[Symbol, ...]
    contract: Contract
    rows: Quasi
    k: int
    cols: int
    transposed: bool
    a: Operand
    b: Operand
    prologue_inputs: tuple[Operand, ...]
    prologue: tuple[LinkExpr, ...]
    epilogue_inputs: tuple[Operand, ...]
    epilogue: tuple[LinkExpr, ...]
    output: Tensor


class AttentionOp(msgspec.Struct, frozen=True, tag="attention"):
    """q [rows, heads, width], k and v [live, kv_heads, width]."""

    name: str
    symbols: tuple[Symbol, ...]
    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    causal: bool
    window: int
    output: Tensor


class GatherOp(msgspec.Struct, frozen=True, tag="gather"):
    """Rows of `table` that `ids` name."""

    name: str
    symbols: tuple[Symbol, ...]
    table: Tensor
    ids: Tensor
    output: Tensor


RecognisedOp = RowsOp | ProductOp | AttentionOp | GatherOp
