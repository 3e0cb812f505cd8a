"""Programs written by hand: what the words of docs/ir.md look like. No pass made them.

Each function returns a Program at PERSISTENT without a certificate, put together from tests/building.py.
"""

# ruff: noqa: E501
from __future__ import annotations

from pavane.ir.expr import Reduce, Var, at, fn
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
    Loop,
    MatmulTiles,
    Numerics,
    Pop,
    Post,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Send,
    Shape,
    Spec,
    Symbol,
    Tensor,
    Tree,
    Wait,
)
from pavane.ir.quasi import quasi
from pavane.ir.types import Ints
from pavane.targets.descriptor import SpatialTarget
from tests.building import (
    COL,
    GEN_K,
    ROW,
    SX,
    SY,
    K,
    X,
    Y,
    items,
    one_section,
    rect,
    shape_of,
    site,
    span,
    take,
    whole,
    window,
    write,
)


def _matmul_shape_parts(m: int, k: int, n: int, lo: int, hi: int):
    formals = (
        Formal("A", shape_of(m, k), "bf16", "IN", Ints(lo, hi)),
        Formal("B", shape_of(k, n), "bf16", "IN", Ints(lo, hi)),
        Formal("C", shape_of(m, n), "f32", "OUT"),
    )
    expr = Reduce("SUM", "k0", quasi(k), fn("mul", at("A", "i0", "k0"), at("B", "k0", "i1")))
    spec = (Spec("C", shape_of(0, 0), shape_of(m, n), expr),)
    tensors = (
        Tensor("a", shape_of(m, k), "bf16", "INPUT", Ints(lo, hi)),
        Tensor("b", shape_of(k, n), "bf16", "WEIGHT", Ints(lo, hi)),
        Tensor("c", shape_of(m, n), "f32", "OUTPUT"),
    )
    return formals, spec, tensors


