"""Which nodes of a graph make one section.

From the last node back: a node that no later section holds starts a section, which then takes in, from its result back,
every element-wise node or row reduction that only this section reads, one product (after which come epilogue nodes
only, before which prologue nodes of `a`), or nothing where the result is an attention or a gather.
"""

from __future__ import annotations

import msgspec

from pavane.ir.quasi import Quasi, quasi
from pavane.tensor_graph.graph import Apply, Attention, Gather, Input, Matmul, RowReduce, TensorGraph


class Group(msgspec.Struct, frozen=True):
    """Node numbers, ascending. `core` is the product, attention or gather among them, `prologue` what lies before a
    product.
    """

    result: int
    nodes: tuple[int, ...]
    core: int | None = None
    prologue: tuple[int, ...] = ()


def groups_of(graph: TensorGraph) -> tuple[Group, ...]:
    """Every node that is not an input is in exactly one group; groups ascend by their result."""
    readers = _readers(graph)
    outputs = {number for _, number, _ in graph.outputs}
    taken: set[int] = set()
    groups = []
    for number in reversed(range(len(graph.nodes))):
        dead = not readers[number] and number not in outputs
        if number in taken or dead or isinstance(graph.nodes[number].op, Input):
            continue
        group = _grown(graph, number, readers, outputs)
        taken.update(group.nodes)
        groups.append(group)
    return tuple(sorted(groups, key=lambda g: g.result))


def operands(graph: TensorGraph, number: int) -> tuple[int, ...]:
    """The nodes that a node reads, each once."""
    op = graph.nodes[number].op
    if isinstance(op, Apply):
        found = tuple(a for a in op.args if isinstance(a, int))
    elif isinstance(op, RowReduce):
        found = (op.x,)
    elif isinstance(op, Matmul):
        found = (op.a, op.b)
    elif isinstance(op, Attention):
        found = (op.q, op.k, op.v)
    elif isinstance(op, Gather):
        found = (op.table, op.ids)
    else:
        found = ()
    return tuple(dict.fromkeys(found))


def matrix(shape: tuple[Quasi, ...]) -> tuple[Quasi, int]:
    """(rows, columns): the last dimension, and all the others together."""
    rows = quasi(1)
    for extent in shape[:-1]:
        rows = rows * extent.const if extent.is_const else extent * rows.const
    return rows, shape[-1].const


def _readers(graph: TensorGraph) -> list[tuple[int, ...]]:
    """Who reads a node; nodes that nothing needs read nothing."""
    out: list[list[int]] = [[] for _ in graph.nodes]
    wanted = {number for _, number, _ in graph.outputs}
    for number in reversed(range(len(graph.nodes))):
        if number in wanted:
            for operand in operands(graph, number):
                out[operand].append(number)
                wanted.add(operand)
    return [tuple(r) for r in out]


def _grown(graph: TensorGraph, result: int, readers: list[tuple[int, ...]], outputs: set[int]) -> Group:
    op = graph.nodes[result].op
    if isinstance(op, Attention | Gather):
        return Group(result, (result,), result)
    own = {result}
    core = result if isinstance(op, Matmul) else None
    prologue: set[int] = set()
    for number in reversed(range(result)):
        private = readers[number] and number not in outputs and set(readers[number]) <= own
        if not private:
            continue
        if core is None and _is_epilogue_of(graph, number, own, result):
            own.add(number)
            core = number
        elif _joins(graph, number, own, result, core, prologue, readers):
            own.add(number)
            if core is not None and number < core:
                prologue.add(number)
    return Group(result, tuple(sorted(own)), core, tuple(sorted(prologue)))


def _is_epilogue_of(graph: TensorGraph, number: int, own: set[int], result: int) -> bool:
    """May the product be computed in blocks, and all that the section holds so far on its blocks?"""
    node = graph.nodes[number]
    if not isinstance(node.op, Matmul) or matrix(node.shape) != matrix(graph.nodes[result].shape):
        return False
    return all(isinstance(graph.nodes[n].op, Apply) and matrix(graph.nodes[n].shape) == matrix(node.shape) for n in own)


def _joins(
    graph: TensorGraph, number: int, own: set[int], result: int, core: int | None, prologue: set[int], readers: list
) -> bool:
    node = graph.nodes[number]
    if not isinstance(node.op, Apply | RowReduce):
        return False
    if core is None:
        return _lies_over(graph, number, _group_matrix(graph, own))
    product = graph.nodes[core]
    before = set(readers[number]) <= prologue | {core}
    if before and isinstance(product.op, Matmul) and product.op.transposed and number != product.op.b:
        return _lies_over(graph, number, matrix(graph.nodes[product.op.a].shape))
    after = not (set(readers[number]) & (prologue | {core}))
    return after and isinstance(node.op, Apply) and matrix(node.shape) == matrix(product.shape)


def _lies_over(graph: TensorGraph, number: int, over: tuple[Quasi, int]) -> bool:
    """Are a node and its operands rows of the matrix, whole or one value each?"""
    node = graph.nodes[number]
    shapes = [node.shape, *(graph.nodes[n].shape for n in operands(graph, number))]
    sizes = [matrix(shape) for shape in shapes]
    fits = all(rows in (over[0], quasi(1)) and cols in (over[1], 1) for rows, cols in sizes)
    return fits and matrix(node.shape)[0] == over[0]


def _group_matrix(graph: TensorGraph, own: set[int]) -> tuple[Quasi, int]:
    """The widest matrix that the nodes of a section without a product lie over."""
    sizes = [matrix(graph.nodes[n].shape) for number in sorted(own) for n in (number, *operands(graph, number))]
    rows = matrix(graph.nodes[max(own)].shape)[0]
    return rows, max(cols for r, cols in sizes if r in (rows, quasi(1)))
