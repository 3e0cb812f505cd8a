"""How far FIFOs let one process of a section run ahead of another: what it loads, the other has stored when it ran the
same shape before.

Let u reserve slots of a FIFO of depth d, and v pop them, once in each turn of the same loops, N turns a run. Counted
over all runs on a site, u's k-th reserve comes after v's (k - d)-th pop. If v reserves a slot of a next FIFO before
that pop in its turn, that reserve comes first; if after it, the one of the turn before does. So along FIFOs of depths
d1, ..., dm from u to w, with r such steps back, u's k-th reserve comes after w's (k - D)-th pop, D = d1 + ... + dm + r.

Let u load a window into a slot of the first FIFO, and w store the same window, of a formal that numbers its elements
alike, from the slot that it pops. They stand on the same sites. Each element is stored once (`coverage`), so windows of
different turns and sites have no stored element in common, and one that both touch is in the window of one turn t of
one site. In a later run u's turn t is at least N + t turns after the first of w's earlier run: where N >= D, u loads it
after w's pop of turn N + t - D >= t of that run, before which w's stores so far have ended (`ownership`).
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

from pavane.ir.program import Load, Pop, Reserve, Store
from pavane.ir.quasi import lower
from pavane.verify.check.section import Actor, Leaf, Section, named_by


def loads_after(section: Section, loader: Actor, loaded: str, storer: Actor, stored: str) -> bool:
    """Does a process load every element of a formal after another, when it ran the shape before, has stored it into
    its own? For formals whose elements of equal indices stand at equal bytes.
    """
    load, store = _moves(loader, Load, loaded), _moves(storer, Store, stored)
    if load is None or store is None or load.nest != store.nest:
        return False
    if load.placed.window != store.placed.window:  # type: ignore[union-attr]
        return False
    behind = _behind(section, loader, load, store)
    return behind is not None and behind <= math.prod(lower(extent, section.symbols) for _, extent in load.nest)


def _moves(actor: Actor, kind: type[Load | Store], formal: str) -> Leaf | None:
    """The only step of a kind on a formal."""
    found = [leaf for leaf in actor.leaves if isinstance(leaf.step, kind) and leaf.step.tensor == formal]
    return found[0] if len(found) == 1 else None


def _behind(section: Section, loader: Actor, load: Leaf, store: Leaf) -> int | None:
    """How many turns the pop of the slot that is stored may be behind the reserve of the one that is loaded."""
    first, last = named_by(load.step), named_by(store.step)
    reserved = loader.only(Reserve, first, load.path) is not None
    chains, seen = [(section.fifos[first].depth, first)] if reserved else [], set[str]()
    while chains:
        behind, name = heappop(chains)
        (popper, *others) = section.poppers[name]
        if others or name in seen or len(section.pushers[name]) > 1:
            continue
        if name == last:
            return behind if popper.only(Pop, name, store.path) else None
        seen.add(name)
        (pop, *_) = popper.uses(Pop, name)
        for fifo in section.fifos.values():
            reserve = popper.only(Reserve, fifo.name, pop.path)
            if reserve is not None:
                heappush(chains, (behind + fifo.depth + (reserve.index > pop.index), fifo.name))
    return None
