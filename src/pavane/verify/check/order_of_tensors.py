"""Order of accesses to tensors, between sections: an access knows the last conflicting accesses of other sections to
any tensor that shares bytes.

It knows that they are over on every site; or on its own, its row's or its column's, where both touch one element on
such sites only; or it need not know, where they touch no element in common (`footprints`), or the FIFOs of their shape
keep the one behind the other (`lag`). An access is a (class of sites, engine) with its use (shape, process, formal) of
a tensor; only the last section in which it was made is kept, as clocks count sections of an engine in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pavane.ir.program import SITE_X, SITE_Y, Store
from pavane.reject import OrderRefused
from pavane.verify.check.bindings import Memory, Place
from pavane.verify.check.boundaries import Access
from pavane.verify.check.clocks import Clock, over_everywhere
from pavane.verify.check.facts import TENSORS, touching
from pavane.verify.check.footprints import Footprint, footprint_of
from pavane.verify.check.lag import loads_after

Where = tuple[int, str]
Use = tuple[str, int, str]  # shape, process, formal
Accesses = dict[tuple[Where, Use], tuple[int, str]]
Open = list[tuple[Where, Use, int, str]]


@dataclass
class TensorUses:
    """Last accesses so far: by place in memory, where and how; the section and the tensor.

    `touched`: by process the formals that it touches, and whether it writes them. Of the current section, until it is
    over: `pending`, what it accesses, to be entered then; `open`, by the identities of what is known of all sites and
    of a table of accesses (both kept beside it), what of the table is not known to be over.
    """

    memory: Memory
    reads: dict[Place, Accesses] = field(default_factory=dict)
    writes: dict[Place, Accesses] = field(default_factory=dict)
    footprints: dict[Use, Footprint] = field(default_factory=dict)
    meetings: dict[tuple[Use, Use, bool], tuple[str, ...] | None] = field(default_factory=dict)
    touched: dict[tuple[str, int], dict[str, bool]] = field(default_factory=dict)
    pending: list[tuple[str, Where, Use, bool]] = field(default_factory=list)
    open: dict[tuple[int, int], tuple[Mapping, Accesses, Open]] = field(default_factory=dict)
    current: int = -1
    accesses: int = 0
    compared: int = 0


def tensor_order(uses: TensorUses, access: Access) -> None:
    """Refuse an access to a tensor that may meet one of an earlier section."""
    if access.instance != uses.current:
        _close(uses)
        uses.current = access.instance
    key = (access.section.shape.name, access.actor.number)
    if key not in uses.touched:
        steps = (leaf.step for _, leaf in touching(access.section, access.actor))
        uses.touched[key] = {step.tensor: isinstance(step, Store) for step in steps}  # type: ignore[union-attr]
    bound = {binding.formal: binding.tensor for binding in uses.memory.program.instances[access.instance].bindings}
    place = (access.place.number, access.actor.process.engine)
    for formal, writes in uses.touched[key].items():
        tensor, use = bound[formal], (*key, formal)
        at = uses.memory.places[tensor]
        for other in uses.memory.meeting[at]:
            alike = (at[1], at[3]) == (other[1], other[3])
            for table in (uses.writes, uses.reads) if writes else (uses.writes,):
                if other in table:
                    _known(uses, access, table[other], tensor, use, alike)
        uses.pending.append((tensor, place, use, writes))


def _close(uses: TensorUses) -> None:
    """Enter the accesses of the section that was current."""
    for name, place, use, writes in uses.pending:
        table = uses.writes if writes else uses.reads
        table.setdefault(uses.memory.places[name], {})[(place, use)] = (uses.current, name)
    uses.pending.clear()
    uses.open.clear()


def _known(uses: TensorUses, access: Access, earlier: Accesses, tensor: str, use: Use, alike: bool) -> None:
    """`alike`: the same elements stand at the same bytes."""
    clock = access.before(TENSORS)
    for place, before, instance, other in _open(uses, clock, earlier):
        uses.compared += 1
        if over_everywhere(clock, access.place, *place) >= instance:
            continue
        agree = _meeting(uses, use, before, alike)
        if agree is None:
            continue
        in_column = SITE_X in agree and clock.column.get(place, -1) >= instance
        in_row = SITE_Y in agree and clock.row.get(place, -1) >= instance
        here = place[0] != access.place.number or clock.own.get(place[1], -1) >= instance
        if not (in_column or in_row or (here and len(agree) == 2)):
            raise OrderRefused(
                f"section {access.instance} touches {tensor} while section {instance} may still use {other}",
                where=access.actor.where,
                terms=[f"engine {place[1]} of another site or process is not known to be done with it"],
                remedy="a boundary between the two sections",
            )


def _open(uses: TensorUses, clock: Clock, earlier: Accesses) -> Open:
    """The accesses that are not known to be over on all sites: found once for all sites that know the same of it."""
    key = (id(clock.all), id(earlier))
    if key not in uses.open:
        found = []
        for (place, use), (instance, tensor) in earlier.items():
            uses.compared += 1
            if clock.all.get(place, -1) < instance:
                found.append((place, use, instance, tensor))
        uses.open[key] = (clock.all, earlier, found)
    return uses.open[key][2]


def _meeting(uses: TensorUses, use: Use, before: Use, alike: bool) -> tuple[str, ...] | None:
    """The coordinates that are the same wherever two uses touch one element; None where they need no further order."""
    key = (use, before, alike)
    if key not in uses.meetings:
        mine, theirs, section = _footprint(uses, use), _footprint(uses, before), uses.memory.sections[use[0]]
        (shape, loader, loaded), (other, storer, stored) = use, before
        numbered = alike and shape == other and mine.inner == theirs.inner
        needless = mine.apart(theirs, alike, section.symbols) or (
            numbered and loads_after(section, section.actors[loader], loaded, section.actors[storer], stored)
        )
        uses.meetings[key] = None if needless else mine.agree(theirs, alike)
    return uses.meetings[key]


def _footprint(uses: TensorUses, use: Use) -> Footprint:
    if use not in uses.footprints:
        section = uses.memory.sections[use[0]]
        uses.footprints[use] = footprint_of(section, section.actors[use[1]], use[2])
    return uses.footprints[use]
