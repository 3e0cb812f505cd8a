"""Several contractions in one accumulator, written by hand: one after the other, or one a turn of an outer loop.

    two_sums      O = A . B + D . E, the operands of both through the same slots now and then
    nested_sums   O = SUM(h) A[h] . B[h]

A careless hand adds them in turns, block by block, where the size of the blocks says in which order terms are added.
"""

from __future__ import annotations

from dataclasses import dataclass

from pavane.ir.expr import Expr, Reduce, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fifo,
    Formal,
    Front,
    Generic,
    Init,
    MatmulTiles,
    Node,
    Numerics,
    Pop,
    Program,
    Push,
    Ref,
    Reserve,
    Spec,
    Tree,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import DType, Floats, Ints
from pavane.targets.descriptor import SpatialTarget
from tests.building import COL, ROW, K, program_of, read, shape_of, span, window, write
from tests.evidence.hand import Case, Hand, Work, chip, host_chip, nested, work
from tests.evidence.stages import Stages, staged

HEAD = quasi("LV_SUB_W")
EDGES = (4, 8, 16)
Part = tuple[tuple[Node, ...], tuple[Node, ...]]  # the loads of a turn, and what is done with them
Loops = tuple[tuple[str, Quasi], ...]


@dataclass(frozen=True)
class Draw:
    """Extents and the block of k, where a site's item lies, types; `heads` is 0 where operands have two dimensions."""

    extents: tuple[int, int, int]
    step: int
    spread: Work
    dtype: DType
    fused: bool
    heads: int

    @property
    def blocks(self) -> tuple[str, Quasi]:
        return "LV_KBLOCK", quasi(-(-self.extents[1] // self.step))

    def part(self, left: str, right: str, slots: tuple[str, str]) -> Part:
        """acc += left . right, of one block of k."""
        a, b = slots
        head, row, spread = ((HEAD, 1),) if self.heads else (), 1 if self.heads else 0, self.spread
        load = (
            *read(a, left, window(*head, (spread.row, spread.block[0]), (self.step * K, self.step), row=row)),
            *read(b, right, window(*head, (self.step * K, self.step), (spread.col, spread.block[1]), row=row)),
        )
        terms = span(self.step * K, self.step, self.extents[1])
        tree = Tree(0, 1, self.fused)
        op = MatmulTiles(Ref("acc"), Ref(a), Ref(b), False, spread.rows, spread.cols, terms, tree)
        return load, (Front(a), Front(b), Compute(op), Pop(a), Pop(b))

    def shape(self, place: int) -> tuple[Quasi, ...]:
        """Of a left operand (0), or a right one."""
        m, k, n = self.extents
        return shape_of(*((self.heads,) if self.heads else ()), *((m, k), (k, n))[place])


def sums(hand: Hand) -> Case:
    target = host_chip(hand) if hand.chance(0.35) else chip(hand)
    in_turns = hand.careless > 0 and hand.chance(0.4)
    return (two_sums if hand.chance(0.5) else nested_sums)(hand, target, in_turns), target


def two_sums(hand: Hand, target: SpatialTarget, in_turns: bool) -> Program:
    draw = _draw(hand, target)
    second = ("fA", "fB") if not in_turns and hand.chance(0.4) else ("fD", "fE")
    parts = [draw.part("A", "B", ("fA", "fB")), draw.part("D", "E", second)]
    if in_turns:
        (one, two), (other, then) = parts
        parts = [((*one, *other), (*two, *then))]
    slots = dict(zip(("fA", "fB", *second), (0, 1, 0, 1), strict=True))
    meant = fn("add", *(_contraction(a, b, f"k{n}", draw) for n, (a, b) in enumerate(("AB", "DE"))))
    stages = _stages(target, draw, parts, (draw.blocks,))
    exact = draw.dtype == "bf16" and hand.chance(0.4)
    return _section(hand, target, draw, dict(zip("ABDE", (0, 1, 0, 1), strict=True)), meant, stages, slots, exact)


def nested_sums(hand: Hand, target: SpatialTarget, in_turns: bool) -> Program:
    draw = _draw(hand, target, hand.pick((2, 3)))
    outer = ("LV_SUB_W", quasi(draw.heads))
    loops = (draw.blocks, outer) if in_turns else (outer, draw.blocks)
    stages = _stages(target, draw, [draw.part("A", "B", ("fA", "fB"))], loops)
    terms = fn("mul", at("A", "k0", "i0", "k1"), at("B", "k0", "k1", "i1"))
    meant = Reduce("SUM", "k0", quasi(draw.heads), Reduce("SUM", "k1", quasi(draw.extents[1]), terms))
    return _section(hand, target, draw, {"A": 0, "B": 1}, meant, stages, {"fA": 0, "fB": 1}, exact=False)


def _draw(hand: Hand, target: SpatialTarget, heads: int = 0) -> Draw:
    m, k, n = (hand.between(1, 24) for _ in "mkn")
    spread = work(hand, target, m, n, (hand.pick(EDGES), hand.pick(EDGES)))
    dtype: DType = "f32" if target.alias else hand.pick(("bf16", "f32"))
    fused = next(x.fused for e in target.engines for x in e.matrix if (x.a, x.b) == (dtype, dtype))
    return Draw((m, k, n), hand.pick(EDGES), spread, dtype, fused, heads)


def _contraction(a: str, b: str, k: str, draw: Draw) -> Expr:
    return Reduce("SUM", k, quasi(draw.extents[1]), fn("mul", at(a, "i0", k), at(b, k, "i1")))


def _stages(target: SpatialTarget, draw: Draw, parts: list[Part], loops: Loops) -> Stages:
    """Each part in loops of its own."""
    merged, spread = len(target.engines) == 1, draw.spread
    loading = () if merged else tuple(s for load, _ in parts for s in nested(loops, load))
    adding = tuple(s for load, add in parts for s in nested(loops, (*load, *add) if merged else add))
    copy = Compute(Generic(Ref("fO"), at("acc", ROW, COL), spread.rows, spread.cols))
    return loading, (Init("acc"), *adding, Reserve("fO"), copy, Push("fO")), write("fO", "O", spread.window())


def _section(
    hand: Hand,
    target: SpatialTarget,
    draw: Draw,
    operands: dict[str, int],
    meant: Expr,
    stages: Stages,
    slots: dict[str, int],
    exact: bool,
) -> Program:
    """`operands` and `slots`: names, and whether they are of the left (0) or of the right."""
    fill, out = Ints(-4, 4) if exact else Floats(), shape_of(draw.extents[0], draw.extents[2])
    bm, bn = draw.spread.block
    formals = tuple(Formal(name, draw.shape(place), draw.dtype, "IN", fill) for name, place in operands.items())
    sizes = ((bm, draw.step), (draw.step, bn))
    fifos = (
        *(Fifo(name, "LOCAL", *sizes[place], draw.dtype, hand.between(1, 2)) for name, place in slots.items()),
        Fifo("fO", "LOCAL", bm, bn, "f32", 1),
    )
    numerics = Numerics(operands=tuple((name, draw.dtype) for name in operands), exact=exact)
    shape, _ = staged(
        hand, target, "nested_sums" if draw.heads else "two_sums", (*formals, Formal("O", out, "f32", "OUT")),
        Spec("O", shape_of(0, 0), out, meant), stages, fifos, (Carry("acc", bm, bn, "f32"),), draw.spread.loops,
        (*draw.spread.items, bm, bn), numerics=numerics,
    )  # fmt: skip
    return program_of(target, shape)
