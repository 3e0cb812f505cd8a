"""Along which loop variables a section may be cut into other blocks, and what grows with the block.

A variable v *steps* a dimension when a window or span of size t starts at `t*v + rest`. Blocks of another size are
legal when the whole body only ever depends on v and the place inside the block through `t*v + place`:

    windows and spans   start steps by its own size, or does not mention v; neither row nor column: does not mention v
    offsets of a Ref    step alike (the buffer holds the whole extent), or not at all (it holds one block and grows)
    expressions         one turn of v more equals t places more; a growing operand counts places from the block's start

`stepping` finds the tile t and the buffers that grow, or None where a rule is broken; it never refuses. Blocks that
are not whole tiles need more: places inside a growing operand are named one to one (`fine`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pavane.ir.expr import At, Expr, Indirect, Reduce, Var, walk
from pavane.ir.program import (
    LOOP_VARIABLES,
    LV_GEN_COL,
    LV_GEN_ROW,
    Compute,
    Generic,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Ref,
    Shape,
    Span,
    Step,
    Store,
    Window,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import block_elements
from pavane.ir.walk import named
from pavane.passes.buffers import buffers_of

ROWS, COLS = 0, 1
Dimension = tuple[str, int]  # a buffer's name and which of its dimensions


@dataclass(frozen=True)
class Stepping:
    """How a variable steps: by tiles of `tile`, `turns` times, over `extent` elements (None: only whole tiles are
    known to fit).

    `grows`: dimensions of FIFO slots and carries that are one block long. `fine`: any block is legal, not only whole
    tiles. `whole_blocks`: a block is a multiple of this, or the whole extent (columns of types in blocks).
    """

    var: str
    tile: int
    turns: Quasi
    extent: Quasi | None
    grows: tuple[Dimension, ...]
    fine: bool
    whole_blocks: int


@dataclass(frozen=True)
class _Fact:
    """A use of a buffer's dimension: does it grow with the block? `one_to_one`: places are named by themselves."""

    dimension: Dimension
    grows: bool
    one_to_one: bool = True


class _Broken(Exception):
    """A rule of the module's docstring does not hold."""


def stepping(shape: Shape, var: str) -> Stepping | None:
    """How `var` steps in the section, or None where its blocks cannot be changed."""
    bodies = [stage.body for group in shape.groups for stage in group.stages]
    loops = [loop for body in bodies for loop in _loops(body) if loop.var == var]
    tiles = {size for body in bodies for start, size in _starts(body) if start.coefficient(var)}
    if len({loop.extent for loop in loops}) != 1 or len(tiles) != 1:
        return None
    turns, tile = loops[0].extent, tiles.pop()
    if any(name in LOOP_VARIABLES for name in turns.variables()):
        return None
    try:
        facts = [fact for body in bodies for fact in _body_facts(body, shape, var, tile, False)]
    except _Broken:
        return None
    growing = {fact.dimension for fact in facts if fact.grows}
    if any(fact.dimension in growing and not fact.grows for fact in facts):
        return None
    if any(_size(shape, dimension) != tile for dimension in growing):
        return None
    return Stepping(
        var=var,
        tile=tile,
        turns=turns,
        extent=_extent(bodies, shape, var, tile, turns),
        grows=tuple(sorted(growing)),
        fine=all(fact.one_to_one for fact in facts),
        whole_blocks=_whole_blocks(shape, bodies, var, growing),
    )


def steps_by(start: object, size: int, var: str) -> bool:
    """Does a start step by its own size along `var`? (Elsewhere it does not mention it: see the module's rules.)"""
    return isinstance(start, Quasi) and start.coefficient(var) == size


# --- walking ----------------------------------------------------------------------------------------------------------


def _loops(body: Iterable[Node]) -> Iterator[Loop]:
    for node in body:
        if isinstance(node, Loop):
            yield node
            yield from _loops(node.body)


def _steps(body: Iterable[Node]) -> Iterator[Step]:
    for node in body:
        if isinstance(node, Loop):
            yield from _steps(node.body)
        else:
            yield node


def _spans(op: Generic | MatmulTiles) -> tuple[Span, ...]:
    return (op.rows, op.cols) if isinstance(op, Generic) else (op.rows, op.cols, op.k)


def _starts(body: Iterable[Node]) -> Iterator[tuple[Quasi, int]]:
    """Every start of a window or span with its size."""
    for step in _steps(body):
        if isinstance(step, Load | Store):
            pairs = zip(step.window.start, step.window.size, strict=True)
            yield from ((start, size) for start, size in pairs if isinstance(start, Quasi))
        elif isinstance(step, Compute):
            yield from ((span.start, span.size) for span in _spans(step.op))


def _size(shape: Shape, dimension: Dimension) -> int:
    buffer = named(buffers_of(shape), dimension[0])
    return buffer.rows if dimension[1] == ROWS else buffer.cols


# --- facts ------------------------------------------------------------------------------------------------------------


def _body_facts(body: Iterable[Node], shape: Shape, var: str, tile: int, inside: bool) -> Iterator[_Fact]:
    for node in body:
        if isinstance(node, Loop):
            if var in node.extent.variables():
                raise _Broken
            yield from _body_facts(node.body, shape, var, tile, inside or node.var == var)
        elif isinstance(node, Load | Store):
            yield from _window_facts(node, var, tile)
        elif isinstance(node, Compute):
            yield from _op_facts(node.op, var, tile, inside)


