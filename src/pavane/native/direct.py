"""Results that are written where they go: a slot that one Generic fills and that is stored at once takes no memory.

    reserve F; F[r, c] = ...; push F; front F; store F -> window        pops may lie between

The Generic then writes the window itself. Both must cover the same elements, in the same type, nobody else may use F,
and no operand that is read in place may be the tensor that is written. Between the two nothing but FIFOs moves, and
nobody is waited for (whom the store comes after, the Generic must come after), so whoever reads the tensor cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.program import (
    Compute,
    Formal,
    Front,
    Generic,
    Load,
    Loop,
    Node,
    Pop,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Shape,
    Span,
    Step,
    Store,
)
from pavane.ir.quasi import Quasi
from pavane.ir.types import block_elements
from pavane.ir.walk import leaves, named
from pavane.native.packing import reads

MOVES = (Reserve, Push, Front, Pop)


def direct_stores(program: Program, shape: Shape, process: Process) -> dict[str, Store]:
    """The store of every FIFO whose slot need not exist."""
    waiting = waited_for(shape, process)
    return {
        store.fifo: store
        for generic, store in _pairs(process.body, waiting)
        if _only_use(shape, process, generic, store)
        and _same_elements(generic, store, named(shape.formals, store.tensor))
        and not _read_in_place(program, shape, store.tensor)
    }


def waited_for(shape: Shape, process: Process) -> frozenset[str]:
    """The FIFOs that another engine has an end of: who reserves or fronts a slot of one waits for it."""
    others = (leaves(p.body) for p in shape.processes if p.engine != process.engine)
    return frozenset(step.fifo for steps in others for _, step in steps if isinstance(step, MOVES))


def moves(node: Node, waiting: frozenset[str]) -> bool:
    """Whether it is a step of a FIFO that waits for nobody."""
    return isinstance(node, MOVES) and not (isinstance(node, Reserve | Front) and node.fifo in waiting)


def _pairs(body: tuple[Node, ...], waiting: frozenset[str]) -> Iterator[tuple[Generic, Store]]:
    """Generics and the stores of what they made, with nothing but FIFO steps between."""
    filled: Generic | None = None
    for node in body:
        if isinstance(node, Loop):
            yield from _pairs(node.body, waiting)
        if isinstance(node, Store) and filled is not None and filled.dst == Ref(node.fifo):
            yield filled, node
        if isinstance(node, Compute) and isinstance(node.op, Generic):
            filled = node.op
        elif not moves(node, waiting):
            filled = None


def _only_use(shape: Shape, process: Process, generic: Generic, store: Store) -> bool:
    """The slot is filled by the Generic, emptied by the store, and nothing else knows it."""
    name = store.fifo
    if named(shape.fifos, name).kind != "LOCAL" or name in reads(generic):
        return False
    uses = [(p, s) for p in shape.processes for _, s in leaves(p.body) if _touches(s, name)]
    return all(p is process for p, _ in uses) and sum(not isinstance(s, MOVES) for _, s in uses) == 2


def _touches(step: Step, name: str) -> bool:
    """Whether a step moves the FIFO or uses its slot."""
    if isinstance(step, Compute):
        return step.op.dst.name == name or name in reads(step.op)
    return getattr(step, "fifo", "") == name


def _same_elements(generic: Generic, store: Store, formal: Formal) -> bool:
    window, last = store.window, len(store.window.size) - 1
    if block_elements(formal.dtype) > 1 or not all(isinstance(start, Quasi) for start in window.start):
        return False
    if window.row < 0:
        return generic.rows == Span(Quasi(), 1, Quasi(1)) and _same_range(generic.cols, store, formal, last)
    return _same_range(generic.rows, store, formal, window.row) and _same_range(generic.cols, store, formal, last)


def _same_range(span: Span, store: Store, formal: Formal, dimension: int) -> bool:
    start, size = store.window.start[dimension], store.window.size[dimension]
    return isinstance(start, Quasi) and size == span.size and span.limit - span.start == formal.shape[dimension] - start


def _read_in_place(program: Program, shape: Shape, written: str) -> bool:
    """Whether the tensor that is written is also bound to a formal whose bytes ops read where they are."""
    in_place = {f.name for f in shape.fifos if f.kind == "ALIAS"}
    read = {s.tensor for p in shape.processes for _, s in leaves(p.body) if isinstance(s, Load) and s.fifo in in_place}
    for instance in program.instances:
        if instance.shape == shape.name:
            bound = {b.formal: b.tensor for b in instance.bindings}
            if bound[written] in {bound[formal] for formal in read}:
                return True
    return False
