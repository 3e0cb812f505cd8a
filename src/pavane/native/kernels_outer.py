"""Kernels for products across rows of b: `dst[r, c] += a[r, j] * b[j, c]`, every term added to dst in ascending j
(fused or not).

16 columns share a register; a's element is broadcast. Sums stay in registers over all j. With many rows of a, 64
columns of b are first brought together in scratch, as f32: they are met with all rows from there. Of q8_0, b's columns
start at a multiple of 16.

Both in bf16, many rows and an even k, on a processor with vdpbf16ps: it adds two products by two fused multiply-adds,
the one of the high halves first, so with the earlier j in the high half the order and every bit are the same (but
numbers below 2**-126, which it takes and gives as 0).
"""

from __future__ import annotations

from pavane.native.cpu import Cpu
from pavane.native.elements import load_element, load_lanes, store_lanes
from pavane.native.kernels_dot import PARAMETERS, multiply_add
from pavane.native.text import F32, LANES, Code, Module

VECTORS = 4
TOGETHER_BYTES = LANES * VECTORS * 4  # of one row of b in scratch
_LEAST_ROWS = 8
_INTS = f"<{LANES} x i32>"


def outer_kernel(module: Module, a: str, b: str, fused: bool, cpu: Cpu) -> str:
    """The kernel's name; it is written on its first use."""
    name = f"outer_{a}_{b}_{'fused' if fused else 'separate'}"
    if not module.has(name):
        code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
        rows_at_once, vectors = (4, VECTORS) if cpu.wide else (2, 2)
        tile = _Tile(code, (a, b), fused)
        whole = code.value(f"and i64 %cols, {-LANES * vectors}")
        many = code.value(f"icmp sge i64 %rows, {_LEAST_ROWS}")
        few = code.value(f"xor i1 {many}, true")
        if cpu.pair_dot and fused and a == b == "bf16":
            even = code.value(f"icmp eq i64 {code.value('and i64 %k, 1')}, 0")
            both = code.value(f"and i1 {many}, {even}")
            with code.when(both):
                _pairs(code, whole, vectors, rows_at_once)
            many = code.value(f"and i1 {many}, {code.value(f'xor i1 {even}, true')}")
        with code.when(many), code.loop(whole, step=LANES * vectors) as c:
            _bring_together(code, b, c, vectors)
            near = _Tile(code, (a, "f32"), fused, near=True)
            _all_rows(near, c, vectors, None, rows_at_once)
        with code.when(few), code.loop(whole, step=LANES * vectors) as c:
            _all_rows(tile, c, vectors, None, rows_at_once)
        with code.loop("%cols", start=whole, step=LANES) as c:
            _all_rows(tile, c, 1, code.mask(code.sub("%cols", c)), rows_at_once)
        code.finish()
    return name


def _bring_together(code: Code, dtype: str, c: str, vectors: int) -> None:
    with code.loop("%k") as j:
        source, target = code.at("%b", code.mul(j, "%b_row")), code.at("%scratch", code.mul(j, TOGETHER_BYTES))
        for v in range(vectors):
            lanes = load_lanes(code, dtype, source, code.add(c, str(LANES * v)), None)
            code.store(F32, lanes, code.at(target, str(4 * LANES * v)), 64)


def near_bytes(rows: int, k: int) -> int:
    """Scratch that a product needs: 64 columns of b, and its rows of a in pairs."""
    return k * (TOGETHER_BYTES + 2 * rows)


def _pairs(code: Code, whole: str, vectors: int, rows_at_once: int) -> None:
    """Rows of a with the halves of each pair exchanged, then b's columns in pairs of rows."""
    area, stride = code.at("%scratch", code.mul("%k", TOGETHER_BYTES)), code.mul("%k", 2)
    with code.loop("%rows") as r:
        source, target = code.at("%a", code.mul(r, "%a_row")), code.at(area, code.mul(r, stride))
        with code.loop(stride, step=4) as place:
            pair = code.load("i32", code.at(source, place))
            swapped = code.call("llvm.fshl.i32", "i32", f"i32 {pair}, i32 {pair}, i32 16", "i32, i32, i32")
            code.store("i32", swapped, code.at(target, place), 4)
    with code.loop(whole, step=LANES * vectors) as c:
        _bring_pairs_together(code, c, vectors)
        _all_rows(_PairTile(code, area, stride), c, vectors, None, rows_at_once)