def _window_facts(step: Load | Store, var: str, tile: int) -> Iterator[_Fact]:
    window = step.window
    stepped = [_steps_along(start, size, var, tile) for start, size in zip(window.start, window.size, strict=True)]
    last = len(window.size) - 1
    if any(stepped[d] for d in range(last) if d != window.row) or (
        isinstance(step, Load) and var in step.row.variables()
    ):
        raise _Broken
    yield _Fact((step.fifo, ROWS), window.row >= 0 and stepped[window.row])
    yield _Fact((step.fifo, COLS), stepped[last])


def _steps_along(start: Quasi | Indirect, size: int, var: str, tile: int) -> bool:
    if isinstance(start, Indirect):
        if any(var in index.variables() for index in start.index):
            raise _Broken
        return False
    if var not in start.variables():
        return False
    if size != tile or start.coefficient(var) != tile or var in (start - tile * quasi(var)).variables():
        raise _Broken
    return True


def _op_facts(op: Generic | MatmulTiles, var: str, tile: int, inside: bool) -> Iterator[_Fact]:
    if any(var in (*span.start.variables(), *span.limit.variables()) for span in op.guard):
        raise _Broken
    rows, cols = (_steps_along(span.start, span.size, var, tile) for span in (op.rows, op.cols))
    yield from _ref_facts(op.dst, (rows, cols), var, tile)
    if isinstance(op, Generic):
        yield from _expression_facts(op.expr, {LV_GEN_ROW: rows * tile, LV_GEN_COL: cols * tile}, var, tile)
        return
    k = _steps_along(op.k.start, op.k.size, var, tile)
    if inside and not (rows or cols or k):
        raise _Broken  # a turn that adds the same product again
    yield from _ref_facts(op.a, (rows, k), var, tile)
    yield from _ref_facts(op.b, (cols, k) if op.transposed else (k, cols), var, tile)


def _ref_facts(ref: Ref, stepped: tuple[bool, bool], var: str, tile: int) -> Iterator[_Fact]:
    for dimension, offset in ((ROWS, ref.row), (COLS, ref.col)):
        moves = _steps_along(offset, tile, var, tile)
        if moves and not stepped[dimension]:
            raise _Broken
        yield _Fact((ref.name, dimension), stepped[dimension] and not moves)


def _expression_facts(expr: Expr, tiles: dict[str, int], var: str, tile: int) -> Iterator[_Fact]:
    """`tiles`: how far a turn of `var` moves LV_GEN_ROW and LV_GEN_COL."""
    for node in walk(expr):
        if isinstance(node, Var):
            _require_no_growth(node.value, tiles, var)
        elif isinstance(node, Reduce):
            _require_no_growth(node.extent, tiles, var)
        elif isinstance(node, At):
            for dimension, index in enumerate(node.index):
                if isinstance(index, Indirect):
                    raise _Broken
                yield _index_fact((node.name, dimension), index, tiles, var, tile)


def _turn_more(index: Quasi, var: str) -> Quasi:
    return index.substitute({var: quasi(var) + 1})


def _places_more(index: Quasi, places: dict[str, int]) -> Quasi:
    return index.substitute({name: quasi(name) + count for name, count in places.items()})


def _require_no_growth(value: Quasi, tiles: dict[str, int], var: str) -> None:
    if _turn_more(value, var) != _places_more(value, tiles):
        raise _Broken


def _index_fact(dimension: Dimension, index: Quasi, tiles: dict[str, int], var: str, tile: int) -> _Fact:
    turn, places = _turn_more(index, var), _places_more(index, tiles)
    if turn == places:
        return _Fact(dimension, False)
    if turn + tile != places:
        raise _Broken
    unit = {name: int(count > 0) for name, count in tiles.items()}
    return _Fact(dimension, True, one_to_one=index + 1 == _places_more(index, unit))


# --- extent and granularity -------------------------------------------------------------------------------------------


def _extent(bodies: list[tuple[Node, ...]], shape: Shape, var: str, tile: int, turns: Quasi) -> Quasi | None:
    """The elements that the turns walk: a limit of something that steps, in tiles exactly the turns."""
    for body in bodies:
        for start, limit in _limits(body, shape):
            if isinstance(start, Quasi) and start.coefficient(var) == tile:
                extent = limit - (start - tile * quasi(var))
                if extent.ceil(tile) == turns:
                    return extent
    return None


def _limits(body: tuple[Node, ...], shape: Shape) -> Iterator[tuple[object, Quasi]]:
    for step in _steps(body):
        if isinstance(step, Compute):
            yield from ((span.start, span.limit) for span in _spans(step.op))
        elif isinstance(step, Load | Store):
            yield from zip(step.window.start, named(shape.formals, step.tensor).shape, strict=True)


def _whole_blocks(shape: Shape, bodies: list[tuple[Node, ...]], var: str, growing: set[Dimension]) -> int:
    """Columns that step in a buffer of stored blocks step by whole ones."""
    sizes = [block_elements(b.dtype) for b in buffers_of(shape) if (b.name, COLS) in growing]
    for body in bodies:
        for step in _steps(body):
            if isinstance(step, Compute):
                touched = [ref for ref in _refs(step.op) if ref.col.coefficient(var)]
                sizes += [block_elements(named(buffers_of(shape), ref.name).dtype) for ref in touched]
    return max(sizes, default=1)


def _refs(op: Generic | MatmulTiles) -> tuple[Ref, ...]:
    return (op.dst,) if isinstance(op, Generic) else (op.dst, op.a, op.b)


def window_steps(window: Window, var: str) -> tuple[bool, ...]:
    """Which dimensions of a window step along `var`."""
    return tuple(steps_by(start, size, var) for start, size in zip(window.start, window.size, strict=True))
