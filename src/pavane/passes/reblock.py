"""Rewrite a section to step a loop variable by blocks of another size.

By the rules of `blocks.stepping`, whatever depends on v and a place p of its block depends on `tile*v + p` only. So
with blocks of `block` elements: starts that step by the tile step by the block; in expressions p becomes `p +
block*v` and v becomes 0, and an index of an operand that grows is counted from the block's start again. A contraction
loop with one turn is gone; item loops stay.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.expr import At, Expr, Fn, Index, Reduce, Var, substitute_index
from pavane.ir.program import (
    LV_GEN_COL,
    LV_GEN_ROW,
    LV_ITEM_X,
    LV_ITEM_Y,
    Carry,
    Compute,
    Fifo,
    Generic,
    Items,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Ref,
    Shape,
    Span,
    Store,
    Window,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.walk import rebuild, substituted
from pavane.passes.blocks import COLS, ROWS, Dimension, Stepping, steps_by, window_steps


def reblock(shape: Shape, step: Stepping, block: int, turns: Quasi) -> Shape:
    """The section with `step.var` stepping by `block` elements in `turns` turns."""
    groups = tuple(
        replace(
            group, stages=tuple(replace(stage, body=_body(stage.body, step, block, turns)) for stage in group.stages)
        )
        for group in shape.groups
    )
    return replace(
        shape,
        items=_items(shape.items, step, block, turns),
        groups=groups,
        fifos=tuple(_buffer(fifo, step.grows, block) for fifo in shape.fifos),
        carries=tuple(_buffer(carry, step.grows, block) for carry in shape.carries),
    )


def _items(items: Items, step: Stepping, block: int, turns: Quasi) -> Items:
    if step.var == LV_ITEM_Y:
        return replace(items, y=turns, rows=block)
    if step.var == LV_ITEM_X:
        return replace(items, x=turns, cols=block)
    return items


def _buffer(buffer: Fifo | Carry, grows: tuple[Dimension, ...], block: int) -> Fifo | Carry:
    rows = block if (buffer.name, ROWS) in grows else buffer.rows
    cols = block if (buffer.name, COLS) in grows else buffer.cols
    return replace(buffer, rows=rows, cols=cols)


def _body(body: tuple[Node, ...], step: Stepping, block: int, turns: Quasi) -> tuple[Node, ...]:
    def change(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Loop):
            return _loop(node, step.var, turns)
        if isinstance(node, Load | Store):
            return (replace(node, window=_window(node.window, step, block)),)
        if isinstance(node, Compute):
            return (Compute(_op(node.op, step, block)),)
        return (node,)

    return rebuild(body, change)


def _loop(loop: Loop, var: str, turns: Quasi) -> tuple[Node, ...]:
    if loop.var != var:
        return (loop,)
    if turns == quasi(1) and var not in (LV_ITEM_Y, LV_ITEM_X):
        return substituted(loop.body, {var: 0})
    return (Loop(var, turns, loop.body),)


def _stretched(start: Quasi, step: Stepping, block: int) -> Quasi:
    return start + (block - step.tile) * quasi(step.var)


def _window(window: Window, step: Stepping, block: int) -> Window:
    stepped = window_steps(window, step.var)
    starts = tuple(
        _stretched(start, step, block) if moves and isinstance(start, Quasi) else start
        for start, moves in zip(window.start, stepped, strict=True)
    )
    return Window(
        starts, tuple(block if moves else n for n, moves in zip(window.size, stepped, strict=True)), window.row
    )


def _span(span: Span, step: Stepping, block: int) -> Span:
    if not steps_by(span.start, span.size, step.var):
        return span
    return Span(_stretched(span.start, step, block), block, span.limit)


def _ref(ref: Ref, step: Stepping, block: int) -> Ref:
    row, col = (_stretched(o, step, block) if o.coefficient(step.var) else o for o in (ref.row, ref.col))
    return Ref(ref.name, row, col)


def _op(op: Generic | MatmulTiles, step: Stepping, block: int) -> Generic | MatmulTiles:
    rows, cols, dst = _span(op.rows, step, block), _span(op.cols, step, block), _ref(op.dst, step, block)
    if isinstance(op, MatmulTiles):
        a, b, k = _ref(op.a, step, block), _ref(op.b, step, block), _span(op.k, step, block)
        return replace(op, dst=dst, a=a, b=b, rows=rows, cols=cols, k=k)
    moved = {
        LV_GEN_ROW: block if steps_by(op.rows.start, op.rows.size, step.var) else 0,
        LV_GEN_COL: block if steps_by(op.cols.start, op.cols.size, step.var) else 0,
    }
    return replace(op, dst=dst, rows=rows, cols=cols, expr=_expression(op.expr, step, block, moved))


def _expression(expr: Expr, step: Stepping, block: int, moved: dict[str, int]) -> Expr:
    """Places counted from the extent's start: p becomes p + block*v, v becomes 0."""
    places = {name: quasi(name) + count * quasi(step.var) for name, count in moved.items() if count}
    bindings = {step.var: quasi(0), **places}

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Var):
            return Var(expr.value.substitute(bindings))
        if isinstance(expr, Fn):
            return Fn(expr.op, tuple(change(arg) for arg in expr.args), expr.dtype)
        if isinstance(expr, Reduce):
            return Reduce(expr.kind, expr.var, expr.extent.substitute(bindings), change(expr.body))
        if isinstance(expr, At):
            return At(expr.name, tuple(index((expr.name, d), i) for d, i in enumerate(expr.index)), expr.next)
        return expr

    def index(dimension: Dimension, value: Index) -> Index:
        moved_index = substitute_index(value, bindings)
        return (
            moved_index - block * quasi(step.var)
            if isinstance(moved_index, Quasi) and dimension in step.grows
            else moved_index
        )

    return change(expr) if places else expr
