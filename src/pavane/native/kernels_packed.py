"""The kernel for q8_0 by q8_0 along K over packed weights: `dst[r, c] += a[r, :] . b[c, :]`, by blocks of 32.

Tree: one lane. The integer sum of a block's 32 products (exact), converted to f32, is added to dst by a fused
multiply-add with (scale of a * scale of b, exact in f32), blocks in ascending order.

b is packed (`packing`): 16 rows share a register, four neighbouring bytes of each; its bytes are quant + 128. a is a
panel (`panels`): quants, then scales, then what a block's integer sum starts from, -128 * the sum of its quants. One
row of a: b is a stream with prefetch (`next` is where it goes on). More rows: four rows of a meet 32 rows of b in
registers, and every four rows prefetch their share of the next 32.
"""

from __future__ import annotations

from collections.abc import Callable

from pavane.ir.types import Q8_BLOCK
from pavane.native.cpu import Cpu
from pavane.native.elements import load_lanes, store_lanes
from pavane.native.kernels_dot import multiply_add, prefetch
from pavane.native.text import F32, LANES, Code, Module, shuffle

PARAMETERS = "ptr %dst, i64 %dst_row, ptr %a, i64 %a_row, ptr %b, i64 %b_row, i64 %rows, i64 %cols, i64 %k, ptr %next"
GROUP_ROWS = LANES  # rows of b side by side
QUANTS = GROUP_ROWS * Q8_BLOCK  # bytes of a block of a group; its scales take 2 * GROUP_ROWS more, behind all blocks
_BLOCK_BYTES = QUANTS + 2 * GROUP_ROWS
_INTS = f"<{LANES} x i32>"
_AHEAD_BYTES = 6144
_LINE_BYTES = 64
_DOTS = Q8_BLOCK // 4


def packed_kernel(module: Module, cpu: Cpu) -> str:
    """The kernel's name; it is written on its first use."""
    name = "packed_blocks"
    if not module.has(name):
        code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
        tile = _Tile(code, cpu)
        with code.when(code.value("icmp eq i64 %rows, 1")):
            _stream(code, tile)
        with code.when(code.value("icmp sgt i64 %rows, 1")):
            _blocks(code, tile, rows_at_once=4 if cpu.wide else 2)
        code.finish()
    return name


