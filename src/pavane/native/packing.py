"""Which weights are repacked for the kernel that reads them, and their packed copies (`packed_forms` has the forms).

A q8_0 formal is packed when every use of it is as b^T of a one-lane product of blocks over the whole K, and its windows
start at multiples of 16 rows. A bf16 formal is packed when every use of it is as b of a one-lane product with rows in
bf16, and its windows start at even rows and at multiples of 64 columns. Either is bound to a WEIGHT by every instance.
The tensor's own bytes stay where they are (a gather may read them too); programs that share weights share packed ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.expr import At, walk
from pavane.ir.program import Compute, Formal, Generic, Load, MatmulTiles, Program, Ref, Shape, Store, Tensor
from pavane.ir.quasi import Quasi
from pavane.ir.walk import bodies, leaves
from pavane.native.kernels_packed import GROUP_ROWS
from pavane.native.kernels_pairs import GROUP_COLUMNS, LEAST_ROWS
from pavane.native.packed_forms import FORMS

_ZERO = Quasi()


def packed_formals(program: Program, shape: Shape) -> frozenset[str]:
    """The formals of a shape that are bound to packed bytes."""
    candidates = [f for f in shape.formals if f.dtype in FORMS and f.role == "IN" and _read_packed(shape, f)]
    return frozenset(f.name for f in candidates if _only_weights(program, shape, f))


def _only_weights(program: Program, shape: Shape, formal: Formal) -> bool:
    tensors = {t.name: t for t in program.tensors}
    bound = [
        tensors[b.tensor]
        for i in program.instances
        if i.shape == shape.name
        for b in i.bindings
        if b.formal == formal.name
    ]
    return all(t.role == "WEIGHT" and _lies_alike(t, formal) for t in bound)


def _lies_alike(tensor: Tensor, formal: Formal) -> bool:
    """Whether groups of the tensor are groups of the formal: of rows in any view that keeps their length, of columns
    where it is the whole.
    """
    if formal.dtype == "q8_0":
        return tensor.shape[-1] == formal.shape[-1]
    return tensor.shape == formal.shape


def _read_packed(shape: Shape, formal: Formal) -> bool:
    fifos = {f.name: f for f in shape.fifos}
    fed = {s.fifo for s in _loads(shape) if s.tensor == formal.name}
    loads = [s for s in _loads(shape) if s.fifo in fed]
    stored = {s.fifo for _, body in bodies(shape) for _, s in leaves(body) if isinstance(s, Store)}
    if not fed or fed & stored or not all(s.tensor == formal.name and fifos[s.fifo].kind == "ALIAS" for s in loads):
        return False
    lies, reads_it = (_in_groups, _is_block_product) if formal.dtype == "q8_0" else (_in_pairs, _is_pair_product)
    return all(lies(formal, s) for s in loads) and all(reads_it(shape, op, formal) for op in _uses(shape, fed))


def _loads(shape: Shape) -> Iterator[Load]:
    for _, body in bodies(shape):
        yield from (step for _, step in leaves(body) if isinstance(step, Load))


def _uses(shape: Shape, fifos: set[str]) -> Iterator[Generic | MatmulTiles]:
    for _, body in bodies(shape):
        for _, step in leaves(body):
            if isinstance(step, Compute) and fifos & reads(step.op):
                yield step.op


def reads(op: Generic | MatmulTiles) -> set[str]:
    """The slots and carries that an op reads."""
    if isinstance(op, MatmulTiles):
        return {op.a.name, op.b.name}
    return {e.name for e in walk(op.expr) if isinstance(e, At)}


def _is_block_product(shape: Shape, op: Generic | MatmulTiles, formal: Formal) -> bool:
    if not isinstance(op, MatmulTiles) or op.b != Ref(op.b.name) or not op.transposed:
        return False
    whole = op.k.start == _ZERO and op.k.limit == formal.shape[-1] and op.k.size >= op.k.limit.const
    return whole and _of_one_lane(shape, op, formal)


def _of_one_lane(shape: Shape, op: MatmulTiles, formal: Formal) -> bool:
    """Both sides in the formal's type, added to one sum by fused multiply-adds."""
    left = {**{f.name: f.dtype for f in shape.fifos}, **{c.name: c.dtype for c in shape.carries}}[op.a.name]
    return left == formal.dtype and op.a.name != op.b.name and op.tree.lanes == 1 and op.tree.fused


def _is_pair_product(shape: Shape, op: Generic | MatmulTiles, formal: Formal) -> bool:
    if not isinstance(op, MatmulTiles) or op.b != Ref(op.b.name) or op.transposed:
        return False
    even = op.k.size % 2 == 0 and all(n % 2 == 0 for n in _numbers(op.k.limit - op.k.start))
    return even and op.rows.size >= LEAST_ROWS and _of_one_lane(shape, op, formal)


def _in_groups(formal: Formal, step: Load) -> bool:
    """Whole rows, one after the other, the first a multiple of 16."""
    start, last = step.window.start, len(formal.shape) - 1
    if (
        start[last] != _ZERO
        or step.window.size[last] < formal.shape[last].const
        or step.window.row not in (-1, last - 1)
    ):
        return False
    stride = 1
    for d in range(last - 1, -1, -1):
        index = start[d]
        if not isinstance(index, Quasi) or any(n * stride % GROUP_ROWS for n in _numbers(index)):
            return False
        stride *= formal.shape[d].const if formal.shape[d].is_const else GROUP_ROWS
    return True


def _in_pairs(formal: Formal, step: Load) -> bool:
    """Rows from an even one on, columns from a multiple of 64 on."""
    start, shape = step.window.start, formal.shape
    if len(shape) != 2 or step.window.row != 0 or not all(q.is_const for q in shape) or shape[0].const % 2:
        return False
    return all(
        isinstance(index, Quasi) and all(n % unit == 0 for n in _numbers(index))
        for index, unit in zip(start, (2, GROUP_COLUMNS), strict=True)
    )


def _numbers(value: Quasi) -> Iterator[int]:
    yield value.const
    yield from (coefficient for coefficient, _ in value.terms)


def packed_products(shape: Shape, packed: frozenset[str]) -> tuple[MatmulTiles, ...]:
    """The products of blocks that read a packed formal."""
    blocks = {f.name for f in shape.formals if f.dtype == "q8_0"} & packed
    fifos = {s.fifo for s in _loads(shape) if s.tensor in blocks}
    return tuple(op for op in _uses(shape, fifos) if isinstance(op, MatmulTiles))


def packed_weights(program: Program) -> tuple[str, ...]:
    """The tensors of which a packed copy is needed."""
    formals = {shape.name: packed_formals(program, shape) for shape in program.shapes}
    found = {b.tensor: None for i in program.instances for b in i.bindings if b.formal in formals[i.shape]}
    return tuple(found)
