"""Coverage: every element of every output region is written exactly once, and no element outside it.

Per dimension the store's start is `origin + sum of stride * variable` over the loops and sites around it, and the
window adds the element inside it with stride 1. Sorted by stride, each stride equals the product of the extents
before it: then (element, variables) is a mixed-radix number, each value below the product has exactly one
representation. (A variable with a negative stride counts down: its last value is its digit 0.) Every loop and site
coordinate with more than one value stands in exactly one dimension, so different turns and sites write different
elements. A variable whose stride takes the window past the tensor's end writes nothing but at its first value. The
product reaches the region's extent, and what passes it is clipped: the formal ends where the region ends (or the
product is the extent exactly).

Where several steps store one output (loops that `resident` has written out), outside all loops and without symbols, the
elements are counted one by one.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from pavane.ir.program import SITE_X, SITE_Y, Load, Spec, Store
from pavane.ir.quasi import Domain, Floor, Quasi, quasi, upper
from pavane.reject import CoverageRefused
from pavane.verify.check.boxes import area
from pavane.verify.check.inequalities import MAX_POINTS, never_negative, never_positive
from pavane.verify.check.section import Actor, Leaf, Section

MAX_WRITTEN = 1 << 22
Digits = list[tuple[int, Quasi, str]]


def coverage(section: Section) -> str:
    """Refuse an output that is not written exactly once, or that no spec describes."""
    stores: dict[str, list[tuple[Actor, Leaf]]] = {}
    steps = [(actor, leaf) for actor in section.actors for leaf in actor.leaves]
    for actor, leaf in steps:
        if isinstance(leaf.step, Store):
            stores.setdefault(leaf.step.tensor, []).append((actor, leaf))
    loaded = {leaf.step.tensor for _, leaf in steps if isinstance(leaf.step, Load)}
    for name, formal in section.formals.items():
        where = f"{section.where}, {name}"
        if name in stores and name in loaded:
            raise CoverageRefused("one section reads and writes the same formal", where=where)
        if (name in stores) != (name in section.specs):
            raise CoverageRefused("a formal is stored exactly when a spec says what it becomes", where=where)
        if formal.role == "OUT" and name not in stores:
            raise CoverageRefused("an output is never stored", where=where)
    for name, found in stores.items():
        if len(found) == 1:
            _once(section, section.specs[name], *found[0])
        else:
            _counted(section, section.specs[name], found)
    return f"{len(stores)} outputs, each element once"


def _counted(section: Section, spec: Spec, steps: list[tuple[Actor, Leaf]]) -> None:
    """Where several steps outside all loops store a formal of constant extents: how often each element is written."""
    where, shape = f"{section.where}, {spec.out}", section.formals[spec.out].shape
    sites = sum(area(actor.box) for actor, _ in steps)
    constant = all(e.is_const for e in (*shape, *spec.origin, *spec.extents))
    written_at_most = sites * math.prod(e.const for e in shape)
    few = sites <= MAX_POINTS and written_at_most <= MAX_WRITTEN
    moves = {v for _, leaf in steps for start in leaf.step.window.start for v in start.variables()}  # type: ignore[union-attr]
    if not (constant and few and moves <= {SITE_X, SITE_Y} and not any(leaf.nest for _, leaf in steps)):
        raise CoverageRefused(f"{len(steps)} steps store it", where=where, remedy="one store step an output")
    written = np.zeros(tuple(e.const for e in shape), np.int64)
    wanted = np.zeros_like(written)
    wanted[_region(spec, shape, where)] = 1
    for actor, leaf in steps:
        window = leaf.step.window  # type: ignore[union-attr]
        for x, y in product(range(actor.box[1] - actor.box[0]), range(actor.box[3] - actor.box[2])):
            starts = [start.evaluate({SITE_X: x, SITE_Y: y}) for start in window.start]  # type: ignore[union-attr]
            written[tuple(slice(max(s, 0), max(s + n, 0)) for s, n in zip(starts, window.size, strict=True))] += 1
    wrong = np.argwhere(written != wanted)
    if wrong.size:
        place = tuple(int(i) for i in wrong[0])
        what = f"element {place} is written {int(written[place])} times"
        raise CoverageRefused(what, where=where, needed=f"{int(wanted[place])}")


def _region(spec: Spec, shape: tuple[Quasi, ...], where: str) -> tuple[slice, ...]:
    """The constant region that a spec describes, inside the tensor."""
    edges = [(o.const, o.const + n.const) for o, n in zip(spec.origin, spec.extents, strict=True)]
    if any(first < 0 or end > extent.const for (first, end), extent in zip(edges, shape, strict=True)):
        raise CoverageRefused("the region passes the tensor's end", where=where, needed=f"{edges}")
    return tuple(slice(first, max(first, end)) for first, end in edges)


def _once(section: Section, spec: Spec, actor: Actor, leaf: Leaf) -> None:
    step: Store = leaf.step  # type: ignore[assignment]
    where = f"{actor.where}, step {leaf.index}, {step.tensor}"
    x0, x1, y0, y1 = actor.box
    extents = {SITE_X: quasi(x1 - x0), SITE_Y: quasi(y1 - y0), **dict(leaf.nest)}
    seen: dict[str, int] = {}
    shape = section.formals[step.tensor].shape
    for dimension, start in enumerate(step.window.start):
        place = f"{where}, dimension {dimension}"
        digits = _digits(start, spec.origin[dimension], extents, section.symbols, place)  # type: ignore[arg-type]
        for _, _, name in digits:
            if name in seen:
                raise CoverageRefused(f"{name} moves the window in two dimensions", where=place)
            seen[name] = dimension
        _radix(digits, step.window.size[dimension], spec, dimension, shape[dimension], section.symbols, place)
    for name, extent in extents.items():
        if name not in seen and upper(extent, section.symbols) > 1:
            what = f"the same elements are written for every value of {name}"
            raise CoverageRefused(what, where=where, needed=f"{extent} values of {name}")


def _digits(start: Quasi, origin: Quasi, extents: dict[str, Quasi], symbols: Domain, where: str) -> Digits:
    """(stride, extent, variable) of each variable that moves the window and has more than one value."""
    rest = start - origin
    first, digits = quasi(rest.const), []
    for coefficient, atom in rest.terms:
        if isinstance(atom, Floor) or atom not in extents:
            what = "the window's start is not the region's origin plus strides"
            raise CoverageRefused(what, where=where, needed=str(start))
        if upper(extents[atom], symbols) == 1:
            continue
        if coefficient < 0:
            first = first + (extents[atom] - 1) * coefficient
        digits.append((abs(coefficient), extents[atom], atom))
    if first != quasi(0):
        what = "the windows do not begin at the region's origin"
        raise CoverageRefused(what, where=where, needed=str(origin), available=str(start))
    return sorted(digits, key=lambda digit: digit[0])


def _radix(digits: Digits, size: int, spec: Spec, dimension: int, end: Quasi, symbols: Domain, where: str) -> None:
    product = quasi(size)
    for stride, extent, name in digits:
        if never_negative(spec.origin[dimension] + stride - end, symbols):
            break
        if product != quasi(stride):
            what = f"windows overlap or leave a gap along {name}"
            raise CoverageRefused(what, where=where, needed=f"a stride of {product}", available=f"{stride}")
        product = extent * stride
    extent, origin = spec.extents[dimension], spec.origin[dimension]
    if not never_negative(product - extent, symbols):
        what = "the windows do not reach the region's end"
        raise CoverageRefused(what, where=where, needed=f"{extent}", available=f"{product}")
    if not (never_negative(origin, symbols) and never_negative(end - origin - extent, symbols)):
        what = "the region passes the tensor's end"
        raise CoverageRefused(what, where=where, needed=f"{origin + extent}", available=f"{end}")
    if not (never_positive(end - origin - extent, symbols) or never_positive(product - extent, symbols)):
        what, needed = "elements after the region are written too", f"an end at {origin + extent}"
        raise CoverageRefused(what, where=where, needed=needed, available=f"{end}")
