"""Nodes of one section as chains of links: what is computed once has a link of its own, the rest stands in place.

A reduction is a link, and so is a value that is read more than once; the last link is the section's output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from pavane.ir.expr import Const, Expr, Fn, Reduce, at, fn
from pavane.ir.expr import Op as ExprOp
from pavane.ir.program import Tensor
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import INTEGER_DTYPES
from pavane.reject import OutsideAlgebra
from pavane.tensor_graph.grouping import Group, matrix, operands
from pavane.tensor_graph.nodes import Apply, Matmul, RowReduce, TensorGraph
from pavane.tensor_graph.recognised import LinkExpr, Operand, ProductOp, RowsOp, Spread

ROW, COL, ZERO = quasi("i0"), quasi("i1"), quasi(0)


class Chain(msgspec.Struct, frozen=True):
    """Nodes over one matrix, their names, and the formals that stand for what they read."""

    graph: TensorGraph
    nodes: tuple[int, ...]
    over: tuple[Quasi, int]
    links: Mapping[int, str]
    formals: Mapping[int, Operand]
    product: int | None = None


def rows_op(graph: TensorGraph, group: Group, tensors: Mapping[int, Tensor]) -> RowsOp:
    """A section without a product."""
    over = _over(graph, group.nodes)
    chain = _chain(graph, group.nodes, over, tensors, "X", "x")
    output = tensors[group.result]
    return RowsOp(
        name=output.name,
        symbols=graph.symbols,
        rows=over[0],
        cols=over[1],
        whole_rows=any(isinstance(graph.nodes[n].op, RowReduce) for n in group.nodes),
        inputs=tuple(chain.formals.values()),
        links=_stored(_links(chain), output),
        output=output,
    )


def product_op(graph: TensorGraph, group: Group, tensors: Mapping[int, Tensor]) -> ProductOp:
    """A section with a product, what comes before it and what comes after."""
    core, product = _product(graph, group)
    node = graph.nodes[core]
    before = group.prologue
    after = tuple(n for n in group.nodes if n != core and n not in before)
    over_a = matrix(graph.nodes[product.a].shape)
    prologue = _chain(graph, before, over_a, tensors, "P", "p")
    epilogue = _chain(graph, after, matrix(node.shape), tensors, "E", "e", core)
    output = tensors[group.result]
    links = _links(epilogue)
    if not links and output.dtype in INTEGER_DTYPES:
        links = (LinkExpr("e0", at("product", ROW, COL)),)
    first = next(iter(prologue.formals.values())) if before else Operand("A", tensors[product.a])
    return ProductOp(
        name=output.name,
        symbols=graph.symbols,
        contract=graph.contract,
        rows=over_a[0],
        k=over_a[1],
        cols=matrix(node.shape)[1],
        transposed=product.transposed,
        a=first,
        b=Operand("B", tensors[product.b]),
        prologue_inputs=tuple(prologue.formals.values())[1:],
        prologue=_links(prologue),
        epilogue_inputs=tuple(epilogue.formals.values()),
        epilogue=_stored(links, output),
        output=output,
    )


def _product(graph: TensorGraph, group: Group) -> tuple[int, Matmul]:
    op = graph.nodes[group.core].op if group.core is not None else None
    if group.core is None or not isinstance(op, Matmul):
        raise TypeError(f"group {group.result} has no product")
    return group.core, op


def _over(graph: TensorGraph, nodes: Sequence[int]) -> tuple[Quasi, int]:
    """The matrix that a section without a product lies over: its rows, and the widest row it reads or makes."""
    rows = matrix(graph.nodes[max(nodes)].shape)[0]
    sizes = [matrix(graph.nodes[m].shape) for n in nodes for m in (n, *operands(graph, n))]
    return rows, max(cols for _, cols in sizes)


def _chain(
    graph: TensorGraph,
    nodes: tuple[int, ...],
    over: tuple[Quasi, int],
    tensors: Mapping[int, Tensor],
    formal: str,
    link: str,
    product: int | None = None,
) -> Chain:
    inside = set(nodes) | ({product} if product is not None else set())
    read = list(dict.fromkeys(m for n in nodes for m in operands(graph, n) if m not in inside))
    read.sort(key=lambda m: _spread(graph, m, over) != "full")
    formals = {m: Operand(f"{formal}{i}", tensors[m], _spread(graph, m, over)) for i, m in enumerate(read)}
    named = [n for n in nodes if _is_link(graph, nodes, n)]
    return Chain(graph, nodes, over, {n: f"{link}{i}" for i, n in enumerate(named)}, formals, product)


def _is_link(graph: TensorGraph, nodes: Sequence[int], number: int) -> bool:
    """The last value, a reduction, or one that is read more than once."""
    if number == max(nodes) or isinstance(graph.nodes[number].op, RowReduce):
        return True
    return sum(_occurrences(graph, n, number) for n in nodes) > 1


def _occurrences(graph: TensorGraph, reader: int, number: int) -> int:
    op = graph.nodes[reader].op
    if isinstance(op, Apply):
        return sum(isinstance(a, int) and a == number for a in op.args)
    return int(number in operands(graph, reader))


def _links(chain: Chain) -> tuple[LinkExpr, ...]:
    out = []
    for number, name in chain.links.items():
        op = chain.graph.nodes[number].op
        reduced = any(
            isinstance(chain.graph.nodes[n].op, RowReduce) and number in operands(chain.graph, n) for n in chain.nodes
        )
        is_last = number == max(chain.nodes)
        is_cut = not (is_last or reduced or isinstance(op, RowReduce))
        out.append(LinkExpr(name, _definition(chain, number, COL), _is_per_row(chain, number), is_cut))
    return tuple(out)


def _definition(chain: Chain, number: int, col: Quasi) -> Expr:
    """How a node is computed, at column `col`."""
    op = chain.graph.nodes[number].op
    if isinstance(op, RowReduce):
        variable = f"k{number}"
        extent = matrix(chain.graph.nodes[op.x].shape)[1]
        return Reduce(op.kind, variable, quasi(extent), _value(chain, op.x, quasi(variable)))
    if not isinstance(op, Apply):
        raise TypeError(f"node {number} is no element-wise operator")
    args = (Const(float(a)) if isinstance(a, float) else _value(chain, a, col) for a in op.args)
    return fn(cast(ExprOp, op.op), *args, dtype=op.dtype)


def _value(chain: Chain, number: int, col: Quasi) -> Expr:
    """A node where it is read."""
    if number == chain.product:
        return at("product", ROW, col)
    if number in chain.formals:
        spread = chain.formals[number].spread
        row = ROW if spread in ("full", "per_row") else ZERO
        return at(chain.formals[number].formal, row, col if spread in ("full", "per_column") else ZERO)
    if number in chain.links:
        return at(chain.links[number], ROW, ZERO if _is_per_row(chain, number) else col)
    return _definition(chain, number, col)


def _is_per_row(chain: Chain, number: int) -> bool:
    return isinstance(chain.graph.nodes[number].op, RowReduce) or (
        chain.over[1] > 1 and matrix(chain.graph.nodes[number].shape)[1] == 1
    )


def _spread(graph: TensorGraph, number: int, over: tuple[Quasi, int]) -> Spread:
    """How a value lies over the matrix."""
    rows, cols = matrix(graph.nodes[number].shape)
    if (rows, cols) == over:
        return "full"
    if rows == over[0] and cols == 1:
        return "per_row"
    if rows == quasi(1) and cols == over[1]:
        return "per_column"
    if rows == quasi(1) and cols == 1:
        return "single"
    raise OutsideAlgebra(
        "a value is broadcast along some of its leading dimensions",
        where=graph.nodes[number].name,
        needed=f"{over[0]} rows or 1, {over[1]} columns or 1",
        available=f"{rows} rows, {cols} columns",
        remedy="bring the tensor in the full shape, or split the op into one a slice",
    )


def _stored(links: tuple[LinkExpr, ...], output: Tensor) -> tuple[LinkExpr, ...]:
    """An integer tensor takes the last value rounded to nearest and saturated."""
    if output.dtype not in INTEGER_DTYPES or not links:
        return links
    last = links[-1]
    if isinstance(last.expr, Fn) and last.expr.op == "cast" and last.expr.dtype == output.dtype:
        return links
    return (*links[:-1], msgspec.structs.replace(last, expr=fn("cast", fn("round", last.expr), dtype=output.dtype)))
