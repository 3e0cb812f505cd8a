"""Which FIFOs one reader may fill for a whole line of sites, and for which of them that pays.

`tile` prices a plan with it and `fuse_readers` carries it out: so what was predicted is what is done. A FIFO may be
read once a row when no load that fills it mentions LV_ITEM_X (once a column: LV_ITEM_Y), its engine only reads, the
items fall on the sites as rows and columns, and the chip has the counters that the handshakes need, those of the
boundaries (at most one an engine, and one more) set aside. FIFOs that one
engine reads are shared along the same kind of line: where it leads and where it receives are then two rectangles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pavane.cost.model import Prediction
from pavane.cost.spread import Spread
from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y, Compute, Fifo, Front, Join, Load, Push, Shape, Store
from pavane.ir.quasi import Quasi
from pavane.ir.walk import leaves
from pavane.targets.descriptor import SpatialTarget

COUNTERS_EACH = 2  # credit and valid
LINES = {
    "MULTICAST_ROW": LV_ITEM_X,
    "MULTICAST_COLUMN": LV_ITEM_Y,
}  # a line of sites shares what does not depend on this

Kinds = Mapping[str, str]  # a FIFO's name and the multicast it is given


@dataclass(frozen=True)
class Sharable:
    """A FIFO that may be shared, the engine that reads it, and along which lines."""

    fifo: str
    engine: str
    kinds: tuple[str, ...]


def sharable(shape: Shape, target: SpatialTarget) -> tuple[Sharable, ...]:
    """The FIFOs that may be shared, in declared order."""
    if not target.noc.multicast or target.grid.scattered:
        return ()
    found = []
    for fifo in shape.fifos:
        engine, loads = _loads_of_reader(shape, fifo) if fifo.kind == "LOCAL" else ("", ())
        kinds = tuple(kind for kind, var in LINES.items() if loads and not any(_mentions(load, var) for load in loads))
        if kinds:
            found.append(Sharable(fifo.name, engine, kinds))
    return tuple(found)


def share(
    candidates: tuple[Sharable, ...],
    spread: Spread,
    target: SpatialTarget,
    predict: Callable[[Kinds], Prediction],
) -> tuple[dict[str, str], tuple[Join, ...], Prediction]:
    """FIFO by FIFO, given the ones before, shared where that is faster: the choice, the comparisons, the time."""
    taken: dict[str, str] = {}
    by_engine: dict[str, str] = {}
    joins: list[Join] = []
    best = predict(taken)
    for candidate in candidates:
        kind = _possible(candidate, by_engine.get(candidate.engine), len(taken), spread, target)
        if kind is None:
            continue
        more = {**taken, candidate.fifo: kind}
        shared = predict(more)
        what, word = f"reader of {candidate.fifo}", kind.lower().replace("_", " ")
        if shared.cycles < best.cycles:
            joins.append(Join(what, word, shared.cycles, "local", best.cycles))
            taken, best = more, shared
            by_engine[candidate.engine] = kind
        else:
            joins.append(Join(what, "local", best.cycles, word, shared.cycles))
    return taken, tuple(joins), best


def _possible(
    candidate: Sharable, same_engine: str | None, taken: int, spread: Spread, target: SpatialTarget
) -> str | None:
    """The first kind that the engine's other FIFOs allow, on lines of two sites to as many as counters tell apart."""
    free = target.counters.per_site - len(target.engines) - 1
    if spread.mapping != "GRID" or (taken + 1) * COUNTERS_EACH > free:
        return None
    longest = (1 << (target.counters.bits - 1)) + 1
    lengths = {"MULTICAST_ROW": spread.width, "MULTICAST_COLUMN": spread.height}
    kinds = (kind for kind in candidate.kinds if same_engine in (None, kind))
    return next((kind for kind in kinds if 1 < lengths[kind] <= longest), None)


def _loads_of_reader(shape: Shape, fifo: Fifo) -> tuple[str, tuple[Load, ...]]:
    """The engine and the loads that fill a FIFO in one place, where its engine only reads; none otherwise."""
    for group in shape.groups:
        for stage in group.stages:
            steps = [step for _, step in leaves(stage.body)]
            if Push(fifo.name) in steps:
                loads = tuple(step for step in steps if isinstance(step, Load) and step.fifo == fifo.name)
                plain = all(isinstance(start, Quasi) for load in loads for start in load.window.start)
                once = steps.count(Push(fifo.name)) == 1
                return stage.engine, loads if once and plain and _only_reads(shape, stage.engine) else ()
    return "", ()


def _only_reads(shape: Shape, engine: str) -> bool:
    """What an engine does besides would be cut into leaders' and members' sites too."""
    stages = (stage for group in shape.groups for stage in group.stages if stage.engine == engine)
    return not any(isinstance(step, Front | Store | Compute) for stage in stages for _, step in leaves(stage.body))


def _mentions(load: Load, var: str) -> bool:
    starts = (start for start in (*load.window.start, load.row) if isinstance(start, Quasi))
    return any(var in start.variables() for start in starts)
