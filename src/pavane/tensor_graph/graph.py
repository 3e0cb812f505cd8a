"""Graphs authored by hand: a builder, and the frozen graph that `recognize_stages` reads.

    g = Graph("toy")
    a = g.input("a", (33, 65), fill=Ints(-4, 4))
    b = g.weight("b", (65, 31), fill=Ints(-4, 4))
    g.output("c", g.matmul(a, b))

Shapes are tuples of integers and symbols (`rows = g.symbol("rows", 1, 32)`). Element-wise operators (`g.apply("add", x,
1.0)`) are those of the closed list of `ir.expr`, broadcast as numpy does. Softmax and RMS norm are put together from
them. A wrong shape or argument is refused at once (`ArgumentReject`); an operator outside the list is kept and refused,
with all others, by `recognize_stages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from pavane.ir.expr import ARITY
from pavane.ir.program import Symbol
from pavane.ir.quasi import Domain, Quasi, lower, quasi
from pavane.ir.types import (
    CONTRACTS,
    DTYPES,
    INTEGER_DTYPES,
    Const,
    Contract,
    DType,
    Fill,
    Floats,
    Ints,
    block_elements,
)
from pavane.tensor_graph.arguments import (
    Extent,
    broadcast,
    check_choice,
    check_extents,
    check_fill,
    check_integers,
    check_name,
    check_number,
    constant,
    extents_given,
    refuse,
)
from pavane.tensor_graph.fills import applied_fill, product_fill, reduced_fill
from pavane.tensor_graph.nodes import (
    Apply,
    Attention,
    Dims,
    Gather,
    GraphNode,
    Input,
    Matmul,
    Op,
    RowReduce,
    TensorGraph,
)


class Value(msgspec.Struct, frozen=True):
    """A handle on a node while a graph is built."""

    number: int
    shape: Dims
    dtype: DType
    graph: Graph | None = None


class Graph:
    """Builds a TensorGraph node by node."""

    def __init__(self, name: str = "graph", contract: Contract = "FLOAT") -> None:
        check_name(name)
        check_choice("contract", contract, CONTRACTS)
        self.name = name
        self.contract = contract
        self._symbols: list[Symbol] = []
        self._nodes: list[GraphNode] = []
        self._outputs: list[tuple[str, int, DType]] = []

    # --- tensors

    def symbol(self, name: str, lo: int, hi: int, expected: int | None = None) -> Quasi:
        """A runtime extent in [lo, hi]."""
        check_name(name)
        if name in (s.name for s in self._symbols):
            refuse(f"the name {name!r} is taken", "a name of its own for each symbol")
        likely = hi if expected is None else expected
        if any(type(n) is not int for n in (lo, hi, likely)) or not 0 <= lo <= likely <= hi < 2**31:
            refuse(
                f"symbol {name} has no such range",
                "integers 0 <= lo <= expected <= hi < 2**31",
                f"{lo}, {likely}, {hi}",
            )
        self._symbols.append(Symbol(name, lo, hi, likely))
        return quasi(name)

    def input(self, name: str, shape: Sequence[Extent], dtype: DType = "f32", fill: Fill | None = None) -> Value:
        """A tensor that each launch brings."""
        return self._tensor(name, shape, dtype, fill, "INPUT")

    def weight(self, name: str, shape: Sequence[Extent], dtype: DType = "f32", fill: Fill | None = None) -> Value:
        """A tensor that stays."""
        return self._tensor(name, shape, dtype, fill, "WEIGHT")

    def output(self, name: str, value: Value, dtype: DType | None = None) -> None:
        """Name a value as a result, stored as `dtype` (default: the value's own). Floats, in blocks too, round; an
        integer type takes what is known to be an integer of its range.
        """
        check_name(name)
        self._own(value)
        taken = [*(n.name for n in self._nodes if isinstance(n.op, Input)), *(o[0] for o in self._outputs)]
        if name in taken:
            refuse(f"the name {name!r} is taken", "a name of its own for each tensor")
        if value.number in (o[1] for o in self._outputs):
            refuse(f"the value of {name!r} is an output already", "one output a value")
        if dtype is not None:
            check_choice("element type", dtype, DTYPES)
        self._check_stored(name, value.number, dtype or value.dtype)
        self._outputs.append((name, value.number, dtype or value.dtype))

    # --- operators

    def apply(self, op: str, *args: Value | float, dtype: Literal["", "i8", "i32"] = "") -> Value:
        """An element-wise operator; numbers are constants."""
        check_name(op)
        for arg in args:
            if isinstance(arg, Value):
                self._own(arg)
            else:
                check_number(op, arg)
        if op in ARITY and len(args) != ARITY[op]:
            refuse(f"{op} takes {ARITY[op]} operands", f"{ARITY[op]}", str(len(args)))
        if not isinstance(dtype, str) or (op == "cast") != (dtype in INTEGER_DTYPES):
            refuse("cast, and only cast, names an integer dtype", " or ".join(INTEGER_DTYPES), repr(dtype))
        shape = broadcast(op, [a.shape for a in args if isinstance(a, Value)])
        fills = tuple(self._nodes[a.number].fill if isinstance(a, Value) else Const(float(a)) for a in args)
        numbers = tuple(a.number if isinstance(a, Value) else float(a) for a in args)
        return self._add(Apply(op, numbers, dtype), shape, dtype or "f32", applied_fill(op, fills, dtype))

    def reduce(self, kind: Literal["SUM", "MAX"], x: Value) -> Value:
        """SUM or MAX over the last dimension, kept with extent 1."""
        check_choice("reduction", kind, ("SUM", "MAX"))
        self._own(x)
        extent = constant(x.shape[-1], "a reduction's extent")
        fill = reduced_fill(kind, self._nodes[x.number].fill, extent)
        return self._add(RowReduce(kind, x.number), (*x.shape[:-1], quasi(1)), "f32", fill)

    def softmax(self, x: Value) -> Value:
        """exp(x - max) / sum, over the last dimension."""
        weights = self.apply("exp", self.apply("sub", x, self.reduce("MAX", x)))
        return self.apply("div", weights, self.reduce("SUM", weights))

    def rmsnorm(self, x: Value, gain: Value | None = None, epsilon: float = 1e-5) -> Value:
        """x * rsqrt(mean(x^2) + epsilon) * gain, over the last dimension."""
        self._own(x)
        extent = constant(x.shape[-1], "a norm's extent")
        mean = self.apply("div", self.reduce("SUM", self.apply("mul", x, x)), float(extent))
        normed = self.apply("mul", x, self.apply("rsqrt", self.apply("add", mean, epsilon)))
        return normed if gain is None else self.apply("mul", normed, gain)

    def matmul(self, a: Value, b: Value, transposed: bool = False) -> Value:
        """a [..., K] . b [K, N] (b [N, K] when transposed)."""
        self._own(a, b)
        if len(b.shape) != 2 or not a.shape:
            refuse("a product takes a [..., K] and a matrix", "rank 2", f"rank {len(b.shape)}")
        k, n = (b.shape[1], b.shape[0]) if transposed else b.shape
        if a.shape[-1] != k:
            refuse("the contracted extents differ", f"{a.shape[-1]} of a", f"{k} of b")
        extents = (constant(k, "a contraction's extent"), constant(n, "a product's columns"))
        fill = product_fill(self._nodes[a.number].fill, self._nodes[b.number].fill, extents[0])
        return self._add(Matmul(a.number, b.number, transposed), (*a.shape[:-1], n), "f32", fill)

    def attention(
        self, q: Value, k: Value, v: Value, scale: float | None = None, causal: bool = True, window: int = 0
    ) -> Value:
        """softmax(q . k * scale) . v, heads in groups over the key heads; `window` positions are visible (0: all)."""
        self._own(q, k, v)
        if scale is not None:
            check_number("the scale", scale)
        if any(len(x.shape) != 3 for x in (q, k, v)) or k.shape != v.shape or q.shape[2] != k.shape[2]:
            refuse("attention takes q [rows, heads, width] and k, v [live, kv_heads, width]", "those shapes")
        heads, kv_heads, width = (constant(e, "heads and widths") for e in (q.shape[1], k.shape[1], q.shape[2]))
        if heads % kv_heads:
            refuse("key heads share query heads evenly", f"a divisor of {heads}", str(kv_heads))
        domain = Domain((s.name, s.lo, s.hi) for s in self._symbols)
        if lower(k.shape[0] - q.shape[0], domain) < 0 and causal:
            refuse("causal queries are the last of the keys", f"at least {q.shape[0]} keys", str(k.shape[0]))
        if type(window) is not int or window < 0 or (window and not causal):
            refuse(
                "a sliding window is that of a causal attention", "an integer from 0 up, and causal", repr(window)[:40]
            )
        op = Attention(q.number, k.number, v.number, width**-0.5 if scale is None else scale, causal, window)
        return self._add(op, q.shape, "f32", Floats())

    def gather(self, table: Value, ids: Value) -> Value:
        """Rows of a table by number."""
        self._own(table, ids)
        if len(table.shape) != 2 or len(ids.shape) != 1 or ids.dtype != "i32":
            refuse("a gather takes a table [entries, width] and ids i32 [n]", "those shapes and types")
        entries, fill = constant(table.shape[0], "a table's rows"), self._nodes[ids.number].fill
        if not isinstance(fill, Ints) or fill.lo < 0 or fill.hi >= entries:
            refuse("ids must be known to lie in the table", f"fill=Ints(0, {entries - 1})", repr(fill))
        known = self._nodes[table.number].fill
        return self._add(Gather(table.number, ids.number), (*ids.shape, table.shape[1]), "f32", known)

    def freeze(self) -> TensorGraph:
        """The graph as it stands."""
        if not self._outputs:
            refuse("the graph has no output", "at least one g.output(name, value)")
        return TensorGraph(
            self.name, self.contract, tuple(self._symbols), self._distinctly_named(), tuple(self._outputs)
        )

    # --- bookkeeping

    def _distinctly_named(self) -> tuple[GraphNode, ...]:
        """Values are numbered; where the author has given a tensor such a name the value has a longer one."""
        given = {node.name for node in self._nodes if isinstance(node.op, Input)} | {name for name, *_ in self._outputs}
        nodes = []
        for node in self._nodes:
            name = node.name
            while not isinstance(node.op, Input) and name in given:
                name += "_"
            nodes.append(replace(node, name=name))
        return tuple(nodes)

    def _tensor(
        self, name: str, shape: Sequence[Extent], dtype: DType, fill: Fill | None, role: Literal["INPUT", "WEIGHT"]
    ) -> Value:
        check_name(name)
        domain = Domain((s.name, s.lo, s.hi) for s in self._symbols)
        dims = extents_given(name, shape, {s.name for s in self._symbols})
        if name in (n.name for n in self._nodes if isinstance(n.op, Input)):
            refuse(f"the name {name!r} is taken", "a name of its own for each tensor")
        check_choice("element type", dtype, DTYPES)
        check_extents(name, dims, dtype, domain)
        check_fill(name, dtype, fill)
        self._nodes.append(GraphNode(name, Input(role), dims, dtype, fill or Floats()))
        return Value(len(self._nodes) - 1, dims, dtype, self)

    def _add(self, op: Op, shape: Dims, dtype: DType, fill: Fill) -> Value:
        number = len(self._nodes)
        self._nodes.append(GraphNode(f"v{number}", op, shape, dtype, fill))
        return Value(number, shape, dtype, self)

    def _check_stored(self, name: str, number: int, dtype: DType) -> None:
        """Whole blocks; an integer type of a value that is known to be integers of its range."""
        node, block = self._nodes[number], block_elements(dtype)
        if block > 1 and node.shape[-1].const % block:
            width = str(node.shape[-1])
            refuse(f"output {name}: {dtype} rows are whole blocks", f"a multiple of {block} columns", width)
        if isinstance(node.op, Gather) and dtype in INTEGER_DTYPES:
            stored = self._nodes[node.op.table].dtype
            if stored != dtype:
                refuse(f"output {name}: a gather keeps the integers of its table", f"a table of {dtype}", stored)
        elif dtype in INTEGER_DTYPES and node.dtype != dtype:
            check_integers(name, node.fill, dtype)

    def _own(self, *values: Value) -> None:
        for value in values:
            if not isinstance(value, Value) or value.graph is not self:
                refuse(
                    "an operand is not a value of this graph", "what this graph's methods gave", type(value).__name__
                )
