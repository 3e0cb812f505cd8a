"""Packed weights: what each form is, and packing, which is code of the program's module.

q8_0     groups of 16 rows, the last one padded, each as long as 16 stored rows: per block of 32 eight registers of 16
         rows x 4 bytes (quant + 128), and behind all blocks 16 f16 scales a block. So the address of a row that is a
         multiple of 16 is what it was.
bf16     groups of 64 columns, the last one padded with 0: per pair of rows 64 words of 32 bits, the earlier row in the
         high half.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from pavane.ir.types import Q8_BLOCK_BYTES, row_bytes
from pavane.native.elements import load_raw_lanes
from pavane.native.kernels_packed import GROUP_ROWS, QUANTS
from pavane.native.kernels_pairs import GROUP_COLUMNS, TERM_BYTES
from pavane.native.text import LANES, Code, Module, shuffle

_PARAMETERS = "ptr noalias %out, ptr %in, i64 %first, i64 %last, i64 %rows, i64 %columns"
_INTS = f"<{LANES} x i32>"
FORM = 1  # of all forms together: another number for any change of the bytes, which files on disk hold
_LEAST_BYTES = 1 << 20  # a share of work that is worth a thread
_ENTRY = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


class Form(NamedTuple):
    """So many rows (0) or columns (1) are a group; `define` writes the function `entry(out, in, first, last, rows,
    columns)`, which packs the groups first .. last-1 of a tensor.
    """

    entry: str
    define: Callable[[Module, str], None]
    dimension: int
    group: int


def packed_bytes(dtype: str, rows: int, columns: int) -> int:
    """Of the packed copy of a tensor: as stored, whole groups of it."""
    extents, form = [rows, columns], FORMS[dtype]
    extents[form.dimension] = _groups(form, rows, columns) * form.group
    return extents[0] * row_bytes(dtype, extents[1])


def _groups(form: Form, rows: int, columns: int) -> int:
    return -(-(rows, columns)[form.dimension] // form.group)


def pack_weight(
    entry: int, dtype: str, source: np.ndarray, rows: int, columns: int, threads: int, out: np.ndarray
) -> None:
    """`source` and `out` are bytes; the work is shared by so many threads."""
    pack, groups = _ENTRY(entry), _groups(FORMS[dtype], rows, columns)
    count = max(1, min(threads, groups, source.size // _LEAST_BYTES))
    bounds = [groups * i // count for i in range(count + 1)]

    def share(number: int) -> None:
        pack(out.ctypes.data, source.ctypes.data, bounds[number], bounds[number + 1], rows, columns)

    if count == 1:
        share(0)
        return
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(share, range(count)))


def define_packing(module: Module) -> None:
    """The entry points of all forms."""
    for form in FORMS.values():
        form.define(module, form.entry)


# --- blocks of quants -------------------------------------------------------------------------------------------------


def _define_blocks(module: Module, entry: str) -> None:
    code = Code(module, entry, _PARAMETERS, attributes="nounwind")
    blocks = code.value("lshr exact i64 %columns, 5")
    row_bytes = code.mul(blocks, Q8_BLOCK_BYTES)
    group_bytes = code.mul(row_bytes, GROUP_ROWS)
    with code.loop("%last", start="%first") as group, code.loop(blocks) as block:
        first = code.mul(group, GROUP_ROWS)
        # A row beyond the last repeats it; nothing reads what comes of it.
        rows = [code.least(code.add(first, str(i)), code.sub("%rows", "1")) for i in range(GROUP_ROWS)]
        offset = code.mul(block, Q8_BLOCK_BYTES)
        places = [code.at("%in", code.add(code.mul(row, row_bytes), offset)) for row in rows]
        target = code.at("%out", code.mul(group, group_bytes))
        _pack_block(code, places, target, block, blocks)
    code.finish()


def _pack_block(code: Code, places: list[str], target: str, block: str, blocks: str) -> None:
    scales = code.at(target, code.add(code.mul(blocks, QUANTS), code.mul(block, 2 * GROUP_ROWS)))
    for i, place in enumerate(places):
        code.store("i16", code.load("i16", place), code.at(scales, str(2 * i)))
    vectors = [code.load("<8 x i32>", code.at(place, "2")) for place in places]
    flip = "<" + ", ".join(["i32 -2139062144"] * LANES) + ">"  # 0x80808080
    at = code.at(target, code.mul(block, QUANTS))
    for dot, vector in enumerate(_transposed(code, vectors)):
        code.store(f"<{LANES} x i32>", code.value(f"xor <{LANES} x i32> {vector}, {flip}"), code.at(at, str(64 * dot)))


def _transposed(code: Code, vectors: list[str]) -> list[str]:
    """16 vectors of 8 as 8 vectors of 16: neighbours are interleaved until each holds one place of all."""
    width = 8
    while len(vectors) > 8:
        half = len(vectors) // 2
        vectors = [
            shuffle(code, "i32", width, vectors[i], vectors[i + half], list(range(2 * width))) for i in range(half)
        ]
        width *= 2
    # vectors[i] holds rows i and i + 8; three rounds of exchanging between pairs at distances 4, 2, 1.
    rows = [(i, i + 8) for i in range(8)]
    lanes = [[(row, place) for row in pair for place in range(8)] for pair in rows]
    return _sorted_lanes(code, vectors, lanes)


def _sorted_lanes(code: Code, vectors: list[str], lanes: list[list[tuple[int, int]]]) -> list[str]:
    """Bring every place's 16 rows into one vector: per bit of the place, pairs of vectors exchange halves."""
    for bit in (4, 2, 1):
        out, places = list(vectors), [list(line) for line in lanes]
        for i in range(8):
            if i & bit:
                continue
            j = i | bit
            both = [
                *((0, n, what) for n, what in enumerate(lanes[i])),
                *((LANES, n, what) for n, what in enumerate(lanes[j])),
            ]
            for target, wanted in ((i, 0), (j, bit)):
                picked = [(base + n, what) for base, n, what in both if what[1] & bit == wanted]
                picked.sort(key=lambda p: (p[1][1], p[1][0]))
                out[target] = shuffle(code, "i32", LANES, vectors[i], vectors[j], [p for p, _ in picked])
                places[target] = [what for _, what in picked]
        vectors, lanes = out, places
    return vectors


