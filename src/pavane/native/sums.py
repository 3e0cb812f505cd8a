"""Sums of products that are made where they go: a carry that takes no memory of its own.

    init A;  ... A += a . b ...;  F[r, c] = A[r, c];  store F -> window        where F is stored directly (`direct`)

The products add to the window itself. All must cover the same elements; nobody else may use A, and nobody of the shape
may know the tensor by another step: until the store others would have seen what it held before. Nor may the process
wait for another engine between init and store. Where one product makes the whole sum and its kernel can begin at 0, the
init goes, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pavane.ir.expr import At
from pavane.ir.program import (
    LV_GEN_COL,
    LV_GEN_ROW,
    Carry,
    Compute,
    Generic,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Process,
    Program,
    Ref,
    Shape,
    Store,
)
from pavane.ir.quasi import quasi
from pavane.ir.walk import Nest, bodies, leaves, named
from pavane.native.direct import moves, waited_for
from pavane.native.matmul import begins_sums
from pavane.native.packing import reads


class Sums(NamedTuple):
    """Where a carry lies and what copied it there; the loops in whose first turn a product begins it (None: its init
    is needed).
    """

    store: Store
    result: Generic
    beginning: Nest | None


def sums_in_place(program: Program, shape: Shape, process: Process, direct: Mapping[str, Store]) -> dict[str, Sums]:
    """The carries of a process that lie in the tensor that their sums are stored to."""
    found = {}
    for carry in shape.carries:
        between = _between(process.body, carry.name)
        if between is None:
            continue
        nodes, result = between
        store = direct.get(result.dst.name)
        if store is None or not named(shape.formals, store.tensor).dtype == carry.dtype == "f32":
            continue
        if _only_sums(shape, process, carry, nodes, result) and _alone(program, shape, store):
            found[carry.name] = Sums(store, result, _beginning(shape, nodes, carry))
    return found


def _between(body: tuple[Node, ...], carry: str) -> tuple[tuple[Node, ...], Generic] | None:
    """What lies between the init of a carry and the op of the same body that copies it to a slot; and that op."""
    start: int | None = None
    for i, node in enumerate(body):
        if isinstance(node, Loop):
            inside = _between(node.body, carry)
            if inside is not None:
                return inside
        elif isinstance(node, Init) and node.carry == carry:
            start = i
        elif (
            isinstance(node, Compute) and isinstance(node.op, Generic) and start is not None and _copies(node.op, carry)
        ):
            return body[start + 1 : i], node.op
    return None


def _copies(op: Generic, carry: str) -> bool:
    return op.expr == At(carry, (quasi(LV_GEN_ROW), quasi(LV_GEN_COL)))


def _only_sums(shape: Shape, process: Process, carry: Carry, nodes: tuple[Node, ...], result: Generic) -> bool:
    """Between the two are products that add to these very elements, which are all that the carry has room for, and what
    feeds them; no other step has the carry.
    """
    if (carry.rows, carry.cols) != (result.rows.size, result.cols.size):
        return False
    waiting = waited_for(shape, process)
    if result.guard or not all(moves(s, waiting) or isinstance(s, Load | Compute) for _, s in leaves(nodes)):
        return False
    uses = [s for _, body in bodies(shape) for _, s in leaves(body) if _uses(s, carry.name)]
    products = [s.op for _, s in leaves(nodes) if _uses(s, carry.name) and isinstance(s, Compute)]
    return len(uses) == len(products) + 2 and all(_adds(op, carry.name, result) for op in products)


def _uses(step: object, carry: str) -> bool:
    if isinstance(step, Init):
        return step.carry == carry
    return isinstance(step, Compute) and (step.op.dst.name == carry or carry in reads(step.op))


def _adds(op: Generic | MatmulTiles, carry: str, result: Generic) -> bool:
    return (
        isinstance(op, MatmulTiles)
        and op.dst == Ref(carry)
        and carry not in reads(op)
        and (op.rows, op.cols) == (result.rows, result.cols)
        and not op.guard
    )


def _alone(program: Program, shape: Shape, store: Store) -> bool:
    """No other step of the shape reads or writes the tensor."""
    touched = [s.tensor for _, body in bodies(shape) for _, s in leaves(body) if isinstance(s, (Load, Store))]
    for instance in program.instances:
        if instance.shape == shape.name:
            bound = {b.formal: b.tensor for b in instance.bindings}
            if sum(bound[formal] == bound[store.tensor] for formal in touched) != 1:
                return False
    return True


def _beginning(shape: Shape, nodes: tuple[Node, ...], carry: Carry) -> Nest | None:
    """The loops around the only product, when it always runs and has a term in their first turn."""
    products = [(nest, s.op) for nest, s in leaves(nodes) if isinstance(s, Compute) and _uses(s, carry.name)]
    if len(products) != 1 or carry.initial != 0.0:
        return None
    nest, op = products[0]
    if not isinstance(op, MatmulTiles):
        return None
    stored = {**{f.name: f.dtype for f in shape.fifos}, **{c.name: c.dtype for c in shape.carries}}
    terms = (op.k.limit - op.k.start).substitute({loop.var: quasi(0) for loop in nest})
    runs = all(loop.extent.is_const and loop.extent.const > 0 for loop in nest)
    has_terms = terms.is_const and terms.const > 0
    return nest if runs and has_terms and begins_sums(op, stored[op.a.name], stored[op.b.name]) else None
