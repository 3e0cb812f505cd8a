"""`recognize_stages`: an authored graph -> ops, one a section, every operand made before it is read.

Element-wise nodes and row reductions that only one section needs are put into it: after a product as its epilogue,
before a transposed product (whose rows of `a` are whole in a slot) as its prologue, else as a chain of their own. A
value that an output or another section reads is a tensor (SCRATCH between sections). What is known of values travels as
fills.

Refuses with `OutsideAlgebra`: every node that Generic and MatmulTiles cannot express, all at once, each with what would
express it.
"""

from __future__ import annotations

from typing import Literal

from pavane.ir.expr import ARITY
from pavane.ir.program import Tensor
from pavane.reject import OutsideAlgebra
from pavane.tensor_graph.chains import product_op, rows_op
from pavane.tensor_graph.fills import held
from pavane.tensor_graph.graph import Graph
from pavane.tensor_graph.grouping import Group, groups_of
from pavane.tensor_graph.nodes import Apply, Attention, Gather, Input, Matmul, TensorGraph
from pavane.tensor_graph.recognised import AttentionOp, GatherOp, RecognisedOp

EXPRESSED_BY = {
    "relu": "max(x, 0)",
    "neg": "sub(0, x)",
    "sigmoid": "div(1, add(1, exp(sub(0, x))))",
    "silu": "div(x, add(1, exp(sub(0, x))))",
    "gelu": "mul(mul(x, 0.5), add(1, erf(mul(x, 0.7071067811865476))))",
    "pow": "mul for whole powers, exp(mul(y, log(x))) for x > 0",
    "conv1d": "a gather of windows and a matmul",
    "conv2d": "a gather of windows and a matmul",
    "layernorm": "a norm of sub(x, mean) put together from reduce and apply",
    "argmax": "the reduction MAX on the device and the position on the host",
    "sort": "the host",
    "topk": "the host",
    "cumsum": "a matmul with a triangular matrix",
}


def recognize_stages(graph: Graph | TensorGraph) -> tuple[RecognisedOp, ...]:
    """The sections of a graph."""
    frozen = graph.freeze() if isinstance(graph, Graph) else graph
    _refuse_outside(frozen)
    groups = groups_of(frozen)
    tensors = _tensors(frozen, groups)
    return tuple(_op(frozen, group, tensors) for group in groups)


def _refuse_outside(graph: TensorGraph) -> None:
    bad = [
        f"{node.name} = {node.op.op}: {EXPRESSED_BY.get(node.op.op, 'no composition of the closed list is known')}"
        for node in graph.nodes
        if isinstance(node.op, Apply) and node.op.op not in ARITY
    ]
    copies = [
        f"output {name} is an input" for name, number, _ in graph.outputs if isinstance(graph.nodes[number].op, Input)
    ]
    if bad or copies:
        raise OutsideAlgebra(
            f"{len(bad) + len(copies)} nodes are outside the algebra",
            where=f"graph {graph.name}",
            needed="operators " + ", ".join(sorted(ARITY)) + "; SUM and MAX over a row; products; attention; gathers",
            terms=(*bad, *copies),
            remedy="write them with these operators, as each term says",
        )


def _tensors(graph: TensorGraph, groups: tuple[Group, ...]) -> dict[int, Tensor]:
    """A tensor for every input and for every value that a section makes."""
    outputs = {number: (name, dtype) for name, number, dtype in graph.outputs}
    out = {}
    for number, node in enumerate(graph.nodes):
        if isinstance(node.op, Input):
            out[number] = Tensor(node.name, node.shape, node.dtype, node.op.role, node.fill)
    for group in groups:
        node = graph.nodes[group.result]
        name, dtype = outputs.get(group.result, (node.name, node.dtype))
        role: Literal["OUTPUT", "SCRATCH"] = "OUTPUT" if group.result in outputs else "SCRATCH"
        out[group.result] = Tensor(name, node.shape, dtype, role, held(node.fill, dtype))
    return out


def _op(graph: TensorGraph, group: Group, tensors: dict[int, Tensor]) -> RecognisedOp:
    core = graph.nodes[group.core].op if group.core is not None else None
    output = tensors[group.result]
    if isinstance(core, Matmul):
        return product_op(graph, group, tensors)
    if isinstance(core, Attention):
        q, k, v = (tensors[n] for n in (core.q, core.k, core.v))
        return AttentionOp(output.name, graph.symbols, q, k, v, core.scale, core.causal, core.window, output)
    if isinstance(core, Gather):
        return GatherOp(output.name, graph.symbols, tensors[core.table], tensors[core.ids], output)
    return rows_op(graph, group, tensors)