# --- pairs of rows ----------------------------------------------------------------------------------------------------


def _define_pairs(module: Module, entry: str) -> None:
    code = Code(module, entry, _PARAMETERS, attributes="nounwind")
    row_bytes, group_bytes = code.mul("%columns", 2), code.mul("%rows", TERM_BYTES)
    with code.loop("%last", start="%first") as group, code.loop("%rows", step=2) as row:
        rows = [code.at("%in", code.mul(code.add(row, str(i)), row_bytes)) for i in (0, 1)]
        target = code.at(code.at("%out", code.mul(group, group_bytes)), code.mul(row, TERM_BYTES))
        for first in range(0, GROUP_COLUMNS, LANES):
            column = code.add(code.mul(group, GROUP_COLUMNS), str(first))
            mask = code.mask(code.sub("%columns", column))
            words = [_words(code, code.at(place, code.mul(column, 2)), mask) for place in rows]
            high = code.value(f"shl {_INTS} {words[0]}, {code.splat('i32', LANES, '16')}")
            code.store(_INTS, code.value(f"or {_INTS} {high}, {words[1]}"), code.at(target, str(4 * first)))
    code.finish()


def _words(code: Code, place: str, mask: str) -> str:
    """16 elements of 16 bits in words of 32."""
    return code.value(f"zext <{LANES} x i16> {load_raw_lanes(code, 'i16', place, mask)} to {_INTS}")


FORMS = {
    "q8_0": Form("pack_blocks", _define_blocks, 0, GROUP_ROWS),
    "bf16": Form("pack_pairs", _define_pairs, 1, GROUP_COLUMNS),
}
