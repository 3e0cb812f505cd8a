"""Walking and rebuilding loop trees; looking things up by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import singledispatch
from typing import TypeVar

import msgspec

from pavane.ir.expr import At, Index, substitute, substitute_index, walk
from pavane.ir.program import (
    Compute,
    Generic,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Post,
    Program,
    Rect,
    Ref,
    Send,
    Shape,
    Span,
    Step,
    Store,
    Window,
)
from pavane.ir.quasi import Domain, Quasi, lower, quasi, upper

Nest = tuple[Loop, ...]
T = TypeVar("T")


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


def symbol_domain(program: Program) -> Domain:
    """The declared ranges of the symbols."""
    return Domain((s.name, s.lo, s.hi) for s in program.symbols)


def nest_domain(outer: Domain, nest: Nest) -> Domain:
    """`outer` extended by the loops of a nest."""
    for loop in nest:
        outer = outer.with_loop(loop.var, loop.extent)
    return outer


def span_bounds(span: Span, domain: Domain) -> tuple[int, int]:
    """Least and greatest length of a span over a domain."""
    rest = span.limit - span.start
    clamp = lambda n: max(0, min(span.size, n))  # noqa: E731
    return clamp(lower(rest, domain)), clamp(upper(rest, domain))


def span_length(span: Span, values: Mapping[str, int]) -> int:
    """The length of a span at a point."""
    return max(0, min(span.size, span.limit.evaluate(values) - span.start.evaluate(values)))


def named(items: tuple[T, ...], name: str) -> T:
    """The item of that name; KeyError when there is none."""
    for item in items:
        if item.name == name:  # type: ignore[attr-defined]
            return item
    raise KeyError(name)


@singledispatch
def substituted(node, bindings: Mapping[str, Quasi | int]):
    """A node of the grammar with variables replaced in every quasi-affine expression;

    a loop's own variable is bound by it.
    """
    return node


def _fields(node, bindings: Mapping[str, Quasi | int], *names: str):
    return msgspec.structs.replace(node, **{n: substituted(getattr(node, n), bindings) for n in names})


@substituted.register
def _(node: Quasi, bindings):
    return node.substitute(bindings)


@substituted.register(tuple)
def _(node, bindings):
    return tuple(substituted(item, bindings) for item in node)


@substituted.register
def _(node: Loop, bindings):
    inner = {name: value for name, value in bindings.items() if name != node.var}
    return Loop(node.var, node.extent.substitute(bindings), substituted(node.body, inner))


@substituted.register
def _(node: Span, bindings):
    return _fields(node, bindings, "start", "limit")


@substituted.register
def _(node: Window, bindings):
    return Window(tuple(substitute_index(s, bindings) for s in node.start), node.size, node.row)


@substituted.register
def _(node: Rect, bindings):
    return _fields(node, bindings, "x0", "x1", "y0", "y1")


@substituted.register
def _(node: Ref, bindings):
    return _fields(node, bindings, "row", "col")


@substituted.register
def _(node: Compute, bindings):
    return Compute(substituted(node.op, bindings))


@substituted.register
def _(node: Generic, bindings):
    return msgspec.structs.replace(
        _fields(node, bindings, "dst", "rows", "cols", "guard"), expr=substitute(node.expr, bindings)
    )


@substituted.register
def _(node: MatmulTiles, bindings):
    return _fields(node, bindings, "dst", "a", "b", "rows", "cols", "k", "guard")


@substituted.register
def _(node: Load, bindings):
    return _fields(node, bindings, "window", "row")


@substituted.register
def _(node: Store, bindings):
    return _fields(node, bindings, "window")


@substituted.register(Send)
@substituted.register(Post)
def _(node, bindings):
    return _fields(node, bindings, "to")


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