def matmul_multicast(
    target: SpatialTarget, m: int = 100, k: int = 70, n: int = 150, lo: int = -4, hi: int = 4
) -> Program:
    """C = A . B on 2 x 2 sites of `toy`; A multicast along rows, B along columns; nothing divides."""
    formals, spec, tensors = _matmul_shape_parts(m, k, n, lo, hi)
    ty, tx, tk = -(-m // 32), -(-n // 32), -(-k // 32)
    y, x = -(-ty // 2), -(-tx // 2)
    row, col = 64 * Y + 32 * SY, 64 * X + 32 * SX

    def nest(*steps):
        return items(y, x, Loop("LV_KBLOCK", quasi(tk), steps))

    load_a = Load("fA", "A", window((row, 32), (32 * K, 32), row=0))
    load_b = Load("fB", "B", window((32 * K, 32), (col, 32), row=0))
    rows, cols, ks = span(row, 32, m), span(col, 32, n), span(32 * K, 32, k)
    product = MatmulTiles(Ref("acc"), Ref("fA"), Ref("fB"), False, rows, cols, ks, Tree())
    item = (
        Init("acc"),
        Loop("LV_KBLOCK", quasi(tk), (Front("fA"), Front("fB"), Compute(product), Pop("fA"), Pop("fB"))),
        Reserve("fC"),
        Compute(Generic(Ref("fC"), at("acc", ROW, COL), rows, cols)),
        Push("fC"),
    )
    store = write("fC", "C", window((row, 32), (col, 32), row=0))

    def lead(fifo, load, credit, valid, to):
        return nest(Reserve(fifo), load, Fence(), Wait(credit), Send(fifo, to), Fence(), Post(valid, to), Push(fifo))

    def receive(fifo, credit, valid, leader):
        return nest(Reserve(fifo), Post(credit, leader), Wait(valid), Push(fifo))

    shape = Shape(
        name="matmul",
        formals=formals,
        spec=spec,
        items=Items(quasi(ty), quasi(tx), 32, 32),
        numerics=Numerics(operands=(("A", "bf16"), ("B", "bf16")), exact=True),
        processes=(
            Process("leadA", rect(0, 1, 0, 2), "reader_a", lead("fA", load_a, "creditA", "validA", site(1, SY))),
            Process("recvA", rect(1, 2, 0, 2), "reader_a", receive("fA", "creditA", "validA", site(0, SY))),
            Process("leadB", rect(0, 2, 0, 1), "reader_b", lead("fB", load_b, "creditB", "validB", site(SX, 1))),
            Process("recvB", rect(0, 2, 1, 2), "reader_b", receive("fB", "creditB", "validB", site(SX, 0))),
            Process("compute", rect(0, 2, 0, 2), "matrix", items(y, x, *item)),
            Process("write", rect(0, 2, 0, 2), "writer", items(y, x, *store)),
        ),
        fifos=(
            Fifo("fA", "MULTICAST_ROW", 32, 32, "bf16", 2, 0x0000),
            Fifo("fB", "MULTICAST_COLUMN", 32, 32, "bf16", 2, 0x1000),
            Fifo("fC", "LOCAL", 32, 32, "f32", 2, 0x2000),
        ),
        carries=(Carry("acc", 32, 32, "f32", address=0x4000),),
        counters=(
            Counter("creditA", rect(0, 1, 0, 2), "reader_a", bits=4, id=0),
            Counter("validA", rect(1, 2, 0, 2), "reader_a", bits=4, id=1),
            Counter("creditB", rect(0, 2, 0, 1), "reader_b", bits=4, id=2),
            Counter("validB", rect(0, 2, 1, 2), "reader_b", bits=4, id=3),
        ),
    )
    return one_section(target, shape, tensors, {"A": "a", "B": "b", "C": "c"})


def norm_product_host(
    target: SpatialTarget, width: int = 64, outputs: int = 96, block: int = 32, contract: str = "FLOAT"
) -> Program:
    """y[r, n] = SUM_k rmsnorm(x)[r, k] * W[n, k], W q8_0 as stored, on the cores of `host`: one merged process a site.

    The normalised row is a carry (f32, or q8_0 under INT8_ACTIVATIONS) made once; outputs are spread over the cores.
    """
    panel = "q8_0" if contract == "INT8_ACTIVATIONS" else "f32"
    w = target.grid.width
    mode_lanes = next(m.lanes for m in target.engines[0].matrix if (m.a, m.b) == (panel, "q8_0"))
    rows = quasi("rows")
    r = span(0, 32, rows)
    col = block * SX + block * w * X
    cols = span(col, block, outputs)
    tiles = -(-outputs // block)
    mean = fn("div", at("ss", ROW, 0), float(width))
    normed = fn("mul", fn("mul", at("fX", ROW, COL), fn("rsqrt", fn("add", mean, 1e-5))), at("fG", 0, COL))
    square = Reduce("SUM", GEN_K, quasi(width), fn("mul", at("fX", ROW, GEN_K), at("fX", ROW, GEN_K)))
    product = MatmulTiles(Ref("acc"), Ref("panel"), Ref("fW"), True, r, cols, whole(width), Tree(0, mode_lanes, True))
    body = (
        Reserve("fX"),
        Load("fX", "X", window((0, 32), (0, width), row=0)),
        Push("fX"),
        Reserve("fG"),
        Load("fG", "G", window((0, width))),
        Push("fG"),
        Front("fX"),
        Front("fG"),
        Compute(Generic(Ref("ss"), square, r, whole(1))),
        Compute(Generic(Ref("panel"), normed, r, whole(width))),
        Pop("fX"),
        Pop("fG"),
        Loop("LV_ITEM_Y", quasi(1), (
            Loop("LV_ITEM_X", quasi(-(-tiles // w)), (
                Reserve("fW"),
                Load("fW", "W", window((col, block), (0, width), row=0)),
                Push("fW"),
                Init("acc"),
                Front("fW"),
                Compute(product),
                Pop("fW"),
                Reserve("fC"),
                Compute(Generic(Ref("fC"), at("acc", ROW, COL), r, cols)),
                Push("fC"),
                *write("fC", "C", window((0, 32), (col, block), row=0)),
            )),
        )),
    )  # fmt: skip
    spec_norm = fn(
        "mul",
        fn(
            "mul",
            at("X", "i0", "k0"),
            fn(
                "rsqrt",
                fn(
                    "add",
                    fn(
                        "div",
                        Reduce("SUM", "k1", quasi(width), fn("mul", at("X", "i0", "k1"), at("X", "i0", "k1"))),
                        float(width),
                    ),
                    1e-5,
                ),
            ),
        ),
        at("G", "k0"),
    )
    shape = Shape(
        name="norm_product",
        formals=(
            Formal("X", shape_of(rows, width), "f32", "IN"),
            Formal("G", shape_of(width), "f32", "IN"),
            Formal("W", shape_of(outputs, width), "q8_0", "IN"),
            Formal("C", shape_of(rows, outputs), "f32", "OUT"),
        ),
        spec=(
            Spec(
                "C",
                shape_of(0, 0),
                shape_of(rows, outputs),
                Reduce("SUM", "k0", quasi(width), fn("mul", spec_norm, at("W", "i1", "k0"))),
            ),
        ),
        items=Items(quasi(1), quasi(tiles), 32, block),
        numerics=Numerics(contract, operands=(("W", "q8_0"),)),
        processes=(Process("core", rect(0, w, 0, 1), "core", body),),
        fifos=(
            Fifo("fX", "ALIAS", 32, width, "f32", 1),
            Fifo("fG", "ALIAS", 1, width, "f32", 1),
            Fifo("fW", "ALIAS", block, width, "q8_0", 1),
            Fifo("fC", "LOCAL", 32, block, "f32", 1, 0),
        ),
        carries=(
            Carry("ss", 32, 1, "f32", address=4 * 32 * block),
            Carry("panel", 32, width, panel, address=4 * 32 * block + 128),
            Carry("acc", 32, block, "f32", address=4 * 32 * block + 128 + 4 * 32 * width),
        ),
    )
    tensors = (
        Tensor("x", shape_of(rows, width), "f32", "INPUT"),
        Tensor("g", shape_of(width), "f32", "WEIGHT"),
        Tensor("w", shape_of(outputs, width), "q8_0", "WEIGHT"),
        Tensor("y", shape_of(rows, outputs), "f32", "OUTPUT"),
    )
    return one_section(target, shape, tensors, {"X": "x", "G": "g", "W": "w", "C": "y"}, (Symbol("rows", 1, 32, 1),))


def attention_host(
    target: SpatialTarget, heads: int = 3, kv_heads: int = 1, width: int = 16, context: int = 64, block: int = 32
) -> Program:
    """o[r, h, :] = softmax over j <= pos + r of q[r, h] .

    K[j, h / group] / sqrt(width), times V; caches are only read here.
    """
    w = target.grid.width
    group = heads // kv_heads
    pos, rows = quasi("pos"), quasi("rows")
    live = pos + rows
    h = SX + w * X
    r = span(0, 32, rows)
    ks = span(block * K, block, live)
    scale = width**-0.5
    # A ghost item (h >= heads) loads nothing; the guards keep its ops from reading.
    q_guard, kv_guard = span(h, 1, heads), span(h // group, 1, kv_heads)
    real = (q_guard,)
    ones = Tree(0, 16, True)
    masked = fn(
        "select", fn("le", Var(quasi(COL)), Var(pos + quasi(ROW))), fn("mul", at("S", ROW, COL), scale), -3.0e38
    )
    masked_k = fn(
        "select", fn("le", Var(quasi(GEN_K)), Var(pos + quasi(ROW))), fn("mul", at("S", ROW, GEN_K), scale), -3.0e38
    )
    live_cols = span(0, context, live)
    body = (
        Loop("LV_ITEM_Y", quasi(1), (
            Loop("LV_ITEM_X", quasi(-(-heads // w)), (
                *take("fQ", "Q", window((0, 32), (h, 1), (0, width), row=0)),
                Init("S"),
                Loop("LV_KBLOCK", live.ceil(block), (
                    *take("fK", "K", window((block * K, block), (h // group, 1), (0, width), row=0)),
                    Compute(MatmulTiles(Ref("S", quasi(0), block * K), Ref("fQ"), Ref("fK"), True, r, ks, whole(width), ones, (q_guard, kv_guard))),
                    Pop("fK"),
                )),
                Pop("fQ"),
                Compute(Generic(Ref("mx"), Reduce("MAX", GEN_K, live, masked_k), r, whole(1), real)),
                Compute(Generic(Ref("P"), fn("exp", fn("sub", masked, at("mx", ROW, 0))), r, live_cols, real)),
                Compute(Generic(Ref("l"), Reduce("SUM", GEN_K, live, at("P", ROW, GEN_K)), r, whole(1), real)),
                Init("acc"),
                Loop("LV_KBLOCK", live.ceil(block), (
                    *take("fV", "V", window((block * K, block), (h // group, 1), (0, width), row=0)),
                    Compute(MatmulTiles(Ref("acc"), Ref("P", quasi(0), block * K), Ref("fV"), False, r, whole(width), ks, Tree(0, 1, True), (q_guard, kv_guard))),
                    Pop("fV"),
                )),
                Reserve("fO"),
                Compute(Generic(Ref("fO"), fn("div", at("acc", ROW, COL), at("l", ROW, 0)), r, whole(width), real)),
                Push("fO"),
                *write("fO", "O", window((0, 32), (h, 1), (0, width), row=0)),
            )),
        )),
    )  # fmt: skip

    def score(j: str):
        dot = Reduce(
            "SUM",
            f"d_{j}",
            quasi(width),
            fn("mul", at("Q", "i0", "i1", f"d_{j}"), at("K", j, quasi("i1") // group, f"d_{j}")),
        )
        return fn("select", fn("le", Var(quasi(j)), Var(pos + quasi("i0"))), fn("mul", dot, scale), -3.0e38)

    def weight(j: str, m: str):
        return fn("exp", fn("sub", score(j), Reduce("MAX", m, live, score(m))))

    out = fn(
        "div",
        Reduce("SUM", "j0", live, fn("mul", weight("j0", "m0"), at("V", "j0", quasi("i1") // group, "i2"))),
        Reduce("SUM", "j1", live, weight("j1", "m1")),
    )
    formals = (
        Formal("Q", shape_of(rows, heads, width), "f32", "IN"),
        Formal("K", shape_of(live, kv_heads, width), "f16", "IN"),
        Formal("V", shape_of(live, kv_heads, width), "f16", "IN"),
        Formal("O", shape_of(rows, heads, width), "f32", "OUT"),
    )
    sizes = [32 * context * 4, 32 * context * 4, 128, 128, 32 * width * 4, 32 * width * 4]
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    shape = Shape(
        name="attention",
        formals=formals,
        spec=(Spec("O", shape_of(0, 0, 0), shape_of(rows, heads, width), out),),
        items=Items(quasi(1), quasi(heads), 32, width),
        numerics=Numerics(operands=(("Q", "f32"), ("K", "f16"), ("V", "f16"))),
        processes=(Process("core", rect(0, w, 0, 1), "core", body),),
        fifos=(
            Fifo("fQ", "ALIAS", 32, width, "f32", 1),
            Fifo("fK", "ALIAS", block, width, "f16", 1),
            Fifo("fV", "ALIAS", block, width, "f16", 1),
            Fifo("fO", "LOCAL", 32, width, "f32", 1, offsets[5]),
        ),
        carries=(
            Carry("S", 32, context, "f32", address=offsets[0]),
            Carry("P", 32, context, "f32", address=offsets[1]),
            Carry("mx", 32, 1, "f32", address=offsets[2]),
            Carry("l", 32, 1, "f32", address=offsets[3]),
            Carry("acc", 32, width, "f32", address=offsets[4]),
        ),
    )
    cache = shape_of(context, kv_heads, width)
    tensors = (
        Tensor("q", shape_of(rows, heads, width), "f32", "INPUT"),
        Tensor("kc", cache, "f16", "WEIGHT"),
        Tensor("vc", cache, "f16", "WEIGHT"),
        Tensor("o", shape_of(rows, heads, width), "f32", "OUTPUT"),
    )
    symbols = (Symbol("pos", 0, context - 32, context // 2), Symbol("rows", 1, 32, 1))
    return one_section(target, shape, tensors, {"Q": "q", "K": "kc", "V": "vc", "O": "o"}, symbols)
