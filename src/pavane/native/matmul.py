"""A MatmulTiles as a call of the kernel that keeps its tree.

    transposed, q8_0 by packed q8_0, one fused lane       kernels_packed   a as a panel
    transposed, 16 lanes over the whole contraction       kernels_dot      a is widened to f32 first
    not transposed, one lane                              kernels_outer
    the same, bf16 by packed bf16                         kernels_pairs
    anything else                                         kernels_ordered  (q8_0 by q8_0 that is not packed, too)
Operands of a faster kernel start where their type can be addressed (in blocks: at whole ones; q8_0 over whole ones).
"""

from __future__ import annotations

from typing import NamedTuple

from pavane.ir.program import Load, MatmulTiles, Ref, Shape
from pavane.ir.quasi import Quasi
from pavane.ir.types import MAGNITUDE_BITS, Q8_BLOCK, SIGNIFICAND_BITS, Fill, Ints, block_elements
from pavane.ir.walk import leaves
from pavane.native.cpu import Cpu
from pavane.native.elements import byte_offset
from pavane.native.generic import Operand
from pavane.native.index import Scope, emit_guards, emit_index, emit_length
from pavane.native.kernels_dot import COLUMNS, dot_kernel, widen_kernel
from pavane.native.kernels_ordered import ordered_kernel
from pavane.native.kernels_outer import outer_kernel
from pavane.native.kernels_packed import packed_kernel, panel_bytes
from pavane.native.kernels_pairs import pairs_kernel
from pavane.native.kernels_pairs import scratch_bytes as pair_scratch_bytes
from pavane.native.outside import outside
from pavane.native.panels import panel_kernel
from pavane.native.panels import scratch_bytes as panel_scratch_bytes
from pavane.native.text import LANES, Code


