"""The kernel for q8_0 by q8_0 along K: `dst[r, c] += a[r, :] . b[c, :]`, by blocks of 32.

Tree: in each block, lane i of 8 is the integer sum of products 4i .. 4i+3 (exact), converted to f32 and added by a
fused multiply-add with (scale of a * scale of b, exact in f32) to the lane's sum, blocks in ascending order; lanes are
added pairwise by halving, then to dst. With vpdpbusd, a + 128 is the unsigned operand and 128 * sum(b) is taken off:
the same integers as the portable form. One row of a: b is a stream, four rows at a time with prefetch. More rows: two
rows of b share a wide register where there is one.
"""

from __future__ import annotations

from typing import NamedTuple

from pavane.ir.types import Q8_BLOCK
from pavane.native.cpu import Cpu
from pavane.native.elements import load_scale_lanes
from pavane.native.kernels_dot import COLUMNS, PARAMETERS, prefetch, prefetch_row, prefetch_rows
from pavane.native.text import Code, Module, halving_sums, shuffle

LANES = 8
_BLOCK_BYTES = 34


def block_kernel(module: Module, cpu: Cpu) -> str:
    """The kernel's name; it is written on its first use."""
    name = "dot_blocks"
    if not module.has(name):
        code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
        with code.when(code.value("icmp eq i64 %rows, 1")):
            _columns(code, cpu, rows_at_once=1, stream=True)
        with code.when(code.value("icmp sgt i64 %rows, 1")):
            _columns(code, cpu, rows_at_once=4 if cpu.wide else 1, stream=False)
        code.finish()
    return name


def _columns(code: Code, cpu: Cpu, rows_at_once: int, stream: bool) -> None:
    """All of b, some of its rows at a time; for each, all rows of a."""
    wide = cpu.wide_block_dot and not stream
    ahead, start = prefetch_rows(code), "0"
    for count in (2 * COLUMNS, COLUMNS, 1) if wide else (COLUMNS, 1):
        tile = _Tile(code, cpu.block_dot, together=2 if wide and count > 1 else 1)
        stop = code.add(start, code.value(f"and i64 {code.sub('%cols', start)}, {-count}"))
        with code.loop(stop, start=start, step=count) as c:
            b_rows = [code.at("%b", code.mul(code.add(c, str(i)), "%b_row")) for i in range(count)]
            streams = [prefetch_row(code, code.add(c, str(i)), ahead) for i in range(count)] if stream else []
            grouped = code.value(f"and i64 %rows, {-rows_at_once}")
            parts = (("0", grouped, rows_at_once), (grouped, "%rows", 1)) if rows_at_once > 1 else (("0", "%rows", 1),)
            for first, last, lines in parts:
                with code.loop(last, start=first, step=lines) as r:
                    tile.add([code.add(r, str(i)) for i in range(lines)], c, b_rows, streams)
        start = stop


class _Right(NamedTuple):
    """A block of b, or of two rows of b side by side: quants, what an integer sum starts from, scales."""

    quants: str
    start: str
    scale: str


