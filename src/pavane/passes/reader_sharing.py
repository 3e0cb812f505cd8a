"""Which FIFOs one reader may fill for a whole line of sites, and for which of them that pays.

`tile` prices a plan with it and `fuse_readers` carries it out: so what was predicted is what is done. A FIFO may be
read once a row when no load that fills it mentions LV_ITEM_X (once a column: LV_ITEM_Y), its stage only reads, the
items fall on the sites as rows and columns, and the chip has the counters that the handshakes need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pavane.cost.model import Prediction
from pavane.cost.spread import Spread
from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y, Fifo, Front, Join, Load, Push, Shape
from pavane.ir.quasi import Quasi
from pavane.ir.walk import leaves
from pavane.targets.descriptor import SpatialTarget

COUNTERS_EACH = 2  # credit and valid
LINES = {
    "MULTICAST_ROW": LV_ITEM_X,
    "MULTICAST_COLUMN": LV_ITEM_Y,
}  # a line of sites shares what does not depend on this

Kinds = Mapping[str, str]  # a FIFO's name and the multicast it is given


def sharable(shape: Shape, target: SpatialTarget) -> dict[str, tuple[str, ...]]:
    """For each FIFO that may be shared, the lines of sites that may share it."""
    if not target.noc.multicast:
        return {}
    found = {}
    for fifo in shape.fifos:
        loads = _loads_of_reader(shape, fifo) if fifo.kind == "LOCAL" else ()
        kinds = tuple(kind for kind, var in LINES.items() if loads and not any(_mentions(load, var) for load in loads))
        if kinds:
            found[fifo.name] = kinds
    return found


def share(
    candidates: Mapping[str, tuple[str, ...]],
    spread: Spread,
    target: SpatialTarget,
    predict: Callable[[Kinds], Prediction],
) -> tuple[dict[str, str], tuple[Join, ...], Prediction]:
    """FIFO by FIFO, given the ones before, shared where that is faster: the choice, the comparisons, the time."""
    taken: dict[str, str] = {}
    joins: list[Join] = []
    best = predict(taken)
    for name, kinds in candidates.items():
        kind = _possible(kinds, len(taken), spread, target)
        if kind is None:
            continue
        shared = predict({**taken, name: kind})
        what, word = f"reader of {name}", kind.lower().replace("_", " ")
        if shared.cycles < best.cycles:
            joins.append(Join(what, word, shared.cycles, "local", best.cycles))
            taken, best = {**taken, name: kind}, shared
        else:
            joins.append(Join(what, "local", best.cycles, word, shared.cycles))
    return taken, tuple(joins), best


def _possible(kinds: tuple[str, ...], taken: int, spread: Spread, target: SpatialTarget) -> str | None:
    """The first kind with a line of at least two sites, and no more than the counters can tell apart."""
    if spread.mapping != "GRID" or (taken + 1) * COUNTERS_EACH > target.counters.per_site:
        return None
    longest = (1 << (target.counters.bits - 1)) + 1
    lengths = {"MULTICAST_ROW": spread.width, "MULTICAST_COLUMN": spread.height}
    return next((kind for kind in kinds if 1 < lengths[kind] <= longest), None)


def _loads_of_reader(shape: Shape, fifo: Fifo) -> tuple[Load, ...]:
    """The loads that fill a FIFO in a stage that only reads; none where it is filled otherwise."""
    for group in shape.groups:
        for stage in group.stages:
            steps = [step for _, step in leaves(stage.body)]
            if Push(fifo.name) in steps:
                loads = tuple(step for step in steps if isinstance(step, Load) and step.fifo == fifo.name)
                plain = all(isinstance(start, Quasi) for load in loads for start in load.window.start)
                return loads if plain and not any(isinstance(step, Front) for step in steps) else ()
    return ()


def _mentions(load: Load, var: str) -> bool:
    starts = (start for start in (*load.window.start, load.row) if isinstance(start, Quasi))
    return any(var in start.variables() for start in starts)
