"""Figures as large as engines have them, in an element-wise section written by hand; a careless hand takes larger ones.

integers    elements of i32 are compared: f32, in which an op computes, holds those up to 2**24
positions   so are the numbers of columns, from a symbol `far` on
constant    a number of f32 is a bound
initial     what a carry begins with is a number of its type
index       an index expression has partial sums below 2**48
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pavane.ir.expr import Expr, Var, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fifo,
    Formal,
    Front,
    Generic,
    Init,
    Pop,
    Push,
    Ref,
    Reserve,
    Spec,
    Symbol,
    Tensor,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import DType, Fill, Floats, Ints
from tests.building import COL, ROW, one_section, read, shape_of, write
from tests.evidence.hand import Case, Hand, chip, host_chip, work
from tests.evidence.stages import staged

KINDS = ("integers", "positions", "constant", "initial", "index")
MOST, FAR = 1 << 24, quasi("far")
_UNMOVED = (FAR + 1) * ((1 << 40) - 1) // (1 << 40) - FAR  # 0 for all values of the symbol, by way of large ones
LARGEST: dict[DType, tuple[float, float]] = {  # a number of the type, and one that it does not hold
    "f32": (3.4e38, 3.5e38),
    "bf16": (3.38e38, 3.4e38),
    "f16": (65504.0, 65536.0),
}
Meaning = Callable[[Expr, Quasi], Expr]  # of an element and the number of its column


def large_figures(hand: Hand) -> Case:
    target, kind = host_chip(hand) if hand.chance(0.4) else chip(hand), hand.pick(KINDS)
    larger = hand.careless > 0 and hand.chance(0.4)
    rows, cols, block = hand.between(1, 20), hand.between(1, 30), hand.pick(((4, 8), (8, 16), (16, 4)))
    spread = work(hand, target, rows, cols, block)
    limit = rows + (_UNMOVED if kind == "index" else quasi(0))
    sign, held = hand.pick((1, -1)), hand.pick(tuple(LARGEST))
    map_ = _meaning(kind, cols, sign * LARGEST["f32"][larger])
    meant, done = map_(at("I", "i0", "i1"), quasi("i1")), map_(at("fI", ROW, COL), spread.col + COL)
    carries: tuple[Carry, ...] = ()
    if kind == "initial":
        carries = (Carry("first", *block, held, sign * LARGEST[held][larger]),)
        meant, done = fn("add", meant, carries[0].initial), fn("add", done, at("first", ROW, COL))
    op = Compute(Generic(Ref("fO"), done, replace(spread.rows, limit=limit), spread.cols))
    stages = (
        read("fI", "I", spread.window()),
        (*(Init(c.name) for c in carries), Front("fI"), Reserve("fO"), op, Push("fO"), Pop("fI")),
        write("fO", "O", spread.window()),
    )
    dtype: DType = "i32" if kind == "integers" else "f32"
    fill: Fill = Ints(0, MOST + larger) if kind == "integers" else Floats()
    size = shape_of(rows, cols)
    shape, _ = staged(
        hand, target, kind, (Formal("I", size, dtype, "IN", fill), Formal("O", size, "f32", "OUT")),
        Spec("O", shape_of(0, 0), size, meant), stages,
        (Fifo("fI", "LOCAL", *block, dtype, hand.between(1, 2)), Fifo("fO", "LOCAL", *block, "f32", 1)),
        carries, spread.loops, (*spread.items, *block),
    )  # fmt: skip
    tensors = (Tensor("i", size, dtype, "INPUT", fill), Tensor("o", size, "f32", "OUTPUT"))
    symbols = (Symbol("far", 0, _furthest(kind, larger), 0),)
    return one_section(target, shape, tensors, {"I": "i", "O": "o"}, symbols), target


def _meaning(kind: str, cols: int, bound: float) -> Meaning:
    if kind == "integers":
        return lambda x, _: fn("select", fn("lt", x, float(MOST)), 1.0, 2.0)
    if kind == "positions":
        return lambda x, col: fn("select", fn("le", Var(col + FAR), Var(FAR + cols // 2)), x, 0.0)
    if kind == "constant":
        return lambda x, _: fn("min" if bound > 0 else "max", x, bound)
    return lambda x, _: fn("mul", x, 2.0)


def _furthest(kind: str, larger: bool) -> int:
    """The greatest value of the symbol: columns below 2**24, ghost items' too, and figures below 2**48; or beyond."""
    if kind == "positions":
        return MOST + 1 if larger else MOST - 512
    return (1 << 24 if larger else 1 << 7) if kind == "index" else 0
