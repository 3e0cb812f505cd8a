"""Register tiles of a product across rows of b, and the loops around them: of these `kernels_outer` and `kernels_pairs`
are made.

A tile is some rows of a against some columns of b, 16 to a register, each with a mask where it may reach beyond the
last column; a's element is broadcast. Sums begin with what dst holds, or with 0 where that is asked for.
"""

from __future__ import annotations

from pavane.native.elements import byte_offset, load_element, load_lanes, store_lanes
from pavane.native.kernels_dot import PARAMETERS as DOT_PARAMETERS
from pavane.native.kernels_dot import multiply_add
from pavane.native.text import F32, LANES, Code

PARAMETERS = f"{DOT_PARAMETERS}, i1 %fresh"
VECTORS = 4
L1_BYTES = 32 << 10  # of b in scratch at once: the first-level cache holds that, and what streams past it
ROW_BYTES = LANES * VECTORS * 4  # of one row of b in scratch

Masks = list[str | None]  # of registers of columns


class Tile:
    """Over `depth` terms from `a` and `b` on; `fresh`: dst counts as 0."""

    step = 1

    def __init__(self, code: Code, dtypes: tuple[str, str], fused: bool) -> None:
        self.code, self.dtypes, self.fused = code, dtypes, fused
        self.a, self.a_row, self.b, self.depth, self.fresh = "%a", "%a_row", "%b", "%k", "%fresh"

    def add(self, rows: list[str], c: str, masks: Masks) -> None:
        """Add the products of these rows of a to dst, from column c on; a register of columns each mask."""
        code = self.code
        a_rows = [code.at(self.a, code.mul(r, self.a_row)) for r in rows]
        targets = [code.at("%dst", code.mul(r, "%dst_row")) for r in rows]
        columns = [code.add(c, str(LANES * v)) for v in range(len(masks))]
        sums = [[code.slot(F32) for _ in columns] for _ in rows]
        for target, places in zip(targets, sums, strict=True):
            for column, place, mask in zip(columns, places, masks, strict=True):
                code.store(F32, self._start(target, column, mask), place, 64)
        with code.loop(self.depth, step=self.step) as j:
            self._turn(j, a_rows, columns, sums, masks)
        for target, places in zip(targets, sums, strict=True):
            for column, place, mask in zip(columns, places, masks, strict=True):
                store_lanes(code, "f32", target, column, code.load(F32, place, 64), mask)

    def _start(self, target: str, column: str, mask: str | None) -> str:
        """What dst holds, or 0."""
        code = self.code
        zeros = code.module.declare("zeros", f"@zeros = internal constant {F32} zeroinitializer, align 64")
        place = code.at(target, code.mul(column, 4))
        return load_lanes(code, "f32", code.value(f"select i1 {self.fresh}, ptr @{zeros}, ptr {place}"), "0", mask)

    def _turn(self, j: str, a_rows: list[str], columns: list[str], sums: list[list[str]], masks: Masks) -> None:
        code = self.code
        b_lanes = self._row_of_b(j, columns, masks)
        for a_row, places in zip(a_rows, sums, strict=True):
            x = code.splat("float", LANES, load_element(code, self.dtypes[0], a_row, j))
            for y, place in zip(b_lanes, places, strict=True):
                code.store(F32, multiply_add(code, x, y, code.load(F32, place, 64), self.fused), place, 64)

    def _row_of_b(self, j: str, columns: list[str], masks: Masks) -> list[str]:
        code = self.code
        row = code.at(self.b, code.mul(j, "%b_row"))
        return [load_lanes(code, self.dtypes[1], row, c, mask) for c, mask in zip(columns, masks, strict=True)]


class ScratchTile(Tile):
    """The same where b's columns are in scratch, as f32 (0 beyond the last); `most` terms of them."""

    most_terms = L1_BYTES // ROW_BYTES

    def begin(self, first: str) -> None:
        """The terms from `first` on."""
        code = self.code
        self.a = code.at("%a", byte_offset(code, self.dtypes[0], first))
        self.b = code.at("%b", code.mul(first, "%b_row"))
        self.depth = code.least(code.sub("%k", first), str(self.most_terms))
        self.fresh = sums_begin(code, first)

    def copy_columns(self, c: str, masks: Masks) -> None:
        """Columns of b to scratch."""
        code = self.code
        with code.loop(self.depth) as j:
            source, target = code.at(self.b, code.mul(j, "%b_row")), code.at("%scratch", code.mul(j, ROW_BYTES))
            for v, mask in enumerate(masks):
                lanes = load_lanes(code, self.dtypes[1], source, code.add(c, str(LANES * v)), mask)
                code.store(F32, lanes, code.at(target, str(4 * LANES * v)), 64)

    def _row_of_b(self, j: str, columns: list[str], masks: Masks) -> list[str]:
        row = self.code.at("%scratch", self.code.mul(j, ROW_BYTES))
        return [self.code.load(F32, self.code.at(row, str(4 * LANES * v)), 64) for v in range(len(columns))]


def sums_begin(code: Code, term: str) -> str:
    """Whether sums that go on with this term begin there."""
    return code.value(f"and i1 %fresh, {code.value(f'icmp eq i64 {term}, 0')}")


def column_cuts(code: Code, vectors: int) -> tuple[tuple[str, str, bool], ...]:
    """(start, stop, masked) of loops over columns, so many registers a turn."""
    whole = code.value(f"and i64 %cols, {-LANES * vectors}")
    return ("0", whole, False), (whole, "%cols", True)


def column_masks(code: Code, c: str, vectors: int, masked: bool) -> Masks:
    """Those of the registers from column c on."""
    return [code.mask(code.sub("%cols", code.add(c, str(LANES * v)))) if masked else None for v in range(vectors)]


def over_blocks_of_terms(tile: ScratchTile, vectors: int, rows_at_once: int) -> None:
    """All columns of b: block after block of the terms, in each so many registers of columns at a time."""
    code, cuts = tile.code, column_cuts(tile.code, vectors)
    with code.loop("%k", step=tile.most_terms) as first:
        tile.begin(first)
        for start, stop, masked in cuts:
            with code.loop(stop, start=start, step=LANES * vectors) as c:
                masks = column_masks(code, c, vectors, masked)
                tile.copy_columns(c, masks)
                all_rows(tile, c, masks, rows_at_once)


def all_rows(tile: Tile, c: str, masks: Masks, rows_at_once: int) -> None:
    """Every row against these columns."""
    code = tile.code
    grouped = code.value(f"and i64 %rows, {-rows_at_once}")
    for start, stop, count in (("0", grouped, rows_at_once), (grouped, "%rows", 1)):
        with code.loop(stop, start=start, step=count) as r:
            tile.add([code.add(r, str(i)) for i in range(count)], c, masks)
