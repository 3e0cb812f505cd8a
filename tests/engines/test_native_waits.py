"""A result goes straight to its tensor only where its process waits for no other engine between making and storing it:
the store comes after what that engine has done, and so must what is in its place.

On one site: t = 2 x and y = 2 t by `other`, then z, which lies where t lay, by `core`, then w = 2 z. That t has been
read `core` knows only by what it takes from `reader`.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.expr import Expr, Reduce, at, fn
from pavane.ir.program import (
    Binding,
    Carry,
    Compute,
    Counter,
    Fifo,
    Formal,
    Front,
    Generic,
    Init,
    Instance,
    Items,
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
    Tensor,
    Tree,
    Wait,
    Worker,
)
from pavane.ir.quasi import quasi
from pavane.native.direct import direct_stores
from pavane.native.sums import sums_in_place
from pavane.targets.check import check_target
from pavane.targets.load import load_target
from tests.building import COL, ROW, Body, many_sections, read, rect, shape_of, whole, window, write
from tests.checker.editing import accepted as proven
from tests.checker.two_sections import lone
from tests.engines.native_programs import accepted

SIDE, HALF = 32, 16
EXTENTS, SITE, PLACE = shape_of(SIDE, SIDE), rect(0, 1, 0, 1), window((0, SIDE), (0, SIDE), row=0)
TOY, ALONE = load_target("toy"), lone(1, 1)
CORE = replace(ALONE.engines[0], roles=("compute", "writer"))
ENGINES = (replace(TOY.engines[0], name="reader"), CORE, replace(ALONE.engines[0], name="other"))
CHIP = check_target(replace(ALONE, engines=ENGINES))


def shape(name: str, meant: Expr, processes: tuple[Process, ...], *buffers: str, first: float = 0.0) -> Shape:
    """One of I and O. `buffers`: its FIFOs, then the carry of `core`; `first` is that one's initial value."""
    place = {"first": 0, "second": 8 << 10, "made": 16 << 10}[name]
    at_bytes = {buffer: place + 4096 * n for n, buffer in enumerate(buffers)}
    fifos = tuple(Fifo(b, "LOCAL", SIDE, SIDE, "f32", 1, start) for b, start in at_bytes.items() if b != "c")
    carries = tuple(Carry(b, SIDE, SIDE, "f32", first, address=start) for b, start in at_bytes.items() if b == "c")
    formals = (Formal("I", EXTENTS, "f32", "IN"), Formal("O", EXTENTS, "f32", "OUT"))
    numerics = Numerics(operands=(("I", "f32"),) if "a" in buffers else ())
    grid = Items(quasi(1), quasi(1), SIDE, SIDE)
    spec = (Spec("O", shape_of(0, 0), EXTENTS, meant),)
    return Shape(name, formals, spec, grid, numerics, (), processes, fifos, carries)


def doubled(name: str, by_itself: bool) -> Shape:
    """O = 2 * I by `other`; what it takes it reads itself, or `reader` does."""
    op = Generic(Ref("o"), fn("mul", at("i", ROW, COL), 2.0), whole(SIDE), whole(SIDE))
    load = read("i", "I", PLACE)
    work = (Front("i"), Reserve("o"), Compute(op), Push("o"), Pop("i"), *write("o", "O", PLACE))
    alone, reader = (Process("work", SITE, "other", (*load, *work)),), Process("read", SITE, "reader", load)
    processes = alone if by_itself else (reader, Process("work", SITE, "other", work))
    return shape(name, fn("mul", at("I", "i0", "i1"), 2.0), processes, "i", "o")


def filled(wait: str) -> Shape:
    """O = 1 * 3, and a slot that says that it may be stored: taken before that is `made`, or before it is `stored`."""
    op = Generic(Ref("o"), fn("mul", at("c", ROW, COL), 3.0), whole(SIDE), whole(SIDE))
    early, late = ((Front("g"),) if when == wait else () for when in ("made", "stored"))
    body = (Init("c"), *early, Reserve("o"), Compute(op), Push("o"), *late, *write("o", "O", PLACE), Pop("g"))
    processes = (Process("read", SITE, "reader", read("g", "I", PLACE)), Process("core", SITE, "core", body))
    return shape("made", fn("mul", 1.0, 3.0), processes, "g", "o", "c", first=1.0)


