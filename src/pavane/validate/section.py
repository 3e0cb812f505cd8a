"""A shape with what rules look up in it: its parts by name, its bodies, the ranges of variables around a step.

A `Body` is a stage (before PERSISTENT) or a process: rules about steps hold for both alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeVar

import msgspec

from pavane.ir.program import (
    PHASES,
    SITE_X,
    SITE_Y,
    Carry,
    Counter,
    Fifo,
    Formal,
    Node,
    Program,
    Rect,
    Shape,
    Span,
    Step,
)
from pavane.ir.quasi import Domain, Quasi, Unbounded, lower, upper
from pavane.ir.walk import Named, Nest, leaves, symbol_domain

T = TypeVar("T", bound=Named)


class Body(msgspec.Struct, frozen=True):
    """One stage or process: its engine, the sites that have it (None: not placed), and its loop tree.

    `steps` is every step with a name for people and the loops around it, numbered from 0 in written order.
    """

    place: str
    name: str
    engine: str
    rect: Rect | None
    nodes: tuple[Node, ...]
    steps: tuple[tuple[str, Nest, Step], ...]


class Section(msgspec.Struct, frozen=True):
    """One shape of a program, its names resolved to parts. Of parts with the same name the first counts."""

    program: Program
    shape: Shape
    level: int
    place: str
    bodies: tuple[Body, ...]
    formals: dict[str, Formal]
    fifos: dict[str, Fifo]
    carries: dict[str, Carry]
    counters: dict[str, Counter]
    symbols: Domain

    def buffers(self) -> tuple[Fifo | Carry, ...]:
        """Every FIFO, then every carry."""
        return (*self.shape.fifos, *self.shape.carries)

    def buffer(self, name: str) -> Fifo | Carry:
        """The FIFO (its slot) or carry of that name."""
        return self.fifos[name] if name in self.fifos else self.carries[name]

    def domain(self, body: Body, nest: Nest) -> Domain:
        """Ranges of symbols, site coordinates and loops at a step."""
        return _domain(self.symbols, body.rect, tuple((loop.var, loop.extent) for loop in nest))


def sections(program: Program) -> tuple[Section, ...]:
    """Every shape of a program, ready to be judged."""
    symbols = symbol_domain(program)
    return tuple(_section(program, shape, symbols) for shape in program.shapes)


def level_of(phase: str) -> int:
    """The place of a phase in the order of phases."""
    return PHASES.index(phase)


def _section(program: Program, shape: Shape, symbols: Domain) -> Section:
    place = f"section {shape.name}"
    return Section(
        program=program,
        shape=shape,
        level=level_of(program.phase),
        place=place,
        bodies=tuple(_bodies(shape, place)),
        formals=_by_name(shape.formals),
        fifos=_by_name(shape.fifos),
        carries=_by_name(shape.carries),
        counters=_by_name(shape.counters),
        symbols=symbols,
    )


def _bodies(shape: Shape, place: str) -> Iterator[Body]:
    for group in shape.groups:
        for stage in group.stages:
            name = f"{group.name}.{stage.name}"
            yield _body(f"{place}, stage {name}", name, stage.engine, group.rect, stage.body)
    for process in shape.processes:
        yield _body(f"{place}, process {process.name}", process.name, process.engine, process.rect, process.body)


def _body(place: str, name: str, engine: str, rect: Rect | None, nodes: tuple[Node, ...]) -> Body:
    steps = tuple(
        (f"{place}, step {number} ({type(step).__name__.lower()})", nest, step)
        for number, (nest, step) in enumerate(leaves(nodes))
    )
    return Body(place, name, engine, rect, nodes, steps)


@lru_cache(maxsize=4096)
def _domain(symbols: Domain, rect: Rect | None, loops: tuple[tuple[str, Quasi], ...]) -> Domain:
    domain = site_domain(symbols, rect)
    for var, extent in loops:
        domain = domain.with_loop(var, extent)
    return domain


def _by_name(parts: tuple[T, ...]) -> dict[str, T]:
    return {part.name: part for part in reversed(parts)}


def site_domain(symbols: Domain, rect: Rect | None) -> Domain:
    """Symbols, and the coordinates of a site inside a rectangle of constants."""
    if rect is None or not is_constant(rect):
        return symbols
    width, height = rect.x1.const - rect.x0.const, rect.y1.const - rect.y0.const
    return symbols.with_loop(SITE_X, width).with_loop(SITE_Y, height)


def is_constant(rect: Rect) -> bool:
    """Are all four sides numbers?"""
    return all(side.is_const for side in (rect.x0, rect.x1, rect.y0, rect.y1))


def least(value: Quasi, domain: Domain) -> int | None:
    """A lower bound, or None where none can be given (an unknown variable, numbers out of range)."""
    try:
        return lower(value, domain)
    except (Unbounded, ValueError):
        return None


def greatest(value: Quasi, domain: Domain) -> int | None:
    """An upper bound, or None where none can be given."""
    try:
        return upper(value, domain)
    except (Unbounded, ValueError):
        return None


def is_never_negative(value: Quasi, domain: Domain) -> bool:
    """Is the value provably at least 0 at every point of the domain?"""
    smallest = least(value, domain)
    return smallest is not None and smallest >= 0


def is_multiple(value: Quasi, of: int) -> bool:
    """Is the value a multiple of `of` wherever it is evaluated? (By its coefficients; enough for normal forms.)"""
    return value.const % of == 0 and all(coefficient % of == 0 for coefficient, _ in value.terms)


def is_never_empty(span: Span, domain: Domain) -> bool:
    """Does the span hold an index at every point of the domain?"""
    return is_never_negative(span.limit - span.start - 1, domain)
