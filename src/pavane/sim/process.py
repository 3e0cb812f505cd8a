"""A process's loop tree as a Python generator, compiled once for all sites, instances and launches.

The generator walks the steps in written order and calls one handler a step with the integers that its timing needs:

    Load, Store        byte address of the window in its formal, rows, columns (0, 0 when the window is empty)
    Generic            rows, columns, extent of the reduction (1 without one)
    MatmulTiles        rows, columns, k
    Send, Post         the rectangle x0, x1, y0, y1
    all others         nothing

A handler returns cycles to wait, or a negative number when the process is parked until somebody wakes it; the
generator yields that. Steps that may block (Reserve, Front, Wait, Fence) are asked again until they return 0. In
functional mode each handler gets, first, the values of all variables.

Only integers and names `v0`, `w0`, ... of our own making reach the text, so a program from a file cannot put words
into it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from pavane.ir.expr import Reduce, walk
from pavane.ir.program import (
    SITE_X,
    SITE_Y,
    Compute,
    Fence,
    Front,
    Generic,
    Load,
    Loop,
    Node,
    Post,
    Process,
    Reserve,
    Send,
    Shape,
    Span,
    Step,
    Store,
    Wait,
)
from pavane.ir.quasi import Domain, Quasi, lower, quasi, upper
from pavane.ir.types import block_elements, row_bytes
from pavane.ir.walk import leaves, named, span_bounds, window_guard, window_spans

Handler = Callable[..., int]
Body = Callable[..., Generator[int, None, None]]
_BLOCKING = (Reserve, Front, Wait, Fence)


@dataclass(frozen=True)
class Compiled:
    """`start(handlers, *values)`: values in the order of `variables`; one handler for each of `steps`."""

    start: Body
    variables: tuple[str, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class _Scope:
    """Python names of the variables in sight, and their ranges."""

    names: dict[str, str]
    domain: Domain
    depth: int = 0

    def inside(self, loop: Loop) -> _Scope:
        names = {**self.names, loop.var: f"w{self.depth}"}
        return _Scope(names, self.domain.with_loop(loop.var, loop.extent), self.depth + 1)


def compile_process(shape: Shape, process: Process, symbols: Domain, functional: bool) -> Compiled:
    """The generator of a process on any site of its rectangle, for any values of the symbols."""
    width, height = process.rect.x1 - process.rect.x0, process.rect.y1 - process.rect.y0
    domain = Domain((*symbols.ranges, (SITE_X, 0, width - 1), (SITE_Y, 0, height - 1)))
    variables = domain.names()
    scope = _Scope({name: f"v{i}" for i, name in enumerate(variables)}, domain)
    numbers = iter(range(1 << 30))
    lines = [f"def start(h, {', '.join(scope.names.values())}):"]
    lines += _block(process.body, scope, shape, functional, numbers, 1)
    steps = tuple(step for _, step in leaves(process.body))
    unpack = [f" h{n} = h[{n}]" for n in range(len(steps))]
    text = "\n".join([lines[0], *unpack, *lines[1:], " return", " yield"])
    return Compiled(_function(text), variables, steps)


def compile_turn(blocking: bool) -> Body:
    """The generator of one program-level Wait (blocking) or Post, whose handler takes nothing."""
    return _function("\n".join(["def start(h):", *_call("h[0]", "", blocking, 1)]))


def _function(text: str) -> Body:
    scope: dict[str, Body] = {}
    exec(compile(text, "<pavane process>", "exec"), {"__builtins__": {"range": range}}, scope)
    return scope["start"]


def _block(
    body: Sequence[Node], scope: _Scope, shape: Shape, functional: bool, numbers: Iterator[int], depth: int
) -> list[str]:
    lines: list[str] = []
    for node in body:
        if isinstance(node, Loop):
            inner = scope.inside(node)
            lines.append(f"{' ' * depth}for {inner.names[node.var]} in range({_text(node.extent, scope)}):")
            lines += _block(node.body, inner, shape, functional, numbers, depth + 1) or [f"{' ' * (depth + 1)}pass"]
        else:
            arguments = [_environment(scope)] if functional else []
            arguments += _timing_arguments(node, scope, shape)
            lines += _call(f"h{next(numbers)}", ", ".join(arguments), isinstance(node, _BLOCKING), depth)
    return lines


def _call(handler: str, arguments: str, blocking: bool, depth: int) -> list[str]:
    """Until it returns 0 when it may block; else once."""
    space = " " * depth
    if blocking:
        return [f"{space}while d := {handler}({arguments}):", f"{space} yield d"]
    return [f"{space}d = {handler}({arguments})", f"{space}if d:", f"{space} yield d"]


def _environment(scope: _Scope) -> str:
    return "{" + ", ".join(f"{name!r}: {python}" for name, python in scope.names.items()) + "}"


def _timing_arguments(step: Step, scope: _Scope, shape: Shape) -> list[str]:
    if isinstance(step, Load | Store):
        return _window_arguments(step, scope, shape)
    if isinstance(step, Compute):
        return _compute_arguments(step, scope)
    if isinstance(step, Send | Post):
        return [_text(q, scope) for q in (step.to.x0, step.to.x1, step.to.y0, step.to.y1)]
    return []


def _window_arguments(step: Load | Store, scope: _Scope, shape: Shape) -> list[str]:
    formal = named(shape.formals, step.tensor)
    rows, cols = window_spans(step.window, formal.shape)
    guard = _guard(window_guard(step.window, formal.shape), scope)
    starts = [s if isinstance(s, Quasi) else quasi(s.lo) for s in step.window.start]
    address = starts[-1] // block_elements(formal.dtype) * row_bytes(formal.dtype, 1)
    pitch = row_bytes(formal.dtype, formal.shape[-1].const) if len(starts) > 1 else 0
    for start, extent in zip(reversed(starts[:-1]), reversed(formal.shape[:-1]), strict=True):
        address = address + start * pitch
        pitch *= extent.const
    return [_text(address, scope), *_guarded([_length(rows, scope), _length(cols, scope)], guard)]


def _compute_arguments(step: Compute, scope: _Scope) -> list[str]:
    op = step.op
    guard = _guard(op.guard, scope)
    if isinstance(op, Generic):
        reduction = next((e for e in walk(op.expr) if isinstance(e, Reduce)), None)
        last = "1" if reduction is None else _text(reduction.extent, scope)
    else:
        last = _length(op.k, scope)
    return [*_guarded([_length(op.rows, scope), _length(op.cols, scope)], guard), last]


def _guard(spans: Sequence[Span], scope: _Scope) -> str:
    """A condition, empty when it always holds."""
    conditions = []
    for span in spans:
        least, _ = span_bounds(span, scope.domain)
        if least < 1:
            conditions.append(f"{_text(span.limit - span.start, scope)} > 0")
    return " and ".join(conditions)


def _guarded(lengths: list[str], guard: str) -> list[str]:
    return [f"({n}) if {guard} else 0" for n in lengths] if guard else lengths


def _length(span: Span, scope: _Scope) -> str:
    """The length of a span, folded to a constant where the ranges of the variables allow."""
    least, most = span_bounds(span, scope.domain)
    if least == most:
        return str(least)
    rest = span.limit - span.start
    text = _text(rest, scope)
    clipped = text if upper(rest, scope.domain) <= span.size else f"(n if (n := {text}) < {span.size} else {span.size})"
    return clipped if lower(rest, scope.domain) >= 0 else f"(m if (m := {clipped}) > 0 else 0)"


def _text(value: Quasi, scope: _Scope) -> str:
    parts = [str(value.const)] if value.const or not value.terms else []
    for coefficient, atom in value.terms:
        name = scope.names[atom] if isinstance(atom, str) else f"(({_text(atom.numerator, scope)}) // {atom.divisor})"
        parts.append(name if coefficient == 1 else f"{coefficient} * {name}")
    return " + ".join(parts)
