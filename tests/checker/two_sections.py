"""Programs of two sections composed by hand: t = 2 * x, y = 2 * t, on the cores of a host, on the sites of the toy, on
chips of one engine a site. `double_steps`, `double_shape` and `twice` are what others are made of.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.expr import at, fn
from pavane.ir.program import (
    Binding,
    Compute,
    Counter,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Instance,
    Items,
    Load,
    Numerics,
    Pop,
    Post,
    Process,
    Program,
    Push,
    Rect,
    Ref,
    Reserve,
    Run,
    Shape,
    Spec,
    Tensor,
    Wait,
    Worker,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from tests.building import COL, ROW, SX, SY, Body, X, items, many_sections, rect, shape_of, span, window, write

ROWS, COLS = 20, 150
OWN_SITE = Rect(SX, SX + 1, SY, SY + 1)


def double_steps(rows: int, cols: int, col: Quasi) -> tuple[Body, Body, Body]:
    """Load, compute and store of one 32 x 32 block of `out = 2 * in`."""
    place = window((0, 32), (col, 32), row=0)
    op = Generic(Ref("fO"), fn("mul", at("fI", ROW, COL), 2.0), span(0, 32, rows), span(col, 32, cols))
    return (
        (Reserve("fI"), Load("fI", "I", place), Push("fI")),
        (Front("fI"), Reserve("fO"), Compute(op), Push("fO"), Pop("fI")),
        write("fO", "O", place),
    )


def double_shape(name: str, rows: int, cols: int, processes: tuple[Process, ...], fifos: tuple[Fifo, ...]) -> Shape:
    """O = 2 * I."""
    formals = (Formal("I", shape_of(rows, cols), "f32", "IN"), Formal("O", shape_of(rows, cols), "f32", "OUT"))
    spec = Spec("O", shape_of(0, 0), shape_of(rows, cols), fn("mul", at("I", "i0", "i1"), 2.0))
    grid = Items(quasi(1), quasi(-(-cols // 32)), 32, 32)
    return Shape(name, formals, (spec,), grid, Numerics(), processes=processes, fifos=fifos)


def double_on_cores(name: str, where: Rect, col: Quasi, turns: int) -> Shape:
    """O = 2 * I of ROWS x COLS by one engine a site, block after block of columns."""
    load, compute, store = double_steps(ROWS, COLS, col)
    body = items(1, turns, *load[:2], Fence(), load[2], *compute, *store)
    fifos = (Fifo("fI", "LOCAL", 32, 32, "f32", 1, 0), Fifo("fO", "LOCAL", 32, 32, "f32", 1, 4096))
    return double_shape(name, ROWS, COLS, (Process("core", where, "core", body),), fifos)


def twice(
    target: SpatialTarget,
    shapes: tuple[Shape, ...],
    workers: tuple[Worker, ...],
    counters: tuple[Counter, ...] = (),
    rows: int = ROWS,
    cols: int = COLS,
) -> Program:
    """t = 2 * x by the first shape, y = 2 * t by the last."""
    tensors = (
        Tensor("x", shape_of(rows, cols), "f32", "INPUT"),
        Tensor("t", shape_of(rows, cols), "f32", "SCRATCH", offset=0),
        Tensor("y", shape_of(rows, cols), "f32", "OUTPUT"),
    )
    chain = ((shapes[0], "x", "t"), (shapes[-1], "t", "y"))
    instances = tuple(Instance(shape.name, (Binding("I", a), Binding("O", b))) for shape, a, b in chain)
    return many_sections("twice", target, shapes, tensors, instances, workers, counters)


def lone(width: int = 2, height: int = 2) -> SpatialTarget:
    """The toy with one engine a site, which does everything: sections follow each other without boundaries."""
    toy = load_target("toy")
    roles = ("reader", "compute", "writer")
    core = replace(next(e for e in toy.engines if e.name == "matrix"), name="core", roles=roles)
    return replace(toy, engines=(core,), grid=replace(toy.grid, width=width, height=height))


def twice_on_host(target: SpatialTarget, rows: int = ROWS, cols: int = COLS, crossed: bool = False) -> Program:
    """One merged process a core; a boundary between the sections.

    `crossed`: the second takes the columns core after core, so that it reads what another core has written.
    """
    w = target.grid.width
    turns_each = -(-cols // (32 * w))
    everywhere = rect(0, w, 0, 1)
    fifos = (Fifo("fI", "ALIAS", 32, 32, "f32", 1), Fifo("fO", "LOCAL", 32, 32, "f32", 1, 0))
    shapes = []
    for name, col in (("double", 32 * SX + 32 * w * X), ("crossed", 32 * turns_each * SX + 32 * X)):
        body = items(1, turns_each, *(step for part in double_steps(rows, cols, col) for step in part))
        shapes.append(double_shape(name, rows, cols, (Process("core", everywhere, "core", body),), fifos))
    go = Counter("go.core", everywhere, "core", bits=32, id=0)
    turns = (Run(0, "core"), Post("go.core", everywhere), Wait("go.core", w), Run(1, "core"))
    workers = (Worker("core", everywhere, "core", turns),)
    used = tuple(shapes[: 1 + crossed])
    return twice(target, used, workers, (go,), rows, cols)


def twice_on_toy(target: SpatialTarget, rows: int = ROWS, cols: int = COLS, second_address: int = 0) -> Program:
    """Reader, compute, writer on every site; writers meet at the boundary and start the other engines of their site."""
    everywhere = rect(0, 2, 0, 2)
    load, compute, store = double_steps(rows, cols, 32 * SX + 64 * SY + 128 * X)
    load = (*load[:2], Fence(), load[2])
    processes = (
        Process("read", everywhere, "reader_a", items(1, 2, *load)),
        Process("compute", everywhere, "matrix", items(1, 2, *compute)),
        Process("write", everywhere, "writer", items(1, 2, *store)),
    )

    def fifos(address: int):
        return (Fifo("fI", "LOCAL", 32, 32, "f32", 2, address), Fifo("fO", "LOCAL", 32, 32, "f32", 2, address + 8192))

    addresses = enumerate((0, second_address))
    shapes = tuple(double_shape(f"double{n}", rows, cols, processes, fifos(a)) for n, a in addresses)
    counters = tuple(
        Counter(name, everywhere, engine, bits=4, id=number)
        for number, (name, engine) in enumerate(
            (("go.writer", "writer"), ("start.reader_a", "reader_a"), ("start.matrix", "matrix"))
        )
    )
    meet = (
        Post("go.writer", everywhere),
        Wait("go.writer", 4),
        Post("start.reader_a", OWN_SITE),
        Post("start.matrix", OWN_SITE),
    )
    workers = (
        Worker("reader_a", everywhere, "reader_a", (Run(0, "read"), Wait("start.reader_a"), Run(1, "read"))),
        Worker("matrix", everywhere, "matrix", (Run(0, "compute"), Wait("start.matrix"), Run(1, "compute"))),
        Worker("writer", everywhere, "writer", (Run(0, "write"), *meet, Run(1, "write"))),
    )
    return twice(target, shapes, workers, counters, rows, cols)
