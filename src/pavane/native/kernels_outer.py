"""Kernels for products across rows of b: `dst[r, c] += a[r, j] * b[j, c]`, every term added to dst in ascending j
(fused or not).

Few rows of a: sums stay in registers over all j. Many rows: j in blocks, and of each block 64 columns of b are first
copied to scratch, widened to f32, as much as the first-level cache holds; all rows meet them there. b in q8_0: its
columns start at a multiple of 16. Both in bf16, many rows and an even k: `kernels_pairs`.
"""

from __future__ import annotations

from pavane.native.cpu import Cpu
from pavane.native.kernels_pairs import LEAST_ROWS, Pairs, pairs_over_blocks_of_terms
from pavane.native.outer_tiles import (
    PARAMETERS,
    VECTORS,
    ScratchTile,
    Tile,
    all_rows,
    column_cuts,
    column_masks,
    over_blocks_of_terms,
)
from pavane.native.text import LANES, Code, Module


def outer_kernel(module: Module, a: str, b: str, fused: bool, cpu: Cpu) -> str:
    """The kernel's name; it is written on its first use."""
    name = f"outer_{a}_{b}_{'fused' if fused else 'separate'}"
    if not module.has(name):
        code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
        rows_at_once, vectors = (4, VECTORS) if cpu.wide else (2, 2)
        many = code.value(f"icmp sge i64 %rows, {LEAST_ROWS}")
        few = code.value(f"xor i1 {many}, true")
        if cpu.pair_dot and fused and a == b == "bf16":
            even = code.value(f"icmp eq i64 {code.value('and i64 %k, 1')}, 0")
            with code.when(code.value(f"and i1 {many}, {even}")):
                pairs_over_blocks_of_terms(Pairs(code, cpu), vectors, rows_at_once)
            many = code.value(f"and i1 {many}, {code.value(f'xor i1 {even}, true')}")
        with code.when(many):
            over_blocks_of_terms(ScratchTile(code, (a, b), fused), vectors, rows_at_once)
        with code.when(few):
            _few_rows(Tile(code, (a, b), fused), vectors, rows_at_once)
        code.finish()
    return name


def _few_rows(tile: Tile, vectors: int, rows_at_once: int) -> None:
    """Over all terms; of what is left of the columns a register at a time."""
    code = tile.code
    (start, whole, _), _ = column_cuts(code, vectors)
    with code.loop(whole, start=start, step=LANES * vectors) as c:
        all_rows(tile, c, [None] * vectors, rows_at_once)
    with code.loop("%cols", start=whole, step=LANES) as c:
        all_rows(tile, c, column_masks(code, c, 1, True), rows_at_once)
