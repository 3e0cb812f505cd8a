"""Windows of tensors as code: the address of the first element, and the rows and columns that are inside the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pavane.ir.expr import Index
from pavane.ir.program import Formal, Window
from pavane.ir.quasi import Quasi
from pavane.ir.types import block_elements, row_bytes
from pavane.native.elements import byte_offset
from pavane.native.index import Scope, emit_index
from pavane.native.kernels_pairs import GROUP_COLUMNS, TERM_BYTES
from pavane.native.outside import outside
from pavane.native.text import Code

ReadIndex = Callable[[Index], str]


class Box(NamedTuple):
    """`address` of the first element; `rows` and `columns` that may be touched; bytes from row to row."""

    address: str
    rows: str
    columns: str
    row_bytes: int


def strides(formal: Formal, packed: bool = False) -> tuple[int, ...]:
    """Elements from one index to the next, per dimension; of a formal that is bound to packed bytes, between indices at
    which a window may start.
    """
    if packed and formal.dtype == "bf16":
        return GROUP_COLUMNS, formal.shape[0].const
    found, total = [], 1
    for extent in reversed(formal.shape[1:]):
        if not extent.is_const:
            raise outside("rows of a tensor that are as long as a symbol says have no distance here", formal.name)
        found.append(total)
        total *= extent.const
    return tuple(reversed([*found, total]))


def window_row_bytes(formal: Formal, window: Window, packed: bool = False) -> int:
    """Bytes from one row of the window to the next (0: it has one row); of packed columns from group to group."""
    if packed and formal.dtype == "bf16":
        return formal.shape[0].const * TERM_BYTES
    return 0 if window.row < 0 else row_bytes(formal.dtype, strides(formal)[window.row])


def emit_address(code: Code, formal: Formal, base: str, window: Window, read: ReadIndex, packed: bool = False) -> str:
    """The address of the window's first element."""
    offset = "0"
    for start, stride in zip(window.start, strides(formal, packed), strict=True):
        offset = code.add(code.mul(read(start), stride), offset)
    return code.at(base, byte_offset(code, formal.dtype, offset))


def emit_box(code: Code, formal: Formal, base: str, window: Window, read: ReadIndex, scope: Scope) -> Box:
    """The clipped window."""
    last = len(window.size) - 1
    columns = _clipped(code, window, last, formal.shape[last], read, scope)
    rows = "1" if window.row < 0 else _clipped(code, window, window.row, formal.shape[window.row], read, scope)
    for d, start in enumerate(window.start):
        if d not in (window.row, last) and isinstance(start, Quasi):
            rows = code.mul(rows, _clipped(code, window, d, formal.shape[d], read, scope))
    address = emit_address(code, formal, base, window, read)
    return Box(address, rows, columns, window_row_bytes(formal, window))


def _clipped(code: Code, window: Window, d: int, extent: Quasi, read: ReadIndex, scope: Scope) -> str:
    """How many of the indices of a dimension are inside; an index read at run time always is."""
    start = window.start[d]
    if not isinstance(start, Quasi):
        return str(window.size[d])
    rest = emit_index(code, extent - start, scope)
    return code.greatest(code.least(rest, str(window.size[d])), "0")


def emit_copy(
    code: Code, dtype: str, target: tuple[str, str | int], source: tuple[str, str | int], rows: str, columns: str
) -> None:
    """Copy rows of `columns` elements; (address, bytes from row to row) each. Columns of types in blocks are whole
    blocks.
    """
    if not columns.startswith("%"):
        block = block_elements(dtype)
        columns = str(-(-int(columns) // block) * block)
    size = byte_offset(code, dtype, columns)
    with code.loop(rows) as row:
        to, origin = (code.at(address, code.mul(row, stride)) for address, stride in (target, source))
        code.call(
            "llvm.memcpy.p0.p0.i64",
            "void",
            f"ptr align 1 {to}, ptr align 1 {origin}, i64 {size}, i1 false",
            "ptr, ptr, i64, i1",
        )
