"""Which site touches which elements: two steps of different sections that never meet but on one site.

A window's start in one dimension is a number: `offset + high + stride * SITE + low`, where `high` is a sum of multiples
of `stride * sites` over loops and the other coordinate, and `low`, with the element inside the window, stays below
`stride`. Then the index i belongs to site `floor((i - offset) / stride) mod sites`, in every turn (a *digit* of SITE).
When two processes run on the same rectangle and have, for each coordinate with more than one value, a digit in common,
every element that both touch they touch on the same site. Formals with equal extents after the first number their
elements alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pavane.ir.program import SITE_X, SITE_Y, Front, Load, Store
from pavane.ir.quasi import Quasi, quasi, upper
from pavane.verify.check.boxes import Box
from pavane.verify.check.section import Actor, Leaf, Section

Digit = tuple[str, int, Quasi, int]


@dataclass(frozen=True)
class Footprint:
    """The rectangle of a process, the extents by which elements of a formal are numbered, and the digits of its sites
    that all its steps on that formal have.
    """

    box: Box
    inner: tuple[Quasi, ...]
    digits: frozenset[Digit]

    def meets_on_one_site(self, other: Footprint) -> bool:
        """Are all elements that both touch touched on the same site?"""
        if (self.box, self.inner) != (other.box, other.inner):
            return False
        x0, x1, y0, y1 = self.box
        common = {axis for axis, *_ in self.digits & other.digits}
        return all(axis in common or extent == 1 for axis, extent in ((SITE_X, x1 - x0), (SITE_Y, y1 - y0)))


def footprint_of(section: Section, actor: Actor, formal: str) -> Footprint:
    """The footprint of a process on a formal."""
    found: list[frozenset[Digit]] = []
    for user, leaf in _touching(section, actor, formal):
        found.append(frozenset(_digits(section, user, leaf)) if user.box == actor.box else frozenset())
    return Footprint(actor.box, section.formals[formal].shape[1:], frozenset.intersection(*found))


def _touching(section: Section, actor: Actor, formal: str) -> Iterator[tuple[Actor, Leaf]]:
    """The steps through which a process touches a formal: its own, and the loads of aliases that it has in front."""
    for other in section.actors:
        for leaf in other.leaves:
            if isinstance(leaf.step, Load | Store) and leaf.step.tensor == formal:
                alias = section.fifos[leaf.step.fifo].kind == "ALIAS" and actor.uses(Front, leaf.step.fifo)
                if other is actor or alias:
                    yield other, leaf


def _digits(section: Section, actor: Actor, leaf: Leaf) -> Iterator[Digit]:
    """The digits of the site's coordinates in one window."""
    x0, x1, y0, y1 = actor.box
    step: Load | Store = leaf.step  # type: ignore[assignment]
    extents = {SITE_X: quasi(x1 - x0), SITE_Y: quasi(y1 - y0), **dict(leaf.nest)}
    most = {name: upper(extent, section.symbols) for name, extent in extents.items()}
    for dimension, start in enumerate(step.window.start):
        if not isinstance(start, Quasi):
            continue
        moving = {atom: c for c, atom in start.terms if isinstance(atom, str) and atom in most}
        offset = start.substitute(dict.fromkeys(moving, 0))
        if set(offset.variables()) & set(most):
            continue
        for axis in (SITE_X, SITE_Y):
            if axis in moving and _is_digit(axis, moving, most, step.window.size[dimension]):
                yield axis, dimension, offset, moving[axis]


def _is_digit(axis: str, moving: dict[str, int], most: dict[str, int], size: int) -> bool:
    """Every other variable moves by whole periods of the axis, or stays below its stride."""
    stride = moving[axis]
    low = [name for name, c in moving.items() if name != axis and c % (stride * most[axis])]
    span = size + sum(moving[name] * (most[name] - 1) for name in low)
    return stride > 0 and all(moving[name] > 0 for name in low) and span <= stride
