"""Products across rows of b, both sides in bf16: `dst[r, c] += a[r, j] * b[j, c]`, every term added to dst by a fused
multiply-add in ascending j, two terms at a time.

b's rows lie in pairs, element beside element in words of 32 bits, the earlier row in the high half: 64 columns of them
are copied to scratch like that, or a packed weight has them so (`packed_forms`). a's rows are copied to scratch with
the halves exchanged: as many terms at once as fit the second-level cache (L2_BYTES). Of those, blocks of `most_terms`
of b, which fit the first-level cache (L1_BYTES), meet all rows of a, one block after the other.

vdpbf16ps adds two products by two fused multiply-adds, the one of the high halves first, so the order and every bit are
the same (but numbers below 2**-126, which it takes and gives as 0).
"""

from __future__ import annotations

from pavane.native.cpu import Cpu
from pavane.native.elements import load_raw_lanes
from pavane.native.kernels_dot import multiply_add
from pavane.native.outer_tiles import (
    L1_BYTES,
    PARAMETERS,
    ROW_BYTES,
    VECTORS,
    Masks,
    ScratchTile,
    all_rows,
    column_cuts,
    column_masks,
    sums_begin,
)
from pavane.native.text import F32, LANES, Code, Module, shuffle

LEAST_ROWS = 8  # of a: from so many on it pays to copy columns of b to scratch first
GROUP_COLUMNS = LANES * VECTORS  # columns side by side in a packed weight
TERM_BYTES = ROW_BYTES // 2  # of one row of 64 columns; two share their place
L2_BYTES = 256 << 10  # of a in scratch at once
_INTS = f"<{LANES} x i32>"


def pairs_kernel(module: Module, cpu: Cpu) -> str:
    """The kernel for a packed b, where `b_row` is the distance from one group of columns to the next; its name."""
    name = "packed_pairs"
    if not module.has(name):
        code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
        rows_at_once, vectors = (4, VECTORS) if cpu.wide else (2, 2)
        pairs_over_blocks_of_terms(_Packed(code, cpu), vectors, rows_at_once)
        code.finish()
    return name


def scratch_bytes(rows: int, k: int) -> int:
    """For 64 columns of b and the rows of a."""
    return L1_BYTES + max(2 * rows * min(k, Pairs.most_terms), min(2 * rows * k, L2_BYTES))


def pairs_over_blocks_of_terms(tile: Pairs, vectors: int, rows_at_once: int) -> None:
    """All columns of b, so many registers at a time, over all terms."""
    code, most, cuts = tile.code, tile.terms_at_once(), column_cuts(tile.code, vectors)
    with code.loop("%k", step=most) as first:
        tile.fetch_rows(first, most)
        for start, stop, masked in cuts:
            with (
                code.loop(stop, start=start, step=LANES * vectors) as c,
                code.loop(tile.terms, step=tile.most_terms) as part,
            ):
                masks = column_masks(code, c, vectors, masked)
                tile.begin(part)
                tile.copy_columns(c, masks)
                all_rows(tile, c, masks, rows_at_once)