def panel_bytes(k: int) -> int:
    """Of one row of a panel: quants, f32 scales, i32 starts; rows begin at cache lines."""
    return -(-(k + 2 * 4 * (k // Q8_BLOCK)) // _LINE_BYTES) * _LINE_BYTES


def _stream(code: Code, tile: _Tile) -> None:
    """One row of a."""
    for start, stop, masked in _groups(code, GROUP_ROWS):
        with code.loop(stop, start=start, step=GROUP_ROWS) as c:
            mask = code.mask(code.sub("%cols", c)) if masked else None
            tile.add(["0"], c, [mask], tile.stream(c))


def _blocks(code: Code, tile: _Tile, rows_at_once: int) -> None:
    """All rows of a against two groups of b at a time, then one, then what is left of one."""
    paired = code.value(f"and i64 %cols, {-2 * GROUP_ROWS}")
    whole = code.value(f"and i64 %cols, {-GROUP_ROWS}")
    for start, stop, masks in (("0", paired, 2), (paired, whole, 1), (whole, "%cols", 0)):
        with code.loop(stop, start=start, step=GROUP_ROWS * max(masks, 1)) as c:
            found: list[str | None] = [None] * masks if masks else [code.mask(code.sub("%cols", c))]
            grouped = code.value(f"and i64 %rows, {-rows_at_once}")
            for first, last, count in (("0", grouped, rows_at_once), (grouped, "%rows", 1)):
                with code.loop(last, start=first, step=count) as r:
                    lines = [code.add(r, str(i)) for i in range(count)]
                    tile.add(lines, c, found, tile.share(c, r, count, len(found)))


def _groups(code: Code, step: int) -> tuple[tuple[str, str, bool], ...]:
    whole = code.value(f"and i64 %cols, {-step}")
    return ("0", whole, False), (whole, "%cols", True)


class _Tile:
    """A register tile: some rows of a against some groups of b, over all blocks."""

    def __init__(self, code: Code, cpu: Cpu) -> None:
        self.code, self.cpu = code, cpu
        self.blocks = code.value("lshr exact i64 %k, 5")
        self.scales = code.mul(self.blocks, QUANTS)
        self.stream_end = code.mul("%cols", "%b_row")

    def add(self, rows: list[str], c: str, masks: list[str | None], ahead: Callable[[str], None]) -> None:
        """Add to dst; `ahead` prefetches beside a block."""
        code = self.code
        a_rows = [code.at("%a", code.mul(r, "%a_row")) for r in rows]
        targets = [code.at("%dst", code.mul(r, "%dst_row")) for r in rows]
        columns = [code.add(c, str(GROUP_ROWS * g)) for g in range(len(masks))]
        groups = [code.at("%b", code.mul(column, "%b_row")) for column in columns]
        sums = [[code.slot(F32) for _ in groups] for _ in rows]
        for target, line in zip(targets, sums, strict=True):
            for column, mask, place in zip(columns, masks, line, strict=True):
                code.store(F32, load_lanes(code, "f32", target, column, mask), place, 64)
        with code.loop(self.blocks) as block:
            ahead(block)
            self._block(a_rows, groups, sums, block)
        for target, line in zip(targets, sums, strict=True):
            for column, mask, place in zip(columns, masks, line, strict=True):
                store_lanes(code, "f32", target, column, code.load(F32, place, 64), mask)

    def stream(self, c: str) -> Callable[[str], None]:
        """What is read some way on: in b, or where it goes on."""
        code = self.code

        def prefetch_block(block: str) -> None:
            here = code.add(code.mul(c, "%b_row"), code.mul(block, _BLOCK_BYTES))
            place = self._in_stream(code.add(here, str(_AHEAD_BYTES)))
            for line in range(0, _BLOCK_BYTES, _LINE_BYTES):
                prefetch(code, code.at(place, str(line)))

        return prefetch_block

    def share(self, c: str, row: str, count: int, groups: int) -> Callable[[str], None]:
        """A share of the groups that are met next, for the rows from `row` on: of every block some lines."""
        code, lines = self.code, -(-groups * _BLOCK_BYTES // _LINE_BYTES)
        following = self._in_stream(code.mul(code.add(c, str(GROUP_ROWS * groups)), "%b_row"))
        first, last = (code.value(f"sdiv i64 {code.mul(r, lines)}, %rows") for r in (row, code.add(row, str(count))))

        def prefetch_share(block: str) -> None:
            place = code.at(following, code.mul(block, groups * _BLOCK_BYTES))
            with code.loop(last, start=first) as line:
                prefetch(code, code.at(place, code.mul(line, _LINE_BYTES)))

        return prefetch_share

    def _in_stream(self, offset: str) -> str:
        """The address so many bytes on in b, or where it goes on."""
        code = self.code
        inside = code.value(f"icmp slt i64 {offset}, {self.stream_end}")
        start = code.value(f"select i1 {inside}, ptr %b, ptr %next")
        rest = code.value(f"select i1 {inside}, i64 {offset}, i64 {code.sub(offset, self.stream_end)}")
        return code.at(start, rest)

    def _block(self, a_rows: list[str], groups: list[str], sums: list[list[str]], block: str) -> None:
        code = self.code
        quants = [code.at(group, code.mul(block, QUANTS)) for group in groups]
        numbers = [[self._start(a, block)] * len(groups) for a in a_rows]
        for dot in range(_DOTS):
            right = [code.load(_INTS, code.at(q, str(4 * GROUP_ROWS * dot)), 32) for q in quants]
            for r, a in enumerate(a_rows):
                place = code.at(a, code.add(code.mul(block, Q8_BLOCK), str(4 * dot)))
                left = code.splat("i32", LANES, code.load("i32", place, 4))
                numbers[r] = [self._dot(n, b, left) for n, b in zip(numbers[r], right, strict=True)]
        scales = [self._scales(group, block) for group in groups]
        for a, line, places in zip(a_rows, numbers, sums, strict=True):
            own = code.splat("float", LANES, code.load("float", self._beside(a, block, 0), 4))
            for n, scale, place in zip(line, scales, places, strict=True):
                both = code.value(f"fmul {F32} {own}, {scale}")
                number = code.value(f"sitofp {_INTS} {n} to {F32}")
                code.store(F32, multiply_add(code, number, both, code.load(F32, place, 64), True), place, 64)

    def _scales(self, group: str, block: str) -> str:
        code = self.code
        place = code.at(group, code.add(self.scales, code.mul(block, 2 * GROUP_ROWS)))
        return code.value(f"fpext <{LANES} x half> {code.load(f'<{LANES} x half>', place, 32)} to {F32}")

    def _start(self, a: str, block: str) -> str:
        return self.code.splat("i32", LANES, self.code.load("i32", self._beside(a, block, 1), 4))

    def _beside(self, a: str, block: str, which: int) -> str:
        """The place of a block's scale (0) or start (1), behind the quants of its row."""
        code = self.code
        first = code.add("%k", code.mul(self.blocks, 4 * which))
        return code.at(a, code.add(first, code.mul(block, 4)))

    def _dot(self, total: str, unsigned: str, signed: str) -> str:
        """total + the sum of four products of an unsigned and a signed byte, in each lane."""
        code = self.code
        if self.cpu.wide_block_dot:
            return self._call(512, _INTS, total, unsigned, signed)
        if self.cpu.block_dot:
            return self._halves(total, unsigned, signed)
        wide = f"<{4 * LANES} x i32>"
        left, right = (
            code.value(f"{how} <{4 * LANES} x i8> {code.value(f'bitcast {_INTS} {v} to <{4 * LANES} x i8>')} to {wide}")
            for how, v in (("zext", unsigned), ("sext", signed))
        )
        products = code.value(f"mul {wide} {left}, {right}")
        for part in range(4):
            picked = shuffle(code, "i32", 4 * LANES, products, "poison", [4 * i + part for i in range(LANES)])
            total = code.value(f"add {_INTS} {total}, {picked}")
        return total

    def _call(self, bits: int, kind: str, total: str, unsigned: str, signed: str) -> str:
        """Written with the operand types of older LLVM; newer ones read it as their own."""
        arguments = f"{kind} {total}, {kind} {unsigned}, {kind} {signed}"
        return self.code.call(f"llvm.x86.avx512.vpdpbusd.{bits}", kind, arguments, f"{kind}, {kind}, {kind}")

    def _halves(self, total: str, unsigned: str, signed: str) -> str:
        code, half = self.code, LANES // 2
        parts = []
        for first in (0, half):
            picks = list(range(first, first + half))
            operands = [shuffle(code, "i32", LANES, v, "poison", picks) for v in (total, unsigned, signed)]
            parts.append(self._call(256, f"<{half} x i32>", *operands))
        return shuffle(code, "i32", half, parts[0], parts[1], list(range(LANES)))