def _bring_pairs_together(code: Code, c: str, vectors: int) -> None:
    narrow = f"<{LANES} x i16>"
    with code.loop("%k", step=2) as j:
        source, target = code.at("%b", code.mul(j, "%b_row")), code.at("%scratch", code.mul(j, TOGETHER_BYTES // 2))
        for v in range(vectors):
            place = code.at(source, code.mul(code.add(c, str(LANES * v)), 2))
            first, second = (code.load(narrow, p) for p in (place, code.at(place, "%b_row")))
            high = code.value(f"zext {narrow} {first} to {_INTS}")
            high = code.value(f"shl {_INTS} {high}, {code.splat('i32', LANES, '16')}")
            low = code.value(f"zext {narrow} {second} to {_INTS}")
            code.store(_INTS, code.value(f"or {_INTS} {high}, {low}"), code.at(target, str(4 * LANES * v)), 64)


class _Tile:
    """A register tile; `near`: b's columns from c on are in scratch."""

    def __init__(self, code: Code, dtypes: tuple[str, str], fused: bool, near: bool = False) -> None:
        self.code, self.dtypes, self.fused, self.near = code, dtypes, fused, near
        self.a, self.a_row, self.step = "%a", "%a_row", 1

    def add(self, rows: list[str], c: str, vectors: int, mask: str | None) -> None:
        code = self.code
        a_rows = [code.at(self.a, code.mul(r, self.a_row)) for r in rows]
        targets = [code.at("%dst", code.mul(r, "%dst_row")) for r in rows]
        columns = [code.add(c, str(LANES * v)) for v in range(vectors)]
        sums = [[code.slot(F32) for _ in columns] for _ in rows]
        for target, places in zip(targets, sums, strict=True):
            for column, place in zip(columns, places, strict=True):
                code.store(F32, load_lanes(code, "f32", target, column, mask), place, 64)
        with code.loop("%k", step=self.step) as j:
            self._turn(j, a_rows, columns, sums, mask)
        for target, places in zip(targets, sums, strict=True):
            for column, place in zip(columns, places, strict=True):
                store_lanes(code, "f32", target, column, code.load(F32, place, 64), mask)

    def _turn(self, j: str, a_rows: list[str], columns: list[str], sums: list[list[str]], mask: str | None) -> None:
        code = self.code
        b_lanes = self._row_of_b(j, columns, mask)
        for a_row, places in zip(a_rows, sums, strict=True):
            x = code.splat("float", LANES, load_element(code, self.dtypes[0], a_row, j))
            for y, place in zip(b_lanes, places, strict=True):
                code.store(F32, multiply_add(code, x, y, code.load(F32, place, 64), self.fused), place, 64)

    def _row_of_b(self, j: str, columns: list[str], mask: str | None) -> list[str]:
        code = self.code
        if self.near:
            row = code.at("%scratch", code.mul(j, TOGETHER_BYTES))
            return [code.load(F32, code.at(row, str(4 * LANES * v)), 64) for v in range(len(columns))]
        row = code.at("%b", code.mul(j, "%b_row"))
        return [load_lanes(code, self.dtypes[1], row, column, mask) for column in columns]


class _PairTile(_Tile):
    """Two terms a turn; b's pairs are in scratch, a's (exchanged) at `a`."""

    def __init__(self, code: Code, a: str, a_row: str) -> None:
        super().__init__(code, ("bf16", "bf16"), fused=True, near=True)
        self.a, self.a_row, self.step = a, a_row, 2

    def _turn(self, j: str, a_rows: list[str], columns: list[str], sums: list[list[str]], mask: str | None) -> None:
        code = self.code
        row = code.at("%scratch", code.mul(j, TOGETHER_BYTES // 2))
        pairs = [code.load(_INTS, code.at(row, str(4 * LANES * v)), 64) for v in range(len(columns))]
        for a_row, places in zip(a_rows, sums, strict=True):
            x = code.splat("i32", LANES, code.load("i32", code.at(a_row, code.mul(j, 2)), 4))
            for y, place in zip(pairs, places, strict=True):
                # Written with the operand types of older LLVM; newer ones read it as their own.
                arguments = f"{F32} {code.load(F32, place, 64)}, {_INTS} {x}, {_INTS} {y}"
                kinds = f"{F32}, {_INTS}, {_INTS}"
                code.store(F32, code.call("llvm.x86.avx512bf16.dpbf16ps.512", F32, arguments, kinds), place, 64)


def _all_rows(tile: _Tile, c: str, vectors: int, mask: str | None, rows_at_once: int) -> None:
    code = tile.code
    grouped = code.value(f"and i64 %rows, {-rows_at_once}")
    for start, stop, count in (("0", grouped, rows_at_once), (grouped, "%rows", 1)):
        with code.loop(stop, start=start, step=count) as r:
            tile.add([code.add(r, str(i)) for i in range(count)], c, vectors, mask)
