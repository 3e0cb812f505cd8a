"""Which nodes of a graph make one section.

From the last node back: a node that no later section holds starts a section, which then takes in, from its result back,
every element-wise node or row reduction that only this section reads, one product (after which come epilogue nodes
only, before which prologue nodes of `a`), or nothing where the result is an attention or a gather.
"""

from __future__ import annotations

import msgspec

from pavane.ir.quasi import Quasi, quasi
from pavane.tensor_graph.nodes import Apply, Attention, Gather, Input, Matmul, RowReduce, TensorGraph


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
    """The section that makes `result`, with all that only it reads and that can be computed in it."""
    if isinstance(graph.nodes[result].op, Attention | Gather):
        return Group(result, (result,), result)
    growing = _Growing(graph, result, readers)
    for number in reversed(range(result)):
        if readers[number] and number not in outputs and set(readers[number]) <= growing.own:
            growing.offer(number)
    return Group(result, tuple(sorted(growing.own)), growing.core, tuple(sorted(growing.prologue)))


class _Growing:
    """A section that takes nodes in, from its result back: those that it has, its product, what lies before that."""

    def __init__(self, graph: TensorGraph, result: int, readers: list[tuple[int, ...]]) -> None:
        self.own = {result}
        self.core = result if isinstance(graph.nodes[result].op, Matmul) else None
        self.prologue: set[int] = set()
        self._graph, self._result, self._readers = graph, result, readers

    def offer(self, number: int) -> None:
        """Take in a node that only this section reads, where it belongs here."""
        if self.core is None and self._may_be_core(number):
            self.core = number
            self.own.add(number)
        elif self._belongs(number):
            self.own.add(number)
            if self.core is not None and number < self.core:
                self.prologue.add(number)

    def _may_be_core(self, number: int) -> bool:
        """Can the product be computed in blocks, and all that the section holds so far on its blocks?"""
        nodes, node = self._graph.nodes, self._graph.nodes[number]
        if not isinstance(node.op, Matmul) or matrix(node.shape) != matrix(nodes[self._result].shape):
            return False
        return all(isinstance(nodes[n].op, Apply) and matrix(nodes[n].shape) == matrix(node.shape) for n in self.own)

    def _belongs(self, number: int) -> bool:
        """Is the node one of the chain, of the product's prologue, or of its epilogue?"""
        node, readers = self._graph.nodes[number], set(self._readers[number])
        if not isinstance(node.op, Apply | RowReduce):
            return False
        if self.core is None:
            return _lies_over(self._graph, number, _group_matrix(self._graph, self.own))
        product, before = self._graph.nodes[self.core], self.prologue | {self.core}
        if isinstance(product.op, Matmul) and product.op.transposed and readers <= before and number != product.op.b:
            return _lies_over(self._graph, number, matrix(self._graph.nodes[product.op.a].shape))
        return not readers & before and isinstance(node.op, Apply) and matrix(node.shape) == matrix(product.shape)


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
