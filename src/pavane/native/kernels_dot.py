"""Kernels for products along K in 16 lanes: `dst[r, c] += a[r, :] . b[c, :]`, a in f32, b of any type.

Lane l adds the terms k = l (mod 16) in ascending k from 0 (fused or not), lanes are added pairwise by halving, then
the sum is added to dst. One row of a: b is streamed once, four rows at a time, with prefetch (`next` is where the
stream goes on after the last row). More rows: four rows of b are widened into scratch once and met with four rows of a
at a time. Columns of b beyond k are not read: their terms are 0.
"""

from __future__ import annotations

from pavane.ir.types import Q8_BLOCK
from pavane.native.cpu import Cpu
from pavane.native.elements import byte_offset, load_lanes, load_quants, load_scale_lanes, q8_block, widen
from pavane.native.text import F32, LANES, Code, Module, halving_sums

PARAMETERS = (
    "ptr %dst, i64 %dst_row, ptr %a, i64 %a_row, ptr %b, i64 %b_row, "
    "i64 %rows, i64 %cols, i64 %k, ptr %next, ptr noalias %scratch"
)
PREFETCH_BYTES = 16384
COLUMNS = 4


def dot_kernel(module: Module, dtype: str, fused: bool, cpu: Cpu) -> str:
    """The kernel's name; it is written on its first use."""
    name = f"dot_{dtype}_{'fused' if fused else 'separate'}"
    if not module.has(name):
        widened = widen_kernel(module, dtype)
        code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
        tile = _Dot(code, dtype, fused)
        with code.when(code.value("icmp eq i64 %rows, 1")):
            _one_row(tile)
        with code.when(code.value("icmp sgt i64 %rows, 1")):
            _rows(tile, widened, rows_at_once=4 if cpu.wide else 1)
        code.finish()
    return name


def widen_kernel(module: Module, dtype: str) -> str:
    """`void(ptr out, ptr row, i64 k)`: k elements as f32, then zeros up to a multiple of 16."""
    name = f"widen_{dtype}"
    if not module.has(name):
        code = Code(module, name, "ptr noalias %out, ptr %row, i64 %k", attributes="internal noinline nounwind")
        step = Q8_BLOCK if dtype == "q8_0" else LANES
        with code.loop("%k", step=step) as j:
            mask = None if dtype == "q8_0" else code.mask(code.sub("%k", j))
            for i, lanes in enumerate(_lanes_of(code, dtype, "%row", j, mask)):
                code.store(F32, lanes, code.at("%out", code.mul(code.add(j, str(LANES * i)), 4)))
        code.finish()
    return name


def _lanes_of(code: Code, dtype: str, row: str, j: str, mask: str | None) -> list[str]:
    """16 elements from j on, or the 32 of a q8_0 block."""
    if dtype != "q8_0":
        return [load_lanes(code, dtype, row, j, mask)]
    block = q8_block(code, row, j, is_first=True)
    scale = load_scale_lanes(code, block, LANES)
    halves = [widen(code, "i8", quants, LANES) for quants in load_quants(code, block)]
    return [code.value(f"fmul {F32} {scale}, {half}") for half in halves]


class _Dot:
    """A register tile: some rows of a against some rows of b."""

    def __init__(self, code: Code, dtype: str, fused: bool) -> None:
        self.code, self.dtype, self.fused = code, dtype, fused

    def tile(self, a_rows: list[str], b_rows: list[str], dtype: str, targets: list[str], ahead: list[str]) -> None:
        """Add the products of every pair to `targets` (one a row of a: neighbouring f32)."""
        code = self.code
        sums = [code.slot(F32) for _ in a_rows for _ in b_rows]
        for place in sums:
            code.store(F32, "zeroinitializer", place, 64)
        step = Q8_BLOCK if dtype == "q8_0" else LANES
        whole = code.value(f"and i64 %k, {-step}")
        with code.loop(whole, step=step) as j:
            for row in ahead:
                prefetch(code, code.at(row, byte_offset(code, dtype, j)))
            self._step(a_rows, b_rows, dtype, sums, j, None)
        if dtype != "q8_0":
            rest = code.sub("%k", whole)
            with code.when(code.value(f"icmp sgt i64 {rest}, 0")):
                self._step(a_rows, b_rows, dtype, sums, whole, code.mask(rest))
        self._finish(sums, len(b_rows), targets)

    def _step(
        self, a_rows: list[str], b_rows: list[str], dtype: str, sums: list[str], j: str, mask: str | None
    ) -> None:
        code = self.code
        b_lanes = [_lanes_of(code, dtype, row, j, mask) for row in b_rows]
        for i in range(len(b_lanes[0])):
            a_lanes = [load_lanes(code, "f32", row, code.add(j, str(LANES * i)), mask) for row in a_rows]
            for r, x in enumerate(a_lanes):
                for c, y in enumerate(b_lanes):
                    place = sums[r * len(b_rows) + c]
                    code.store(F32, multiply_add(code, x, y[i], code.load(F32, place, 64), self.fused), place, 64)

    def _finish(self, sums: list[str], columns: int, targets: list[str]) -> None:
        code, count = self.code, len(sums)
        total = halving_sums(code, [code.load(F32, place, 64) for place in sums], LANES)
        kind = f"<{columns} x float>"
        for r, target in enumerate(targets):
            picks = ", ".join(f"i32 {r * columns + c}" for c in range(columns))
            part = code.value(
                f"shufflevector <{count} x float> {total}, <{count} x float> poison, <{columns} x i32> <{picks}>"
            )
            code.store(kind, code.value(f"fadd {kind} {code.load(kind, target)}, {part}"), target)


