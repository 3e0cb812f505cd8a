"""What one step does to the values of its process's buffers.

A load makes a value of the window, an op the term of its expression over the terms of its operands, a push hands the
value over, a front takes it. A product adds: SUM(k < len) a * b, a reduction where the length is quasi-affine, else a
strip that a loop completes. Every element that a step reads and every region that it writes is left as evidence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from pavane.ir.expr import At, Const, Expr, Fn, Index, Indirect, Reduce, replace_operands, substitute, walk
from pavane.ir.program import (
    LV_GEN_COL,
    LV_GEN_K,
    LV_GEN_ROW,
    SITE_X,
    SITE_Y,
    Compute,
    Generic,
    Init,
    Load,
    MatmulTiles,
    Pop,
    Push,
    Reserve,
    Span,
    Store,
)
from pavane.ir.quasi import ZERO, Quasi, lower, quasi, upper
from pavane.ir.walk import operands, window_guard, window_spans
from pavane.reject import MeaningRefused, OrderRefused, OutsideFragment
from pavane.verify.check.inequalities import Counted, never_negative
from pavane.verify.check.section import Actor, Leaf, Section
from pavane.verify.check.terms import COL, MAX_TERM_NODES, ROW, Effort, element, size_of
from pavane.verify.check.values import (
    Computed,
    Evidence,
    Piece,
    Place,
    Read,
    Stored,
    Strip,
    Value,
    Write,
    mentions,
    whole,
)

Result = tuple[
    Value, dict[str, Expr], bool
]  # what an op makes; its operands' terms; does it write beyond what is known?
GEN_ROW, GEN_COL, GEN_K = quasi(LV_GEN_ROW), quasi(LV_GEN_COL), quasi(LV_GEN_K)


@dataclass
class Shared:
    """What the walks of all processes share: the slots handed over so far, by FIFO and number of the `Push` step."""

    section: Section
    leaders: dict[str, Actor]
    effort: Effort
    tokens: dict[tuple[str, int], Value | None] = field(default_factory=dict)
    evidence: Evidence = field(default_factory=Evidence)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def variable(self) -> str:
        return f"%k{next(self.numbers)}"

    def afford(self, value: Value | None, where: str) -> None:
        """Refuse to go on with a value for which there is no effort left."""
        for part in () if value is None else (value.base, *value.addends):
            self.effort.spend(part.body if isinstance(part, Strip) else part, where)


@dataclass
class Buffers:
    """What one process has: its carries and the slots it fills, the slots it holds, and those that a load has been
    started into.
    """

    own: dict[str, Value | None] = field(default_factory=dict)
    held: dict[str, Value | None] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)

    def known(self, name: str, where: str) -> Value:
        value = self.own[name] if name in self.own else self.held.get(name)
        if value is None:
            raise MeaningRefused(f"{name} is read, but nothing known has been written to it", where=where)
        return value


def ordinal(actor: Actor, leaf: Leaf, kind: type, fifo: str) -> int:
    """The number of a step among its process's steps of that kind on a FIFO."""
    return bisect_left(actor.uses(kind, fifo), leaf.index, key=lambda step: step.index)


def do(shared: Shared, place: Place, buffers: Buffers) -> None:
    """Carry out a step other than a front."""
    step = place.leaf.placed
    if isinstance(step, Reserve):
        buffers.own[step.fifo] = None
        buffers.loaded.discard(step.fifo)
    elif isinstance(step, Load):
        _load(shared, place, step, buffers)
    elif isinstance(step, Push):
        _push(shared, place, step.fifo, buffers.own.pop(step.fifo, None))
    elif isinstance(step, Pop):
        buffers.held.pop(step.fifo, None)
    elif isinstance(step, Init):
        carry = shared.section.carries[step.carry]
        rows, cols = whole(carry.rows), whole(carry.cols)
        shared.evidence.writes.append(Write(place, step.carry, rows, cols))
        buffers.own[step.carry] = Value(Const(carry.initial), (), rows, cols, held=(rows, cols))
    elif isinstance(step, Store):
        _store(shared, place, step, buffers)
    elif isinstance(step, Compute):
        _compute(shared, place, step.op, buffers)


