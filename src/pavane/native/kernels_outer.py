"""Kernels for products across rows of b: `dst[r, c] += a[r, j] * b[j, c]`, every term added to dst in ascending j
(fused or not).

16 columns share a register; a's element is broadcast. Few rows of a: sums stay in registers over all j. Many rows: j in
parts, and of each part 64 columns of b are first brought together in scratch, as f32, so much as the nearest cache
holds; all rows meet them there. Of q8_0, b's columns start at a multiple of 16.

Both in bf16, many rows and an even k, on a processor with vdpbf16ps: it adds two products by two fused multiply-adds,
the one of the high halves first, so with the earlier j in the high half the order and every bit are the same (but
numbers below 2**-126, which it takes and gives as 0).
"""

from __future__ import annotations

from pavane.native.cpu import Cpu
from pavane.native.elements import byte_offset, load_element, load_lanes, store_lanes
from pavane.native.kernels_dot import PARAMETERS, multiply_add
from pavane.native.text import F32, LANES, Code, Module, shuffle

VECTORS = 4
_ROW_BYTES = LANES * VECTORS * 4  # of one row of b in scratch
_PAIR_BYTES = _ROW_BYTES // 2  # of a bf16 row, two of which share their place
_NEAR_BYTES = 32 << 10  # of b in scratch at once
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
            with code.when(code.value(f"and i1 {many}, {even}")):
                _in_parts(_Pairs(code), whole, vectors, rows_at_once)
            many = code.value(f"and i1 {many}, {code.value(f'xor i1 {even}, true')}")
        with code.when(many):
            _in_parts(_Near(code, (a, b), fused), whole, vectors, rows_at_once)
        with code.when(few), code.loop(whole, step=LANES * vectors) as c:
            _all_rows(tile, c, vectors, None, rows_at_once)
        with code.loop("%cols", start=whole, step=LANES) as c:
            _all_rows(tile, c, 1, code.mask(code.sub("%cols", c)), rows_at_once)
        code.finish()
    return name


def near_bytes(rows: int, k: int) -> int:
    """Scratch that a product needs: 64 columns of b, and its rows of a in pairs."""
    in_pairs = min(k, _Pairs.most) * (_PAIR_BYTES + 2 * rows)
    return max(min(k, _Near.most) * _ROW_BYTES, in_pairs)


class _Tile:
    """A register tile: some rows of a against some columns of b, over `depth` terms from `a` and `b` on."""

    step = 1

    def __init__(self, code: Code, dtypes: tuple[str, str], fused: bool) -> None:
        self.code, self.dtypes, self.fused = code, dtypes, fused
        self.a, self.a_row, self.b, self.depth = "%a", "%a_row", "%b", "%k"

    def add(self, rows: list[str], c: str, vectors: int, mask: str | None) -> None:
        code = self.code
        a_rows = [code.at(self.a, code.mul(r, self.a_row)) for r in rows]
        targets = [code.at("%dst", code.mul(r, "%dst_row")) for r in rows]
        columns = [code.add(c, str(LANES * v)) for v in range(vectors)]
        sums = [[code.slot(F32) for _ in columns] for _ in rows]
        for target, places in zip(targets, sums, strict=True):
            for column, place in zip(columns, places, strict=True):
                code.store(F32, load_lanes(code, "f32", target, column, mask), place, 64)
        with code.loop(self.depth, step=self.step) as j:
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
        row = code.at(self.b, code.mul(j, "%b_row"))
        return [load_lanes(code, self.dtypes[1], row, column, mask) for column in columns]


class _Near(_Tile):
    """The same where b's columns are in scratch, as f32; `most` terms of them."""

    most = _NEAR_BYTES // _ROW_BYTES

    def begin(self, first: str) -> None:
        """The terms from `first` on."""
        code = self.code
        self.a = code.at("%a", byte_offset(code, self.dtypes[0], first))
        self.b = code.at("%b", code.mul(first, "%b_row"))
        self.depth = code.least(code.sub("%k", first), str(self.most))

    def bring(self, c: str, vectors: int) -> None:
        """Columns of b to scratch."""
        code = self.code
        with code.loop(self.depth) as j:
            source, target = code.at(self.b, code.mul(j, "%b_row")), code.at("%scratch", code.mul(j, _ROW_BYTES))
            for v in range(vectors):
                lanes = load_lanes(code, self.dtypes[1], source, code.add(c, str(LANES * v)), None)
                code.store(F32, lanes, code.at(target, str(4 * LANES * v)), 64)

    def _row_of_b(self, j: str, columns: list[str], mask: str | None) -> list[str]:
        row = self.code.at("%scratch", self.code.mul(j, _ROW_BYTES))
        return [self.code.load(F32, self.code.at(row, str(4 * LANES * v)), 64) for v in range(len(columns))]


