"""Mistakes with windows and spans, with items, and with the blocks of a sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from pavane.ir.program import (
    Compute,
    Load,
    Loop,
    MatmulTiles,
    Program,
    Span,
    Store,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.walk import substituted
from pavane.targets.descriptor import SpatialTarget
from tests.checker_oracle.mutants import at, put
from tests.evidence import edits
from tests.evidence.mistakes import Mutant, mistake


@mistake("access map off by one", "bounds", "coverage", "meaning", "numerics", "order", "outside-fragment")
def off_by_one(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """Row, column or K of a window, of an op's spans, of an operand's place."""
    for place in edits.steps(program, Load, Store):
        for d, start in enumerate(place.step.window.start):
            for by in (1, -1) if isinstance(start, Quasi) else ():
                yield Mutant(put(program, (*place.path, "window", "start", d), start + by), target, place.nested)
    for place in edits.steps(program, Compute):
        op = place.step.op
        parts = [("rows",), ("cols",)] + ([("k",)] if isinstance(op, MatmulTiles) else [])
        for (name,) in parts:
            span = getattr(op, name)
            for new in (Span(span.start + 1, span.size, span.limit), Span(span.start, span.size, span.limit - 1)):
                yield Mutant(put(program, (*place.path, "op", name), new), target, place.nested)
        for name in ("dst", "a", "b") if isinstance(op, MatmulTiles) else ("dst",):
            for axis in ("row", "col"):
                path = (*place.path, "op", name, axis)
                yield Mutant(put(program, path, at(program, path) + 1), target, place.nested)


@mistake("item done twice", "coverage", "balance", "progress", "order")
def item_twice(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """The store of an item stands twice; all items go to the place of one; every process goes round once more."""
    for place in edits.steps(program, Store):
        body, i = at(program, place.path[:-1]), place.path[-1]
        yield Mutant(put(program, place.path[:-1], (*body[:i], body[i], *body[i:])), target, place.nested)
        window = place.step.window
        for var in ("LV_ITEM_X", "LV_ITEM_Y", "SITE_X", "SITE_Y"):
            if any(isinstance(s, Quasi) and var in s.variables() for s in window.start):
                start = tuple(s.substitute({var: 0}) if isinstance(s, Quasi) else s for s in window.start)
                yield Mutant(edits.set_step(program, place, window=replace(window, start=start)), target, place.nested)
    for s, shape in enumerate(program.shapes):
        around = tuple(replace(p, body=(Loop("LV_SUB_W", quasi(2), p.body),)) for p in shape.processes)
        yield Mutant(
            put(program, ("shapes", s, "processes"), around), target, isinstance(shape.processes[0].body[0], Loop)
        )


@mistake("item skipped", "coverage", "meaning", "bounds", "balance", "outside-fragment", "order")
def item_skipped(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """Every process makes one turn fewer of a loop over items; every other item; the store is left out."""
    for s in range(len(program.shapes)):
        for var in ("LV_ITEM_X", "LV_ITEM_Y"):
            yield from _for_items(program, target, s, lambda loop, v=var: _fewer(loop, v))
            yield from _for_items(program, target, s, lambda loop, v=var: _every_other(loop, v))
    for place in edits.steps(program, Store):
        yield Mutant(edits.without(program, place), target, place.nested)


def _for_items(program: Program, target: SpatialTarget, s: int, change: Callable[[Loop], Loop]) -> Iterator[Mutant]:
    processes = tuple(replace(p, body=_loops(p.body, change)) for p in program.shapes[s].processes)
    if processes != program.shapes[s].processes:
        yield Mutant(put(program, ("shapes", s, "processes"), processes), target, True)


def _loops(body: tuple, change: Callable[[Loop], Loop]) -> tuple:
    return tuple(change(replace(n, body=_loops(n.body, change))) if isinstance(n, Loop) else n for n in body)


def _fewer(loop: Loop, var: str) -> Loop:
    more = loop.var == var and loop.extent.is_const and loop.extent.const > 1
    return replace(loop, extent=loop.extent - 1) if more else loop


def _every_other(loop: Loop, var: str) -> Loop:
    return substituted_body(loop, var, quasi(var) * 2) if loop.var == var and loop.extent != quasi(1) else loop


def substituted_body(loop: Loop, var: str, value: Quasi) -> Loop:
    return replace(loop, body=tuple(substituted(n, {var: value}) for n in loop.body))


@mistake("K block summed twice", "meaning", "numerics", "bounds", "order", "outside-fragment", "balance")
def k_twice(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """The product stands twice; the same block is loaded every time; the loop over blocks goes round twice."""
    for place in edits.steps(program, Compute):
        if isinstance(place.step.op, MatmulTiles):
            body, i = at(program, place.path[:-1]), place.path[-1]
            yield Mutant(put(program, place.path[:-1], (*body[:i], body[i], *body[i:])), target, place.nested)
    for s, shape in enumerate(program.shapes):
        for change in (_block_zero, _each_block_twice):
            processes = tuple(replace(p, body=_loops(p.body, change)) for p in shape.processes)
            if processes != shape.processes:
                yield Mutant(put(program, ("shapes", s, "processes"), processes), target, True)


def _block_zero(loop: Loop) -> Loop:
    if loop.var != "LV_KBLOCK" or loop.extent == quasi(1):
        return loop
    return substituted_body(loop, "LV_KBLOCK", quasi(0))


def _each_block_twice(loop: Loop) -> Loop:
    if loop.var != "LV_KBLOCK":
        return loop
    return replace(substituted_body(loop, "LV_KBLOCK", quasi("LV_KBLOCK") // 2), extent=loop.extent * 2)


@mistake("K order changed", "numerics", "meaning", "outside-fragment", "bounds")
def k_order(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """The blocks of a sum are added from the last to the first, or the first one last."""
    for s, shape in enumerate(program.shapes):
        for change in (_descending, _rotated):
            processes = tuple(replace(p, body=_loops(p.body, change)) for p in shape.processes)
            if processes != shape.processes:
                yield Mutant(put(program, ("shapes", s, "processes"), processes), target, True)


def _rotated(loop: Loop) -> Loop:
    """The first block comes last."""
    if loop.var != "LV_KBLOCK" or not loop.extent.is_const or loop.extent.const < 2:
        return loop
    return substituted_body(loop, "LV_KBLOCK", (quasi("LV_KBLOCK") + 1) % loop.extent.const)


def _descending(loop: Loop) -> Loop:
    if loop.var != "LV_KBLOCK" or loop.extent == quasi(1):
        return loop
    return substituted_body(loop, "LV_KBLOCK", loop.extent - 1 - quasi("LV_KBLOCK"))
