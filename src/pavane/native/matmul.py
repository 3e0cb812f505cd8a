"""A MatmulTiles as a call of the kernel that keeps its tree.

    transposed, q8_0 by packed q8_0, one fused lane       kernels_packed   a as a panel
    transposed, 16 lanes over the whole contraction       kernels_dot      a is widened to f32 first
    not transposed, one lane                              kernels_outer
    the same, bf16 by packed bf16                         kernels_pairs
    anything else                                         kernels_ordered  (q8_0 by q8_0 that is not packed, too)
Operands of a faster kernel start where their type can be addressed (in blocks: at whole ones; q8_0 over whole ones).
"""

from __future__ import annotations

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
from pavane.native.panels import panel_kernel
from pavane.native.panels import scratch_bytes as panel_scratch_bytes
from pavane.native.text import LANES, Code
from pavane.reject import OutsideFragment


def scratch_bytes(op: MatmulTiles) -> int:
    """What the op's kernel needs beside its operands."""
    row = -(-op.k.size // LANES) * LANES * 4
    return max(row * (COLUMNS + op.rows.size), panel_scratch_bytes(op), pair_scratch_bytes(op.rows.size, op.k.size))


def emit_matmul(
    code: Code,
    op: MatmulTiles,
    operands: tuple[Operand, Operand, Operand],
    following: str,
    scratch: str,
    cpu: Cpu,
    scope: Scope,
    fresh: str = "false",
) -> None:
    """`operands` are dst, a, b; `following` is where b's bytes go on in the next turn (b itself when that is not
    known); `fresh` is whether the sums begin here, of a product that `begins_sums`.
    """
    dst, a, b = operands
    if dst.dtype != "f32":
        raise OutsideFragment("products accumulate in f32 on this machine", where=op.dst.name, needed=dst.dtype)
    rows, columns, k = (emit_length(code, s, scope) for s in (op.rows, op.cols, op.k))
    condition = code.value(f"icmp sgt i64 {columns}, 0")
    for part in (code.value(f"icmp sgt i64 {rows}, 0"), emit_guards(code, op.guard, scope)):
        if part is not None:
            condition = code.value(f"and i1 {condition}, {part}")
    with code.when(condition):
        target = _origin(code, dst, op.dst, scope)
        sizes = f"i64 {rows}, i64 {columns}, i64 {k}"
        if b.packed and op.transposed:
            left, left_row = _panel(code, op, a, rows, k, scratch, scope)
            pointers = f"ptr {target}, i64 {dst.row_bytes}, ptr {left}, i64 {left_row}, ptr {b.base}, i64 {b.row_bytes}"
            code.line(f"call void @{packed_kernel(code.module, cpu)}({pointers}, {sizes}, ptr {following})")
            return
        choice = _choose(op, a.dtype, b.dtype)
        if choice == "ordered":
            kernel = ordered_kernel(code.module, a.dtype, b.dtype, op.transposed, op.tree)
            both = ", ".join(_row_origin(code, o, ref, scope) for o, ref in ((a, op.a), (b, op.b)))
            code.line(f"call void @{kernel}(ptr {target}, i64 {dst.row_bytes}, {both}, {sizes})")
            return
        left, left_row = _origin(code, a, op.a, scope), a.row_bytes
        if choice == "dot" and a.dtype != "f32":
            left, left_row = _widened(code, op, a.dtype, (left, left_row), rows, k, scratch)
        right = _origin(code, b, op.b, scope)
        kernel = _kernel(code, choice, op, a, b, cpu)
        pointers = f"ptr {target}, i64 {dst.row_bytes}, ptr {left}, i64 {left_row}, ptr {right}, i64 {b.row_bytes}"
        begins = f", i1 {fresh}" if choice == "outer" else ""
        code.line(f"call void @{kernel}({pointers}, {sizes}, ptr {following}, ptr {scratch}{begins})")


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
                raise OutsideFragment(
                    "a product's operand would be rounded before it is multiplied: here what is stored is multiplied",
                    where=f"{shape.name}.{step.tensor}",
                    needed=f"{stored[step.fifo]} as {taken[step.tensor]}",
                )


def _holds(wide: str, narrow: str, fill: Fill) -> bool:
    if wide in (narrow, "f32") or (narrow in MAGNITUDE_BITS and wide == "bf16"):
        return True
    bits = SIGNIFICAND_BITS.get(wide, 0)
    return isinstance(fill, Ints) and max(abs(fill.lo), abs(fill.hi)) <= 1 << bits


def _kernel(code: Code, choice: str, op: MatmulTiles, a: Operand, b: Operand, cpu: Cpu) -> str:
    if choice == "dot":
        return dot_kernel(code.module, b.dtype, op.tree.fused, cpu)
    if b.packed:
        return pairs_kernel(code.module, cpu)
    return outer_kernel(code.module, a.dtype, b.dtype, op.tree.fused, cpu)


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


def _panel(code: Code, op: MatmulTiles, a: Operand, rows: str, k: str, scratch: str, scope: Scope) -> tuple[str, int]:
    """The rows of a as a panel: a carry that is one, or made in scratch."""
    if a.panel:
        return a.base, a.row_bytes
    stride = panel_bytes(op.k.limit.const)
    source = _origin(code, a, op.a, scope)
    arguments = f"ptr {scratch}, i64 {stride}, ptr {source}, i64 {a.row_bytes}, i64 {rows}, i64 {k}"
    code.line(f"call void @{panel_kernel(code.module)}({arguments})")
    return scratch, stride


def _widened(
    code: Code, op: MatmulTiles, dtype: str, left: tuple[str, int], rows: str, k: str, scratch: str
) -> tuple[str, int]:
    """The rows of a as f32 in scratch, behind the place of b's rows."""
    stride = -(-op.k.size // LANES) * LANES * 4
    base = code.at(scratch, str(stride * COLUMNS))
    kernel = widen_kernel(code.module, dtype)
    with code.loop(rows) as r:
        source, target = code.at(left[0], code.mul(r, left[1])), code.at(base, code.mul(r, stride))
        code.line(f"call void @{kernel}(ptr {target}, ptr {source}, i64 {k})")
    return base, stride
