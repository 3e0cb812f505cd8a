"""Kernels for products across rows of b: `dst[r, c] += a[r, j] * b[j, c]`, every term added to dst in ascending j
(fused or not).

16 columns share a register; a's element is broadcast. Sums stay in registers over all j. Of q8_0, b's columns start at
a multiple of 16.
"""

from __future__ import annotations

from pavane.native.cpu import Cpu
from pavane.native.elements import load_element, load_lanes, store_lanes
from pavane.native.kernels_dot import PARAMETERS, multiply_add
from pavane.native.text import F32, LANES, Code, Module


def outer_kernel(module: Module, a: str, b: str, fused: bool, cpu: Cpu) -> str:
    """The kernel's name; it is written on its first use."""
    name = f"outer_{a}_{b}_{'fused' if fused else 'separate'}"
    if not module.has(name):
        code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
        rows_at_once, vectors = (4, 4) if cpu.wide else (2, 2)
        whole = code.value(f"and i64 %cols, {-LANES * vectors}")
        with code.loop(whole, step=LANES * vectors) as c:
            _all_rows(code, (a, b), fused, c, vectors, None, rows_at_once)
        with code.loop("%cols", start=whole, step=LANES) as c:
            _all_rows(code, (a, b), fused, c, 1, code.mask(code.sub("%cols", c)), rows_at_once)
        code.finish()
    return name


def _all_rows(
    code: Code, dtypes: tuple[str, str], fused: bool, c: str, vectors: int, mask: str | None, rows_at_once: int
) -> None:
    grouped = code.value(f"and i64 %rows, {-rows_at_once}")
    for start, stop, count in (("0", grouped, rows_at_once), (grouped, "%rows", 1)):
        with code.loop(stop, start=start, step=count) as r:
            _tile(code, dtypes, fused, [code.add(r, str(i)) for i in range(count)], c, vectors, mask)


def _tile(
    code: Code, dtypes: tuple[str, str], fused: bool, rows: list[str], c: str, vectors: int, mask: str | None
) -> None:
    a_rows = [code.at("%a", code.mul(r, "%a_row")) for r in rows]
    targets = [code.at("%dst", code.mul(r, "%dst_row")) for r in rows]
    columns = [code.add(c, str(LANES * v)) for v in range(vectors)]
    sums = [[code.slot(F32) for _ in columns] for _ in rows]
    for target, places in zip(targets, sums, strict=True):
        for column, place in zip(columns, places, strict=True):
            code.store(F32, load_lanes(code, "f32", target, column, mask), place, 64)
    with code.loop("%k") as j:
        b_row = code.at("%b", code.mul(j, "%b_row"))
        b_lanes = [load_lanes(code, dtypes[1], b_row, column, mask) for column in columns]
        for a_row, places in zip(a_rows, sums, strict=True):
            x = code.splat("float", LANES, load_element(code, dtypes[0], a_row, j))
            for y, place in zip(b_lanes, places, strict=True):
                code.store(F32, multiply_add(code, x, y, code.load(F32, place, 64), fused), place, 64)
    for target, places in zip(targets, sums, strict=True):
        for column, place in zip(columns, places, strict=True):
            store_lanes(code, "f32", target, column, code.load(F32, place, 64), mask)
