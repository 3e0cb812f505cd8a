"""What the hand-written generators share: a drawing hand that slips, small chips, grids of work, layouts.

A `Hand` draws figures. A careful one never slips, so that its programs are meant to be safe; a careless one slips here
and there, so that its programs are what a tired engineer would write. Whether they are safe, the oracle says.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from pavane.ir.digest import graph_digest
from pavane.ir.expr import Expr, Fn, Reduce, at, fn, replace_operands, substitute
from pavane.ir.program import Carry, Counter, Fifo, Loop, Node, Program, Rect, Span, Window
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import row_bytes
from pavane.targets.descriptor import Grid, Memory, SpatialTarget
from pavane.targets.load import load_target
from tests.building import COL, ROW, SX, SY, rect, span

Case = tuple[Program, SpatialTarget]
T = TypeVar("T")
ITEM_Y, ITEM_X = "LV_ITEM_Y", "LV_ITEM_X"


class Hand:
    """Draws; slips with probability `careless` each time that it may."""

    def __init__(self, rng: random.Random, careless: float | None = None) -> None:
        self.rng = rng
        self.careless = rng.choice((0.0, 0.0, 0.0, 0.05, 0.12, 0.2)) if careless is None else careless

    def slip(self) -> bool:
        return self.rng.random() < self.careless

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def between(self, lo: int, hi: int) -> int:
        return self.rng.randint(lo, hi)

    def off(self, value: int, by: tuple[int, ...] = (-1, 1)) -> int:
        """The value, or one beside it."""
        return value + self.pick(by) if self.slip() else value


def chip(hand: Hand, alias: bool = False, widest: int = 3, tallest: int = 2) -> SpatialTarget:
    """The toy chip with another grid, other counters, other memory."""
    toy = load_target("toy")
    return replace(
        toy,
        grid=Grid(width=hand.between(1, widest), height=hand.between(1, tallest)),
        memory=Memory(bytes=hand.pick((1 << 15, 1 << 16)), alignment_bytes=32, reserved_bytes=hand.pick((0, 0, 256))),
        counters=replace(toy.counters, bits=hand.pick((4, 4, 5, 8))),
        alias=alias,
    )


def host_chip(hand: Hand) -> SpatialTarget:
    """Cores that do everything and address memory in place."""
    return load_target("host", cores=hand.between(1, 3))


def everywhere(target: SpatialTarget) -> Rect:
    return rect(0, target.grid.width, 0, target.grid.height)


# --- the grid of work ---


@dataclass(frozen=True)
class Work:
    """Where a site's item begins, in elements, and the loops over its items."""

    row: Quasi
    col: Quasi
    loops: tuple[tuple[str, Quasi], ...]
    rows: Span
    cols: Span
    items: tuple[int, int]
    block: tuple[int, int]

    def window(self) -> Window:
        return Window((self.row, self.col), self.block, 0)

    def nest(self, *steps: Node) -> tuple[Node, ...]:
        return nested(self.loops, steps)


def nested(loops: Sequence[tuple[str, Quasi]], steps: tuple[Node, ...]) -> tuple[Node, ...]:
    for var, extent in reversed(loops):
        steps = (Loop(var, extent, steps),)
    return steps


def work(hand: Hand, target: SpatialTarget, rows: int, cols: int, block: tuple[int, int]) -> Work:
    """Items of `block` elements over the sites: cyclic, contiguous, or over all sites along one axis."""
    (br, bc), (w, h) = block, (target.grid.width, target.grid.height)
    ty, tx = -(-rows // br), -(-cols // bc)
    y, x = quasi(ITEM_Y), quasi(ITEM_X)
    rule = hand.pick(("cyclic", "contiguous", "flat"))
    if rule == "flat":
        nx, ny = -(-tx // (w * h)), ty
        row, col = y * br, (SX + SY * w + x * (w * h)) * bc
    elif rule == "cyclic":
        nx, ny = -(-tx // w), -(-ty // h)
        row, col = (SY + y * h) * br, (SX + x * w) * bc
    else:
        nx, ny = -(-tx // w), -(-ty // h)
        row, col = (SY * ny + y) * br, (SX * nx + x) * bc
    loops = [(ITEM_Y, quasi(ny)), (ITEM_X, quasi(nx))]
    if hand.chance(0.3):
        loops.reverse()
    kept = tuple(loop for loop in loops if loop[1] != quasi(1) or hand.chance(0.5))
    gone = {var: 0 for var, _ in loops if var not in {v for v, _ in kept}}
    row, col = row.substitute(gone), col.substitute(gone)
    return Work(row, col, kept, span(row, br, rows), span(col, bc, cols), (ty, tx), block)


# --- expressions ---


def pointwise(hand: Hand, inputs: Sequence[str]) -> Expr:
    """A small expression over elements (i0, i1) of the inputs, which reads each of them."""
    expr: Expr = at(inputs[0], "i0", "i1")
    for name in inputs[1:]:
        expr = fn(hand.pick(("add", "sub", "mul", "max")), expr, at(name, "i0", "i1"))
    for _ in range(hand.between(0, 2)):
        expr = hand.pick((
            fn("mul", expr, hand.pick((2.0, 0.5, -3.0))), fn("tanh", expr), fn("abs", expr), fn("add", expr, 1.0),
        ))  # fmt: skip
    return expr


def in_slots(expr: Expr, slots: dict[str, str]) -> Expr:
    """A spec's expression as an op's: (i0, i1) is the place in the slots; reductions run over LV_GEN_K."""
    swapped = substitute(_over_gen_k(expr), {"i0": quasi(ROW), "i1": quasi(COL)})
    return replace_operands(swapped, lambda a: at(slots[a.name], *a.index))


def _over_gen_k(expr: Expr) -> Expr:
    if isinstance(expr, Reduce):
        return Reduce(expr.kind, "LV_GEN_K", expr.extent, substitute(expr.body, {expr.var: quasi("LV_GEN_K")}))
    if isinstance(expr, Fn):
        return Fn(expr.op, tuple(_over_gen_k(a) for a in expr.args), expr.dtype)
    return expr


# --- layouts ---


def laid_out(
    hand: Hand, target: SpatialTarget, fifos: Sequence[Fifo], carries: Sequence[Carry] = (), start: int = 0
) -> tuple[tuple[Fifo, ...], tuple[Carry, ...], int]:
    """Addresses one behind the other, in a drawn order, with gaps now and then; also where the layout ends."""
    align = target.memory.alignment_bytes
    at_ = -(-max(start, target.memory.reserved_bytes) // align) * align
    places: dict[str, int] = {}
    buffers = [f for f in fifos if f.kind != "ALIAS"] + list(carries)
    hand.rng.shuffle(buffers)
    for buffer in buffers:
        size = buffer.rows * row_bytes(buffer.dtype, buffer.cols) * (buffer.depth if isinstance(buffer, Fifo) else 1)
        places[buffer.name] = at_ - (align if hand.slip() and at_ >= align else 0)
        at_ += -(-size // align) * align + align * hand.pick((0, 0, 0, 1, 3))
    placed = tuple(replace(f, address=places[f.name]) if f.name in places else f for f in fifos)
    return placed, tuple(replace(c, address=places[c.name]) for c in carries), at_


def counter(target: SpatialTarget, name: str, where: Rect, engine: str, number: int, ahead: int = 0) -> Counter:
    return Counter(name, where, engine, bits=target.counters.bits, ahead=ahead, id=number)


def signed(program: Program) -> Program:
    """With the digest of what it says it means."""
    return replace(program, graph_digest=graph_digest(program), certificate=None)
