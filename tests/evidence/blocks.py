"""Sections over types in blocks, written by hand: block floats, and now and then q8_0.

converted   O = f(I), from one type to another, through a carry of a third now and then
turned      O = I transposed: the elements of one block come from many
widened     C = A . B or A . B^T in K blocks, where B, and A now and then, is in blocks
kept        x -> converted -> t in blocks -> converted -> y

A careless hand begins a window inside a block, stores half of one, takes an engine that does not convert, states an
operand in another type, or claims exact what a block's one exponent does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from pavane.ir.expr import Expr, Reduce, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fifo,
    Formal,
    Front,
    Generic,
    MatmulTiles,
    Node,
    Numerics,
    Pop,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
    Tensor,
    Tree,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import Fill, Floats, Ints, block_elements
from pavane.targets.descriptor import SpatialTarget
from tests.building import COL, ROW, K, one_section, read, shape_of, span, whole, window, write
from tests.evidence.hand import Case, Hand, Work, chip, host_chip, work
from tests.evidence.sections import Part, composed
from tests.evidence.stages import staged, summed

BLOCK, FLOATS = 16, Floats()
Function = Callable[[Expr], Expr]
PLAIN, BLOCKS = ("f32", "bf16", "f16"), ("bfp8", "bfp8", "bfp4", "q8_0")


def block_floats(hand: Hand) -> Case:
    return hand.pick((converted, turned, widened, kept))(hand)


def converting(hand: Hand, target: SpatialTarget) -> SpatialTarget:
    """The chip, whose engines that compute convert block floats, or one kind only."""
    kinds = hand.pick((("bfp8",), ("bfp4",), ())) if hand.slip() else ("bfp8", "bfp4")
    engines = tuple(replace(e, block_floats=kinds) if "compute" in e.roles else e for e in target.engines)
    return replace(target, engines=engines)


def _chip(hand: Hand) -> SpatialTarget:
    return converting(hand, host_chip(hand) if hand.chance(0.3) else chip(hand))


def _columns(hand: Hand, *dtypes: str) -> int:
    """Whole blocks of all the types; now and then not."""
    block = max(block_elements(dtype) for dtype in dtypes)
    return hand.off(block * hand.between(1, 4), (-block // 2,)) if block > 1 else hand.between(1, 60)


def _beside(hand: Hand, place: Quasi) -> Quasi:
    """A place in columns, or one inside the block."""
    return place + hand.pick((8, -8, 1)) if hand.slip() else place


# --- element-wise ---


def converted(hand: Hand) -> Case:
    target = _chip(hand)
    taken, made = hand.pick((*PLAIN, *BLOCKS)), hand.pick((*PLAIN, *BLOCKS))
    rows, cols = hand.between(1, 20), _columns(hand, taken, made)
    limit = hand.pick((2, 3, 6, 7, 62, 63, 64, 126, 127, 255)) if hand.chance(0.4) else 0
    fill: Fill = Ints(-limit, limit) if limit else FLOATS
    shape, _ = _converted(hand, target, "converted", rows, cols, taken, made, fill=fill)
    tensors = (
        Tensor("i", shape_of(rows, cols), taken, hand.pick(("INPUT", "WEIGHT")), fill),
        Tensor("o", shape_of(rows, cols), made, "OUTPUT"),
    )
    return one_section(target, shape, tensors, {"I": "i", "O": "o"}), target


def _converted(
    hand: Hand,
    target: SpatialTarget,
    name: str,
    rows: int,
    cols: int,
    taken: str,
    made: str,
    start: int = 0,
    fill: Fill = FLOATS,
) -> tuple[Shape, int]:
    """O = f(I), exact where that is claimed: I holds integers, and f keeps them."""
    exact = isinstance(fill, Ints) and (hand.slip() or ("q8_0" not in (taken, made) and hand.chance(0.8)))
    f = _whole_numbers(hand) if exact else _any(hand)
    block = (hand.pick((4, 8)), hand.pick((32, 64)))
    spread = work(hand, target, rows, cols, block)
    box = window((spread.row, block[0]), (_beside(hand, spread.col), block[1]), row=0)
    loaded = window((spread.row, block[0]), (_beside(hand, spread.col), block[1]), row=0)
    middle, carries = _middle(hand, spread, f, made)
    stages = (read("fI", "I", loaded), middle, write("fO", "O", box))
    fifos = (
        Fifo("fI", "LOCAL", *block, taken, hand.between(1, 2)), Fifo("fO", "LOCAL", *block, made, hand.between(1, 2)),
    )  # fmt: skip
    formals = (
        Formal("I", shape_of(rows, cols), taken, "IN", fill), Formal("O", shape_of(rows, cols), made, "OUT"),
    )  # fmt: skip
    spec = Spec("O", shape_of(0, 0), shape_of(rows, cols), f(at("I", "i0", "i1")))
    items = (spread.items[0], spread.items[1], *block)
    return staged(
        hand, target, name, formals, spec, stages, fifos, carries, spread.loops, items, start, Numerics(exact=exact)
    )


def _middle(hand: Hand, spread: Work, f: Function, made: str) -> tuple[tuple[Node, ...], tuple[Carry, ...]]:
    """Straight, in two halves, or through a carry of any type: what is rounded twice means what it meant."""
    result, cols = f(at("fI", ROW, COL)), spread.cols
    ways = ("straight", "straight", "carry", *(("halves",) if spread.block[1] // 2 % block_elements(made) == 0 else ()))
    way = hand.pick(ways)
    if way == "carry":
        kept = Carry("kept", *spread.block, hand.pick(("f32", made, "bf16", "bfp8")))
        first = Compute(Generic(Ref("kept"), result, spread.rows, cols))
        filling: tuple[Node, ...] = (first, Compute(Generic(Ref("fO"), at("kept", ROW, COL), spread.rows, cols)))
        return (Front("fI"), Reserve("fO"), *filling, Push("fO"), Pop("fI")), (kept,)
    if way == "halves":
        step = spread.block[1] // 2 - (8 if hand.slip() else 0)
        low = Generic(Ref("fO"), result, spread.rows, span(cols.start, step, cols.limit))
        high = Generic(
            Ref("fO", quasi(0), quasi(step)), f(at("fI", ROW, quasi(COL) + step)), spread.rows,
            span(cols.start + step, spread.block[1] - step, cols.limit),
        )  # fmt: skip
        filling = (Compute(low), Compute(high))
    else:
        size = cols.size - (8 if hand.slip() else 0)
        filling = (Compute(Generic(Ref("fO"), result, spread.rows, span(cols.start, size, cols.limit))),)
    return (Front("fI"), Reserve("fO"), *filling, Push("fO"), Pop("fI")), ()


def _whole_numbers(hand: Hand) -> Function:
    return hand.pick((
        lambda x: x, lambda x: fn("add", x, 1.0), lambda x: fn("mul", x, 2.0), lambda x: fn("abs", x),
        lambda x: fn("max", x, 0.0),
    ))  # fmt: skip


def _any(hand: Hand) -> Function:
    return hand.pick((
        lambda x: x, lambda x: fn("mul", x, 0.3), lambda x: fn("tanh", x), lambda x: fn("add", x, 1.0),
    ))  # fmt: skip


def turned(hand: Hand) -> Case:
    """Whole in one slot of one site. A careless hand claims exact what is made in blocks: each type holds its elements,
    and not any sixteen of them.
    """
    target, taken = converting(hand, chip(hand, widest=1, tallest=1)), hand.pick((*PLAIN, *BLOCKS))
    made = hand.pick((taken, "f32"))
    rows, cols = (max(8, block_elements(dtype)) * hand.between(1, 2) for dtype in (made, taken))
    exact = hand.chance(0.5 if block_elements(made) == 1 else 4 * hand.careless)
    turn = Compute(Generic(Ref("fO"), at("fI", COL, ROW), whole(cols), whole(rows)))
    stages = (
        read("fI", "I", window((0, rows), (0, cols), row=0)),
        (Front("fI"), Reserve("fO"), turn, Push("fO"), Pop("fI")),
        write("fO", "O", window((0, cols), (0, rows), row=0)),
    )
    fifos = (Fifo("fI", "LOCAL", rows, cols, taken, 1), Fifo("fO", "LOCAL", cols, rows, made, 1))
    formals = (Formal("I", shape_of(rows, cols), taken, "IN"), Formal("O", shape_of(cols, rows), made, "OUT"))
    spec = Spec("O", shape_of(0, 0), shape_of(cols, rows), at("I", "i1", "i0"))
    shape, _ = staged(
        hand, target, "turned", formals, spec, stages, fifos, (), (), (1, 1, cols, rows), 0, Numerics(exact=exact)
    )
    tensors = (
        Tensor("i", shape_of(rows, cols), taken, "WEIGHT"), Tensor("o", shape_of(cols, rows), made, "OUTPUT"),
    )  # fmt: skip
    return one_section(target, shape, tensors, {"I": "i", "O": "o"}), target


# --- products ---


@dataclass(frozen=True)
class Types:
    """Of a product: its operands, what the engine takes them as, what is said of that, what is made, what is known."""

    a: str
    b: str
    taken: str
    stated: str
    made: str
    fill: Fill
    exact: bool


def _types(hand: Hand, target: SpatialTarget) -> Types:
    b = hand.pick(("bfp8", "bfp8", "bfp4"))
    a = "f32" if len(target.engines) == 1 else hand.pick(("f32", "bf16", b))
    taken = "bf16" if a != "f32" else "f32"
    stated = hand.pick(("bf16", "f32", b)) if hand.slip() else taken
    exact, top = hand.chance(0.3) and a != "f32", 7 if b == "bfp4" else 127
    fill: Fill = Ints(-hand.off(top), top) if exact else FLOATS
    made = hand.pick(("f32", "f32", "f32", "bfp8") if exact else ("f32", "f32", "bfp8", "bfp4", "bf16"))
    return Types(a, b, taken, stated, made, fill, exact)


def widened(hand: Hand) -> Case:
    target = _chip(hand)
    types, transposed = _types(hand, target), hand.chance(0.6)
    m, k, n = hand.between(1, 20), hand.off(BLOCK * hand.between(1, 4), (-8,)), BLOCK * hand.between(1, 3)
    b_shape = shape_of(n, k) if transposed else shape_of(k, n)
    b_at = at("B", "i1", "k0") if transposed else at("B", "k0", "i1")
    meant: Expr = Reduce("SUM", "k0", quasi(k), fn("mul", at("A", "i0", "k0"), b_at))
    formals = (
        Formal("A", shape_of(m, k), types.a, "IN", types.fill), Formal("B", b_shape, types.b, "IN", types.fill),
        Formal("C", shape_of(m, n), types.made, "OUT"),
    )  # fmt: skip
    spec = Spec("C", shape_of(0, 0), shape_of(m, n), meant)
    shape = _product(hand, target, types, transposed, (m, k, n), formals, spec)
    tensors = (
        Tensor("a", shape_of(m, k), types.a, "INPUT", types.fill), Tensor("b", b_shape, types.b, "WEIGHT", types.fill),
        Tensor("c", shape_of(m, n), types.made, "OUTPUT"),
    )  # fmt: skip
    return one_section(target, shape, tensors, {"A": "a", "B": "b", "C": "c"}), target


def _product(
    hand: Hand,
    target: SpatialTarget,
    types: Types,
    transposed: bool,
    extents: tuple[int, int, int],
    formals: tuple[Formal, ...],
    spec: Spec,
) -> Shape:
    (m, k, n), bm, bk, bn = extents, hand.pick((8, 16)), hand.pick((16, 32)), hand.pick((16, 32))
    mode = next(x for x in target.engine_for("compute").matrix if (x.a, x.b) == (types.taken, types.taken))
    if transposed and mode.lanes > 1:
        bk = BLOCK * -(-k // BLOCK)  # a sum in lanes is one step
    spread = work(hand, target, m, n, (bm, bn))
    along_k = (_beside(hand, bk * K), bk)
    b_window = ((spread.col, bn), along_k) if transposed else ((bk * K, bk), (spread.col, bn))
    load = (
        *read("fA", "A", window((spread.row, bm), (bk * K, bk), row=0)), *read("fB", "B", window(*b_window, row=0)),
    )  # fmt: skip
    tree = Tree(0, mode.lanes if transposed else 1, mode.fused)
    op = MatmulTiles(
        Ref("acc"), Ref("fA"), Ref("fB"), transposed, spread.rows, spread.cols, span(bk * K, bk, k), tree
    )  # fmt: skip
    store = write("fC", "C", window((spread.row, bm), (_beside(hand, spread.col), bn), row=0))
    fifos = (
        Fifo("fA", "LOCAL", bm, bk, types.a, hand.between(1, 2)),
        Fifo("fB", "LOCAL", *((bn, bk) if transposed else (bk, bn)), types.b, hand.between(1, 2)),
        Fifo("fC", "LOCAL", bm, bn, types.made, 1),
    )
    shape, _ = staged(
        hand, target, "widened", formals, spec, (*summed(target, op, load, quasi(-(-k // bk)), "fC"), store), fifos,
        (Carry("acc", bm, bn, "f32"),), spread.loops, (*spread.items, bm, bn), 0,
        Numerics(operands=(("A", types.taken), ("B", types.stated)), exact=types.exact),
    )  # fmt: skip
    return shape


# --- sections ---


def kept(hand: Hand) -> Case:
    """The tensor between is in blocks; the last section may stand over the layout of the first."""
    target = _chip(hand)
    first, between, last = hand.pick(PLAIN), hand.pick(BLOCKS), hand.pick((*PLAIN, *BLOCKS))
    rows, cols = hand.between(1, 16), _columns(hand, first, between, last)
    one, end = _converted(hand, target, "into", rows, cols, first, between)
    other, _ = _converted(hand, target, "out_of", rows, cols, between, last, 0 if hand.chance(0.6) else end)
    tensors = (
        Tensor("x", shape_of(rows, cols), first, "INPUT"),
        Tensor("t", shape_of(rows, cols), between, "SCRATCH", offset=0),
        Tensor("y", shape_of(rows, cols), last, "OUTPUT"),
    )
    parts = (
        Part(one, (("I", "x"), ("O", "t"))), Part(other, (("I", "t"), ("O", "y")), boundary=not hand.slip()),
    )  # fmt: skip
    return composed(hand, target, parts, tensors), target
