"""Tiny programs, small enough that SPIN can interleave all their steps: y = 2 * x on one site, and sent to two."""

from __future__ import annotations

from pavane.ir.expr import at, fn
from pavane.ir.program import (
    Compute,
    Counter,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
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
    Send,
    Shape,
    Spec,
    Tensor,
    Wait,
    Window,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.targets.descriptor import SpatialTarget
from tests.building import COL, ROW, SX, X, items, one_section, read, rect, shape_of, site, span, window, write

SIDE = 8
DOUBLE = Compute(Generic(Ref("fO"), fn("mul", at("fI", ROW, COL), 2.0), span(0, SIDE, SIDE), span(0, SIDE, SIDE)))


def pipeline(target: SpatialTarget, turns: int = 3) -> Program:
    """Reader, compute, writer on one site."""
    place = window((0, SIDE), (SIDE * X, SIDE), row=0)
    everything = rect(0, 1, 0, 1)
    processes = (
        Process("read", everything, "reader_a", items(1, turns, *read("fI", "I", place))),
        *_ends(everything, turns, place),
    )
    return _doubled(target, processes, (), "LOCAL", turns, sites=1)


def multicast_pair(target: SpatialTarget, turns: int = 2) -> Program:
    """Site 0 loads and sends to site 1; each doubles and stores to its own rows."""
    loaded, stored = window((0, SIDE), (SIDE * X, SIDE), row=0), window((SIDE * SX, SIDE), (SIDE * X, SIDE), row=0)
    lead = (
        Reserve("fI"), Load("fI", "I", loaded), Fence(), Wait("credit"), Send("fI", site(1, 0)), Fence(),
        Post("valid", site(1, 0)), Push("fI"),
    )  # fmt: skip
    receive = (Reserve("fI"), Post("credit", site(0, 0)), Wait("valid"), Push("fI"))
    processes = (
        Process("lead", rect(0, 1, 0, 1), "reader_a", items(1, turns, *lead)),
        Process("receive", rect(1, 2, 0, 1), "reader_a", items(1, turns, *receive)),
        *_ends(rect(0, 2, 0, 1), turns, stored),
    )
    counters = (
        Counter("credit", rect(0, 1, 0, 1), "reader_a", bits=target.counters.bits, id=0),
        Counter("valid", rect(1, 2, 0, 1), "reader_a", bits=target.counters.bits, id=1),
    )
    return _doubled(target, processes, counters, "MULTICAST_ROW", turns, sites=2)


def _ends(sites: Rect, turns: int, place: Window) -> tuple[Process, Process]:
    compute = (Front("fI"), Reserve("fO"), DOUBLE, Push("fO"), Pop("fI"))
    return (
        Process("compute", sites, "matrix", items(1, turns, *compute)),
        Process("write", sites, "writer", items(1, turns, *write("fO", "O", place))),
    )


def _doubled(target: SpatialTarget, processes: tuple, counters: tuple, kind: str, turns: int, sites: int) -> Program:
    rows, cols = SIDE * sites, SIDE * turns
    row: Quasi = quasi("i0") % SIDE
    shape = Shape(
        name="double",
        formals=(Formal("I", shape_of(SIDE, cols), "f32", "IN"), Formal("O", shape_of(rows, cols), "f32", "OUT")),
        spec=(Spec("O", shape_of(0, 0), shape_of(rows, cols), fn("mul", at("I", row, "i1"), 2.0)),),
        items=Items(quasi(1), quasi(turns), SIDE, SIDE),
        numerics=Numerics(),
        processes=processes,
        fifos=(
            Fifo("fI", kind, SIDE, SIDE, "f32", 2, 0),
            Fifo("fO", "LOCAL", SIDE, SIDE, "f32", 2, 2 * 4 * SIDE * SIDE),
        ),
        counters=counters,
    )
    tensors = (
        Tensor("x", shape_of(SIDE, cols), "f32", "INPUT"),
        Tensor("y", shape_of(rows, cols), "f32", "OUTPUT"),
    )
    return one_section(target, shape, tensors, {"I": "x", "O": "y"})
