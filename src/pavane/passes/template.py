"""How a TEMPLATE section is put together: axes of the work grid, operands with their FIFOs, stages, the program.

A section's choreography is written once, as one list in which every step says whose it is (`On`) and loops stand around
(`Around`); `stage_bodies` gives each stage its own steps with the loops that hold any of them. An `Operand` is a formal
with the window that one item needs of it, the tensor it is bound to, and the reader that brings it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from pavane.ir.digest import graph_digest
from pavane.ir.expr import Indirect
from pavane.ir.program import (
    LV_ITEM_X,
    LV_ITEM_Y,
    Binding,
    Carry,
    Compute,
    ComputeOp,
    Fence,
    Fifo,
    Formal,
    Front,
    Group,
    Instance,
    Items,
    Load,
    Loop,
    Node,
    Numerics,
    Pop,
    Program,
    Push,
    Reserve,
    Shape,
    Span,
    Spec,
    Stage,
    Step,
    Store,
    Symbol,
    Tensor,
    Window,
)
from pavane.ir.quasi import Domain, Quasi, quasi, upper
from pavane.passes.buffers import usable_bytes
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.tensor_graph.fills import known_fill

READER_A, READER_B, COMPUTE, WRITER = "reader_a", "reader_b", "compute", "writer"
STAGES = (READER_A, READER_B, COMPUTE, WRITER)
PLACEHOLDER_DEPTH = 2  # `size_buffers` chooses
RESIDENT_PART = 2  # whole rows that stay while items stream may take the memory divided by this
Y, X = quasi(LV_ITEM_Y), quasi(LV_ITEM_X)


class Axis(msgspec.Struct, frozen=True):
    """One dimension of the output as items walk it: item `v` has [start, start + size) clipped at `limit`, of `count`
    items.
    """

    start: Quasi
    size: int
    count: Quasi
    limit: Quasi

    @property
    def span(self) -> Span:
        return Span(self.start, self.size, self.limit)

    @property
    def dim(self) -> tuple[Quasi, int]:
        return (self.start, self.size)


class Operand(msgspec.Struct, frozen=True):
    """A formal that the section reads or writes through one FIFO: `window` is what one load or store moves.

    `through`: what the FIFO is called, where operands that one reader brings one after the other share it.
    """

    formal: str
    tensor: Tensor
    shape: tuple[Quasi, ...]
    window: Window
    stage: str = READER_A
    gather: bool = False
    through: str = ""

    @property
    def fifo(self) -> str:
        return f"f{self.through or self.formal}"

    @property
    def slot(self) -> tuple[int, int]:
        """(rows, columns) of the slot that the window fills."""
        rows = self.window.size[self.window.row] if self.window.row >= 0 else 1
        return rows, self.window.size[-1]


class On(msgspec.Struct, frozen=True):
    """Steps of one stage."""

    stage: str
    steps: tuple[Step, ...]


class Around(msgspec.Struct, frozen=True):
    """A loop around parts; each stage that has a step inside gets the loop."""

    var: str
    extent: Quasi
    parts: tuple[On | Around, ...]


Part = On | Around


def axis(extent: Quasi | int, tile: int, var: str, domain: Domain) -> Axis:
    """Steps of a tile (or of the whole extent when that is less) along `var`; a symbol that fits one tile is one whole
    step.
    """
    extent = quasi(extent)
    most = upper(extent, domain)
    size = min(tile, most)
    if most == 1 or (not extent.is_const and most <= tile):
        return fixed_axis(extent, most)
    return Axis(size * quasi(var), size, extent.ceil(size), extent)


class RowBytes(msgspec.Struct, frozen=True):
    """What a row of an item takes on a site for all columns: in carries, and in slots (two of each where rows come in
    several blocks).
    """

    carries: int = 0
    slots: int = 0


def row_axis(extent: Quasi | int, row: RowBytes, target: SpatialTarget, domain: Domain) -> Axis:
    """Blocks of rows along LV_ITEM_Y: a tile's, halved until they leave room for what streams past them."""
    rows = min(target.tile[0], upper(quasi(extent), domain))
    usable = usable_bytes(target)
    if rows == upper(quasi(extent), domain) and 4 * rows * (row.carries + row.slots) <= 3 * usable:
        return axis(extent, rows, LV_ITEM_Y, domain)
    while rows > 1 and rows * (row.carries + 2 * row.slots) > usable // RESIDENT_PART:
        rows = -(-rows // 2)
    return axis(extent, rows, LV_ITEM_Y, domain)


def fixed_axis(extent: Quasi | int, most: int) -> Axis:
    """All of a dimension in every item."""
    return Axis(quasi(0), most, quasi(1), quasi(extent))


def index_axis(count: int, var: str) -> Axis:
    """One index an item (a head): neither row nor column of a slot, so its span guards the ops."""
    return Axis(quasi(var), 1, quasi(count), quasi(count))


def whole(size: int) -> Span:
    return Span(quasi(0), size, quasi(size))


def extents(*dims: Quasi | int | str) -> tuple[Quasi, ...]:
    return tuple(quasi(d) for d in dims)


def window(*dims: tuple[Quasi | Indirect | int, int], row: int = -1) -> Window:
    """Dimensions as (start, size); `row` is the one that gives the slot's rows."""
    return Window(tuple(s if isinstance(s, Indirect) else quasi(s) for s, _ in dims), tuple(n for _, n in dims), row)


def symbols_domain(symbols: Iterable[Symbol]) -> Domain:
    return Domain((s.name, s.lo, s.hi) for s in symbols)


# --- steps ------------------------------------------------------------------------------------------------------------


def load(operand: Operand, target: SpatialTarget) -> On:
    """The reader brings the window; a FIFO that only binds it needs no fence."""
    filled: tuple[Step, ...] = (Reserve(operand.fifo), Load(operand.fifo, operand.formal, operand.window))
    fence: tuple[Step, ...] = () if is_alias(operand, target) else (Fence(),)
    return On(operand.stage, (*filled, *fence, Push(operand.fifo)))


def loads(operands: Sequence[Operand], target: SpatialTarget) -> tuple[On, ...]:
    return tuple(load(o, target) for o in operands)


def front(*operands: Operand) -> On:
    return On(COMPUTE, tuple(Front(o.fifo) for o in operands))


def pop(*operands: Operand) -> On:
    return On(COMPUTE, tuple(Pop(o.fifo) for o in operands))


def compute(*ops: ComputeOp) -> On:
    return On(COMPUTE, tuple(Compute(op) for op in ops))


def result(operand: Operand, *ops: ComputeOp) -> tuple[On, On]:
    """Compute fills a slot, the writer stores it."""
    fifo = operand.fifo
    filled: tuple[Step, ...] = (Reserve(fifo), *(Compute(op) for op in ops), Push(fifo))
    stored = (Front(fifo), Store(fifo, operand.formal, operand.window), Fence(), Pop(fifo))
    return On(COMPUTE, filled), On(WRITER, stored)


def over_items(
    items: Items, before: Sequence[Part], item: Sequence[Part], after: Sequence[Part] = ()
) -> tuple[Part, ...]:
    """`before` and `after` once a row of items, `item` for each."""
    return (Around(LV_ITEM_Y, items.y, (*before, Around(LV_ITEM_X, items.x, tuple(item)), *after)),)


def stage_bodies(parts: Sequence[Part], stage: str) -> tuple[Node, ...]:
    """The steps of one stage in written order, inside the loops that hold any of them."""
    out: list[Node] = []
    for part in parts:
        if isinstance(part, Around):
            inner = stage_bodies(part.parts, stage)
            out.extend((Loop(part.var, part.extent, inner),) if inner else ())
        elif part.stage == stage:
            out.extend(part.steps)
    return tuple(out)


# --- FIFOs and the program --------------------------------------------------------------------------------------------


def is_alias(operand: Operand, target: SpatialTarget) -> bool:
    """Engines address the tensor in place: it is only read here, and its rows are one window."""
    return target.alias and operand.stage != WRITER and not operand.gather


def fifo_of(operand: Operand, target: SpatialTarget) -> Fifo:
    rows, cols = operand.slot
    kind: Literal["ALIAS", "LOCAL"] = "ALIAS" if is_alias(operand, target) else "LOCAL"
    return Fifo(operand.fifo, kind, rows, cols, operand.tensor.dtype, PLACEHOLDER_DEPTH)


def formal_of(operand: Operand) -> Formal:
    role: Literal["OUT", "IN"] = "OUT" if operand.stage == WRITER else "IN"
    return Formal(operand.formal, operand.shape, operand.tensor.dtype, role, known_fill(operand.tensor))


def template_shape(
    name: str,
    operands: Sequence[Operand],
    spec: Sequence[Spec],
    items: Items,
    numerics: Numerics,
    parts: Sequence[Part],
    carries: Sequence[Carry],
    target: SpatialTarget,
    compute_engine: str = "",
) -> Shape:
    """One group `all`, not placed yet, with the stages that have anything to do."""
    engines = {
        READER_A: target.engine_for("reader", 0).name,
        READER_B: target.engine_for("reader", 1).name,
        COMPUTE: compute_engine or target.engine_for("compute").name,
        WRITER: target.engine_for("writer").name,
    }
    bodies = [(stage, stage_bodies(parts, stage)) for stage in STAGES]
    return Shape(
        name=name,
        formals=tuple(formal_of(o) for o in operands),
        spec=tuple(spec),
        items=items,
        numerics=numerics,
        groups=(Group("all", tuple(Stage(stage, engines[stage], body) for stage, body in bodies if body)),),
        fifos=tuple({o.fifo: fifo_of(o, target) for o in operands}.values()),
        carries=tuple(carries),
    )


def template_program(
    name: str, shape: Shape, operands: Sequence[Operand], symbols: Sequence[Symbol], target: SpatialTarget
) -> Program:
    """The program of one section; it declares the symbols that it mentions and the tensors that it binds."""
    tensors = tuple({o.tensor.name: o.tensor for o in operands}.values())
    program = Program(
        name=name,
        phase="TEMPLATE",
        target=target.name,
        target_digest=target_digest(target),
        graph_digest="",
        symbols=tuple(symbols),
        tensors=tensors,
        shapes=(shape,),
        instances=(Instance(shape.name, tuple(Binding(o.formal, o.tensor.name) for o in operands), name=name),),
    )
    return msgspec.structs.replace(program, graph_digest=graph_digest(program))
