"""TEMPLATE sections written by hand for the passes' tests, with tensors to run on and the answers they must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from pavane.ir.digest import graph_digest
from pavane.ir.expr import Expr, Indirect, Reduce, Var, at, fn
from pavane.ir.program import (
    Binding,
    Carry,
    Compute,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Group,
    Init,
    Instance,
    Items,
    Load,
    Loop,
    MatmulTiles,
    Numerics,
    Pop,
    Program,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
    Stage,
    Symbol,
    Tensor,
    Tree,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.targets.descriptor import SpatialTarget, target_digest
from tests.building import COL, GEN_K, ROW, K, S, X, Y, items, read, shape_of, span, whole, window, write


@dataclass(frozen=True)
class Case:
    """A TEMPLATE program, random tensors, symbols' values, and `expected`: the outputs that must come out."""

    program: Program
    tensors: dict[str, np.ndarray]
    expected: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
    symbols: dict[str, int] = field(default_factory=dict)


def axis(extent: int, tile: int, var: Quasi) -> tuple[Quasi, int, int]:
    """(start, size, turns) of a dimension as templates step it."""
    return (quasi(0), extent, 1) if extent <= tile else (tile * var, tile, -(-extent // tile))


def section(
    target: SpatialTarget,
    name: str,
    formals: tuple[Formal, ...],
    spec: Expr,
    grid: Items,
    numerics: Numerics,
    stages: dict[str, tuple],
    fifos: tuple[Fifo, ...],
    carries: tuple[Carry, ...] = (),
    symbols: tuple[Symbol, ...] = (),
) -> Program:
    """A program of one TEMPLATE section; formal `A` is bound to tensor `a`; the last formal is the output."""
    roles = {"reader_a": ("reader", 0), "reader_b": ("reader", 1), "compute": ("compute", 0), "writer": ("writer", 0)}
    out = formals[-1]
    shape = Shape(
        name=name,
        formals=formals,
        spec=(Spec(out.name, shape_of(*(0 for _ in out.shape)), out.shape, spec),),
        items=grid,
        numerics=numerics,
        groups=(Group("all", tuple(Stage(s, target.engine_for(*roles[s]).name, body) for s, body in stages.items())),),
        fifos=tuple(replace(f, kind="LOCAL") if f.kind == "ALIAS" and not target.alias else f for f in fifos),
        carries=carries,
    )
    tensors = tuple(
        Tensor(f.name.lower(), f.shape, f.dtype, "OUTPUT" if f is out else "INPUT", f.fill) for f in formals
    )
    program = Program(
        name=name,
        phase="TEMPLATE",
        target=target.name,
        target_digest=target_digest(target),
        graph_digest="",
        symbols=symbols,
        tensors=tensors,
        shapes=(shape,),
        instances=(Instance(name, tuple(Binding(f.name, f.name.lower()) for f in formals), name=name),),
    )
    return replace(program, graph_digest=graph_digest(program))


def random_tensors(seed: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def matmul(target: SpatialTarget, m: int = 100, k: int = 70, n: int = 150, lanes: int = 1) -> Case:
    """C = A . B, or C = A . B^T with a tree of several lanes."""
    ty, tx = target.tile
    row, rows, turns_y = axis(m, ty, Y)
    col, cols, turns_x = axis(n, tx, X)
    start, size, turns_k = axis(k, 32, K)
    transposed = lanes > 1
    b_window = window((col, cols), (start, size), row=0) if transposed else window((start, size), (col, cols), row=0)

    def contraction(*steps) -> tuple:
        return (Loop("LV_KBLOCK", quasi(turns_k), steps),) if turns_k > 1 else steps

    r, c, ks = span(row, rows, m), span(col, cols, n), span(start, size, k)
    product = MatmulTiles(Ref("acc"), Ref("fA"), Ref("fB"), transposed, r, c, ks, Tree(0, lanes, lanes > 1))
    stages = {
        "reader_a": items(turns_y, turns_x, *contraction(*read("fA", "A", window((row, rows), (start, size), row=0)))),
        "reader_b": items(turns_y, turns_x, *contraction(*read("fB", "B", b_window))),
        "compute": items(
            turns_y,
            turns_x,
            Init("acc"),
            *contraction(Front("fA"), Front("fB"), Compute(product), Pop("fA"), Pop("fB")),
            Reserve("fC"),
            Compute(Generic(Ref("fC"), at("acc", ROW, COL), r, c)),
            Push("fC"),
        ),
        "writer": items(turns_y, turns_x, *write("fC", "C", window((row, rows), (col, cols), row=0))),
    }
    b_index = ("i1", "k0") if transposed else ("k0", "i1")
    program = section(
        target,
        "matmul",
        (
            Formal("A", shape_of(m, k), "bf16", "IN"),
            Formal("B", shape_of(n, k) if transposed else shape_of(k, n), "bf16", "IN"),
            Formal("C", shape_of(m, n), "f32", "OUT"),
        ),
        Reduce("SUM", "k0", quasi(k), fn("mul", at("A", "i0", "k0"), at("B", *b_index))),
        Items(quasi(turns_y), quasi(turns_x), rows, cols),
        Numerics(operands=(("A", "bf16"), ("B", "bf16"))),
        stages,
        (
            Fifo("fA", "ALIAS", rows, size, "bf16"),
            Fifo("fB", "ALIAS", *((cols, size) if transposed else (size, cols)), "bf16"),
            Fifo("fC", "LOCAL", rows, cols, "f32"),
        ),
        (Carry("acc", rows, cols, "f32"),),
    )
    tensors = random_tensors(1, a=(m, k), b=(n, k) if transposed else (k, n), c=(m, n))
    return Case(program, tensors, lambda t: {"c": t["a"] @ (t["b"].T if transposed else t["b"])})


def norm_product(target: SpatialTarget, width: int = 64, outputs: int = 96, rows: int = 3, most: int = 32) -> Case:
    """y = rmsnorm(x) . W^T with a panel made once a row of items; W q8_0, outputs in tiles."""
    col, cols, turns = axis(outputs, target.tile[1], X)
    live = quasi("rows")
    r, c = span(0, most, live), span(col, cols, outputs)
    mean = fn("div", at("ss", ROW, 0), float(width))
    normed = fn("mul", fn("mul", at("fX", ROW, COL), fn("rsqrt", fn("add", mean, 1e-5))), at("fG", 0, COL))
    square = Reduce("SUM", GEN_K, quasi(width), fn("mul", at("fX", ROW, GEN_K), at("fX", ROW, GEN_K)))
    product = MatmulTiles(Ref("acc"), Ref("panel"), Ref("fW"), True, r, c, whole(width), Tree(0, 16, True))
    x_window = window((0, most), (0, width), row=0)
    once = lambda *steps: (Loop("LV_ITEM_Y", quasi(1), steps),)  # noqa: E731
    stages = {
        "reader_a": once(*read("fX", "X", x_window), *read("fG", "G", window((0, width)))),
        "reader_b": items(1, turns, *read("fW", "W", window((col, cols), (0, width), row=0))),
        "compute": once(
            Front("fX"),
            Front("fG"),
            Compute(Generic(Ref("ss"), square, r, whole(1))),
            Compute(Generic(Ref("panel"), normed, r, whole(width))),
            Pop("fX"),
            Pop("fG"),
            Loop("LV_ITEM_X", quasi(turns), (
                Init("acc"), Front("fW"), Compute(product), Pop("fW"),
                Reserve("fC"), Compute(Generic(Ref("fC"), at("acc", ROW, COL), r, c)), Push("fC"),
            )),
        ),
        "writer": items(1, turns, *write("fC", "C", window((0, most), (col, cols), row=0))),
    }  # fmt: skip
    x = at("X", "i0", "k0")
    squares = Reduce("SUM", "k1", quasi(width), fn("mul", at("X", "i0", "k1"), at("X", "i0", "k1")))
    spec_norm = fn("mul", fn("mul", x, fn("rsqrt", fn("add", fn("div", squares, float(width)), 1e-5))), at("G", "k0"))
    program = section(
        target,
        "norm_product",
        (
            Formal("X", shape_of(live, width), "f32", "IN"),
            Formal("G", shape_of(width), "f32", "IN"),
            Formal("W", shape_of(outputs, width), "q8_0", "IN"),
            Formal("C", shape_of(live, outputs), "f32", "OUT"),
        ),
        Reduce("SUM", "k0", quasi(width), fn("mul", spec_norm, at("W", "i1", "k0"))),
        Items(quasi(1), quasi(turns), most, cols),
        Numerics(operands=(("W", "q8_0"),)),
        stages,
        (
            Fifo("fX", "ALIAS", most, width, "f32"),
            Fifo("fG", "ALIAS", 1, width, "f32"),
            Fifo("fW", "ALIAS", cols, width, "q8_0"),
            Fifo("fC", "LOCAL", most, cols, "f32"),
        ),
        (Carry("ss", most, 1, "f32"), Carry("panel", most, width, "f32"), Carry("acc", most, cols, "f32")),
        (Symbol("rows", 1, most, 1),),
    )
    tensors = random_tensors(2, x=(rows, width), g=(width,), w=(outputs, width), c=(rows, outputs))

    def expected(t: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        norm = t["x"] / np.sqrt((t["x"] ** 2).mean(axis=1, keepdims=True) + 1e-5) * t["g"]
        return {"c": norm @ t["w"].T}

    return Case(program, tensors, expected, {"rows": rows})


def softmax(target: SpatialTarget, m: int = 70, n: int = 50) -> Case:
    """Rows of exp(a - max) / sum; a whole row an item."""
    row, rows, turns = axis(m, target.tile[0], Y)
    r, c = span(row, rows, m), whole(n)
    win = window((row, rows), (0, n), row=0)
    stages = {
        "reader_a": items(turns, 1, *read("fA", "A", win)),
        "compute": items(
            turns,
            1,
            Front("fA"),
            Compute(Generic(Ref("mx"), Reduce("MAX", GEN_K, quasi(n), at("fA", ROW, GEN_K)), r, whole(1))),
            Compute(Generic(Ref("e"), fn("exp", fn("sub", at("fA", ROW, COL), at("mx", ROW, 0))), r, c)),
            Pop("fA"),
            Compute(Generic(Ref("l"), Reduce("SUM", GEN_K, quasi(n), at("e", ROW, GEN_K)), r, whole(1))),
            Reserve("fC"),
            Compute(Generic(Ref("fC"), fn("div", at("e", ROW, COL), at("l", ROW, 0)), r, c)),
            Push("fC"),
        ),
        "writer": items(turns, 1, *write("fC", "C", win)),
    }

    def weight(k: str, m_: str) -> Expr:
        return fn("exp", fn("sub", at("A", "i0", k), Reduce("MAX", m_, quasi(n), at("A", "i0", m_))))

    program = section(
        target,
        "softmax",
        (Formal("A", shape_of(m, n), "f32", "IN"), Formal("C", shape_of(m, n), "f32", "OUT")),
        fn("div", weight("i1", "k0"), Reduce("SUM", "k1", quasi(n), weight("k1", "k2"))),
        Items(quasi(turns), quasi(1), rows, n),
        Numerics(),
        stages,
        (Fifo("fA", "ALIAS", rows, n, "f32"), Fifo("fC", "LOCAL", rows, n, "f32")),
        (Carry("mx", rows, 1, "f32"), Carry("e", rows, n, "f32"), Carry("l", rows, 1, "f32")),
    )

    def expected(t: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        e = np.exp(t["a"] - t["a"].max(axis=1, keepdims=True))
        return {"c": e / e.sum(axis=1, keepdims=True)}

    return Case(program, random_tensors(3, a=(m, n), c=(m, n)), expected)


def chain(target: SpatialTarget, m: int = 70, n: int = 90) -> Case:
    """c = tanh(a * b) + position of the column: two Generics with a cut between them."""
    row, rows, turns_y = axis(m, target.tile[0], Y)
    col, cols, turns_x = axis(n, target.tile[1], X)
    r, c = span(row, rows, m), span(col, cols, n)
    win = window((row, rows), (col, cols), row=0)
    cut = Compute(Generic(Ref("t"), fn("mul", at("fA", ROW, COL), at("fB", ROW, COL)), r, c))
    last = Compute(Generic(Ref("fC"), fn("add", fn("tanh", at("t", ROW, COL)), Var(col + quasi(COL))), r, c))
    stages = {
        "reader_a": items(turns_y, turns_x, *read("fA", "A", win)),
        "reader_b": items(turns_y, turns_x, *read("fB", "B", win)),
        "compute": items(
            turns_y,
            turns_x,
            *(Front("fA"), Front("fB"), cut, Reserve("fC"), last, Push("fC"), Pop("fA"), Pop("fB")),
        ),
        "writer": items(turns_y, turns_x, *write("fC", "C", win)),
    }
    program = section(
        target,
        "chain",
        tuple(Formal(name, shape_of(m, n), "f32", role) for name, role in (("A", "IN"), ("B", "IN"), ("C", "OUT"))),
        fn("add", fn("tanh", fn("mul", at("A", "i0", "i1"), at("B", "i0", "i1"))), Var(quasi("i1"))),
        Items(quasi(turns_y), quasi(turns_x), rows, cols),
        Numerics(),
        stages,
        (
            Fifo("fA", "ALIAS", rows, cols, "f32"),
            Fifo("fB", "ALIAS", rows, cols, "f32"),
            Fifo("fC", "LOCAL", rows, cols, "f32"),
        ),
        (Carry("t", rows, cols, "f32", cut=True),),
    )
    tensors = random_tensors(4, a=(m, n), b=(m, n), c=(m, n))
    return Case(program, tensors, lambda t: {"c": np.tanh(t["a"] * t["b"]) + np.arange(n)})


def gather(target: SpatialTarget, rows: int = 5, width: int = 90, entries: int = 11) -> Case:
    """c[r] = e[ids[r]], columns in tiles."""
    col, cols, turns = axis(width, target.tile[1], X)
    live = quasi("rows")
    row_of = Indirect("I", (S,), 0, entries, "fI")
    r, c = span(0, 32, live), span(col, cols, width)
    reader = (
        Loop("LV_ITEM_Y", quasi(1), (
            *read("fI", "I", window((0, 32))),
            Front("fI"),
            Loop("LV_ITEM_X", quasi(turns), (
                Reserve("fE"),
                Loop("LV_SUB_H", live, (Load("fE", "E", window((row_of, 1), (col, cols), row=0), S),)),
                Fence(),
                Push("fE"),
            )),
            Pop("fI"),
        )),
    )  # fmt: skip
    stages = {
        "reader_a": reader,
        "compute": items(
            1,
            turns,
            Front("fE"),
            Reserve("fC"),
            Compute(Generic(Ref("fC"), at("fE", ROW, COL), r, c)),
            Push("fC"),
            Pop("fE"),
        ),
        "writer": items(1, turns, *write("fC", "C", window((0, 32), (col, cols), row=0))),
    }
    program = section(
        target,
        "gather",
        (
            Formal("I", shape_of(live), "i32", "IN"),
            Formal("E", shape_of(entries, width), "f32", "IN"),
            Formal("C", shape_of(live, width), "f32", "OUT"),
        ),
        at("E", Indirect("I", (quasi("i0"),), 0, entries), "i1"),
        Items(quasi(1), quasi(turns), 32, cols),
        Numerics(),
        stages,
        (Fifo("fI", "LOCAL", 1, 32, "i32"), Fifo("fE", "LOCAL", 32, cols, "f32"), Fifo("fC", "LOCAL", 32, cols, "f32")),
        (),
        (Symbol("rows", 1, 32, 1),),
    )
    tensors = random_tensors(5, e=(entries, width), c=(rows, width))
    tensors["i"] = np.random.default_rng(6).integers(0, entries, rows).astype(float)
    return Case(program, tensors, lambda t: {"c": t["e"][t["i"].astype(int)]}, {"rows": rows})


def attention(
    target: SpatialTarget, heads: int = 3, width: int = 16, context: int = 64, pos: int = 37, rows: int = 3
) -> Case:
    """Causal attention over a cache of one KV head, a head an item, keys in blocks of 32."""
    live = quasi("pos") + quasi("rows")
    r, ks = span(0, 32, quasi("rows")), span(32 * K, 32, live)
    guard = (span(X, 1, heads), span(X // heads, 1, 1))
    scale = width**-0.5
    visible = lambda j: fn("le", Var(quasi(j)), Var(quasi("pos") + quasi(ROW)))  # noqa: E731
    masked = lambda j: fn("select", visible(j), fn("mul", at("S", ROW, j), scale), -3.0e38)  # noqa: E731
    all_cols = span(0, context, live)
    blocks = live.ceil(32)
    q_win = window((0, 32), (X, 1), (0, width), row=0)
    kv_win = window((32 * K, 32), (X // heads, 1), (0, width), row=0)
    dot = MatmulTiles(
        Ref("S", quasi(0), 32 * K), Ref("fQ"), Ref("fK"), True, r, ks, whole(width), Tree(0, 16, True), guard
    )
    values = MatmulTiles(
        Ref("acc"), Ref("P", quasi(0), 32 * K), Ref("fV"), False, r, whole(width), ks, Tree(0, 1, True), guard
    )
    each = lambda *steps: Loop("LV_KBLOCK", blocks, steps)  # noqa: E731
    real = guard[:1]
    stages = {
        "reader_a": items(1, heads, *read("fQ", "Q", q_win)),
        "reader_b": items(1, heads, each(*read("fK", "K", kv_win)), each(*read("fV", "V", kv_win))),
        "compute": items(
            1,
            heads,
            Front("fQ"),
            Init("S"),
            each(Front("fK"), Compute(dot), Pop("fK")),
            Pop("fQ"),
            Compute(Generic(Ref("mx"), Reduce("MAX", GEN_K, live, masked(GEN_K)), r, whole(1), real)),
            Compute(Generic(Ref("P"), fn("exp", fn("sub", masked(COL), at("mx", ROW, 0))), r, all_cols, real)),
            Compute(Generic(Ref("l"), Reduce("SUM", GEN_K, live, at("P", ROW, GEN_K)), r, whole(1), real)),
            Init("acc"),
            each(Front("fV"), Compute(values), Pop("fV")),
            Reserve("fO"),
            Compute(Generic(Ref("fO"), fn("div", at("acc", ROW, COL), at("l", ROW, 0)), r, whole(width), real)),
            Push("fO"),
        ),
        "writer": items(1, heads, *write("fO", "O", q_win)),
    }

    def score(j: str) -> Expr:
        dot = Reduce(
            "SUM",
            f"d_{j}",
            quasi(width),
            fn("mul", at("Q", "i0", "i1", f"d_{j}"), at("K", j, quasi("i1") // heads, f"d_{j}")),
        )
        return fn("select", fn("le", Var(quasi(j)), Var(quasi("pos") + quasi("i0"))), fn("mul", dot, scale), -3.0e38)

    def weight(j: str, m: str) -> Expr:
        return fn("exp", fn("sub", score(j), Reduce("MAX", m, live, score(m))))

    top = Reduce("SUM", "j0", live, fn("mul", weight("j0", "m0"), at("V", "j0", quasi("i1") // heads, "i2")))
    program = section(
        target,
        "attention",
        (
            Formal("Q", shape_of(quasi("rows"), heads, width), "f32", "IN"),
            Formal("K", shape_of(live, 1, width), "f16", "IN"),
            Formal("V", shape_of(live, 1, width), "f16", "IN"),
            Formal("O", shape_of(quasi("rows"), heads, width), "f32", "OUT"),
        ),
        fn("div", top, Reduce("SUM", "j1", live, weight("j1", "m1"))),
        Items(quasi(1), quasi(heads), 32, width),
        Numerics(operands=(("Q", "f32"), ("K", "f16"), ("V", "f16"))),
        stages,
        (
            Fifo("fQ", "ALIAS", 32, width, "f32"),
            Fifo("fK", "ALIAS", 32, width, "f16"),
            Fifo("fV", "ALIAS", 32, width, "f16"),
            Fifo("fO", "LOCAL", 32, width, "f32"),
        ),
        (
            Carry("S", 32, context, "f32"),
            Carry("mx", 32, 1, "f32"),
            Carry("P", 32, context, "f32"),
            Carry("l", 32, 1, "f32"),
            Carry("acc", 32, width, "f32"),
        ),
        (Symbol("pos", 0, context - 32, context // 2), Symbol("rows", 1, 32, 1)),
    )
    n = pos + rows
    tensors = random_tensors(7, q=(rows, heads, width), k=(n, 1, width), v=(n, 1, width), o=(rows, heads, width))

    def expected(t: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        scores = np.einsum("rhd,jd->rhj", t["q"], t["k"][:, 0]) * scale
        hidden = np.arange(n)[None, :] > pos + np.arange(rows)[:, None]
        scores = np.where(hidden[:, None, :], -np.inf, scores)
        e = np.exp(scores - scores.max(axis=2, keepdims=True))
        return {"o": np.einsum("rhj,jd->rhd", e / e.sum(axis=2, keepdims=True), t["v"][:, 0])}

    return Case(program, tensors, expected, {"pos": pos, "rows": rows})


CASES = {
    "matmul": matmul,
    "norm_product": norm_product,
    "softmax": softmax,
    "chain": chain,
    "gather": gather,
    "attention": attention,
}
