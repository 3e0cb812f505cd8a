"""Tensors that lie on the chip, and sections beside the DRAM channels, written by hand.

on_the_sites      sections that hand each other copies on every site, and read weights that lie there or are sharded
beside_channels   a product of few rows along a list of sites, whose weight goes round the channels in units of an item;
                  what goes in and comes out is made and read by sections on all sites, or along a list of them

A careless hand lays a tensor over buffers or past the end, cuts a block of a share inside a row, tells a section
another home, other blocks or other units, lists a site twice, a site too many or in another order, or forgets a
boundary.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.expr import Reduce, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fifo,
    Formal,
    Front,
    Generic,
    MatmulTiles,
    Numerics,
    Pop,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
    Tensor,
    Tree,
)
from pavane.ir.quasi import quasi
from pavane.ir.shards import share_bytes
from pavane.targets.descriptor import Grid, SpatialTarget
from tests.building import COL, ROW, SX, K, X, Y, read, shape_of, span, whole, window, write
from tests.evidence.hand import Case, Hand, chip
from tests.evidence.pipelines import pointwise_shape
from tests.evidence.sections import Part, composed, meeting
from tests.evidence.stages import Site, staged, summed

# --- on the sites ---


def on_the_sites(hand: Hand) -> Case:
    """t = f(x, w); then, now and then, u = g(t); y = h(t or u, v)."""
    target = chip(hand)
    rows, cols, count = hand.between(1, 16), hand.between(1, 24), hand.between(2, 3)
    parts, made, free = [], "x", 0
    tensors = [Tensor("x", shape_of(rows, cols), "f32", "INPUT"), Tensor("y", shape_of(rows, cols), "f32", "OUTPUT")]
    for number in range(count):
        out = "y" if number == count - 1 else f"t{number}"
        weighted = hand.chance(0.6)
        inputs = ("I", "J")[: 1 + weighted]
        start = 0 if hand.chance(0.6) else free
        shape, end = pointwise_shape(hand, target, f"s{number}", rows, cols, inputs, start=start)
        free = max(free, end)
        bound = (("I", made), *((("J", f"w{number}"),) if weighted else ()), ("O", out))
        parts.append(Part(shape, bound, boundary=not hand.slip()))
        if weighted:
            tensors.append(Tensor(f"w{number}", shape_of(rows, cols), "f32", "WEIGHT"))
        if out != "y":
            tensors.append(Tensor(out, shape_of(rows, cols), "f32", "SCRATCH"))
        made = out
    laid = _laid(hand, target, tensors, free)
    known = tuple(_knowing(hand, part, laid) for part in parts)
    return composed(hand, target, known, laid, meeting(target)), target


def _laid(hand: Hand, target: SpatialTarget, tensors: list[Tensor], free: int) -> tuple[Tensor, ...]:
    """SCRATCH and weights on the sites, weights sharded, or beside the chip; each behind the one before."""
    align, beside, found = target.memory.alignment_bytes, 0, []
    for tensor in tensors:
        row = tensor.shape[-1].const * 4
        size = tensor.shape[0].const * row
        home = hand.pick(("dram", "sites", "sites") if tensor.role == "SCRATCH" else ("dram", "sites", "sharded"))
        if tensor.role in ("INPUT", "OUTPUT") and not (hand.slip() and hand.slip()):
            home = "dram"
        shard = hand.pick((1, 2, 3)) * row + (4 if hand.slip() else 0) if home == "sharded" else 0
        offset = -1
        if home != "dram":
            free = -(-free // align) * align - (align if hand.slip() else 0)
            offset, free = free, free + (share_bytes(size, shard, target.sites) if shard else size)
        elif tensor.role == "SCRATCH":
            offset, beside = beside, beside + -(-size // 32) * 32
        found.append(replace(tensor, home=home, shard_bytes=shard, offset=offset))
    return tuple(found)


def _knowing(hand: Hand, part: Part, tensors: tuple[Tensor, ...]) -> Part:
    """The section with its formals where their tensors lie."""
    bound, lying, formals = dict(part.bindings), {t.name: t for t in tensors}, []
    for formal in part.shape.formals:
        tensor = lying[bound[formal.name]]
        home = hand.pick(("dram", "sites")) if hand.slip() else tensor.home
        shard, unit = tensor.shard_bytes, tensor.interleave_bytes
        if hand.slip():
            shard, unit = 2 * shard, 2 * unit
        formals.append(replace(formal, home=home, shard_bytes=shard, interleave_bytes=unit))
    return Part(replace(part.shape, formals=tuple(formals)), part.bindings, part.boundary)


# --- beside the channels ---


def channelled(hand: Hand) -> tuple[SpatialTarget, tuple[Site, ...]]:
    """A chip with some channels, and a site beside each of them, in any order."""
    made = replace(chip(hand), grid=Grid(width=hand.between(2, 3), height=2))
    if hand.chance(0.3):  # one engine a site, which does everything
        core = replace(made.engine_for("compute"), name="core", roles=("reader", "compute", "writer"))
        made = replace(made, engines=(core,))
    sites = [(x, y) for y in range(made.grid.height) for x in range(made.grid.width)]
    beside = tuple(hand.rng.sample(sites, hand.between(2, min(4, len(sites)))))
    return replace(made, dram=replace(made.dram, channels=len(beside), adjacent=beside, page_bytes=64)), beside


def beside_channels(hand: Hand) -> Case:
    """t = f(x) on all sites; p = t . w^T beside the channels; y = g(p) on all sites, or along a list."""
    target, beside = channelled(hand)
    rows, depth, width = hand.between(1, 4), 8 * hand.between(1, 3), hand.between(2, 24)
    unit = hand.pick((2, 4, 8))
    first, free = pointwise_shape(hand, target, "first", rows, depth)
    along = _listed(hand, target, beside)
    product, end = _product(hand, target, along, rows, depth, width, unit, 0 if hand.chance(0.5) else free)
    free = max(free, end)
    if hand.chance(0.5):
        last, end = pointwise_shape(hand, target, "last", rows, width, start=0 if hand.chance(0.5) else free)
    else:
        order = along if hand.chance(0.7) else tuple(hand.rng.sample(along, len(along)))
        last, end = _doubled(hand, target, order, rows, width, unit, 0 if hand.chance(0.5) else free)
    alone = len(target.engines) == 1 and last.sites == along
    units = unit * depth * 4 + (hand.pick((4, 64)) if hand.slip() else 0)
    weight = "INPUT" if hand.slip() and hand.chance(0.3) else "WEIGHT"
    tensors = (
        Tensor("x", shape_of(rows, depth), "f32", "INPUT"),
        Tensor("w", shape_of(width, depth), "f32", weight, interleave_bytes=units),
        Tensor("t", shape_of(rows, depth), "f32", "SCRATCH", offset=0),
        Tensor("p", shape_of(rows, width), "f32", "SCRATCH", offset=512),
        Tensor("y", shape_of(rows, width), "f32", "OUTPUT"),
    )  # fmt: skip
    parts = (
        Part(first, (("I", "x"), ("O", "t"))),
        Part(product, (("A", "t"), ("B", "w"), ("C", "p")), boundary=not hand.slip()),
        Part(last, (("I", "p"), ("O", "y")), boundary=not (hand.slip() or (alone and hand.chance(0.7)))),
    )
    known = tuple(_knowing(hand, part, tensors) for part in parts)
    return composed(hand, target, known, tensors, meeting(target)), target


def _listed(hand: Hand, target: SpatialTarget, beside: tuple[Site, ...]) -> tuple[Site, ...]:
    if not hand.slip():
        return beside
    outside = (target.grid.width, 0)
    return hand.pick((beside[:-1], (*beside, beside[0]), (*beside[:-1], outside), (*beside[1:], beside[0])))


def _product(
    hand: Hand,
    target: SpatialTarget,
    along: tuple[Site, ...],
    rows: int,
    depth: int,
    width: int,
    unit: int,
    start: int,
) -> tuple[Shape, int]:
    """C = A . B^T: item n, of `unit` rows of B, on site n mod sites of the list."""
    turns, row = -(-width // (unit * len(along))), unit * (SX + len(along) * Y)
    step = hand.pick((8, depth))
    r, c, ks, kloop = whole(rows), span(row, unit, width), span(step * K, step, depth), quasi(-(-depth // step))
    mode = next(m for m in target.engine_for("compute").matrix if (m.a, m.b) == ("f32", "f32"))
    op = MatmulTiles(Ref("acc"), Ref("fA"), Ref("fB"), True, r, c, ks, Tree(0, mode.lanes, mode.fused))
    load = (
        *read("fA", "A", window((0, rows), (step * K, step), row=0)),
        *read("fB", "B", window((row, unit), (step * K, step), row=0)),
    )
    store = write("fC", "C", window((0, rows), (row, unit), row=0))
    fifos = (
        Fifo("fA", "LOCAL", rows, step, "f32", hand.between(1, 2)),
        Fifo("fB", "LOCAL", unit, step, "f32", hand.between(1, 2)), Fifo("fC", "LOCAL", rows, unit, "f32", 1),
    )  # fmt: skip
    formals = (
        Formal("A", shape_of(rows, depth), "f32", "IN"), Formal("B", shape_of(width, depth), "f32", "IN"),
        Formal("C", shape_of(rows, width), "f32", "OUT"),
    )  # fmt: skip
    meant = Reduce("SUM", "k0", quasi(depth), fn("mul", at("A", "i0", "k0"), at("B", "i1", "k0")))
    return staged(
        hand, target, "product", formals, Spec("C", shape_of(0, 0), shape_of(rows, width), meant),
        (*summed(target, op, load, kloop, "fC"), store), fifos, (Carry("acc", rows, unit, "f32"),),
        (("LV_ITEM_Y", quasi(turns)),), (1, -(-width // unit), rows, unit), start,
        Numerics(operands=(("A", "f32"), ("B", "f32"))), along,
    )  # fmt: skip


def _doubled(
    hand: Hand, target: SpatialTarget, along: tuple[Site, ...], rows: int, width: int, unit: int, start: int
) -> tuple[Shape, int]:
    """O = 2 * I, columns item by item along the list."""
    turns, col = -(-width // (unit * len(along))), unit * (SX + len(along) * X)
    r, c, box = whole(rows), span(col, unit, width), window((0, rows), (col, unit), row=0)
    double = Compute(Generic(Ref("fO"), fn("mul", at("fI", ROW, COL), 2.0), r, c))
    stages = (
        read("fI", "I", box), (Front("fI"), Reserve("fO"), double, Push("fO"), Pop("fI")), write("fO", "O", box),
    )  # fmt: skip
    fifos = (Fifo("fI", "LOCAL", rows, unit, "f32", hand.between(1, 2)), Fifo("fO", "LOCAL", rows, unit, "f32", 1))
    formals = (Formal("I", shape_of(rows, width), "f32", "IN"), Formal("O", shape_of(rows, width), "f32", "OUT"))
    spec = Spec("O", shape_of(0, 0), shape_of(rows, width), fn("mul", at("I", "i0", "i1"), 2.0))
    return staged(
        hand, target, "doubled", formals, spec, stages, fifos, (), (("LV_ITEM_X", quasi(turns)),),
        (1, -(-width // unit), rows, unit), start, None, along,
    )  # fmt: skip