# --- moves ------------------------------------------------------------------------------------------------------------


def _load(shared: Shared, place: Place, step: Load, buffers: Buffers) -> None:
    section, where, window = shared.section, place.where, step.window
    if section.fifos[step.fifo].kind == "ALIAS" and step.row != ZERO:
        raise OutsideFragment(f"{step.fifo} is an alias: one window is the whole slot", where=where)
    last = len(window.size) - 1
    index: list[Quasi | Indirect] = []
    for d, start in enumerate(window.start):
        if isinstance(start, Indirect):
            if d == last or window.size[d] != 1:
                raise OutsideFragment("an indirect window is more than one row", where=where)
            _indirect(shared, place, start, buffers)
            index.append(start)
        elif d == last:
            index.append(start + quasi(COL))
        else:
            index.append(start + (quasi(ROW) - step.row) if d == window.row else start)
    shape = section.formals[step.tensor].shape
    row_span, col_span = window_spans(window, shape)
    rows, cols = Piece(step.row, row_span), Piece(ZERO, col_span)
    shared.evidence.writes.append(Write(place, step.fifo, rows, cols))
    value = Value(At(step.tensor, tuple(index)), (), rows, cols, window_guard(window, shape), loaded=True)
    before = buffers.own.get(step.fifo)
    whole_value = value if before is None else before.joined(value)
    if whole_value is None or (before is None and step.fifo in buffers.loaded):
        raise OrderRefused(f"two loads fill one slot of {step.fifo}, in no order", where=where)
    buffers.loaded.add(step.fifo)
    buffers.own[step.fifo] = whole_value


def _indirect(shared: Shared, place: Place, index: Indirect, buffers: Buffers) -> None:
    """The index is element `index` of the formal, read from column `index - first` of the slot in front, into which a
    load has put the formal from element `first` on: an op may round, and put elements elsewhere.
    """
    value = buffers.held.get(index.via)
    term = None if value is None else value.base
    first = term.index[0] - quasi(COL) if isinstance(term, At) and isinstance(term.index[0], Quasi) else quasi(COL)
    held = value is not None and value.loaded and term == At(index.tensor, (first + quasi(COL),))
    if value is None or not held or COL in first.variables() or ROW in first.variables() or len(index.index) != 1:
        raise MeaningRefused(f"{index.via} does not hold a part of {index.tensor}", where=place.where)
    shared.evidence.reads.append(Read(place, index.via, value, ZERO, index.index[0] - first, (), ()))


def _push(shared: Shared, place: Place, name: str, value: Value | None) -> None:
    leader = shared.leaders.get(name)
    if leader is not None and place.actor is not leader:
        return
    done = None
    shared.afford(value, place.where)
    if value is not None:
        done = replace(value, base=value.term(place.where), addends=())
        if leader is not None:  # all members get the leader's, with its coordinate along the multicast
            row = shared.section.fifos[name].kind == "MULTICAST_ROW"
            done = done.substituted({SITE_X: leader.box[0]} if row else {SITE_Y: leader.box[2]})
    token = (name, ordinal(place.actor, place.leaf, Push, name))
    if token in shared.tokens and shared.tokens[token] != done:
        raise OutsideFragment(f"two processes fill {name} with different maps", where=place.where)
    shared.tokens[token] = done


def _store(shared: Shared, place: Place, step: Store, buffers: Buffers) -> None:
    value = buffers.held.get(step.fifo)
    if value is None:
        raise MeaningRefused(f"{step.fifo} is stored, but nothing known has been written to it", where=place.where)
    shared.afford(value, place.where)
    shape = shared.section.formals[step.tensor].shape
    rows, cols = window_spans(step.window, shape)
    counted, guard = (Counted(LV_GEN_ROW, rows), Counted(LV_GEN_COL, cols)), window_guard(step.window, shape)
    shared.evidence.reads.append(Read(place, step.fifo, value, GEN_ROW, GEN_COL, counted, guard))
    shared.evidence.stores.append(Stored(place, step, value))


