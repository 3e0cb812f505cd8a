"""Element-wise pipelines written by hand: FIFOs between engines, merged processes on cores, aliases of memory.

    fifo_pipeline   reader(s) -> compute (through inner FIFOs or carries, now and then) -> writer, on a small chip
    alias_pipeline  the same on cores that address memory in place, one merged process or engines of their own

`pointwise_shape` is the section that other families put together.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.expr import Expr, at
from pavane.ir.program import (
    Carry,
    Compute,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Items,
    Load,
    Node,
    Numerics,
    Pop,
    Process,
    Push,
    Rect,
    Ref,
    Reserve,
    Shape,
    Spec,
    Store,
    Tensor,
)
from pavane.ir.quasi import quasi
from pavane.targets.descriptor import Grid, SpatialTarget
from tests.building import COL, ROW, one_section, shape_of
from tests.evidence.hand import Case, Hand, Work, chip, everywhere, host_chip, in_slots, laid_out, pointwise, work

BLOCKS = ((8, 16), (16, 8), (4, 32), (32, 32), (8, 8))


def fifo_pipeline(hand: Hand) -> Case:
    target = chip(hand, alias=hand.chance(0.2))
    return _one(hand, target)


def alias_pipeline(hand: Hand) -> Case:
    target = host_chip(hand) if hand.chance(0.6) else chip(hand, alias=True)
    return _one(hand, target, alias=True)


def _one(hand: Hand, target: SpatialTarget, alias: bool = False) -> Case:
    rows, cols = hand.between(1, 40), hand.between(1, 70)
    inputs = ("A", "B")[: hand.between(1, 2)]
    shape, _ = pointwise_shape(hand, target, "section", rows, cols, inputs, alias)
    tensors = [Tensor(n.lower(), shape_of(rows, cols), "f32", hand.pick(("INPUT", "WEIGHT"))) for n in inputs]
    if hand.chance(0.2):
        tensors[0] = Tensor(
            tensors[0].name, shape_of(rows + hand.off(hand.between(0, 3), (-4,)), cols), "f32", tensors[0].role
        )
    tensors.append(Tensor("o", shape_of(rows, cols), "f32", "OUTPUT"))
    bindings = {n: n.lower() for n in (*inputs, "O")}
    if len(inputs) == 2 and hand.chance(0.1):
        bindings["B"] = "a"
        tensors = [t for t in tensors if t.name != "b"]
    if hand.slip():
        bindings["A"] = "o"
    return one_section(target, shape, tuple(tensors), bindings), target


def pointwise_shape(
    hand: Hand,
    target: SpatialTarget,
    name: str,
    rows: int,
    cols: int,
    inputs: tuple[str, ...] = ("I",),
    alias: bool = False,
    start: int = 0,
    expr: Expr | None = None,
    where: Rect | None = None,
) -> tuple[Shape, int]:
    """A section O = expr(inputs), and where its layout ends. Merged into one process where one engine does it all."""
    block = hand.pick(BLOCKS)
    where = where or everywhere(target)
    width, height = where.x1.const - where.x0.const, where.y1.const - where.y0.const
    spread = work(hand, replace(target, grid=Grid(width=width, height=height)), rows, cols, block)
    expr = expr or pointwise(hand, inputs)
    merged = len(target.engines) == 1
    kind = "ALIAS" if alias else "LOCAL"
    fifos = [Fifo(f"f{n}", kind, *block, "f32", hand.between(1, 3)) for n in inputs]
    fifos.append(Fifo("fO", "LOCAL", *block, "f32", hand.off(hand.between(1, 2), (-1,))))
    middle, inner, carries = _compute(hand, spread, expr, inputs)
    placed, cells, end = laid_out(hand, target, (*fifos, *inner), carries, start)
    reads = _reads(hand, spread, inputs, alias)
    if merged:
        processes = _merged(hand, target, where, spread, reads, middle)
    else:
        processes = _apart(hand, where, spread, reads, middle)
    shape = Shape(
        name=name,
        formals=(
            *(Formal(n, shape_of(rows, cols), "f32", "IN") for n in inputs),
            Formal("O", shape_of(rows, cols), "f32", "OUT"),
        ),
        spec=(Spec("O", shape_of(0, 0), shape_of(rows, hand.off(cols, (-1,))), expr),),
        items=Items(quasi(spread.items[0]), quasi(spread.items[1]), *block),
        numerics=Numerics(),
        processes=processes,
        fifos=placed,
        carries=cells,
    )
    return shape, end


# --- steps ---


def _reads(hand: Hand, spread: Work, inputs: tuple[str, ...], alias: bool) -> list[tuple[Node, ...]]:
    """The steps that fill each input's FIFO: one tuple a reader's part."""
    parts = []
    for name in inputs:
        window = spread.window()
        if hand.slip():
            window = type(window)((window.start[0] + hand.pick((-1, 1)), window.start[1]), window.size, 0)
        fence = () if hand.slip() or (alias and hand.chance(0.7)) else (Fence(),)
        if hand.slip():
            parts.append((Reserve(f"f{name}"), *fence, Load(f"f{name}", name, window), Push(f"f{name}")))
        else:
            parts.append((Reserve(f"f{name}"), Load(f"f{name}", name, window), *fence, Push(f"f{name}")))
    return parts


def _compute(
    hand: Hand, spread: Work, expr: Expr, inputs: tuple[str, ...]
) -> tuple[tuple[Node, ...], tuple[Fifo, ...], tuple[Carry, ...]]:
    """Front inputs; the op, through a FIFO to itself or a carry now and then; push and pop in some order."""
    op = in_slots(expr, {n: f"f{n}" for n in inputs})
    assign = lambda to, value: Compute(Generic(Ref(to), value, spread.rows, spread.cols))  # noqa: E731
    fronts = [Front(f"f{n}") for n in inputs]
    hand.rng.shuffle(fronts)
    pops: list[Node] = [Pop(f"f{n}") for n in inputs if not hand.slip()]
    way, out = hand.pick(("straight", "straight", "fifo", "carry")), at("mid", ROW, COL)
    if way == "straight":
        filling: tuple[Node, ...] = (Reserve("fO"), assign("fO", op))
        tail = [Push("fO"), *pops]
        if hand.slip():
            return (*fronts, *pops, *filling, Push("fO")), (), ()
        if hand.chance(0.5):
            tail = [*pops, Push("fO")]
        lead = (filling[0], *fronts, filling[1]) if hand.chance(0.3) else (*fronts, *filling)
        return (*lead, *tail), (), ()
    last = (Reserve("fO"), assign("fO", out), Push("fO"))
    if way == "carry":
        steps = (*fronts, assign("mid", op), *pops, *last)
        return steps, (), (Carry("mid", *spread.block, "f32"),)
    inner = Fifo("mid", "LOCAL", *spread.block, "f32", hand.between(1, 2))
    steps = (
        *fronts, Reserve("mid"), assign("mid", op), Push("mid"), *pops, Front("mid"), *last,
        *(() if hand.slip() else (Pop("mid"),)),
    )  # fmt: skip
    return steps, (inner,), ()


def _writes(hand: Hand, spread: Work) -> tuple[Node, ...]:
    store = Store("fO", "O", spread.window())
    if hand.slip():
        return (Front("fO"), store, Pop("fO"), Fence())
    return (Front("fO"), store, Fence(), Pop("fO"))


def _merged(
    hand: Hand,
    target: SpatialTarget,
    where: Rect,
    spread: Work,
    reads: list[tuple[Node, ...]],
    middle: tuple[Node, ...],
) -> tuple[Process, ...]:
    steps = (*(s for part in reads for s in part), *middle, *_writes(hand, spread))
    return (Process("core", where, target.engines[0].name, spread.nest(*steps)),)


def _apart(
    hand: Hand, where: Rect, spread: Work, reads: list[tuple[Node, ...]], middle: tuple[Node, ...]
) -> tuple[Process, ...]:
    """Engines of their own; two inputs are read by two readers or by one, in turn or under one fence."""
    processes = [
        Process("compute", where, "matrix", spread.nest(*middle)),
        Process("write", where, "writer", _short(hand, spread).nest(*_writes(hand, spread))),
    ]
    if len(reads) == 2 and hand.chance(0.4):
        processes += [
            Process("readA", where, "reader_a", spread.nest(*reads[0])),
            Process("readB", where, "reader_b", spread.nest(*reads[1])),
        ]
    else:
        if len(reads) == 2 and hand.chance(0.4):
            reads = [_interleaved(reads)]
        hand.rng.shuffle(reads)
        steps = tuple(s for part in reads for s in part)
        processes.append(Process("read", where, "reader_a", spread.nest(*steps)))
    hand.rng.shuffle(processes)
    return tuple(processes)


def _interleaved(reads: list[tuple[Node, ...]]) -> tuple[Node, ...]:
    """Both slots reserved, both loads under way, one fence, both handed over."""
    one, other = reads
    steps = [s for pair in zip(one, other, strict=False) for s in pair]
    fences = [i for i, s in enumerate(steps) if isinstance(s, Fence)]
    return tuple(s for i, s in enumerate(steps) if i not in fences[:-1]) if len(fences) == 2 else (*one, *other)


def _short(hand: Hand, spread: Work) -> Work:
    """Now and then one turn too few or too many of the innermost loop."""
    if not spread.loops or not hand.slip():
        return spread
    var, extent = spread.loops[-1]
    changed = (*spread.loops[:-1], (var, quasi(max(1, extent.const + hand.pick((-1, 1))))))
    return Work(spread.row, spread.col, changed, spread.rows, spread.cols, spread.items, spread.block)