def summed(begin_late: bool) -> Shape:
    """O = I . I in two halves, of operands that are taken after the sums begin, or before."""
    parts = [
        MatmulTiles(Ref("c"), Ref("a", col=quasi(k)), Ref("b", row=quasi(k)), False, whole(SIDE), whole(SIDE),
                    whole(HALF), Tree())
        for k in (0, HALF)
    ]  # fmt: skip
    copy = Generic(Ref("o"), at("c", ROW, COL), whole(SIDE), whole(SIDE))
    takes: Body = (Front("a"), Front("b"))
    begin = (*takes, Init("c")) if begin_late else (Init("c"), *takes)
    body = (*begin, *map(Compute, parts), Pop("a"), Pop("b"), Reserve("o"), Compute(copy), Push("o"))
    loads = (*read("a", "I", PLACE), *read("b", "I", PLACE))
    core = Process("core", SITE, "core", (*body, *write("o", "O", PLACE)))
    terms = [
        Reduce("SUM", k, quasi(HALF), fn("mul", at("I", "i0", quasi(k) + first), at("I", quasi(k) + first, "i1")))
        for k, first in (("k0", 0), ("k1", HALF))
    ]
    processes = (Process("read", SITE, "reader", loads), core)
    return shape("made", fn("add", *terms), processes, "a", "b", "o", "c")


def program(made: Shape) -> Program:
    shapes = (doubled("first", by_itself=True), doubled("second", by_itself=False), made)
    roles = {"x": "INPUT", "t": "SCRATCH", "z": "SCRATCH", "y": "OUTPUT", "w": "OUTPUT"}
    tensors = tuple(Tensor(n, EXTENTS, "f32", r, offset=0 if r == "SCRATCH" else -1) for n, r in roles.items())  # type: ignore[arg-type]
    chain = (("first", "x", "t"), ("second", "t", "y"), ("made", "x", "z"), ("first", "z", "w"))
    instances = tuple(Instance(s, (Binding("I", a), Binding("O", b)), name=b) for s, a, b in chain)
    counters = tuple(Counter(f"start.{n}", SITE, n, bits=4, id=i) for i, n in enumerate(("reader", "other")))
    other = (Run(0, "work"), Post("start.reader", SITE), Run(1, "work"), Wait("start.other"), Run(3, "work"))
    workers = (
        Worker("reader", SITE, "reader", (Wait("start.reader"), Run(1, "read"), Run(2, "read"))),
        Worker("core", SITE, "core", (Run(2, "core"), Post("start.other", SITE))),
        Worker("other", SITE, "other", other),
    )
    return many_sections("waits", CHIP, shapes, tensors, instances, workers, counters)


@pytest.mark.parametrize(
    ("made", "direct", "in_place"),
    [
        (filled("stored"), set(), set()),
        (filled("made"), {"o"}, set()),
        (summed(begin_late=False), {"o"}, set()),
        (summed(begin_late=True), {"o"}, {"c"}),
    ],
)
def test_who_waits_before_the_store_waits_before_the_result(made, direct, in_place):
    written = program(made)
    proven(written, CHIP)
    core = made.processes[1]
    stores = direct_stores(written, made, core)
    assert (set(stores), set(sums_in_place(written, made, core, stores))) == (direct, in_place)
    x = (np.arange(SIDE * SIDE, dtype=np.float32) % 5 - 2).reshape(SIDE, SIDE)
    z = 3 * np.ones_like(x) if made.carries[0].initial else x @ x
    with native.load(written, CHIP, weights={}, accept=accepted) as ready:
        for _ in range(20):
            ready.launch({}, {"x": x})
            assert np.array_equal(ready.tensor("y"), 4 * x)
            assert np.array_equal(ready.tensor("w"), 2 * z)