# --- ops --------------------------------------------------------------------------------------------------------------


def _compute(shared: Shared, place: Place, op: Generic | MatmulTiles, buffers: Buffers) -> None:
    result = _generic(shared, place, op, buffers) if isinstance(op, Generic) else _matmul(shared, place, op, buffers)
    (value, known, beyond), name = result, op.dst.name
    if name not in buffers.own and name not in shared.section.carries:
        raise MeaningRefused(f"{name} is written without a reserved slot", where=place.where)
    shared.evidence.writes.append(Write(place, name, Piece(op.dst.row, op.rows), Piece(op.dst.col, op.cols), beyond))
    shared.evidence.computes.append(Computed(place, op, known, value.parts))
    buffers.own[name] = value


def _generic(shared: Shared, place: Place, op: Generic, buffers: Buffers) -> Result:
    where, fresh = place.where, shared.variable()
    values = {name: buffers.known(name, where) for name in operands(op)}
    rows, cols = _narrowed(place, op, values)
    depth, beyond = _reduced(place, op), (rows, cols) != (op.rows, op.cols)
    for node in walk(op.expr):
        if isinstance(node, At):
            row, col = node.index
            value, counted = values[node.name], (Counted(LV_GEN_ROW, rows), Counted(LV_GEN_COL, cols), *depth)
            shared.evidence.reads.append(Read(place, node.name, value, row, col, counted, op.guard))  # type: ignore[arg-type]
            if beyond:
                counted = (Counted(LV_GEN_ROW, op.rows), Counted(LV_GEN_COL, op.cols), *depth)
                shared.evidence.reads.append(Read(place, node.name, value.written(), row, col, counted, op.guard))  # type: ignore[arg-type]
    known = {name: value.term(where) for name, value in values.items()}
    sizes = {name: size_of(term) for name, term in known.items()}
    need = sum(sizes[node.name] for node in walk(op.expr) if isinstance(node, At))
    if need > MAX_TERM_NODES:
        raise OutsideFragment("the value of a buffer is too large an expression", where=where, needed=f"{need} nodes")
    expr = substitute(_renamed(op.expr, fresh), _inside(op))
    term = replace_operands(expr, lambda a: element(known[a.name], *a.index))  # type: ignore[arg-type]
    shared.effort.spend(term, where)
    held = Piece(op.dst.row, op.rows), Piece(op.dst.col, op.cols)
    value = Value(term, (), Piece(op.dst.row, rows), Piece(op.dst.col, cols), op.guard, held=held, under=op.guard)
    before = buffers.own.get(op.dst.name)
    return (before.joined(value) if before else None) or value, known, beyond


def _reduced(place: Place, op: Generic) -> tuple[Counted, ...]:
    """The variable of an op's reduction, if it has one."""
    found = []
    for node in walk(op.expr):
        if isinstance(node, Reduce):
            if node.kind == "MAX" and lower(node.extent, place.domain) < 1:
                raise MeaningRefused("a maximum may be of nothing", where=place.where)
            found.append(Counted(LV_GEN_K, Span(ZERO, max(upper(node.extent, place.domain), 1), node.extent)))
    return tuple(found)


def _narrowed(place: Place, op: Generic, values: dict[str, Value]) -> tuple[Span, Span]:
    """The rows and columns of which the op's result is known: not those beyond a sum in a buffer that was set before,
    of which it reads what stood there.
    """
    rows, cols = op.rows, op.cols
    for node in walk(op.expr):
        if isinstance(node, At) and values[node.name].held is not None:
            value, (row, col) = values[node.name], node.index
            rows = _shorter(place, rows, value.rows, row, GEN_ROW)
            cols = _shorter(place, cols, value.cols, col, GEN_COL)
    return rows, cols


