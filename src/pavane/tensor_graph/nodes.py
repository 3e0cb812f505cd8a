"""A graph of ops as data: nodes in the order in which they are made, each with its op, shape, type and fill.

An element-wise operator may lie outside the closed list of `ir.expr`; `recognize_stages` refuses such, all at once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pavane.ir.program import Symbol
from pavane.ir.quasi import Quasi
from pavane.ir.types import Contract, DType, Fill

Dims = tuple[Quasi, ...]


class Input(msgspec.Struct, frozen=True, tag="input"):
    """A tensor from outside."""

    role: Literal["INPUT", "WEIGHT", "STATE"]


class Apply(msgspec.Struct, frozen=True, tag="apply"):
    """An element-wise operator over broadcast operands (node numbers, or constants)."""

    op: str
    args: tuple[int | float, ...]
    dtype: str = ""


class RowReduce(msgspec.Struct, frozen=True, tag="reduce"):
    """SUM or MAX over the last dimension, which becomes 1."""

    kind: Literal["SUM", "MAX"]
    x: int


class Matmul(msgspec.Struct, frozen=True, tag="matmul"):
    """a [..., K] . b [K, N], or b [N, K] when transposed."""

    a: int
    b: int
    transposed: bool


class Attention(msgspec.Struct, frozen=True, tag="attention"):
    """q [rows, heads, width], k and v [live, kv_heads, width]; query row r is at position live - rows + r."""

    q: int
    k: int
    v: int
    scale: float
    causal: bool
    window: int


class Gather(msgspec.Struct, frozen=True, tag="gather"):
    """Rows of a table [entries, width] that ids [n] name."""

    table: int
    ids: int


Op = Input | Apply | RowReduce | Matmul | Attention | Gather


class GraphNode(msgspec.Struct, frozen=True):
    """One value of the graph: how it is made, and what is known of it."""

    name: str
    op: Op
    shape: Dims
    dtype: DType
    fill: Fill


class TensorGraph(msgspec.Struct, frozen=True):
    """A whole graph; operands are node numbers, always lower than the node that reads them."""

    name: str
    contract: Contract
    symbols: tuple[Symbol, ...]
    nodes: tuple[GraphNode, ...]
    outputs: tuple[tuple[str, int, DType], ...]
