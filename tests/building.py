"""The bricks of programs that are written by hand: variables, rectangles, windows, spans, common steps, programs.

`read` and `write` are a reader's and a writer's turn with one slot, `take` a core's that finds an operand in place,
`items` the two loops over the work grid.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.digest import graph_digest
from pavane.ir.expr import Indirect
from pavane.ir.program import (
    Binding,
    Counter,
    Fence,
    Front,
    Instance,
    Load,
    Loop,
    Node,
    Pop,
    Program,
    Push,
    Rect,
    Reserve,
    Run,
    Shape,
    Span,
    Store,
    Symbol,
    Tensor,
    Window,
    Worker,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.targets.descriptor import SpatialTarget, target_digest

Y, X, K, S = quasi("LV_ITEM_Y"), quasi("LV_ITEM_X"), quasi("LV_KBLOCK"), quasi("LV_SUB_H")
SX, SY = quasi("SITE_X"), quasi("SITE_Y")
ROW, COL, GEN_K = "LV_GEN_ROW", "LV_GEN_COL", "LV_GEN_K"
Body = tuple[Node, ...]


def rect(x0: int, x1: int, y0: int, y1: int) -> Rect:
    return Rect(quasi(x0), quasi(x1), quasi(y0), quasi(y1))


def site(x: Quasi | int, y: Quasi | int) -> Rect:
    return Rect(quasi(x), quasi(x) + 1, quasi(y), quasi(y) + 1)


def shape_of(*extents: Quasi | int | str) -> tuple[Quasi, ...]:
    return tuple(quasi(e) for e in extents)


def window(*dims: tuple[Quasi | Indirect | int, int], row: int = -1) -> Window:
    """Dimensions as (start, size); `row` is the one that gives the slot's rows."""
    return Window(tuple(s if isinstance(s, Indirect) else quasi(s) for s, _ in dims), tuple(n for _, n in dims), row)


def span(start: Quasi | int, size: int, limit: Quasi | int) -> Span:
    return Span(quasi(start), size, quasi(limit))


def whole(size: int) -> Span:
    return span(0, size, size)


def items(y: Quasi | int, x: Quasi | int, *steps: Node) -> Body:
    return (Loop("LV_ITEM_Y", quasi(y), (Loop("LV_ITEM_X", quasi(x), steps),)),)


def read(fifo: str, formal: str, place: Window) -> Body:
    return (Reserve(fifo), Load(fifo, formal, place), Fence(), Push(fifo))


def take(fifo: str, formal: str, place: Window) -> Body:
    """For an ALIAS: nothing moves, so nothing is waited for; the slot is in front."""
    return (Reserve(fifo), Load(fifo, formal, place), Push(fifo), Front(fifo))


def write(fifo: str, formal: str, place: Window) -> Body:
    return (Front(fifo), Store(fifo, formal, place), Fence(), Pop(fifo))


def one_section(
    target: SpatialTarget,
    shape: Shape,
    tensors: tuple[Tensor, ...],
    bindings: dict[str, str],
    symbols: tuple[Symbol, ...] = (),
) -> Program:
    """A PERSISTENT program of one section: one worker a process. `target` gives name and digest only."""
    instance = Instance(shape.name, tuple(Binding(f, t) for f, t in bindings.items()), name=shape.name)
    workers = tuple(Worker(p.name, p.rect, p.engine, (Run(0, p.name),)) for p in shape.processes)
    return many_sections(shape.name, target, (shape,), tensors, (instance,), workers, symbols=symbols)


def program_of(
    target: SpatialTarget, shape: Shape, weights: tuple[str, ...] = (), symbols: tuple[Symbol, ...] = ()
) -> Program:
    """A program of one section, whose formal X is tensor x: a result, one of `weights` (formals), or an input."""
    roles = {f.name: "OUTPUT" if f.role == "OUT" else "WEIGHT" if f.name in weights else "INPUT" for f in shape.formals}
    tensors = tuple(Tensor(f.name.lower(), f.shape, f.dtype, roles[f.name], f.fill) for f in shape.formals)  # type: ignore[arg-type]
    return one_section(target, shape, tensors, {f.name: f.name.lower() for f in shape.formals}, symbols)


def many_sections(
    name: str,
    target: SpatialTarget,
    shapes: tuple[Shape, ...],
    tensors: tuple[Tensor, ...],
    instances: tuple[Instance, ...],
    workers: tuple[Worker, ...],
    counters: tuple[Counter, ...] = (),
    symbols: tuple[Symbol, ...] = (),
) -> Program:
    """A PERSISTENT program with the digest of what it means. `target` gives name and digest only."""
    program = Program(
        name=name,
        phase="PERSISTENT",
        target=target.name,
        target_digest=target_digest(target),
        graph_digest="",
        symbols=symbols,
        tensors=tensors,
        shapes=shapes,
        instances=instances,
        counters=counters,
        workers=workers,
    )
    return replace(program, graph_digest=graph_digest(program))