def multiply_add(code: Code, x: str, y: str, total: str, fused: bool) -> str:
    """total + x * y of 16 lanes, rounded once or twice."""
    if fused:
        return code.call(f"llvm.fma.v{LANES}f32", F32, f"{F32} {x}, {F32} {y}, {F32} {total}", f"{F32}, {F32}, {F32}")
    return code.value(f"fadd {F32} {total}, {code.value(f'fmul {F32} {x}, {y}')}")


def _one_row(dot: _Dot) -> None:
    code = dot.code
    ahead = prefetch_rows(code)
    whole = code.value(f"and i64 %cols, {-COLUMNS}")
    for start, stop, count in (("0", whole, COLUMNS), (whole, "%cols", 1)):
        with code.loop(stop, start=start, step=count) as c:
            rows = [code.at("%b", code.mul(code.add(c, str(i)), "%b_row")) for i in range(count)]
            streams = [prefetch_row(code, code.add(c, str(i)), ahead) for i in range(count)]
            dot.tile(["%a"], rows, dot.dtype, [code.at("%dst", code.mul(c, 4))], streams)


def prefetch_rows(code: Code) -> str:
    """How many rows of b the prefetch runs ahead: a multiple of COLUMNS."""
    group_bytes = code.greatest(code.mul("%b_row", COLUMNS), "1")  # one row alone is no distance from another
    groups = code.value(f"udiv i64 {PREFETCH_BYTES}, {group_bytes}")
    return code.mul(code.greatest(groups, "1"), COLUMNS)


def prefetch_row(code: Code, row: str, ahead: str) -> str:
    """The row that is read `ahead` rows after this one: in b, or where the stream goes on."""
    target = code.add(row, ahead)
    inside = code.value(f"icmp slt i64 {target}, %cols")
    start = code.value(f"select i1 {inside}, ptr %b, ptr %next")
    index = code.value(f"select i1 {inside}, i64 {target}, i64 {code.sub(target, '%cols')}")
    return code.at(start, code.mul(index, "%b_row"))


def prefetch(code: Code, pointer: str) -> None:
    code.call("llvm.prefetch.p0", "void", f"ptr {pointer}, i32 0, i32 3, i32 1", "ptr, i32, i32, i32")


def _rows(dot: _Dot, widened: str, rows_at_once: int) -> None:
    code = dot.code
    stride = code.mul(code.value(f"and i64 {code.add('%k', '15')}, -16"), 4)
    whole = code.value(f"and i64 %cols, {-COLUMNS}")
    for start, stop, count in (("0", whole, COLUMNS), (whole, "%cols", 1)):
        with code.loop(stop, start=start, step=count) as c:
            places = [code.at("%scratch", code.mul(stride, i)) for i in range(count)]
            for i, place in enumerate(places):
                row = code.at("%b", code.mul(code.add(c, str(i)), "%b_row"))
                code.line(f"call void @{widened}(ptr {place}, ptr {row}, i64 %k)")
            _against_rows(dot, places, c, rows_at_once)


def _against_rows(dot: _Dot, places: list[str], c: str, rows_at_once: int) -> None:
    code = dot.code
    grouped = code.value(f"and i64 %rows, {-rows_at_once}")
    parts = (("0", grouped, rows_at_once), (grouped, "%rows", 1)) if rows_at_once > 1 else (("0", "%rows", 1),)
    for start, stop, count in parts:
        with code.loop(stop, start=start, step=count) as r:
            lines = [code.add(r, str(i)) for i in range(count)]
            a_rows = [code.at("%a", code.mul(line, "%a_row")) for line in lines]
            targets = [code.at("%dst", code.add(code.mul(line, "%dst_row"), code.mul(c, 4))) for line in lines]
            dot.tile(a_rows, places, "f32", targets, [])
