"""Chains of Generics: one definition of each link gives both the Generic that computes it and its part of the spec.

A link is a value over rows and columns, written as a function `build(scope, r, c)`; it reads operands and earlier links
by name through `scope.get(name, r, c)`. In a Generic those are slots and carries; in a spec operands are formals and a
link is its own expression, put in place, with reduction variables `k0, k1, ...` that are distinct in the whole
expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Literal

import msgspec

from pavane.ir.expr import At, Expr, Index, Reduce, at, fn
from pavane.ir.program import (
    LV_GEN_COL,
    LV_GEN_K,
    LV_GEN_ROW,
    LV_ITEM_X,
    LV_ITEM_Y,
    LV_KBLOCK,
    Carry,
    Generic,
    Ref,
    Span,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import DType
from pavane.passes.template import Operand, whole

Get = Callable[[str, Quasi, Quasi], Expr]
ROW, COL = quasi(LV_GEN_ROW), quasi(LV_GEN_COL)
ZERO = quasi(0)


class Scope(msgspec.Struct, frozen=True):
    """What a link may read, how it names a reduction's variable, and which row of the whole output its row 0 is."""

    get: Get
    variable: Callable[[], str]
    first_row: Quasi = ZERO

    def total(self, extent: Quasi | int, body: Callable[[Quasi], Expr]) -> Expr:
        """SUM of body(k) over 0 <= k < extent."""
        return self._reduce("SUM", extent, body)

    def greatest(self, extent: Quasi | int, body: Callable[[Quasi], Expr]) -> Expr:
        """MAX of body(k) over 0 <= k < extent."""
        return self._reduce("MAX", extent, body)

    def _reduce(self, kind: Literal["SUM", "MAX"], extent: Quasi | int, body: Callable[[Quasi], Expr]) -> Expr:
        name = self.variable()
        return Reduce(kind, name, quasi(extent), body(quasi(name)))


class Link(msgspec.Struct, frozen=True):
    """A named value: `per_row` ones have one column. `dtype` is that of the carry that holds it."""

    name: str
    build: Callable[[Scope, Quasi, Quasi], Expr]
    per_row: bool = False
    cut: bool = False
    dtype: DType = "f32"


# --- the Generic side -------------------------------------------------------------------------------------------------


def generic_scope(operands: Sequence[Operand], first_row: Quasi = ZERO) -> Scope:
    """Operands are read in their slots, links in the carries of their names."""
    slots = {o.formal: o for o in operands}

    def get(name: str, r: Quasi, c: Quasi) -> At:
        if name not in slots:
            return at(name, r, c)
        return at(slots[name].fifo, r if slots[name].window.row >= 0 else ZERO, c)

    return Scope(get, lambda: LV_GEN_K, first_row)


def generic(link: Link, scope: Scope, dst: str, rows: Span, cols: Span, guard: tuple[Span, ...] = ()) -> Generic:
    """The Generic that computes a link into a carry or slot."""
    column = ZERO if link.per_row else COL
    return Generic(Ref(dst), link.build(scope, ROW, column), rows, whole(1) if link.per_row else cols, guard)


def into_carries(
    links: Sequence[Link], scope: Scope, rows: Span, cols: Span, guard: tuple[Span, ...] = ()
) -> tuple[tuple[Generic, ...], tuple[Carry, ...]]:
    """Every link into a carry of its name."""
    ops = tuple(generic(link, scope, link.name, rows, cols, guard) for link in links)
    carries = tuple(Carry(k.name, rows.size, 1 if k.per_row else cols.size, k.dtype, cut=k.cut) for k in links)
    return ops, carries


# --- the spec side ----------------------------------------------------------------------------------------------------


def spec_scope(
    operands: Sequence[Operand],
    links: Sequence[Link],
    variables: Mapping[str, Quasi] | None = None,
) -> Scope:
    """Operands are formals; a link is its expression. `variables`: the spec's index for an item variable that counts
    heads.
    """
    formals = {o.formal: o for o in operands}
    named = {link.name: link for link in links}
    numbers = count()

    def get(name: str, r: Quasi, c: Quasi) -> Expr:
        if name in formals:
            return At(name, formal_index(formals[name], r, c, variables or {}))
        return named[name].build(scope, r, c)

    scope = Scope(get, lambda: f"k{next(numbers)}")  # `get` builds links in the very scope that it serves
    return scope


def formal_index(operand: Operand, r: Quasi, c: Quasi, variables: Mapping[str, Quasi]) -> tuple[Index, ...]:
    """Where slot element (r, c) of the item lies in the formal, r and c counted over all items and blocks."""
    first = {LV_ITEM_Y: ZERO, LV_ITEM_X: ZERO, LV_KBLOCK: ZERO}
    last = len(operand.window.start) - 1
    out: list[Index] = []
    for dimension, start in enumerate(operand.window.start):
        if not isinstance(start, Quasi):
            out.append(start)
            continue
        if dimension == last:
            out.append(start.substitute(first) + c)
        elif dimension == operand.window.row:
            out.append(start.substitute(first) + r)
        else:
            out.append(start.substitute({**first, **variables}))
    return tuple(out)


# --- links that many sections share -----------------------------------------------------------------------------------


def rms_links(
    x: str, gain: str, width: int, epsilon: float, offset: float, total: str, normed: str
) -> tuple[Link, Link]:
    """x * rsqrt(mean(x^2) + epsilon) * (gain + offset), over rows of `width`."""

    def squares(scope: Scope, r: Quasi, c: Quasi) -> Expr:
        return scope.total(width, lambda k: fn("mul", scope.get(x, r, k), scope.get(x, r, k)))

    def scaled(scope: Scope, r: Quasi, c: Quasi) -> Expr:
        mean = fn("div", scope.get(total, r, ZERO), float(width))
        factor = scope.get(gain, ZERO, c)
        factor = fn("add", factor, offset) if offset else factor
        return fn("mul", fn("mul", scope.get(x, r, c), fn("rsqrt", fn("add", mean, epsilon))), factor)

    return Link(total, squares, per_row=True), Link(normed, scaled)
