"""Walking and rebuilding loop trees; looking things up by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Protocol, TypeVar, cast

import msgspec

from pavane.ir.expr import At, Const, Fn, Index, Indirect, Reduce, Var, substitute, substitute_index, walk
from pavane.ir.program import Generic, Loop, MatmulTiles, Node, Process, Program, Shape, Span, Stage, Step, Window
from pavane.ir.quasi import Domain, Quasi, lower, quasi, upper

Nest = tuple[Loop, ...]
N = TypeVar("N")


class Named(Protocol):
    """What is looked up by its name."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def leaves(body: tuple[Node, ...], nest: Nest = ()) -> Iterator[tuple[Nest, Step]]:
    """Every step with the loops around it (outermost first), in written order."""
    for node in body:
        if isinstance(node, Loop):
            yield from leaves(node.body, (*nest, node))
        else:
            yield nest, node


def rebuild(body: tuple[Node, ...], change: Callable[[Node], tuple[Node, ...]]) -> tuple[Node, ...]:
    """Replace every node by the nodes that `change` gives for it, innermost first."""
    out: list[Node] = []
    for node in body:
        if isinstance(node, Loop):
            node = Loop(node.var, node.extent, rebuild(node.body, change))
        out.extend(change(node))
    return tuple(out)


def operands(op: Generic | MatmulTiles) -> tuple[str, ...]:
    """FIFOs and carries that an op reads (its destination too, where it accumulates), in order of first occurrence."""
    if isinstance(op, Generic):
        return tuple(dict.fromkeys(e.name for e in walk(op.expr) if isinstance(e, At)))
    return tuple(dict.fromkeys((op.dst.name, op.a.name, op.b.name)))


def bodies(shape: Shape) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """Every stage (before PERSISTENT) or process (from then on) with its name."""
    for group in shape.groups:
        for stage in group.stages:
            yield f"{group.name}.{stage.name}", stage.body
    for process in shape.processes:
        yield process.name, process.body


def parts(shape: Shape) -> Iterator[Stage | Process]:
    """The stages (before PERSISTENT) or processes (from then on) themselves."""
    for group in shape.groups:
        yield from group.stages
    yield from shape.processes


def symbol_domain(program: Program) -> Domain:
    """The declared ranges of the symbols."""
    return Domain((s.name, s.lo, s.hi) for s in program.symbols)


def span_bounds(span: Span, domain: Domain) -> tuple[int, int]:
    """Least and greatest length of a span over a domain."""
    rest = span.limit - span.start
    return _clamped(lower(rest, domain), span.size), _clamped(upper(rest, domain), span.size)


def span_length(span: Span, values: Mapping[str, int]) -> int:
    """The length of a span at a point."""
    return _clamped(span.limit.evaluate(values) - span.start.evaluate(values), span.size)


def _clamped(length: int, size: int) -> int:
    return max(0, min(size, length))


def named(items: tuple[T, ...], name: str) -> T:
    """The item of that name; KeyError when there is none."""
    for item in items:
        if item.name == name:
            return item
    raise KeyError(name)


def substituted(node: N, bindings: Mapping[str, Quasi | int]) -> N:
    """A part of the grammar with variables replaced in every quasi-affine expression; a loop binds its own variable."""
    return cast(N, _substituted(node, bindings))


def _substituted(node: object, bindings: Mapping[str, Quasi | int]) -> object:
    if isinstance(node, Quasi):
        return node.substitute(bindings)
    if isinstance(node, tuple):
        return tuple(_substituted(item, bindings) for item in node)
    if isinstance(node, Indirect):
        return substitute_index(node, bindings)
    if isinstance(node, Const | Var | At | Fn | Reduce):
        return substitute(node, bindings)
    if isinstance(node, Loop):
        inner = {name: value for name, value in bindings.items() if name != node.var}
        return Loop(node.var, node.extent.substitute(bindings), substituted(node.body, inner))
    if isinstance(node, msgspec.Struct):
        return msgspec.structs.replace(
            node, **{f: _substituted(getattr(node, f), bindings) for f in _parts(type(node))}
        )
    return node


@cache
def _parts(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Fields that may hold quasi-affine expressions: all but plain strings and numbers."""
    return tuple(f.name for f in msgspec.structs.fields(kind) if f.type not in (str, int, float, bool))


def window_spans(window: Window, shape: tuple[Quasi, ...]) -> tuple[Span, Span]:
    """(rows, cols) spans of a window of a tensor of that shape: what part of a slot it covers."""
    rows = Span(quasi(0), 1, quasi(1)) if window.row < 0 else _dimension_span(window, shape, window.row)
    return rows, _dimension_span(window, shape, len(window.size) - 1)


def window_guard(window: Window, shape: tuple[Quasi, ...]) -> tuple[Span, ...]:
    """Spans of size 1 of the dimensions that give neither rows nor columns: the window is empty when one of them is."""
    return tuple(_dimension_span(window, shape, d) for d in range(len(window.size) - 1) if d != window.row)


def _dimension_span(window: Window, shape: tuple[Quasi, ...], dimension: int) -> Span:
    """An Indirect start is never outside [lo, hi), so its span is whole."""
    start: Index = window.start[dimension]
    size = window.size[dimension]
    if not isinstance(start, Quasi):
        return Span(quasi(0), size, quasi(size))
    return Span(start, size, shape[dimension])
