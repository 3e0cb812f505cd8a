"""Caches and gathers written by hand, over the symbols `pos` and `rows`.

cache     N is appended to a STATE tensor at rows [pos, pos + rows); another section reads rows below pos + rows
          (element by element, or as the right operand of a product with a symbolic K)
gather    rows of a table by number, some at a time, then an element-wise op; in a section before another one too
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pavane.ir.expr import Expr, Indirect, Reduce, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Home,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Numerics,
    Pop,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
    Symbol,
    Tensor,
    Transition,
    Tree,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import Ints, block_elements
from pavane.targets.descriptor import SpatialTarget
from tests.building import COL, ROW, SX, SY, K, S, X, Y, one_section, read, shape_of, span, whole, window, write
from tests.evidence.hand import Case, Hand, chip, host_chip
from tests.evidence.sections import Part, composed, followed
from tests.evidence.stages import staged, summed

POS, ROWS = quasi("pos"), quasi("rows")
LIVE = POS + ROWS


@dataclass(frozen=True)
class Lies:
    """Where a cache lies, and of what type it is."""

    dtype: str = "f32"
    home: Home = "dram"
    shard_bytes: int = 0

    def formal(self, name: str, shape: tuple[Quasi, ...], role: Literal["IN", "OUT"]) -> Formal:
        return Formal(name, shape, self.dtype, role, home=self.home, shard_bytes=self.shard_bytes)


BESIDE = Lies()


def cache(hand: Hand) -> Case:
    """append, then read; the order slips now and then, and so do the rows."""
    target = host_chip(hand) if hand.chance(0.4) else chip(hand)
    cols, most_rows, most_pos = hand.between(4, 24), hand.pick((1, 4, 8)), hand.pick((3, 7))
    symbols = (Symbol("pos", 1, most_pos, 2), Symbol("rows", 1, most_rows, 1))
    context = most_pos + most_rows
    append, end = appended(hand, target, cols, most_rows)
    start = 0 if hand.chance(0.5) else end
    by_weights = hand.chance(0.5)
    bound = POS if hand.slip() else LIVE
    if by_weights:
        reading, _ = weighted(hand, target, cols, most_rows, context, bound, start)
        out_rows: Quasi = ROWS
    else:
        reading, _ = copied(hand, target, cols, bound, start)
        out_rows = bound
    tensors = (
        Tensor("n", shape_of(ROWS, cols), "f32", "INPUT"),
        Tensor("cache", shape_of(context, cols), "f32", "STATE", transition=Transition(POS, ROWS)),
        *((Tensor("p", shape_of(ROWS, context), "f32", "INPUT"),) if by_weights else ()),
        Tensor("o", shape_of(out_rows, cols), "f32", "OUTPUT"),
    )
    parts = [
        Part(append, (("N", "n"), ("C", "cache"))),
        Part(reading, (*((("P", "p"),) if by_weights else ()), ("C", "cache"), ("O", "o")), boundary=not hand.slip()),
    ]
    if hand.slip():
        parts.reverse()
    return composed(hand, target, tuple(parts), tensors, "meet", symbols), target


def appended(
    hand: Hand,
    target: SpatialTarget,
    cols: int,
    most_rows: int,
    start: int = 0,
    lies: Lies = BESIDE,
    first: Quasi = POS,
) -> tuple[Shape, int]:
    """C[pos + i, j] = 2 * N[i, j], columns spread over the sites."""
    step, sites = max(block_elements(lies.dtype), hand.pick((4, 8, 16))), target.sites
    turns = -(-cols // (step * sites))
    col = step * (SX + SY * target.grid.width + X * sites)
    first = first + hand.pick((-1, 1)) if hand.slip() else first
    r, c = span(0, most_rows, ROWS), span(col, step, cols)
    stages = (
        read("fN", "N", window((0, most_rows), (col, step), row=0)),
        (Front("fN"), Reserve("fC"), Compute(Generic(Ref("fC"), fn("mul", at("fN", ROW, COL), 2.0), r, c)),
         Push("fC"), Pop("fN")),
        write("fC", "C", window((first, most_rows), (col, step), row=0)),
    )  # fmt: skip
    fifos = (
        Fifo("fN", "LOCAL", most_rows, step, "f32", hand.between(1, 2)),
        Fifo("fC", "LOCAL", most_rows, step, lies.dtype, 1),
    )
    formals = (Formal("N", shape_of(ROWS, cols), "f32", "IN"), lies.formal("C", shape_of(LIVE, cols), "OUT"))
    spec = Spec("C", shape_of(POS, 0), shape_of(ROWS, cols), fn("mul", at("N", "i0", "i1"), 2.0))
    loops = (("LV_ITEM_X", quasi(turns)),)
    items = (1, -(-cols // step), most_rows, step)
    return staged(hand, target, "append", formals, spec, stages, fifos, (), loops, items, start)


def copied(
    hand: Hand, target: SpatialTarget, cols: int, live: Quasi, start: int, lies: Lies = BESIDE
) -> tuple[Shape, int]:
    """O[j, c] = C[j, c] + 1 for j < live: rows spread over the sites, a symbolic number of turns."""
    block, sites = hand.pick((2, 4)), target.sites
    row = block * (SX + SY * target.grid.width + Y * sites)
    r, c, box = span(row, block, live), whole(cols), window((row, block), (0, cols), row=0)
    alias = target.alias and hand.chance(0.6)
    stages = (
        (Reserve("fI"), Load("fI", "C", box), *(() if alias else (Fence(),)), Push("fI")),
        (Front("fI"), Reserve("fO"), Compute(Generic(Ref("fO"), fn("add", at("fI", ROW, COL), 1.0), r, c)), Push("fO"),
         Pop("fI")),
        write("fO", "O", box),
    )  # fmt: skip
    fifos = (
        Fifo("fI", "ALIAS" if alias else "LOCAL", block, cols, lies.dtype, 1),
        Fifo("fO", "LOCAL", block, cols, "f32", 2),
    )
    formals = (lies.formal("C", shape_of(live, cols), "IN"), Formal("O", shape_of(live, cols), "f32", "OUT"))
    spec = Spec("O", shape_of(0, 0), shape_of(live, cols), fn("add", at("C", "i0", "i1"), 1.0))
    loops = (("LV_ITEM_Y", live.ceil(block * sites)),)
    items = (live.ceil(block), 1, block, cols)
    return staged(hand, target, "copied", formals, spec, stages, fifos, (), loops, items, start)


def weighted(
    hand: Hand,
    target: SpatialTarget,
    cols: int,
    most_rows: int,
    context: int,
    live: Quasi,
    start: int,
    lies: Lies = BESIDE,
) -> tuple[Shape, int]:
    """O[i, c] = SUM(k < live) P[i, k] * C[k, c]: K blocks up to a symbolic end."""
    step, bk, sites = max(block_elements(lies.dtype), hand.pick((4, 8))), hand.pick((2, 4, 8)), target.sites
    turns = -(-cols // (step * sites))
    col = step * (SX + SY * target.grid.width + X * sites)
    r, c, ks = span(0, most_rows, ROWS), span(col, step, cols), span(bk * K, bk, live)
    fused = next(m.fused for e in target.engines for m in e.matrix if (m.a, m.b) == ("f32", "f32"))
    op = MatmulTiles(Ref("acc"), Ref("fP"), Ref("fC"), False, r, c, ks, Tree(0, 1, fused))
    load = (
        *read("fP", "P", window((0, most_rows), (bk * K, bk), row=0)),
        *read("fC", "C", window((bk * K, bk), (col, step), row=0)),
    )
    store = write("fO", "O", window((0, most_rows), (col, step), row=0))
    stages = (*summed(target, op, load, live.ceil(bk), "fO"), store)
    fifos = (
        Fifo("fP", "LOCAL", most_rows, bk, "f32", 1), Fifo("fC", "LOCAL", bk, step, lies.dtype, hand.between(1, 2)),
        Fifo("fO", "LOCAL", most_rows, step, "f32", 1),
    )  # fmt: skip
    formals = (
        Formal("P", shape_of(ROWS, context), "f32", "IN"), lies.formal("C", shape_of(live, cols), "IN"),
        Formal("O", shape_of(ROWS, cols), "f32", "OUT"),
    )  # fmt: skip
    meant = Reduce("SUM", "k0", live, fn("mul", at("P", "i0", "k0"), at("C", "k0", "i1")))
    spec = Spec("O", shape_of(0, 0), shape_of(ROWS, cols), meant)
    numerics = Numerics(operands=(("P", "f32"), ("C", "f16" if lies.dtype == "f16" else "f32")))
    loops, items = (("LV_ITEM_X", quasi(turns)),), (1, -(-cols // step), most_rows, step)
    carries = (Carry("acc", most_rows, step, "f32"),)
    return staged(hand, target, "weighted", formals, spec, stages, fifos, carries, loops, items, start, numerics)


# --- gathers ---


def gather(hand: Hand) -> Case:
    """O[i, c] = f(E[ids[i], c]): the ids in front, rows loaded one a turn of LV_SUB_H.

    Either all ids lie in front and columns are spread over the sites, or each site takes ids of its own.
    """
    target = host_chip(hand) if hand.chance(0.4) else chip(hand)
    entries, cols, turns, sites = hand.between(2, 9), hand.between(2, 20), hand.between(1, 2), target.sites
    by_ids = hand.chance(0.2)
    block, place = hand.pick((1, 2, 4)), SX + SY * target.grid.width
    count = block * sites * turns if by_ids else block  # every item whole: a loop does not know where the ids end
    row = block * (place + Y * sites) if by_ids else quasi(0)
    step = cols if by_ids else hand.pick((4, 8))
    col = quasi(0) if by_ids else step * (place + X * sites)
    loops = (("LV_ITEM_Y", quasi(turns)),) if by_ids else (("LV_ITEM_X", quasi(-(-cols // (step * sites)))),)
    high = hand.off(entries)
    rows, c = span(row, block, count), span(col, step, cols)
    merged = len(target.engines) == 1
    by_op = merged and hand.slip()  # the slot of the indices is one that an op fills
    one = Indirect("I", (row + S,), 0, high, "fJ" if by_op else "fI")
    ids = (*read("fI", "I", window((row, block))), Front("fI"), *(_copied_ids(block) if by_op else ()))
    fetch = (
        Reserve("fE"),
        Loop("LV_SUB_H", quasi(block), (Load("fE", "E", window((one, 1), (col, step), row=0), row=S),)),
        *(() if hand.slip() else (Fence(),)), Push("fE"), Pop("fI"),
        *((Pop("fJ"),) if by_op else ()),
    )  # fmt: skip
    meant: Expr = at("E", Indirect("I", (quasi("i0"),), 0, entries, ""), "i1")
    use: Expr = at("fE", ROW, COL)
    if hand.chance(0.5):
        meant, use = fn("mul", meant, 2.0), fn("mul", use, 2.0)
    stages = (
        (*ids, *fetch),
        (Front("fE"), Reserve("fO"), Compute(Generic(Ref("fO"), use, rows, c)), Push("fO"), Pop("fE")),
        write("fO", "O", window((row, block), (col, step), row=0)),
    )
    fifos = (
        Fifo("fI", "ALIAS" if merged and hand.chance(0.5) else "LOCAL", 1, block, "i32", 1),
        *((Fifo("fJ", "LOCAL", 1, block, "i32", 1),) if by_op else ()),
        Fifo("fE", "LOCAL", block, step, "f32", hand.between(1, 2)), Fifo("fO", "LOCAL", block, step, "f32", 1),
    )  # fmt: skip
    fill = Ints(0, hand.off(entries - 1))
    formals = (
        Formal("I", shape_of(count), "i32", "IN", fill), Formal("E", shape_of(entries, cols), "f32", "IN"),
        Formal("O", shape_of(count, cols), "f32", "OUT"),
    )  # fmt: skip
    spec = Spec("O", shape_of(0, 0), shape_of(count, cols), meant)
    items = (-(-count // block), -(-cols // step), block, step)
    shape, _ = staged(hand, target, "gather", formals, spec, stages, fifos, (), loops, items)
    tensors = (
        Tensor("i", shape_of(count), "i32", "INPUT", fill), Tensor("e", shape_of(entries, cols), "f32", "WEIGHT"),
        Tensor("o", shape_of(count, cols), "f32", "OUTPUT"),
    )  # fmt: skip
    return one_section(target, shape, tensors, {"I": "i", "E": "e", "O": "o"}), target


def _copied_ids(block: int) -> tuple[Node, ...]:
    copy = Compute(Generic(Ref("fJ"), at("fI", ROW, COL), whole(1), whole(block)))
    return (Reserve("fJ"), copy, Push("fJ"), Front("fJ"))


def gathers_in_sections(hand: Hand) -> Case:
    """ids, table -> gather -> t -> pointwise -> y."""
    return followed(hand, *gather(hand))
