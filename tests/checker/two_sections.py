"""Programs of two sections composed by hand: y = 2 * (2 * x), on the cores of a host and on the sites of the toy."""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.digest import graph_digest
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
from pavane.ir.quasi import quasi
from pavane.targets.descriptor import SpatialTarget, target_digest
from tests.building import COL, ROW, SX, SY, X, items, rect, shape_of, span, window, write

OWN_SITE = Rect(SX, SX + 1, SY, SY + 1)


def _parts(rows: int, cols: int, col):
    """Load, compute and store of one 32 x 32 block of `out = 2 * in`."""
    place = window((0, 32), (col, 32), row=0)
    op = Generic(Ref("fO"), fn("mul", at("fI", ROW, COL), 2.0), span(0, 32, rows), span(col, 32, cols))
    return (
        (Reserve("fI"), Load("fI", "I", place), Push("fI")),
        (Front("fI"), Reserve("fO"), Compute(op), Push("fO"), Pop("fI")),
        write("fO", "O", place),
    )


def _shape(name: str, rows: int, cols: int, processes, fifos) -> Shape:
    formals = (Formal("I", shape_of(rows, cols), "f32", "IN"), Formal("O", shape_of(rows, cols), "f32", "OUT"))
    spec = Spec("O", shape_of(0, 0), shape_of(rows, cols), fn("mul", at("I", "i0", "i1"), 2.0))
    grid = Items(quasi(1), quasi(-(-cols // 32)), 32, 32)
    return Shape(name, formals, (spec,), grid, Numerics(), processes=processes, fifos=fifos)


def _program(target: SpatialTarget, shapes, instances, counters, workers, rows: int, cols: int) -> Program:
    tensors = (
        Tensor("x", shape_of(rows, cols), "f32", "INPUT"),
        Tensor("t", shape_of(rows, cols), "f32", "SCRATCH", offset=0),
        Tensor("y", shape_of(rows, cols), "f32", "OUTPUT"),
    )
    program = Program(
        name="twice",
        phase="PERSISTENT",
        target=target.name,
        target_digest=target_digest(target),
        graph_digest="",
        symbols=(),
        tensors=tensors,
        shapes=shapes,
        instances=instances,
        counters=counters,
        workers=workers,
    )
    return replace(program, graph_digest=graph_digest(program))


def _instances(first: str, second: str):
    chain = lambda shape, a, b: Instance(shape, (Binding("I", a), Binding("O", b)))  # noqa: E731
    return chain(first, "x", "t"), chain(second, "t", "y")


def twice_on_host(target: SpatialTarget, rows: int = 20, cols: int = 150, crossed: bool = False) -> Program:
    """One merged process a core; a boundary between the sections.

    `crossed`: the second takes the columns core after core, so that it reads what another core has written.
    """
    w = target.grid.width
    turns_each = -(-cols // (32 * w))
    everywhere = rect(0, w, 0, 1)
    fifos = (Fifo("fI", "ALIAS", 32, 32, "f32", 1), Fifo("fO", "LOCAL", 32, 32, "f32", 1, 0))
    shapes = []
    for name, col in (("double", 32 * SX + 32 * w * X), ("crossed", 32 * turns_each * SX + 32 * X)):
        body = items(1, turns_each, *(step for part in _parts(rows, cols, col) for step in part))
        shapes.append(_shape(name, rows, cols, (Process("core", everywhere, "core", body),), fifos))
    go = Counter("go.core", everywhere, "core", bits=32, id=0)
    turns = (Run(0, "core"), Post("go.core", everywhere), Wait("go.core", w), Run(1, "core"))
    workers = (Worker("core", everywhere, "core", turns),)
    used = tuple(shapes[: 1 + crossed])
    return _program(target, used, _instances(used[0].name, used[-1].name), (go,), workers, rows, cols)


def twice_on_toy(target: SpatialTarget, rows: int = 20, cols: int = 150, second_address: int = 0) -> Program:
    """Reader, compute, writer on every site; writers meet at the boundary and start the other engines of their site."""
    everywhere = rect(0, 2, 0, 2)
    load, compute, store = _parts(rows, cols, 32 * SX + 64 * SY + 128 * X)
    load = (*load[:2], Fence(), load[2])
    processes = (
        Process("read", everywhere, "reader_a", items(1, 2, *load)),
        Process("compute", everywhere, "matrix", items(1, 2, *compute)),
        Process("write", everywhere, "writer", items(1, 2, *store)),
    )

    def fifos(address: int):
        return (Fifo("fI", "LOCAL", 32, 32, "f32", 2, address), Fifo("fO", "LOCAL", 32, 32, "f32", 2, address + 8192))

    shapes = tuple(_shape(f"double{n}", rows, cols, processes, fifos(a)) for n, a in enumerate((0, second_address)))
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
    return _program(target, shapes, _instances("double0", "double1"), counters, workers, rows, cols)