class _Pairs(_Near):
    """Two terms a turn: scratch has b's rows in pairs, and behind them a's with the halves of each pair exchanged."""

    step, most = 2, _NEAR_BYTES // _PAIR_BYTES

    def __init__(self, code: Code) -> None:
        super().__init__(code, ("bf16", "bf16"), fused=True)

    def begin(self, first: str) -> None:
        super().begin(first)
        code, source = self.code, self.a
        self.a_row = code.mul(self.depth, 2)
        self.a = code.at("%scratch", code.mul(self.depth, _PAIR_BYTES))
        with code.loop("%rows") as r:
            row = code.at(source, code.mul(r, "%a_row"))
            _exchange_halves(code, code.at(self.a, code.mul(r, self.a_row)), row, self.a_row)

    def bring(self, c: str, vectors: int) -> None:
        """Two rows at a time, element by element side by side: the first in the high half."""
        code, halves = self.code, 2 * LANES
        with code.loop(self.depth, step=2) as j:
            source = code.at(self.b, code.mul(j, "%b_row"))
            target = code.at("%scratch", code.mul(j, _PAIR_BYTES))
            for v in range(0, vectors, 2):
                place = code.at(source, code.mul(code.add(c, str(LANES * v)), 2))
                first, second = (code.load(f"<{halves} x i16>", p) for p in (place, code.at(place, "%b_row")))
                for part in (0, 1):
                    picks = [side + LANES * part + i for i in range(LANES) for side in (halves, 0)]
                    both = shuffle(code, "i16", halves, first, second, picks)
                    code.store(f"<{halves} x i16>", both, code.at(target, str(4 * LANES * (v + part))), 64)

    def _turn(self, j: str, a_rows: list[str], columns: list[str], sums: list[list[str]], mask: str | None) -> None:
        code = self.code
        row = code.at("%scratch", code.mul(j, _PAIR_BYTES))
        pairs = [code.load(_INTS, code.at(row, str(4 * LANES * v)), 64) for v in range(len(columns))]
        for a_row, places in zip(a_rows, sums, strict=True):
            x = code.splat("i32", LANES, code.load("i32", code.at(a_row, code.mul(j, 2)), 4))
            for y, place in zip(pairs, places, strict=True):
                # Written with the operand types of older LLVM; newer ones read it as their own.
                arguments = f"{F32} {code.load(F32, place, 64)}, {_INTS} {x}, {_INTS} {y}"
                kinds = f"{F32}, {_INTS}, {_INTS}"
                code.store(F32, code.call("llvm.x86.avx512bf16.dpbf16ps.512", F32, arguments, kinds), place, 64)


def _exchange_halves(code: Code, target: str, source: str, size: str) -> None:
    """`size` bytes in words of 32 bits, each turned by 16; 16 words at a time, then what is left."""
    together = code.value(f"and i64 {size}, {-4 * LANES}")
    for start, stop, words in (("0", together, LANES), (together, size, 1)):
        kind, name = (_INTS, f"v{LANES}i32") if words > 1 else ("i32", "i32")
        half = code.splat("i32", LANES, "16") if words > 1 else "16"
        with code.loop(stop, start=start, step=4 * words) as place:
            pair = code.load(kind, code.at(source, place))
            arguments = f"{kind} {pair}, {kind} {pair}, {kind} {half}"
            turned = code.call(f"llvm.fshl.{name}", kind, arguments, f"{kind}, {kind}, {kind}")
            code.store(kind, turned, code.at(target, place))


def _in_parts(tile: _Near, whole: str, vectors: int, rows_at_once: int) -> None:
    """The whole columns, a part of the terms after the other."""
    code = tile.code
    with code.loop("%k", step=tile.most) as first:
        tile.begin(first)
        with code.loop(whole, step=LANES * vectors) as c:
            tile.bring(c, vectors)
            _all_rows(tile, c, vectors, None, rows_at_once)


def _all_rows(tile: _Tile, c: str, vectors: int, mask: str | None, rows_at_once: int) -> None:
    code = tile.code
    grouped = code.value(f"and i64 %rows, {-rows_at_once}")
    for start, stop, count in (("0", grouped, rows_at_once), (grouped, "%rows", 1)):
        with code.loop(stop, start=start, step=count) as r:
            tile.add([code.add(r, str(i)) for i in range(count)], c, vectors, mask)