class _Tile:
    """A register tile: some rows of a against some of b, over all blocks; `together` rows of b share a register."""

    def __init__(self, code: Code, block_dot: bool, together: int) -> None:
        self.code, self.block_dot, self.together = code, block_dot, together
        self.lanes = LANES * together
        self.floats, self.ints = f"<{self.lanes} x float>", f"<{self.lanes} x i32>"
        self.flip = "<" + ", ".join(["i32 -2139062144"] * self.lanes) + ">"  # 0x80808080

    def add(self, rows: list[str], c: str, b_rows: list[str], streams: list[str]) -> None:
        code = self.code
        a_rows = [code.at("%a", code.mul(row, "%a_row")) for row in rows]
        groups = [b_rows[i : i + self.together] for i in range(0, len(b_rows), self.together)]
        sums = [[code.slot(self.floats) for _ in groups] for _ in rows]
        for place in (p for line in sums for p in line):
            code.store(self.floats, "zeroinitializer", place, 32)
        with code.loop(code.value(f"lshr exact i64 %k, {Q8_BLOCK.bit_length() - 1}")) as block:
            offset = code.mul(block, _BLOCK_BYTES)
            for stream in streams:
                prefetch(code, code.at(stream, offset))
            right = [self._right([code.at(b, offset) for b in group]) for group in groups]
            for a, line in zip(a_rows, sums, strict=True):
                self._block(code.at(a, offset), right, line)
        lines = [code.load(self.floats, p, 32) for line in sums for p in line]
        self._add_to_rows(halving_sums(code, lines, LANES, self.lanes), rows, c, len(b_rows))

    def _block(self, a: str, right: list[_Right], line: list[str]) -> None:
        code = self.code
        quants = self._beside([code.load("<8 x i32>", code.at(a, "2"))] * self.together, "i32")
        if self.block_dot:
            quants = code.value(f"xor {self.ints} {quants}, {self.flip}")
        scale = load_scale_lanes(code, a, self.lanes)
        for other, place in zip(right, line, strict=True):
            whole = self._dot(other.start, quants, other.quants)
            numbers = code.value(f"sitofp {self.ints} {whole} to {self.floats}")
            both = code.value(f"fmul {self.floats} {scale}, {other.scale}")
            f = self.floats
            arguments = f"{f} {numbers}, {f} {both}, {f} {code.load(f, place, 32)}"
            code.store(f, code.call(f"llvm.fma.v{self.lanes}f32", f, arguments, f"{f}, {f}, {f}"), place, 32)

    def _right(self, blocks: list[str]) -> _Right:
        code = self.code
        quants = self._beside([code.load("<8 x i32>", code.at(b, "2")) for b in blocks], "i32")
        start = "zeroinitializer"
        if self.block_dot:
            start = code.value(f"sub {self.ints} zeroinitializer, {self._dot('zeroinitializer', self.flip, quants)}")
        return _Right(quants, start, self._beside([load_scale_lanes(code, b, LANES) for b in blocks], "float"))

    def _beside(self, parts: list[str], kind: str) -> str:
        """Vectors of 8 lanes side by side."""
        return (
            parts[0] if len(parts) == 1 else shuffle(self.code, kind, LANES, parts[0], parts[1], list(range(2 * LANES)))
        )

    def _dot(self, start: str, left: str, right: str) -> str:
        code, ints = self.code, self.ints
        if self.block_dot:
            # Written with the operand types of older LLVM; newer ones read it as their own.
            name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
            return code.call(name, ints, f"{ints} {start}, {ints} {left}, {ints} {right}", f"{ints}, {ints}, {ints}")
        wide = [
            code.value(f"sext <32 x i8> {code.value(f'bitcast {ints} {v} to <32 x i8>')} to <32 x i32>")
            for v in (left, right)
        ]
        products = code.value(f"mul <32 x i32> {wide[0]}, {wide[1]}")
        parts = [shuffle(code, "i32", 32, products, "poison", [4 * i + p for i in range(LANES)]) for p in range(4)]
        pairs = [code.value(f"add {ints} {parts[p]}, {parts[p + 1]}") for p in (0, 2)]
        return code.value(f"add {ints} {pairs[0]}, {pairs[1]}")

    def _add_to_rows(self, total: str, rows: list[str], c: str, columns: int) -> None:
        code, count, kind = self.code, len(rows) * columns, f"<{columns} x float>"
        for i, row in enumerate(rows):
            target = code.at("%dst", code.add(code.mul(row, "%dst_row"), code.mul(c, 4)))
            picks = ", ".join(f"i32 {i * columns + j}" for j in range(columns))
            part = code.value(
                f"shufflevector <{count} x float> {total}, <{count} x float> poison, <{columns} x i32> <{picks}>"
            )
            code.store(kind, code.value(f"fadd {kind} {code.load(kind, target)}, {part}"), target)
