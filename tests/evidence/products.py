"""Products written by hand: carries and K blocks, multicast with credits, rows of any width in windows of a carry.

product      C = A . B in K blocks, operands read on every site, from one reader or two
multicast    C = A . B with A sent along rows, B along columns, or one of them, or both
row_windows  O = f(I) with a reduction over rows, gathered block by block into a carry that holds whole rows
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.expr import Expr, Reduce, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Counter,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Init,
    Items,
    Load,
    MatmulTiles,
    Node,
    Numerics,
    Pop,
    Post,
    Process,
    Push,
    Rect,
    Ref,
    Reserve,
    Send,
    Shape,
    Spec,
    Tensor,
    Tree,
    Wait,
    Window,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import Floats, Ints
from pavane.targets.descriptor import Grid, SpatialTarget
from tests.building import COL, ROW, SX, SY, K, one_section, rect, shape_of, span, whole, window, write
from tests.evidence.hand import Case, Hand, Work, chip, counter, everywhere, host_chip, laid_out, nested, work

EDGES = (8, 16, 32)


def product(hand: Hand) -> Case:
    if hand.chance(0.3):
        return _product(hand, host_chip(hand), alias=True)
    return _product(hand, chip(hand))


def multicast(hand: Hand, target: SpatialTarget | None = None, most: int = 40) -> Case:
    """`most`: of rows, columns and k."""
    target = target or chip(hand)
    ways = [way for way, n in (("A", target.grid.width), ("B", target.grid.height)) if n > 1]
    sent = tuple(way for way in ways if hand.chance(0.7)) or tuple(ways[:1])
    return _product(hand, target, sent=sent, most=most)


def multicast_on_a_line(hand: Hand) -> Case:
    """In one row of so many sites that few bits do not hold the credits of all."""
    target = replace(chip(hand), grid=Grid(width=hand.between(4, 6), height=1))
    return multicast(hand, target, most=16)


def _product(
    hand: Hand, target: SpatialTarget, alias: bool = False, sent: tuple[str, ...] = (), most: int = 40
) -> Case:
    m, k, n = (hand.between(1, most) for _ in "mkn")
    bm, bk, bn = (hand.pick(EDGES) for _ in "mkn")
    spread = _owned_by_rows_and_columns(target, m, n, (bm, bn)) if sent else work(hand, target, m, n, (bm, bn))
    kblocks, k_first = -(-k // bk), bk * K
    dtype = "f32" if alias else hand.pick(("bf16", "f32"))
    exact = hand.chance(0.3) and dtype == "bf16"
    fill = Ints(-4, 4) if exact else Floats()
    k_start = hand.pick((k_first - 1, k_first + 1, bk * (kblocks - 1) - k_first)) if hand.slip() else k_first
    loads = {
        "A": window((spread.row, bm), (k_start, bk), row=0),
        "B": window((k_first, bk), (spread.col, bn), row=0),
    }
    depth = hand.between(1, 2)
    kinds = {"A": "MULTICAST_ROW", "B": "MULTICAST_COLUMN"}
    kind = lambda f: kinds[f] if f in sent else "ALIAS" if alias else "LOCAL"  # noqa: E731
    fifos = (
        Fifo("fA", kind("A"), bm, bk, dtype, depth), Fifo("fB", kind("B"), bk, bn, dtype, hand.between(1, 2)),
        Fifo("fC", "LOCAL", bm, bn, "f32", hand.between(1, 2)),
    )  # fmt: skip
    placed, carries, _ = laid_out(hand, target, fifos, (Carry("acc", bm, bn, "f32"),))
    mode = target.engines[0] if alias else target.engine_for("compute")
    tree = Tree(0, 1, next(x.fused for x in mode.matrix if (x.a, x.b) == (dtype, dtype)))
    op = MatmulTiles(
        Ref("acc"), Ref("fA"), Ref("fB"), False, spread.rows, spread.cols, span(k_first, bk, hand.off(k)), tree
    )
    inner = (*_shuffled(hand, Front("fA"), Front("fB")), Compute(op), *_shuffled(hand, Pop("fA"), Pop("fB")))
    middle = (
        *(() if hand.slip() else (Init("acc"),)),
        *nested((("LV_KBLOCK", quasi(kblocks)),), inner),
        Reserve("fC"), Compute(Generic(Ref("fC"), at("acc", ROW, COL), spread.rows, spread.cols)), Push("fC"),
    )  # fmt: skip
    store = write("fC", "C", spread.window())
    counters: tuple[Counter, ...] = ()
    if alias:
        fills = tuple(s for f in "AB" for s in (Reserve(f"f{f}"), Load(f"f{f}", f, loads[f]), Push(f"f{f}")))
        body = (*middle[:-4], *nested((("LV_KBLOCK", quasi(kblocks)),), (*fills, *inner)), *middle[-3:], *store)
        processes = (Process("core", everywhere(target), "core", spread.nest(*body)),)
    else:
        nest = (*spread.loops, ("LV_KBLOCK", quasi(kblocks)))
        readers, counters = _readers(hand, target, nest, loads, sent)
        processes = (
            *readers,
            Process("compute", everywhere(target), "matrix", spread.nest(*middle)),
            Process("write", everywhere(target), "writer", spread.nest(*store)),
        )
    formals = (
        Formal("A", shape_of(m, k), dtype, "IN", fill), Formal("B", shape_of(k, n), dtype, "IN", fill),
        Formal("C", shape_of(m, n), "f32", "OUT"),
    )  # fmt: skip
    meant = Reduce("SUM", "k0", quasi(k), fn("mul", at("A", "i0", "k0"), at("B", "k0", "i1")))
    shape = Shape(
        name="product", formals=formals, spec=(Spec("C", shape_of(0, 0), shape_of(m, n), meant),),
        items=Items(quasi(spread.items[0]), quasi(spread.items[1]), bm, bn),
        numerics=Numerics(operands=(("A", dtype), ("B", dtype)), exact=exact),
        processes=processes, fifos=placed, carries=carries, counters=counters,
    )  # fmt: skip
    tensors = (
        Tensor("a", shape_of(m, k), dtype, "INPUT", fill), Tensor("b", shape_of(k, n), dtype, "WEIGHT", fill),
        Tensor("c", shape_of(m, n), "f32", "OUTPUT"),
    )  # fmt: skip
    return one_section(target, shape, tensors, {"A": "a", "B": "b", "C": "c"}), target


def _owned_by_rows_and_columns(target: SpatialTarget, m: int, n: int, block: tuple[int, int]) -> Work:
    """All sites of a row of the grid work on the same rows of C, all of a column on the same columns."""
    (bm, bn), (w, h) = block, (target.grid.width, target.grid.height)
    ty, tx = -(-m // bm), -(-n // bn)
    row, col = (SY + quasi("LV_ITEM_Y") * h) * bm, (SX + quasi("LV_ITEM_X") * w) * bn
    loops = (("LV_ITEM_Y", quasi(-(-ty // h))), ("LV_ITEM_X", quasi(-(-tx // w))))
    return Work(row, col, loops, span(row, bm, m), span(col, bn, n), (ty, tx), block)


def _shuffled(hand: Hand, *steps: Node) -> tuple[Node, ...]:
    return tuple(hand.rng.sample(steps, len(steps)))


def _readers(
    hand: Hand, target: SpatialTarget, nest: tuple[tuple[str, Quasi], ...], loads: dict[str, Window], sent: tuple
) -> tuple[tuple[Process, ...], tuple[Counter, ...]]:
    """One engine an operand, leaders and members where it is sent."""
    grid, processes, counters = target.grid, [], []
    for number, name in enumerate("AB"):
        fifo, engine = f"f{name}", f"reader_{name.lower()}"
        load = Load(fifo, name, loads[name])
        if name not in sent:
            steps = (Reserve(fifo), load, *(() if hand.slip() else (Fence(),)), Push(fifo))
            processes.append(Process(f"read{name}", everywhere(target), engine, nested(nest, steps)))
            continue
        w, h = grid.width, grid.height
        lead, rest = (rect(0, 1, 0, h), rect(1, w, 0, h)) if name == "A" else (rect(0, w, 0, 1), rect(0, w, 1, h))
        members = (w if name == "A" else h) - 1
        to = Rect(quasi(1), quasi(w), SY, SY + 1) if name == "A" else Rect(SX, SX + 1, quasi(1), quasi(h))
        leader = Rect(quasi(0), quasi(1), SY, SY + 1) if name == "A" else Rect(SX, SX + 1, quasi(0), quasi(1))
        credit, valid = f"credit{name}", f"valid{name}"
        sends = (Wait(credit, hand.off(members)), Send(fifo, to), Fence(), Post(valid, to))
        if hand.slip():
            sends = (Send(fifo, to), Fence(), Wait(credit, members), Post(valid, to))
        steps = (Reserve(fifo), load, *(() if hand.slip() else (Fence(),)), *sends, Push(fifo))
        takes: tuple[Node, ...] = (Reserve(fifo), Post(credit, leader), Wait(valid), Push(fifo))
        if hand.slip():
            takes = (Post(credit, leader), Reserve(fifo), Wait(valid), Push(fifo))
        processes += [
            Process(f"lead{name}", lead, engine, nested(nest, steps)),
            Process(f"take{name}", rest, engine, nested(nest, takes)),
        ]
        counters += [
            counter(target, credit, lead, engine, 2 * number, ahead=1 if hand.slip() else 0),
            counter(target, valid, rest, engine, 2 * number + 1),
        ]
    return tuple(processes), tuple(counters)


# --- rows in a carry ---


def row_windows(hand: Hand) -> Case:
    """The row comes block by block into a carry (dst.col steps with the block), then a reduction over it."""
    target = host_chip(hand) if hand.chance(0.3) else chip(hand)
    merged = len(target.engines) == 1
    rows, cols = hand.between(1, 30), hand.between(1, 60)
    block, step = hand.pick((4, 8, 16)), hand.pick((8, 16, 32))
    spread = _by_rows(hand, target, rows, block)
    pieces = -(-cols // step)
    cols_span, row_span, all_cols = span(step * K, step, cols), spread.rows, whole(cols)
    read = (
        Reserve("fI"), Load("fI", "I", window((spread.row, block), (step * K, step), row=0)),
        *(() if hand.slip() else (Fence(),)), Push("fI"),
    )  # fmt: skip
    dst = hand.pick((step * K, step * K, step * K, step * K, step * K + 1)) if hand.careless else step * K
    keep = Compute(Generic(Ref("row", quasi(0), dst), fn("mul", at("fI", ROW, COL), 0.5), row_span, cols_span))
    kind, total, finish, meant = _reduced(hand, cols)
    middle_in = (Front("fI"), keep, Pop("fI"))
    middle = (
        *((Init("row"),) if hand.chance(0.5) else ()),
        *nested((("LV_KBLOCK", quasi(pieces)),), (*read, *middle_in) if merged else middle_in),
        Compute(Generic(Ref("sum"), total, row_span, whole(1))),
        Reserve("fO"), Compute(Generic(Ref("fO"), finish, row_span, all_cols)), Push("fO"),
    )  # fmt: skip
    store = write("fO", "O", window((spread.row, block), (0, cols), row=0))
    if merged:
        processes: tuple[Process, ...] = (Process("core", everywhere(target), "core", spread.nest(*middle, *store)),)
    else:
        nest = (*spread.loops, ("LV_KBLOCK", quasi(pieces if not hand.slip() else max(1, pieces - 1))))
        processes = (
            Process("read", everywhere(target), "reader_a", nested(nest, read)),
            Process("compute", everywhere(target), "matrix", spread.nest(*middle)),
            Process("write", everywhere(target), "writer", spread.nest(*store)),
        )
    fifos = (
        Fifo("fI", "ALIAS" if merged else "LOCAL", block, step, "f32", hand.between(1, 2)),
        Fifo("fO", "LOCAL", block, cols, "f32", 1),
    )
    placed, carries, _ = laid_out(
        hand, target, fifos, (Carry("row", block, pieces * step, "f32"), Carry("sum", block, 1, "f32"))
    )
    shape = Shape(
        name=kind,
        formals=(Formal("I", shape_of(rows, cols), "f32", "IN"), Formal("O", shape_of(rows, cols), "f32", "OUT")),
        spec=(Spec("O", shape_of(0, 0), shape_of(rows, cols), meant),),
        items=Items(quasi(-(-rows // block)), quasi(1), block, cols),
        numerics=Numerics(), processes=processes, fifos=placed, carries=carries,
    )  # fmt: skip
    tensors = (
        Tensor("i", shape_of(rows, cols), "f32", "INPUT"), Tensor("o", shape_of(rows, cols), "f32", "OUTPUT"),
    )  # fmt: skip
    return one_section(target, shape, tensors, {"I": "i", "O": "o"}), target


def _by_rows(hand: Hand, target: SpatialTarget, rows: int, block: int) -> Work:
    """Rows over all sites."""
    w, sites, ty = target.grid.width, target.sites, -(-rows // block)
    turns = -(-ty // sites)
    item, place = quasi("LV_ITEM_Y"), SX + SY * w
    row = ((place + item * sites) if hand.chance(0.5) else (place * turns + item)) * block
    loops = (("LV_ITEM_Y", quasi(turns)),)
    return Work(row, quasi(0), loops, span(row, block, rows), whole(block), (ty, 1), (block, block))


def _reduced(hand: Hand, cols: int) -> tuple[str, Expr, Expr, Expr]:
    """(name, the op that reduces the carry, the op that uses it, the spec)."""
    half = lambda i, j: fn("mul", at("I", i, j), 0.5)  # noqa: E731
    kind = hand.pick(("SUM", "MAX"))
    spec_total = Reduce(kind, "k0", quasi(cols), half("i0", "k0"))
    total = Reduce(kind, "LV_GEN_K", quasi(cols), at("row", ROW, "LV_GEN_K"))
    way = hand.pick(("sub", "mul"))
    first = hand.pick(("sub", "mul")) if hand.slip() else way
    return f"row_{way}", total, fn(first, at("row", ROW, COL), at("sum", ROW, 0)), fn(way, half("i0", "i1"), spec_total)