def _shorter(place: Place, span: Span, piece: Piece | None, index: Index, counted: Quasi) -> Span:
    """The span of a piece that an op goes through element by element, where it ends no later than the op's."""
    if piece is None or index != counted + piece.offset:
        return span
    ends = piece.span.size <= span.size and never_negative(span.limit - piece.span.limit, place.domain)
    return piece.span if ends and piece.span.start == span.start else span


def _inside(op: Generic | MatmulTiles) -> dict[str, Quasi | int]:
    """The variables of an op by the place of the element that it writes."""
    return {LV_GEN_ROW: quasi(ROW) - op.dst.row, LV_GEN_COL: quasi(COL) - op.dst.col}


def _renamed(expr: Expr, fresh: str) -> Expr:
    if isinstance(expr, Reduce):
        return Reduce(expr.kind, fresh, expr.extent, substitute(expr.body, {expr.var: quasi(fresh)}))
    if isinstance(expr, Fn):
        return Fn(expr.op, tuple(_renamed(a, fresh) for a in expr.args), expr.dtype)
    return expr


def _matmul(shared: Shared, place: Place, op: MatmulTiles, buffers: Buffers) -> Result:
    where = place.where
    a, b, onto = (buffers.known(ref.name, where) for ref in (op.a, op.b, op.dst))
    counted = (Counted(LV_GEN_ROW, op.rows), Counted(LV_GEN_COL, op.cols), Counted(LV_GEN_K, op.k))
    a_at = (op.a.row + GEN_ROW, op.a.col + GEN_K)
    b_at = (op.b.row + GEN_COL, op.b.col + GEN_K) if op.transposed else (op.b.row + GEN_K, op.b.col + GEN_COL)
    reads = [Read(place, op.a.name, a, *a_at, counted, op.guard), Read(place, op.b.name, b, *b_at, counted, op.guard)]
    target = onto.onto if onto.rows is None else onto
    if target is not None:
        row, col = op.dst.row + GEN_ROW, op.dst.col + GEN_COL
        reads.append(Read(place, op.dst.name, replace(target, guards=target.under), row, col, counted, op.guard))
    shared.evidence.reads.extend(reads)
    known = {op.a.name: a.term(where), op.b.name: b.term(where)}
    fresh = shared.variable()
    local = {**_inside(op), LV_GEN_K: quasi(fresh)}
    left, right = (
        element(known[name], row.substitute(local), col.substitute(local))
        for name, (row, col) in ((op.a.name, a_at), (op.b.name, b_at))
    )
    addend = _contraction(place, op.k, fresh, shared.effort.spend(Fn("mul", (left, right)), where))
    rows, cols = Piece(op.dst.row, op.rows), Piece(op.dst.col, op.cols)
    if onto.rows is not None and onto.addends and (onto.rows, onto.cols) != (rows, cols):
        raise OutsideFragment(f"{op.dst.name} is added to in two different regions", where=where)
    guards = tuple(dict.fromkeys((*onto.guards, *op.guard)))
    value = replace(onto, addends=(*onto.addends, addend), rows=rows, cols=cols, guards=guards, loaded=False)
    return value, known, False


def _contraction(place: Place, span: Span, var: str, body: Expr) -> Expr | Strip:
    """A sum over a span: a reduction where its length is quasi-affine, else a strip that a loop completes."""
    if any(mentions(span, loop) for loop, _ in place.leaf.nest):
        return Strip(var, span, body)
    rest = span.limit - span.start
    if never_negative(rest - span.size, place.domain):
        return Reduce("SUM", var, quasi(span.size), body)
    if never_negative(rest, place.domain) and never_negative(rest * -1 + span.size, place.domain):
        return Reduce("SUM", var, rest, body)
    raise OutsideFragment("the length of a contraction is neither its size nor what is left of it", where=place.where)
