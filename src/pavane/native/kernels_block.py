"""The kernel for q8_0 by q8_0 along K: `dst[r, c] += a[r, :] . b[c, :]`, by blocks of 32.

Tree: in each block, lane i of 8 is the integer sum of products 4i .. 4i+3 (exact), converted to f32 and added by a fused multiply-add with
(scale of a * scale of b, exact in f32) to the lane's sum, blocks in ascending order; lanes are added pairwise by halving, then to dst.
With vpdpbusd, a + 128 is the unsigned operand and 128 * sum(b) is taken off: the same integers as the portable form.
"""

from __future__ import annotations

from pavane.ir.types import Q8_BLOCK
from pavane.native.cpu import Cpu
from pavane.native.elements import load_scale_lanes
from pavane.native.kernels_dot import COLUMNS, PARAMETERS, prefetch_row, prefetch_rows
from pavane.native.text import Code, Module, halving_sums, shuffle

LANES = 8
_F32, _I32, _I8 = f"<{LANES} x float>", f"<{LANES} x i32>", "<32 x i8>"
_FLIP = "<" + ", ".join(["i32 -2139062144"] * LANES) + ">"  # 0x80808080


def block_kernel(module: Module, cpu: Cpu) -> str:
    """The kernel's name; it is written on its first use."""
    name = "dot_blocks"
    if not module.has(name):
        code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
        tile = _Blocks(code, cpu.block_dot)
        for condition, rows_at_once in (("eq", 1), ("sgt", 4 if cpu.wide else 1)):
            with code.when(code.value(f"icmp {condition} i64 %rows, 1")):
                _columns(tile, rows_at_once)
        code.finish()
    return name


def _columns(tile: _Blocks, rows_at_once: int) -> None:
    """All of b, four rows at a time; for each, all rows of a. One row of a: b is a stream and is prefetched."""
    code = tile.code
    ahead = prefetch_rows(code)
    whole = code.value(f"and i64 %cols, {-COLUMNS}")
    for start, stop, count in (("0", whole, COLUMNS), (whole, "%cols", 1)):
        with code.loop(stop, start=start, step=count) as c:
            b_rows = [code.at("%b", code.mul(code.add(c, str(i)), "%b_row")) for i in range(count)]
            streams = [prefetch_row(code, code.add(c, str(i)), ahead) for i in range(count)] if rows_at_once == 1 else []
            grouped = code.value(f"and i64 %rows, {-rows_at_once}")
            parts = (("0", grouped, rows_at_once), (grouped, "%rows", 1)) if rows_at_once > 1 else (("0", "%rows", 1),)
            for first, last, lines in parts:
                with code.loop(last, start=first, step=lines) as r:
                    tile.tile(r, lines, c, b_rows, streams)


class _Blocks:
    """A register tile: some rows of a against some rows of b, over all blocks."""

    def __init__(self, code: Code, block_dot: bool) -> None:
        self.code, self.block_dot = code, block_dot

    def tile(self, r: str, lines: int, c: str, b_rows: list[str], streams: list[str]) -> None:
        code = self.code
        indices = [code.add(r, str(i)) for i in range(lines)]
        a_rows = [code.at("%a", code.mul(index, "%a_row")) for index in indices]
        sums = [code.slot(_F32) for _ in a_rows for _ in b_rows]
        for place in sums:
            code.store(_F32, "zeroinitializer", place, 32)
        blocks = code.value(f"lshr exact i64 %k, {Q8_BLOCK.bit_length() - 1}")
        with code.loop(blocks) as block:
            offset = code.mul(block, 34)
            for stream in streams:
                code.call("llvm.prefetch.p0", "void", f"ptr {code.at(stream, offset)}, i32 0, i32 3, i32 1", "ptr, i32, i32, i32")
            self._block([code.at(a, offset) for a in a_rows], [code.at(b, offset) for b in b_rows], sums)
        total = halving_sums(code, [code.load(_F32, place, 32) for place in sums], LANES)
        self._add_to_rows(total, indices, c, len(b_rows))

    def _block(self, a_blocks: list[str], b_blocks: list[str], sums: list[str]) -> None:
        code = self.code
        right = [self._right(b) for b in b_blocks]
        for i, a in enumerate(a_blocks):
            quants = code.load(_I32, code.at(a, "2"))
            if self.block_dot:
                quants = code.value(f"xor {_I32} {quants}, {_FLIP}")
            scale = load_scale_lanes(code, a, LANES)
            for j, (other, correction, other_scale) in enumerate(right):
                whole = self._dot(correction, quants, other)
                floats = code.value(f"sitofp {_I32} {whole} to {_F32}")
                both = code.value(f"fmul {_F32} {scale}, {other_scale}")
                place = sums[i * len(b_blocks) + j]
                total = code.load(_F32, place, 32)
                arguments = f"{_F32} {floats}, {_F32} {both}, {_F32} {total}"
                code.store(_F32, code.call(f"llvm.fma.v{LANES}f32", _F32, arguments, f"{_F32}, {_F32}, {_F32}"), place, 32)

    def _right(self, block: str) -> tuple[str, str, str]:
        """Quants, what to start from, scale."""
        code = self.code
        quants = code.load(_I32, code.at(block, "2"))
        start = "zeroinitializer"
        if self.block_dot:
            start = code.value(f"sub {_I32} zeroinitializer, {self._dot('zeroinitializer', _FLIP, quants)}")
        return quants, start, load_scale_lanes(code, block, LANES)

    def _dot(self, start: str, left: str, right: str) -> str:
        code = self.code
        if self.block_dot:
            # Written with the operand types of older LLVM; newer ones read it as their own.
            arguments = f"{_I32} {start}, {_I32} {left}, {_I32} {right}"
            return code.call("llvm.x86.avx512.vpdpbusd.256", _I32, arguments, f"{_I32}, {_I32}, {_I32}")
        wide = [code.value(f"sext {_I8} {code.value(f'bitcast {_I32} {v} to {_I8}')} to <32 x i32>") for v in (left, right)]
        products = code.value(f"mul <32 x i32> {wide[0]}, {wide[1]}")
        parts = [shuffle(code, "i32", 32, products, "poison", [4 * i + p for i in range(LANES)]) for p in range(4)]
        pairs = [code.value(f"add {_I32} {parts[p]}, {parts[p + 1]}") for p in (0, 2)]
        return code.value(f"add {_I32} {pairs[0]}, {pairs[1]}")

    def _add_to_rows(self, total: str, indices: list[str], c: str, columns: int) -> None:
        code, count, kind = self.code, len(indices) * columns, f"<{columns} x float>"
        for i, index in enumerate(indices):
            target = code.at("%dst", code.add(code.mul(index, "%dst_row"), code.mul(c, 4)))
            picks = ", ".join(f"i32 {i * columns + j}" for j in range(columns))
            part = code.value(f"shufflevector <{count} x float> {total}, <{count} x float> poison, <{columns} x i32> <{picks}>")
            code.store(kind, code.value(f"fadd {kind} {code.load(kind, target)}, {part}"), target)
