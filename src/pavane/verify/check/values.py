"""What is known of a buffer at a point of a process, and what the walk of all processes leaves behind as evidence.

A `Value` is a term over ROW and COL (terms.py), valid on the region rows x cols of its buffer where none of its
guards is empty; outside nothing may be read. `evaluation` makes values, step by step, and the evidence for `bounds`
(reads and writes), `meaning` (stores) and `numerics` (computes and sums).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from pavane.ir.expr import Expr, substitute
from pavane.ir.program import Generic, MatmulTiles, Span, Store
from pavane.ir.quasi import ZERO, Domain, Quasi, quasi
from pavane.ir.walk import substituted
from pavane.reject import MeaningRefused
from pavane.verify.check.inequalities import Counted
from pavane.verify.check.section import Actor, Leaf, Section
from pavane.verify.check.terms import total


@dataclass(frozen=True)
class Piece:
    """The indices [offset, offset + len(span)) of a buffer."""

    offset: Quasi
    span: Span

    def mentions(self, var: str) -> bool:
        return var in self.offset.variables() or mentions(self.span, var)

    def substituted(self, bindings: Mapping[str, Quasi | int]) -> Piece:
        return Piece(self.offset.substitute(bindings), substituted(self.span, bindings))


def beside(first: Piece, second: Piece) -> Piece | None:
    """Two ranges as one, where the second goes on where the first ends and both are clipped at the same limit."""
    size = first.span.size
    if second.offset != first.offset + size or second.span.start != first.span.start + size:
        return None
    if second.span.limit != first.span.limit:
        return None
    return Piece(first.offset, Span(first.span.start, size + second.span.size, first.span.limit))


def mentions(span: Span, var: str) -> bool:
    return var in span.start.variables() or var in span.limit.variables()


def whole(size: int) -> Piece:
    """All `size` indices of a buffer."""
    return Piece(ZERO, Span(ZERO, size, quasi(size)))


@dataclass(frozen=True)
class Strip:
    """SUM over j < len(span) of body, to be joined over a loop."""

    var: str
    span: Span
    body: Expr


@dataclass(frozen=True)
class Value:
    """`rows` and `cols` are None only while a loop's body adds to a buffer for the first time; `onto` is what it adds
    to. `held`: rows and columns that have been written, where those are more than the term is about. `under`: the
    guards under which what is added to was set: an engine reads that before it adds.
    """

    base: Expr
    addends: tuple[Expr | Strip, ...]
    rows: Piece | None
    cols: Piece | None
    guards: tuple[Span, ...] = ()
    loaded: bool = False
    onto: Value | None = None
    held: tuple[Piece, Piece] | None = None
    under: tuple[Span, ...] = ()

    def term(self, where: str) -> Expr:
        """The whole term; refuses a sum that a loop has still to complete."""
        done = tuple(a for a in self.addends if not isinstance(a, Strip))
        if len(done) != len(self.addends):
            raise MeaningRefused("a sum is read before the loop that completes it has ended", where=where)
        return total(self.base, done)

    @property
    def parts(self) -> tuple[Expr | Strip, ...]:
        """What an element is the sum of, one after the other, what a loop's body adds to included."""
        before = (self.base,) if self.onto is None else self.onto.parts
        return (*before, *self.addends)

    def written(self) -> Value:
        """The whole region that may be read, whatever stands there."""
        return self if self.held is None else replace(self, rows=self.held[0], cols=self.held[1])

    def substituted(self, bindings: Mapping[str, Quasi | int]) -> Value:
        """With variables replaced everywhere; for a value without strips."""
        rows = None if self.rows is None else self.rows.substituted(bindings)
        cols = None if self.cols is None else self.cols.substituted(bindings)
        held = None if self.held is None else (self.held[0].substituted(bindings), self.held[1].substituted(bindings))
        addends = tuple(substitute(a, bindings) for a in self.addends if not isinstance(a, Strip))
        guards, under = substituted(self.guards, bindings), substituted(self.under, bindings)
        base = substitute(self.base, bindings)
        return replace(self, base=base, addends=addends, rows=rows, cols=cols, guards=guards, held=held, under=under)

    def joined(self, after: Value) -> Value | None:
        """Both, where `after` fills the rows (or the columns) beside it with the same term under the same guards,
        and as it did: by a load, or by an op.
        """
        if self.rows is None or self.cols is None or after.rows is None or after.cols is None or self.addends:
            return None
        if (self.base, self.guards, self.loaded) != (after.base, after.guards, after.loaded):
            return None
        if self.cols == after.cols:
            rows = beside(self.rows, after.rows)
            return None if rows is None else replace(after, rows=rows, held=None)
        cols = beside(self.cols, after.cols) if self.rows == after.rows else None
        return None if cols is None else replace(after, cols=cols, held=None)

    def moves(self, var: str) -> bool:
        """Does its region depend on a loop?"""
        return any(piece is not None and piece.mentions(var) for piece in (self.rows, self.cols))


@dataclass(frozen=True)
class Place:
    """Where a step stands."""

    section: Section
    actor: Actor
    leaf: Leaf

    @property
    def where(self) -> str:
        return f"{self.actor.where}, step {self.leaf.index}"

    @cached_property
    def domain(self) -> Domain:
        return self.section.domain(self.actor, self.leaf.nest)


@dataclass(frozen=True)
class Read:
    """An element (row, col) of `value` read for all values of the counted variables where no span and no guard is
    empty.
    """

    place: Place
    name: str
    value: Value
    row: Quasi
    col: Quasi
    counted: tuple[Counted, ...]
    guards: tuple[Span, ...]


@dataclass(frozen=True)
class Write:
    """A region of a buffer that a step writes; `beyond`: it is larger than what is then known."""

    place: Place
    name: str
    rows: Piece
    cols: Piece
    beyond: bool = False


@dataclass(frozen=True)
class Stored:
    """A slot written to a window of a formal."""

    place: Place
    step: Store
    value: Value


@dataclass(frozen=True)
class Computed:
    """An op with the terms of its operands before it and the parts of its destination after it."""

    place: Place
    op: Generic | MatmulTiles
    operands: dict[str, Expr]
    result: tuple[Expr | Strip, ...]


@dataclass(frozen=True)
class Summed:
    """A loop (steps first..last of an actor) whose turns add to the same elements of a buffer. `mixed`: in each turn a
    part of a contraction, and something else.
    """

    actor: Actor
    first: int
    last: int
    var: str
    name: str
    mixed: bool


@dataclass
class Evidence:
    reads: list[Read] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    stores: list[Stored] = field(default_factory=list)
    computes: list[Computed] = field(default_factory=list)
    sums: list[Summed] = field(default_factory=list)

    @cached_property
    def regions(self) -> dict[str, list[Write]]:
        """All writes, by buffer; for a walk that is over."""
        found: dict[str, list[Write]] = {}
        for write in self.writes:
            found.setdefault(write.name, []).append(write)
        return found
