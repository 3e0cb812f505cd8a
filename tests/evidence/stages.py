"""A section of three stages, read, compute, write: processes of three engines, or one behind the other on a core.

staged     the section of its stages         summed     a product in K blocks as the first two of them
"""

from __future__ import annotations

from pavane.ir.expr import at
from pavane.ir.program import (
    Carry,
    Compute,
    Fifo,
    Formal,
    Front,
    Generic,
    Init,
    Items,
    MatmulTiles,
    Node,
    Numerics,
    Pop,
    Process,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.targets.descriptor import SpatialTarget
from tests.building import COL, ROW, rect
from tests.evidence.hand import Hand, everywhere, laid_out, nested

Site = tuple[int, int]
Stages = tuple[tuple[Node, ...], tuple[Node, ...], tuple[Node, ...]]


def staged(
    hand: Hand,
    target: SpatialTarget,
    name: str,
    formals: tuple[Formal, ...],
    spec: Spec | tuple[Spec, ...],
    stages: Stages,
    fifos: tuple[Fifo, ...],
    carries: tuple[Carry, ...],
    loops: tuple[tuple[str, Quasi], ...],
    items: tuple[int | Quasi, int, int, int],
    start: int = 0,
    numerics: Numerics | None = None,
    along: tuple[Site, ...] = (),
) -> tuple[Shape, int]:
    """The section, and where its layout ends. `items`: how many, and the elements of one; `along`: a list of sites, in
    place of all of them.
    """
    placed, cells, end = laid_out(hand, target, fifos, carries, start)
    sites = rect(0, len(along), 0, 1) if along else everywhere(target)
    if len(target.engines) == 1:
        steps = tuple(s for part in stages for s in part)
        processes: tuple[Process, ...] = (Process("core", sites, target.engines[0].name, nested(loops, steps)),)
    else:
        named = zip(("read", "compute", "write"), ("reader_a", "matrix", "writer"), stages, strict=True)
        processes = tuple(Process(n, sites, e, nested(loops, steps)) for n, e, steps in named)
    shape = Shape(
        name=name, formals=formals, spec=spec if isinstance(spec, tuple) else (spec,),
        items=Items(quasi(items[0]), quasi(items[1]), items[2], items[3]), numerics=numerics or Numerics(),
        processes=processes, fifos=placed, carries=cells, sites=along,
    )  # fmt: skip
    return shape, end


def summed(
    target: SpatialTarget, op: MatmulTiles, load: tuple[Node, ...], blocks: Quasi, out: str
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """What is read, block after block, and what is done with it; the sum goes to a slot of `out`."""
    loop, merged = (("LV_KBLOCK", blocks),), len(target.engines) == 1
    multiply = (Front(op.a.name), Front(op.b.name), Compute(op), Pop(op.a.name), Pop(op.b.name))
    middle = (
        Init(op.dst.name), *nested(loop, (*load, *multiply) if merged else multiply), Reserve(out),
        Compute(Generic(Ref(out), at(op.dst.name, ROW, COL), op.rows, op.cols)), Push(out),
    )  # fmt: skip
    return () if merged else nested(loop, load), middle
