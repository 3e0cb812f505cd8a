"""The left side of a packed product: rows of q8_0 as quants, then f32 scales, then starts of integer sums.

A q8_0 carry that is only written by Generics and only read as the left side of packed products is kept in this form
(in the thread's scratch) and never as blocks; any other left side is brought to it by `panel_kernel` when the product
runs.
"""

from __future__ import annotations

from pavane.ir.program import Carry, Compute, Generic, Init, MatmulTiles, Ref, Shape
from pavane.ir.quasi import quasi
from pavane.ir.types import Q8_BLOCK
from pavane.ir.walk import bodies, leaves
from pavane.native.elements import load_quants, load_scale, q8_block, quantised_block
from pavane.native.kernels_packed import panel_bytes
from pavane.native.packing import packed_products, reads
from pavane.native.text import LANES, Code, Module


def panel_offsets(shape: Shape, packed: frozenset[str]) -> tuple[dict[str, int], int]:
    """Where in a thread's scratch the carries lie that are kept as panels, and how many bytes they take."""
    found, total = {}, 0
    for carry in shape.carries:
        if carry.dtype == "q8_0" and _only_panel(shape, carry, packed):
            found[carry.name] = total
            total += carry.rows * panel_bytes(carry.cols)
    return found, total


def _only_panel(shape: Shape, carry: Carry, packed: frozenset[str]) -> bool:
    products, name = packed_products(shape, packed), carry.name
    used = False
    for _, body in bodies(shape):
        for _, step in leaves(body):
            if isinstance(step, Init) and step.carry == name:
                return False
            if not isinstance(step, Compute):
                continue
            op = step.op
            if isinstance(op, Generic):
                if name in reads(op):
                    return False
            elif name in (op.b.name, op.dst.name):
                return False
            elif op.a.name == name:
                if op.a != Ref(name) or op.k.limit != quasi(carry.cols) or not any(op is p for p in products):
                    return False
                used = True
    return used


def scratch_bytes(op: MatmulTiles) -> int:
    """For a left side that has to be brought to the form."""
    return op.rows.size * panel_bytes(-(-op.k.size // Q8_BLOCK) * Q8_BLOCK)


def store_panel_block(code: Code, row: str, column: str, columns: int, low: str, high: str) -> None:
    """32 f32 as one block of a row of `columns` elements; the rule of `store_block`."""
    scale, quants = quantised_block(code, low, high)
    for half, value in enumerate(quants):
        code.store(f"<{LANES} x i8>", value, code.at(row, code.add(column, str(LANES * half))))
    # The scale is what a stored block would hold: rounded to f16.
    _store_beside(code, row, column, str(columns), code.value(f"fpext half {scale} to float"), _start(code, quants))


def panel_kernel(module: Module) -> str:
    """`void(ptr out, i64 out_row, ptr a, i64 a_row, i64 rows, i64 k)`: rows of blocks as a panel."""
    name = "panel_of_blocks"
    if not module.has(name):
        parameters = "ptr noalias %out, i64 %out_row, ptr %a, i64 %a_row, i64 %rows, i64 %k"
        code = Code(module, name, parameters, attributes="internal noinline nounwind")
        with code.loop("%rows") as r, code.loop("%k", step=Q8_BLOCK) as column:
            row = code.at("%out", code.mul(r, "%out_row"))
            block = q8_block(code, code.at("%a", code.mul(r, "%a_row")), column, is_first=True)
            quants = list(load_quants(code, block))
            for half, value in enumerate(quants):
                code.store(f"<{LANES} x i8>", value, code.at(row, code.add(column, str(LANES * half))))
            _store_beside(code, row, column, "%k", load_scale(code, block), _start(code, quants))
        code.finish()
    return name


def _start(code: Code, quants: list[str]) -> str:
    """-128 * the sum of a block's quants."""
    ints = f"<{LANES} x i32>"
    wide = [code.value(f"sext <{LANES} x i8> {q} to {ints}") for q in quants]
    both = code.value(f"add {ints} {wide[0]}, {wide[1]}")
    total = code.call(f"llvm.vector.reduce.add.v{LANES}i32", "i32", f"{ints} {both}", ints)
    return code.value(f"mul i32 {total}, -128")


def _store_beside(code: Code, row: str, column: str, columns: str, scale: str, start: str) -> None:
    block = code.value(f"lshr exact i64 {column}, 5") if column.startswith("%") else str(int(column) // Q8_BLOCK)
    blocks = code.value(f"lshr exact i64 {columns}, 5") if columns.startswith("%") else str(int(columns) // Q8_BLOCK)
    first = code.add(columns, code.mul(block, 4))
    code.store("float", scale, code.at(row, first))
    code.store("i32", start, code.at(row, code.add(first, code.mul(blocks, 4))))