def scratch_bytes(op: MatmulTiles) -> int:
    """What the op's kernel needs beside its operands."""
    row = -(-op.k.size // LANES) * LANES * 4
    return max(row * (COLUMNS + op.rows.size), panel_scratch_bytes(op), pair_scratch_bytes(op.rows.size, op.k.size))


class Product(NamedTuple):
    """A MatmulTiles and where its operands lie.

    `following`: where b's bytes go on in the next turn (b itself when that is not known). `scratch`: as many bytes as
    `scratch_bytes` says. `fresh`: whether the sums begin here (i1), of a product that `begins_sums`.
    """

    op: MatmulTiles
    dst: Operand
    a: Operand
    b: Operand
    following: str
    scratch: str
    fresh: str = "false"


class Lengths(NamedTuple):
    """Of the op's spans at a point, as values of 64 bits."""

    rows: str
    columns: str
    k: str

    def __str__(self) -> str:
        return f"i64 {self.rows}, i64 {self.columns}, i64 {self.k}"


def emit_matmul(code: Code, product: Product, cpu: Cpu, scope: Scope) -> None:
    """The op at the point of the loops around it that `scope` gives; nothing where it has no element or is guarded."""
    op, dst = product.op, product.dst
    if dst.dtype != "f32":
        raise outside("products accumulate in f32 on this machine", op.dst.name, dst.dtype)
    lengths = Lengths(*(emit_length(code, s, scope) for s in (op.rows, op.cols, op.k)))
    with code.when(_has_elements(code, op, lengths, scope)):
        target = f"ptr {_origin(code, dst, op.dst, scope)}, i64 {dst.row_bytes}"
        if product.b.packed and op.transposed:
            call = _packed_call(code, product, target, lengths, cpu, scope)
        elif (choice := _choose(op, product.a.dtype, product.b.dtype)) == "ordered":
            call = _ordered_call(code, product, target, lengths, scope)
        else:
            call = _tiled_call(code, product, choice, target, lengths, cpu, scope)
        code.line(f"call void @{call}")


def _has_elements(code: Code, op: MatmulTiles, lengths: Lengths, scope: Scope) -> str:
    columns, rows = (code.value(f"icmp sgt i64 {n}, 0") for n in (lengths.columns, lengths.rows))
    guards = emit_guards(code, op.guard, scope)
    condition = code.value(f"and i1 {columns}, {rows}")
    return condition if guards is None else code.value(f"and i1 {condition}, {guards}")


def _packed_call(code: Code, product: Product, target: str, lengths: Lengths, cpu: Cpu, scope: Scope) -> str:
    left, left_row = _panel(code, product, lengths, scope)
    operands = f"ptr {left}, i64 {left_row}, ptr {product.b.base}, i64 {product.b.row_bytes}"
    return f"{packed_kernel(code.module, cpu)}({target}, {operands}, {lengths}, ptr {product.following})"


def _ordered_call(code: Code, product: Product, target: str, lengths: Lengths, scope: Scope) -> str:
    op, a, b = product.op, product.a, product.b
    kernel = ordered_kernel(code.module, a.dtype, b.dtype, op.transposed, op.tree)
    operands = ", ".join(_row_origin(code, o, ref, scope) for o, ref in ((a, op.a), (b, op.b)))
    return f"{kernel}({target}, {operands}, {lengths})"


def _tiled_call(
    code: Code, product: Product, choice: str, target: str, lengths: Lengths, cpu: Cpu, scope: Scope
) -> str:
    op, a, b = product.op, product.a, product.b
    left, left_row = _origin(code, a, op.a, scope), a.row_bytes
    if choice == "dot" and a.dtype != "f32":
        left, left_row = _widened(code, product, left, lengths)
    right = _origin(code, b, op.b, scope)
    operands = f"ptr {left}, i64 {left_row}, ptr {right}, i64 {b.row_bytes}"
    rest = f"ptr {product.following}, ptr {product.scratch}"
    if choice == "dot":
        kernel = dot_kernel(code.module, b.dtype, op.tree.fused, cpu)
        return f"{kernel}({target}, {operands}, {lengths}, {rest})"
    kernel = (
        pairs_kernel(code.module, cpu) if b.packed else outer_kernel(code.module, a.dtype, b.dtype, op.tree.fused, cpu)
    )
    return f"{kernel}({target}, {operands}, {lengths}, {rest}, i1 {product.fresh})"


def begins_sums(op: MatmulTiles, a: str, b: str) -> bool:
    """Whether the op's kernel for operands of those types can take 0 for what dst holds."""
    return _choose(op, a, b) == "outer"


def require_taken_as_stored(shape: Shape, op: MatmulTiles) -> None:
    """Kernels widen what is stored: a type that the numerics take an operand in may not round it (integers up to 256
    fit bf16).
    """
    stored = {fifo.name: fifo.dtype for fifo in shape.fifos}
    formals, taken = {f.name: f for f in shape.formals}, dict(shape.numerics.operands)
    for process in shape.processes:
        for _, step in leaves(process.body):
            if not isinstance(step, Load) or step.fifo not in (op.a.name, op.b.name) or step.tensor not in taken:
                continue
            if not _holds(taken[step.tensor], stored[step.fifo], formals[step.tensor].fill):
                raise outside(
                    "a product's operand would be rounded before it is multiplied: here what is stored is multiplied",
                    f"{shape.name}.{step.tensor}",
                    f"{stored[step.fifo]} as {taken[step.tensor]}",
                )


def _holds(wide: str, narrow: str, fill: Fill) -> bool:
    if wide in (narrow, "f32") or (narrow in MAGNITUDE_BITS and wide == "bf16"):
        return True
    bits = SIGNIFICAND_BITS.get(wide, 0)
    return isinstance(fill, Ints) and max(abs(fill.lo), abs(fill.hi)) <= 1 << bits


def _choose(op: MatmulTiles, a: str, b: str) -> str:
    tree = op.tree
    aligned = all(_whole_blocks(ref.col, block_elements(dtype)) for dtype, ref in ((a, op.a), (b, op.b)))
    if not aligned:
        return "ordered"
    if not op.transposed:
        return "outer" if tree.lanes == 1 else "ordered"
    quantised = "q8_0" in (a, b)
    whole = not quantised or (op.k.size % Q8_BLOCK == 0 and _whole_blocks(op.k.limit - op.k.start, Q8_BLOCK))
    one_atom = tree.atom == 0 or tree.atom >= op.k.size
    if a == b == "q8_0":
        return "ordered"
    return "dot" if tree.lanes == LANES and one_atom and whole else "ordered"


def _whole_blocks(value: Quasi, block: int) -> bool:
    return value.const % block == 0 and all(c % block == 0 for c, _ in value.terms)


def _origin(code: Code, operand: Operand, ref: Ref, scope: Scope) -> str:
    row = code.at(operand.base, code.mul(emit_index(code, ref.row, scope), operand.row_bytes))
    return code.at(row, byte_offset(code, operand.dtype, emit_index(code, ref.col, scope)))


def _row_origin(code: Code, operand: Operand, ref: Ref, scope: Scope) -> str:
    row = code.at(operand.base, code.mul(emit_index(code, ref.row, scope), operand.row_bytes))
    return f"ptr {row}, i64 {operand.row_bytes}, i64 {emit_index(code, ref.col, scope)}"


def _panel(code: Code, product: Product, lengths: Lengths, scope: Scope) -> tuple[str, int]:
    """The rows of a as a panel: a carry that is one, or made in scratch."""
    op, a = product.op, product.a
    if a.panel:
        return a.base, a.row_bytes
    stride = panel_bytes(op.k.limit.const)
    source = _origin(code, a, op.a, scope)
    target = f"ptr {product.scratch}, i64 {stride}"
    arguments = f"{target}, ptr {source}, i64 {a.row_bytes}, i64 {lengths.rows}, i64 {lengths.k}"
    code.line(f"call void @{panel_kernel(code.module)}({arguments})")
    return product.scratch, stride


def _widened(code: Code, product: Product, left: str, lengths: Lengths) -> tuple[str, int]:
    """The rows of a, which begin at `left`, as f32 in scratch, behind the place of b's rows."""
    stride = -(-product.op.k.size // LANES) * LANES * 4
    base = code.at(product.scratch, str(stride * COLUMNS))
    kernel = widen_kernel(code.module, product.a.dtype)
    with code.loop(lengths.rows) as r:
        source, target = code.at(left, code.mul(r, product.a.row_bytes)), code.at(base, code.mul(r, stride))
        code.line(f"call void @{kernel}(ptr {target}, ptr {source}, i64 {lengths.k})")
    return base, stride
