"""More programs written by hand, for the simulator: local products, chains of sections, a gather, a cache that
grows."""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.expr import Indirect, Reduce, at, fn
from pavane.ir.program import (
    Binding,
    Carry,
    Compute,
    Counter,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Init,
    Instance,
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
    Run,
    Shape,
    Spec,
    Symbol,
    Tensor,
    Transition,
    Tree,
    Wait,
    Window,
    Worker,
)
from pavane.ir.quasi import quasi
from pavane.ir.walk import rebuild
from pavane.targets.descriptor import SpatialTarget
from tests.building import (
    COL,
    GEN_K,
    ROW,
    SX,
    SY,
    K,
    S,
    X,
    items,
    one_section,
    read,
    rect,
    shape_of,
    site,
    span,
    take,
    whole,
    window,
    write,
)

GRID = rect(0, 2, 0, 2)


def local_product(m: int, k: int, n: int, depth: int = 2, a: str = "f32", b: str = "f32") -> Shape:
    """C[m, n] = A . B on 2 x 2 sites of `toy`, m <= 32: each site reads for itself; columns go round the sites."""
    tiles, turns = -(-n // 32), -(-k // 32)
    col = 32 * SX + 64 * SY + 128 * X
    rows, cols, ks = span(0, 32, m), span(col, 32, n), span(32 * K, 32, k)
    product = MatmulTiles(Ref("acc"), Ref("fA"), Ref("fB"), False, rows, cols, ks, Tree())

    def own(*steps):
        return items(1, -(-tiles // 4), *steps)

    def blocks(fifo: str, tensor: str, where: Window):
        return own(Loop("LV_KBLOCK", quasi(turns), read(fifo, tensor, where)))

    compute = own(
        Init("acc"),
        Loop("LV_KBLOCK", quasi(turns), (Front("fA"), Front("fB"), Compute(product), Pop("fA"), Pop("fB"))),
        Reserve("fC"),
        Compute(Generic(Ref("fC"), at("acc", ROW, COL), rows, cols)),
        Push("fC"),
    )
    store = own(*write("fC", "C", window((0, 32), (col, 32), row=0)))
    expr = Reduce("SUM", "k0", quasi(k), fn("mul", at("A", "i0", "k0"), at("B", "k0", "i1")))
    return Shape(
        name="local_product",
        formals=(
            Formal("A", shape_of(m, k), a, "IN"),
            Formal("B", shape_of(k, n), b, "IN"),
            Formal("C", shape_of(m, n), "f32", "OUT"),
        ),
        spec=(Spec("C", shape_of(0, 0), shape_of(m, n), expr),),
        items=Items(quasi(1), quasi(tiles), 32, 32),
        numerics=Numerics(operands=(("A", a), ("B", b))),
        processes=(
            Process("readA", GRID, "reader_a", blocks("fA", "A", window((0, 32), (32 * K, 32), row=0))),
            Process("readB", GRID, "reader_b", blocks("fB", "B", window((32 * K, 32), (col, 32), row=0))),
            Process("compute", GRID, "matrix", compute),
            Process("write", GRID, "writer", store),
        ),
        fifos=(
            Fifo("fA", "LOCAL", 32, 32, a, depth, 0),
            Fifo("fB", "LOCAL", 32, 32, b, depth, 0x2000),
            Fifo("fC", "LOCAL", 32, 32, "f32", 2, 0x4000),
        ),
        carries=(Carry("acc", 32, 32, "f32", address=0x6000),),
    )


def local_matmul(
    target: SpatialTarget, m: int, k: int, n: int, depth: int = 2, a: str = "f32", b: str = "f32"
) -> Program:
    shape = local_product(m, k, n, depth, a, b)
    tensors = (
        Tensor("a", shape_of(m, k), a, "INPUT"),
        Tensor("b", shape_of(k, n), b, "WEIGHT"),
        Tensor("c", shape_of(m, n), "f32", "OUTPUT"),
    )
    return one_section(target, shape, tensors, {"A": "a", "B": "b", "C": "c"})


def product_chain(target: SpatialTarget, width: int, sections: int, rows: int = 5) -> Program:
    """x . w0 . w1 . ... on `toy`: `sections` instances of one shape, a boundary round before each but the first.

    Two SCRATCH tensors take turns, so a section that ran ahead would read or overwrite what is in use.
    """
    shape = local_product(rows, width, width)
    names = ["x", *(f"s{i % 2}" for i in range(sections - 1)), "y"]
    size = rows * width * 4
    square = shape_of(rows, width)
    tensors = (
        Tensor("x", square, "f32", "INPUT"),
        *(Tensor(f"w{i}", shape_of(width, width), "f32", "WEIGHT") for i in range(sections)),
        *(Tensor(f"s{i}", square, "f32", "SCRATCH", offset=i * size) for i in range(min(2, sections - 1))),
        Tensor("y", square, "f32", "OUTPUT"),
    )
    instances = tuple(
        Instance(
            shape.name, (Binding("A", names[i]), Binding("B", f"w{i}"), Binding("C", names[i + 1])), name=f"product{i}"
        )
        for i in range(sections)
    )
    waiting = ("reader_a", "reader_b", "writer")
    counters = tuple(Counter(f"go.{e}", GRID, e, bits=4, id=i) for i, e in enumerate(waiting))
    posts = tuple(Post(c.name, GRID) for c in counters)

    def turns(process: Process):
        before = (posts if process.engine == "writer" else ()) + (
            (Wait(f"go.{process.engine}", 4),) if process.engine in waiting else ()
        )
        runs = [(Run(i, process.name),) if i == 0 else (*before, Run(i, process.name)) for i in range(sections)]
        return tuple(turn for run in runs for turn in run)

    first = one_section(target, shape, tensors, {"A": "x", "B": "w0", "C": names[1]})
    workers = tuple(Worker(p.name, p.rect, p.engine, turns(p)) for p in shape.processes)
    return replace(first, instances=instances, counters=counters, workers=workers)


def gather(target: SpatialTarget, vocabulary: int = 50, width: int = 40) -> Program:
    """e[r, :] = table[ids[r], :] on one site of `toy`; ids through a slot of their own."""
    rows = quasi("rows")
    r = span(0, 32, rows)
    row_loop = Loop(
        "LV_SUB_H",
        rows,
        (Load("fE", "T", Window((Indirect("I", (S,), 0, vocabulary, "fI"), quasi(0)), (1, width)), row=S),),
    )
    load = (
        *read("fI", "I", window((0, 32))),
        Front("fI"),
        Reserve("fE"),
        row_loop,
        Fence(),
        Push("fE"),
        Pop("fI"),
    )
    compute = (
        Front("fE"),
        Reserve("fO"),
        Compute(Generic(Ref("fO"), at("fE", ROW, COL), r, whole(width))),
        Push("fO"),
        Pop("fE"),
    )
    store = write("fO", "O", window((0, 32), (0, width), row=0))
    shape = Shape(
        name="gather",
        formals=(
            Formal("I", (rows,), "i32", "IN"),
            Formal("T", shape_of(vocabulary, width), "f16", "IN"),
            Formal("O", shape_of(rows, width), "f32", "OUT"),
        ),
        spec=(
            Spec(
                "O", shape_of(0, 0), shape_of(rows, width), at("T", Indirect("I", (quasi("i0"),), 0, vocabulary), "i1")
            ),
        ),
        items=Items(quasi(1), quasi(1), 32, width),
        numerics=Numerics(),
        processes=(
            Process("read", rect(0, 1, 0, 1), "reader_a", load),
            Process("compute", rect(0, 1, 0, 1), "matrix", compute),
            Process("write", rect(0, 1, 0, 1), "writer", store),
        ),
        fifos=(
            Fifo("fI", "LOCAL", 1, 32, "i32", 1, 0),
            Fifo("fE", "LOCAL", 32, width, "f16", 1, 0x100),
            Fifo("fO", "LOCAL", 32, width, "f32", 1, 0x2000),
        ),
    )
    tensors = (
        Tensor("ids", (rows,), "i32", "INPUT"),
        Tensor("table", shape_of(vocabulary, width), "f16", "WEIGHT"),
        Tensor("e", shape_of(rows, width), "f32", "OUTPUT"),
    )
    return one_section(target, shape, tensors, {"I": "ids", "T": "table", "O": "e"}, (Symbol("rows", 1, 32, 1),))


def growing_cache(target: SpatialTarget, width: int = 24, context: int = 70) -> Program:
    """Append rows to a STATE cache at `pos`, then y = the sum of all its live rows; the reader waits for the append."""
    pos, rows = quasi("pos"), quasi("rows")
    live = pos + rows
    here = rect(0, 1, 0, 1)
    turns = live.ceil(32)
    new = span(0, 32, rows)
    add = MatmulTiles(Ref("acc"), Ref("ones"), Ref("fK"), False, whole(1), whole(width), span(32 * K, 32, live), Tree())
    load = (
        *read("fN", "N", window((0, 32), (0, width), row=0)),
        Wait("appended"),
        Loop("LV_KBLOCK", turns, read("fK", "K", window((32 * K, 32), (0, width), row=0))),
    )
    compute = (
        Front("fN"),
        Reserve("fS"),
        Compute(Generic(Ref("fS"), at("fN", ROW, COL), new, whole(width))),
        Push("fS"),
        Pop("fN"),
        Init("acc"),
        Init("ones"),
        Loop("LV_KBLOCK", turns, (Front("fK"), Compute(add), Pop("fK"))),
        Reserve("fY"),
        Compute(Generic(Ref("fY"), at("acc", ROW, COL), whole(1), whole(width))),
        Push("fY"),
    )
    store = (
        *write("fS", "K", window((pos, 32), (0, width), row=0)),
        Post("appended", site(0, 0)),
        *write("fY", "Y", window((0, 1), (0, width), row=0)),
    )
    total = Reduce("SUM", "k0", live, at("K", "k0", "i1", next=True))
    shape = Shape(
        name="growing_cache",
        formals=(
            Formal("N", shape_of(rows, width), "f32", "IN"),
            Formal("K", shape_of(live, width), "f16", "STATE"),
            Formal("Y", shape_of(1, width), "f32", "OUT"),
        ),
        spec=(
            Spec("K", (pos, quasi(0)), shape_of(rows, width), at("N", "i0", "i1")),
            Spec("Y", shape_of(0, 0), shape_of(1, width), total),
        ),
        items=Items(quasi(1), quasi(1), 32, width),
        numerics=Numerics(operands=(("K", "f16"),)),
        processes=(
            Process("read", here, "reader_a", load),
            Process("compute", here, "matrix", compute),
            Process("write", here, "writer", store),
        ),
        fifos=(
            Fifo("fN", "LOCAL", 32, width, "f32", 1, 0),
            Fifo("fS", "LOCAL", 32, width, "f16", 1, 0x1000),
            Fifo("fK", "LOCAL", 32, width, "f16", 2, 0x2000),
            Fifo("fY", "LOCAL", 1, width, "f32", 1, 0x3000),
        ),
        carries=(
            Carry("acc", 1, width, "f32", address=0x4000),
            Carry("ones", 1, 96, "f32", initial=1.0, address=0x5000),
        ),
        counters=(Counter("appended", here, "reader_a", bits=4, id=0),),
    )
    tensors = (
        Tensor("new", shape_of(rows, width), "f32", "INPUT"),
        Tensor("cache", shape_of(context + 31, width), "f16", "STATE", transition=Transition(pos, rows)),
        Tensor("y", shape_of(1, width), "f32", "OUTPUT"),
    )
    symbols = (Symbol("pos", 0, context - 1, 30), Symbol("rows", 1, 32, 1))
    return one_section(target, shape, tensors, {"N": "new", "K": "cache", "Y": "y"}, symbols)


def softmax_host(target: SpatialTarget, rows: int, cols: int) -> Program:
    """y = softmax of each row of x, a row in one slot, on one core of `host`."""
    r, c = span(0, rows, rows), whole(cols)
    body = (
        *take("fX", "X", window((0, rows), (0, cols), row=0)),
        Compute(Generic(Ref("mx"), Reduce("MAX", GEN_K, quasi(cols), at("fX", ROW, GEN_K)), r, whole(1))),
        Compute(Generic(Ref("e"), fn("exp", fn("sub", at("fX", ROW, COL), at("mx", ROW, 0))), r, c)),
        Compute(Generic(Ref("l"), Reduce("SUM", GEN_K, quasi(cols), at("e", ROW, GEN_K)), r, whole(1))),
        Pop("fX"),
        Reserve("fY"),
        Compute(Generic(Ref("fY"), fn("div", at("e", ROW, COL), at("l", ROW, 0)), r, c)),
        Push("fY"),
        *write("fY", "Y", window((0, rows), (0, cols), row=0)),
    )
    row = 4 * rows * cols
    shape = Shape(
        name="softmax",
        formals=(Formal("X", shape_of(rows, cols), "f32", "IN"), Formal("Y", shape_of(rows, cols), "f32", "OUT")),
        spec=(),
        items=Items(quasi(1), quasi(1), rows, cols),
        numerics=Numerics(),
        processes=(Process("core", rect(0, 1, 0, 1), "core", body),),
        fifos=(Fifo("fX", "ALIAS", rows, cols, "f32", 1), Fifo("fY", "LOCAL", rows, cols, "f32", 1, 0)),
        carries=(
            Carry("e", rows, cols, "f32", address=row),
            Carry("mx", rows, 1, "f32", address=2 * row),
            Carry("l", rows, 1, "f32", address=2 * row + 4 * rows),
        ),
    )
    tensors = (Tensor("x", shape_of(rows, cols), "f32", "INPUT"), Tensor("y", shape_of(rows, cols), "f32", "OUTPUT"))
    return one_section(target, shape, tensors, {"X": "x", "Y": "y"})


def edited(program: Program, process: str, change) -> Program:
    """The program with the steps of one process changed: `change(node)` gives the nodes that stand in its place."""
    shape = program.shapes[0]
    processes = tuple(replace(p, body=rebuild(p.body, change)) if p.name == process else p for p in shape.processes)
    return replace(program, shapes=(replace(shape, processes=processes), *program.shapes[1:]))


def without(*kinds: type):
    """For `edited`: drop every step of these kinds."""
    return lambda node: () if isinstance(node, kinds) else (node,)