class Pairs(ScratchTile):
    """Scratch has b's columns, and behind them a's rows."""

    step, most_terms = 2, L1_BYTES // TERM_BYTES

    def __init__(self, code: Code, cpu: Cpu) -> None:
        super().__init__(code, ("bf16", "bf16"), fused=True)
        self._pair_dot = cpu.pair_dot
        self.first, self.terms, self._rows, self.panel = "0", "%k", "%scratch", "%scratch"

    def terms_at_once(self) -> str:
        """How many terms of a are in scratch at once: whole blocks of `most_terms`."""
        code = self.code
        terms = code.value(f"udiv i64 {L2_BYTES}, {code.mul('%rows', 2)}")
        return code.greatest(code.value(f"and i64 {terms}, {-self.most_terms}"), str(self.most_terms))

    def fetch_rows(self, first: str, most: str) -> None:
        """a's terms from `first` on, at most so many, to scratch."""
        code = self.code
        self.first, self.terms = first, code.least(code.sub("%k", first), most)
        self.a_row = code.mul(self.terms, 2)
        self._rows = code.at("%scratch", str(L1_BYTES))
        source = code.at("%a", code.mul(first, 2))
        with code.loop("%rows") as r:
            row = code.at(source, code.mul(r, "%a_row"))
            _exchange_halves(code, code.at(self._rows, code.mul(r, self.a_row)), row, self.a_row)

    def begin(self, part: str) -> None:
        """The terms from `part` of those in scratch on."""
        code = self.code
        term = code.add(self.first, part)
        self.a = code.at(self._rows, code.mul(part, 2))
        self.b = self._from_term(term)
        self.depth = code.least(code.sub(self.terms, part), str(self.most_terms))
        self.fresh = sums_begin(code, term)

    def _from_term(self, term: str) -> str:
        return self.code.at("%b", self.code.mul(term, "%b_row"))

    def copy_columns(self, c: str, masks: Masks) -> None:
        """Two rows of b at a time."""
        code = self.code
        with code.loop(self.depth, step=2) as j:
            source = code.at(self.b, code.mul(j, "%b_row"))
            target = code.at("%scratch", code.mul(j, TERM_BYTES))
            for v, mask in enumerate(masks):
                place = code.at(source, code.mul(code.add(c, str(LANES * v)), 2))
                first, second = (load_raw_lanes(code, "i16", p, mask) for p in (place, code.at(place, "%b_row")))
                picks = [side + i for i in range(LANES) for side in (LANES, 0)]
                both = shuffle(code, "i16", LANES, first, second, picks)
                code.store(f"<{2 * LANES} x i16>", both, code.at(target, str(4 * LANES * v)), 64)

    def _turn(self, j: str, a_rows: list[str], columns: list[str], sums: list[list[str]], masks: Masks) -> None:
        code = self.code
        row = code.at(self.panel, code.mul(j, TERM_BYTES))
        pairs = [code.load(_INTS, code.at(row, str(4 * LANES * v)), 64) for v in range(len(columns))]
        for a_row, places in zip(a_rows, sums, strict=True):
            x = code.splat("i32", LANES, code.load("i32", code.at(a_row, code.mul(j, 2)), 4))
            for y, place in zip(pairs, places, strict=True):
                code.store(F32, self._two_terms(code.load(F32, place, 64), x, y), place, 64)

    def _two_terms(self, total: str, x: str, y: str) -> str:
        code = self.code
        if self._pair_dot:  # Written with the operand types of older LLVM; newer ones read it as their own.
            arguments, kinds = f"{F32} {total}, {_INTS} {x}, {_INTS} {y}", f"{F32}, {_INTS}, {_INTS}"
            return code.call("llvm.x86.avx512bf16.dpbf16ps.512", F32, arguments, kinds)
        for high in (True, False):
            left, right = (_half(code, v, high) for v in (x, y))
            total = multiply_add(code, left, right, total, True)
        return total


class _Packed(Pairs):
    """b is packed."""

    def _from_term(self, term: str) -> str:
        return self.code.at("%b", self.code.mul(term, TERM_BYTES))

    def copy_columns(self, c: str, masks: Masks) -> None:
        """A packed b has its pairs side by side already: only their place is taken."""
        code = self.code
        group = code.at(self.b, code.mul(code.value(f"lshr i64 {c}, {GROUP_COLUMNS.bit_length() - 1}"), "%b_row"))
        self.panel = code.at(group, code.mul(code.value(f"and i64 {c}, {GROUP_COLUMNS - 1}"), 4))


def _half(code: Code, pairs: str, high: bool) -> str:
    """One bf16 of each pair as f32."""
    operation, number = ("and", "-65536") if high else ("shl", "16")
    bits = code.value(f"{operation} {_INTS} {pairs}, {code.splat('i32', LANES, number)}")
    return code.value(f"bitcast {_INTS} {bits} to {F32}")


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
