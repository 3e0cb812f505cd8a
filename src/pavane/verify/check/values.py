"""What every buffer holds, as a term: one symbolic turn of every loop of every process. Evidence for bounds, meaning
and numerics.

A `Value` is a term over ROW and COL (terms.py), valid on a region of its buffer where its guards are not empty;
outside nothing may be read. Each process is walked in its own order; a `Front` takes the value of the `Push` of the
same number, which is the same slot because `balance` has shown equal token nests. Loops are closed by three lemmas:

- *sum*: a buffer that a loop's body only adds to holds, after it, what it held before plus the sum over the turns;
- *strip*: SUM(v < E) SUM(j < len[s*v, s*v+s | L)) f(v, j) = SUM(k < L) f(floor(k/s), k - s*floor(k/s)) where s*E >= L
  >= 0: every k below L is s*v + j once;
- *step*: a region that moves by its own width s along v (rows or columns [s*v, s*v+s | L)) fills [0, min(s*E, L)),
  and the element at c was written in turn floor(c/s).

A buffer that a turn sets before it reads is local to the turn: after the loop it is unknown unless its value does not
mention the loop. Any other use of a buffer from turn to turn is outside the fragment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from pavane.ir.expr import At, Const, Expr, Fn, Indirect, Reduce, replace_operands, substitute, walk
from pavane.ir.program import (
    LV_GEN_COL,
    LV_GEN_K,
    LV_GEN_ROW,
    SITE_X,
    SITE_Y,
    Compute,
    Front,
    Generic,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Pop,
    Push,
    Reserve,
    Send,
    Span,
    Step,
    Store,
)
from pavane.ir.quasi import ZERO, Domain, Quasi, lower, quasi, upper
from pavane.ir.walk import operands, substituted, window_guard, window_spans
from pavane.reject import MeaningRefused, OrderRefused, OutsideFragment, ProgressRefused
from pavane.verify.check.inequalities import Counted, never_negative
from pavane.verify.check.section import Actor, Leaf, Section
from pavane.verify.check.terms import COL, ROW, ZERO_TERM, bounded, element, occurs, size_of, total


@dataclass(frozen=True)
class Piece:
    """The indices [offset, offset + len(span)) of a buffer."""

    offset: Quasi
    span: Span

    def mentions(self, var: str) -> bool:
        return any(var in q.variables() for q in (self.offset, self.span.start, self.span.limit))


@dataclass(frozen=True)
class Strip:
    """SUM over j < len(span) of body, to be joined over a loop."""

    var: str
    span: Span
    body: Expr


@dataclass(frozen=True)
class Value:
    """`rows` and `cols` are None only while a loop's body adds to a buffer for the first time; `onto` is what it adds
    to.
    """

    base: Expr
    addends: tuple[Expr | Strip, ...]
    rows: Piece | None
    cols: Piece | None
    guards: tuple[Span, ...] = ()
    loaded: bool = False
    onto: Value | None = None

    def term(self, where: str) -> Expr:
        """The whole term; refuses a sum that a loop has still to complete."""
        done = tuple(a for a in self.addends if not isinstance(a, Strip))
        if len(done) != len(self.addends):
            raise MeaningRefused("a sum is read before the loop that completes it has ended", where=where)
        return total(self.base, done)


@dataclass(frozen=True)
class Read:
    """An element (row, col) of `value` read for all values of the counted variables where no span and no guard is
    empty.
    """

    where: str
    name: str
    value: Value
    row: Quasi
    col: Quasi
    counted: tuple[Counted, ...]
    guards: tuple[Span, ...]
    domain: Domain


@dataclass(frozen=True)
class Write:
    """A region of a buffer written by step `leaf` of a process."""

    where: str
    actor: Actor
    leaf: int
    name: str
    rows: Piece
    cols: Piece
    domain: Domain


@dataclass(frozen=True)
class Stored:
    """A slot written to a window of a formal."""

    actor: Actor
    leaf: Leaf
    value: Value
    domain: Domain


@dataclass(frozen=True)
class Computed:
    """An op with the terms of its operands before it and the parts of its destination after it.

    `onto` is what a product adds to; `again` says that a product before it has added to the same elements.
    """

    actor: Actor
    leaf: Leaf
    op: Generic | MatmulTiles
    operands: dict[str, Expr]
    result: tuple[Expr | Strip, ...]
    domain: Domain
    onto: Expr = ZERO_TERM
    again: bool = False


@dataclass(frozen=True)
class Summed:
    """A loop (steps first..last of an actor) whose turns add to the same elements of a buffer."""

    actor: Actor
    first: int
    last: int
    var: str
    name: str


@dataclass
class Evidence:
    reads: list[Read] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    stores: list[Stored] = field(default_factory=list)
    computes: list[Computed] = field(default_factory=list)
    sums: list[Summed] = field(default_factory=list)


@dataclass
class _Run:
    """Everything that the walk of all processes shares."""

    section: Section
    leaders: dict[str, Actor]
    tokens: dict[tuple[str, int], Value | None] = field(default_factory=dict)
    evidence: Evidence = field(default_factory=Evidence)
    fresh: Iterator[int] = field(default_factory=lambda: count(1))

    def variable(self) -> str:
        return f"%k{next(self.fresh)}"


Buffers = dict[str, Value | None]


@dataclass
class _State:
    """What one process has: its carries and filled slots, the slots it holds, and the slots that a load has been
    started into.
    """

    own: Buffers = field(default_factory=dict)
    held: Buffers = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)


def evaluate(section: Section, leaders: dict[str, Actor]) -> Evidence:
    """Walk all processes; `leaders` names the process that fills each multicast FIFO for all its sites."""
    run = _Run(section, leaders)
    waiting = {a.number: _process(run, a) for a in section.actors}
    wanted: dict[int, tuple[str, int] | None] = {}
    while waiting:
        before = dict(wanted)
        for number, steps in tuple(waiting.items()):
            wanted[number] = next(steps, None)
            if wanted[number] is None:
                del waiting[number]
        if waiting and wanted == before and not any(token in run.tokens for token in wanted.values()):
            names = ", ".join(section.actors[n].name for n in waiting)
            raise ProgressRefused(
                "a slot is taken before any process hands it over", where=section.where, terms=[names]
            )
    return run.evidence


def _process(run: _Run, actor: Actor) -> Iterator[tuple[str, int]]:
    yield from _body(run, actor, actor.body, 0, _State())


def _body(run: _Run, actor: Actor, body: tuple[Node, ...], index: int, state: _State) -> Iterator[tuple[str, int]]:
    for node in body:
        if isinstance(node, Loop):
            size = _leaf_count(node.body)
            yield from _loop(run, actor, node, index, size, state)
            index += size
            continue
        leaf = actor.leaves[index]
        if isinstance(node, Front):
            token = (node.fifo, _ordinal(actor, leaf, Front))
            while token not in run.tokens:
                yield token
            state.held[node.fifo] = run.tokens[token]
        else:
            _step(run, actor, leaf, state)
        index += 1


def _leaf_count(body: tuple[Node, ...]) -> int:
    return sum(_leaf_count(n.body) if isinstance(n, Loop) else 1 for n in body)


def _ordinal(actor: Actor, leaf: Leaf, kind: type) -> int:
    name = leaf.step.fifo  # type: ignore[union-attr]
    return [other.index for other in actor.uses(kind, name)].index(leaf.index)


# --- loops ------------------------------------------------------------------------------------------------------------


def _loop(run: _Run, actor: Actor, loop: Loop, index: int, size: int, state: _State) -> Iterator[tuple[str, int]]:
    """One symbolic turn, then the loop is closed for every buffer that outlives a turn."""
    where = f"{actor.where}, loop over {loop.var}"
    before = dict(state.own)
    names = sorted(set(run.section.carries) | set(before))
    uses = {name: _use(actor.leaves[index : index + size], name) for name in names}
    for name, use in uses.items():
        if use == "mixed":
            raise OutsideFragment(f"{name} carries a value from turn to turn that is not a sum", where=where)
        if use == "adds":
            state.own[name] = _adding(before.get(name), name, where)
        elif use == "sets":
            state.own[name] = None
    yield from _body(run, actor, loop.body, index, state)
    domain = run.section.domain(actor, actor.leaves[index].nest[: _depth(actor, index, loop)])
    for name, use in uses.items():
        if use == "adds":
            turn = state.own[name]
            if turn is not None and not _moves(turn, loop.var):
                run.evidence.sums.append(Summed(actor, index, index + size - 1, loop.var, name))
            state.own[name] = _summed(run, before[name], turn, loop, domain, name, where)
        elif use == "sets":
            alone = _writes_alike(run, actor, range(index, index + size), name)
            state.own[name] = _settled(run, state.own.get(name), loop, domain, name, name in before, alone, where)


def _writes_alike(run: _Run, actor: Actor, steps: range, name: str) -> bool:
    """Do all steps of a loop that write a buffer write one and the same region in a turn?"""
    found = {(w.rows, w.cols) for w in run.evidence.writes if w.actor is actor and w.leaf in steps and w.name == name}
    return len(found) == 1


def _depth(actor: Actor, index: int, loop: Loop) -> int:
    """How many loops are around `loop`."""
    return next(d for d, (var, _) in enumerate(actor.leaves[index].nest) if var == loop.var)


def _use(leaves: tuple[Leaf, ...], name: str) -> str:
    """How a loop's body uses a buffer from turn to turn: `reads` (or nothing), `adds`, `sets` first, or `mixed`."""
    events = [event for leaf in leaves for event in _events(leaf.step, name)]
    writes = [event for event in events if event != "read"]
    if not writes:
        return "reads"
    if events[0] == "set":
        return "sets"
    return "adds" if all(event == "add" for event in events) else "mixed"


def _events(step: Step, name: str) -> list[str]:
    if isinstance(step, Init):
        return ["set"] if step.carry == name else []
    if isinstance(step, Load):
        return ["set"] if step.fifo == name else []
    if isinstance(step, Send | Push | Pop):
        return ["read"] if step.fifo == name and isinstance(step, Send) else []
    if isinstance(step, Reserve):
        return ["set"] if step.fifo == name else []
    if not isinstance(step, Compute):
        return []
    op = step.op
    if isinstance(op, MatmulTiles):
        events = ["read"] if name in (op.a.name, op.b.name) else []
        return [*events, "add"] if op.dst.name == name else events
    events = ["read"] if name in operands(op) else []
    return [*events, "set"] if op.dst.name == name else events


def _adding(before: Value | None, name: str, where: str) -> Value:
    if before is None:
        raise MeaningRefused(f"{name} is added to before it is set", where=where, remedy="an init step before the loop")
    return Value(Const(0.0), (), None, None, onto=before if before.rows is not None else before.onto)


def _summed(
    run: _Run, before: Value | None, turn: Value | None, loop: Loop, domain: Domain, name: str, where: str
) -> Value:
    """The sum lemma, with the strip and the step lemma where they apply."""
    if before is None or turn is None or turn.rows is None or turn.cols is None:
        raise MeaningRefused(f"{name} is added to before it is set", where=where)
    if any(_mentions(guard, loop.var) for guard in turn.guards):
        raise OutsideFragment(f"{name} is added to under a guard that depends on the loop", where=where)
    inside = domain.with_loop(loop.var, loop.extent)
    if _moves(turn, loop.var):
        stepped = _stepped(run, turn, loop, domain, name, where)
        if stepped is None:
            raise OutsideFragment(f"{name} is added to at places that do not step through it", where=where)
        turn, addends = stepped, stepped.addends
    else:
        addends = tuple(_sum(run, a, loop, inside, where) for a in turn.addends)
    if before.rows is None:
        return replace(before, addends=(*before.addends, *addends), rows=turn.rows, cols=turn.cols, guards=turn.guards)
    if before.addends and (before.rows, before.cols) != (turn.rows, turn.cols):
        raise OutsideFragment(f"{name} is added to in two different regions", where=where)
    guards = tuple(dict.fromkeys((*before.guards, *turn.guards)))
    return replace(
        before, addends=(*before.addends, *addends), rows=turn.rows, cols=turn.cols, guards=guards, loaded=False
    )


def _moves(value: Value, var: str) -> bool:
    return any(piece is not None and piece.mentions(var) for piece in (value.rows, value.cols))


def _sum(run: _Run, addend: Expr | Strip, loop: Loop, inside: Domain, where: str) -> Expr | Strip:
    var, extent = loop.var, loop.extent
    if not isinstance(addend, Strip):
        fresh = run.variable()
        return Reduce("SUM", fresh, extent, substitute(addend, {var: quasi(fresh)}))
    size, limit = addend.span.size, addend.span.limit
    if not _mentions(addend.span, var) and not occurs(addend.body, var):
        raise OutsideFragment(f"one block of a sum is added in every turn of {var}", where=where)
    if addend.span.start != quasi(var) * size or var in limit.variables():
        raise OutsideFragment(f"the blocks of a sum do not step through it along {var}", where=where)
    if not (never_negative(extent * size - limit, inside) and never_negative(limit, inside)):
        raise MeaningRefused(
            f"the loop over {var} does not reach the end of the sum",
            where=where,
            needed=f"{limit} terms",
            available=f"{size} * ({extent})",
        )
    fresh = run.variable()
    turn = quasi(fresh) // size
    body = substitute(addend.body, {var: turn, addend.var: quasi(fresh) - turn * size})
    return Reduce("SUM", fresh, limit, body)


def _settled(
    run: _Run, turn: Value | None, loop: Loop, domain: Domain, name: str, outlives: bool, alone: bool, where: str
) -> Value | None:
    """After a loop that sets a buffer: stepped through, the same in every turn, or unknown.

    Stepped through only where nothing else is written to the buffer in a turn (`alone`): an init would undo the turns
    before.
    """
    if turn is None or turn.rows is None or turn.cols is None:
        return None
    parts = [a.body if isinstance(a, Strip) else a for a in turn.addends]
    regions = turn.rows.mentions(loop.var) or turn.cols.mentions(loop.var)
    stepped = _stepped(run, turn, loop, domain, name, where) if regions and alone else None
    if turn.loaded and outlives and name in run.section.fifos and stepped is None:
        raise OrderRefused(f"the turns of a loop load into the same places of one slot of {name}", where=where)
    if regions:
        return stepped
    spans = [a.span for a in turn.addends if isinstance(a, Strip)]
    if any(_mentions(s, loop.var) for s in (*turn.guards, *spans)) or any(
        occurs(t, loop.var) for t in (turn.base, *parts)
    ):
        return None
    return turn


def _stepped(run: _Run, turn: Value, loop: Loop, domain: Domain, name: str, where: str) -> Value | None:
    """The step lemma; None where the region does not step by its own width."""
    if turn.rows is None or turn.cols is None or any(_mentions(guard, loop.var) for guard in turn.guards):
        return None
    if turn.rows.mentions(loop.var) and turn.cols.mentions(loop.var):
        return None
    axis, var, buffer = ("rows", ROW, "rows") if turn.rows.mentions(loop.var) else ("cols", COL, "cols")
    piece = _joined(getattr(turn, axis), loop, domain, getattr(run.section.buffer(name), buffer))
    if piece is None or any(isinstance(a, Strip) for a in turn.addends):
        return None
    bindings = {loop.var: quasi(var) // getattr(turn, axis).span.size}
    base = substitute(turn.base, bindings)
    addends = tuple(substitute(a, bindings) for a in turn.addends if not isinstance(a, Strip))
    rows, cols = (piece, turn.cols) if axis == "rows" else (turn.rows, piece)
    return replace(turn, base=base, addends=addends, rows=rows, cols=cols)


def _joined(piece: Piece, loop: Loop, domain: Domain, whole: int) -> Piece | None:
    """The union of the regions [s*v, s*v + len) over the turns, when it is one region from 0 on."""
    size, span = piece.span.size, piece.span
    step = quasi(loop.var) * size
    if piece.offset != step:
        return None
    if loop.var not in span.start.variables() and loop.var not in span.limit.variables():
        full = never_negative(span.limit - span.start - size, domain)
        return Piece(ZERO, Span(ZERO, whole, loop.extent * size)) if full else None
    if span.start != step or loop.var in span.limit.variables():
        return None
    if loop.extent.is_const:
        return Piece(ZERO, Span(ZERO, loop.extent.const * size, span.limit))
    covered = never_negative(loop.extent * size - span.limit, domain)
    return Piece(ZERO, Span(ZERO, whole, span.limit)) if covered else None


def _mentions(span: Span, var: str) -> bool:
    return var in span.start.variables() or var in span.limit.variables()


# --- steps ------------------------------------------------------------------------------------------------------------


def _step(run: _Run, actor: Actor, leaf: Leaf, state: _State) -> None:
    step = leaf.placed
    where = f"{actor.where}, step {leaf.index}"
    if isinstance(step, Reserve):
        state.own[step.fifo] = None
        state.loaded.discard(step.fifo)
    elif isinstance(step, Load):
        _load(run, actor, leaf, state, where)
    elif isinstance(step, Push):
        _push(run, actor, leaf, state.own.pop(step.fifo, None), where)
    elif isinstance(step, Pop):
        state.held.pop(step.fifo, None)
    elif isinstance(step, Init):
        carry = run.section.carries[step.carry]
        rows, cols = _whole(carry.rows), _whole(carry.cols)
        run.evidence.writes.append(Write(where, actor, leaf.index, step.carry, rows, cols, run.section.symbols))
        state.own[step.carry] = Value(Const(carry.initial), (), rows, cols)
    elif isinstance(step, Compute) and isinstance(step.op, Generic):
        _generic(run, actor, leaf, step.op, state, where)
    elif isinstance(step, Compute) and isinstance(step.op, MatmulTiles):
        _matmul(run, actor, leaf, step.op, state, where)
    elif isinstance(step, Store):
        _store(run, actor, leaf, state, where)


def _whole(size: int) -> Piece:
    return Piece(ZERO, Span(ZERO, size, quasi(size)))


def _load(run: _Run, actor: Actor, leaf: Leaf, state: _State, where: str) -> None:
    step: Load = leaf.placed  # type: ignore[assignment]
    formal = run.section.formals[step.tensor]
    window, last = step.window, len(step.window.size) - 1
    if run.section.fifos[step.fifo].kind == "ALIAS" and step.row != ZERO:
        raise OutsideFragment(f"{step.fifo} is an alias: one window is the whole slot", where=where)
    if step.fifo in state.loaded:
        raise OrderRefused(f"two loads fill one slot of {step.fifo}, in no order", where=where)
    state.loaded.add(step.fifo)
    domain = run.section.domain(actor, leaf.nest)
    index: list[Quasi | Indirect] = []
    for d, start in enumerate(window.start):
        if isinstance(start, Indirect):
            if d == last or window.size[d] != 1:
                raise OutsideFragment("an indirect window is more than one row", where=where)
            _indirect(run, start, state, domain, where)
            index.append(start)
        elif d == last:
            index.append(start + quasi(COL))
        else:
            index.append(start + (quasi(ROW) - step.row) if d == window.row else start)
    rows, cols = window_spans(window, formal.shape)
    value = Value(
        At(step.tensor, tuple(index)),
        (),
        Piece(step.row, rows),
        Piece(ZERO, cols),
        window_guard(window, formal.shape),
        True,
    )
    run.evidence.writes.append(Write(where, actor, leaf.index, step.fifo, value.rows, value.cols, domain))  # type: ignore[arg-type]
    state.own[step.fifo] = value


def _indirect(run: _Run, index: Indirect, state: _State, domain: Domain, where: str) -> None:
    """The index is element `index` of the formal, read from column `index` of the slot in front, which begins at the
    formal's start.
    """
    value = state.held.get(index.via)
    if value is None or value.base != At(index.tensor, (quasi(COL),)) or value.addends or len(index.index) != 1:
        raise MeaningRefused(f"{index.via} does not hold {index.tensor} from its first element on", where=where)
    run.evidence.reads.append(Read(where, index.via, value, ZERO, index.index[0], (), (), domain))


def _push(run: _Run, actor: Actor, leaf: Leaf, value: Value | None, where: str) -> None:
    name = leaf.step.fifo  # type: ignore[union-attr]
    token = (name, _ordinal(actor, leaf, Push))
    leader = run.leaders.get(name)
    if leader is not None:
        if actor is leader:
            run.tokens[token] = None if value is None else _delivered(run, value, leader, name, where)
        return
    done = None if value is None else replace(value, base=value.term(where), addends=())
    if token in run.tokens and run.tokens[token] != done:
        raise OutsideFragment(f"two processes fill {name} with different maps", where=where)
    run.tokens[token] = done


def _delivered(run: _Run, value: Value, leader: Actor, name: str, where: str) -> Value:
    """What all members of a multicast get: the leader's value with the leader's coordinate along the multicast."""
    along = {SITE_X: leader.box[0]} if run.section.fifos[name].kind == "MULTICAST_ROW" else {SITE_Y: leader.box[2]}
    pieces = [
        Piece(p.offset.substitute(along), substituted(p.span, along)) for p in (value.rows, value.cols) if p is not None
    ]
    guards = tuple(substituted(g, along) for g in value.guards)
    return Value(substitute(value.term(where), along), (), pieces[0], pieces[1], guards, value.loaded)


def _lookup(state: _State, name: str, where: str) -> Value:
    value = state.own[name] if name in state.own else state.held.get(name)
    if value is None:
        raise MeaningRefused(f"{name} is read, but nothing known has been written to it", where=where)
    return value


def _generic(run: _Run, actor: Actor, leaf: Leaf, op: Generic, state: _State, where: str) -> None:
    domain = run.section.domain(actor, leaf.nest)
    counted: tuple[Counted, ...] = (Counted(LV_GEN_ROW, op.rows), Counted(LV_GEN_COL, op.cols))
    fresh = run.variable()
    for node in walk(op.expr):
        if isinstance(node, Reduce):
            if node.kind == "MAX" and lower(node.extent, domain) < 1:
                raise MeaningRefused("a maximum may be of nothing", where=where)
            counted = (*counted, Counted(LV_GEN_K, Span(ZERO, max(upper(node.extent, domain), 1), node.extent)))
    terms = {name: _lookup(state, name, where) for name in operands(op)}
    for node in walk(op.expr):
        if isinstance(node, At):
            row, col = node.index
            run.evidence.reads.append(Read(where, node.name, terms[node.name], row, col, counted, op.guard, domain))  # type: ignore[arg-type]
    known = {name: value.term(where) for name, value in terms.items()}
    _affordable(op.expr, known, where)
    local = {LV_GEN_ROW: quasi(ROW) - op.dst.row, LV_GEN_COL: quasi(COL) - op.dst.col}
    expr = substitute(_renamed(op.expr, fresh), local)
    term = bounded(replace_operands(expr, lambda a: element(known[a.name], *a.index)), where)  # type: ignore[arg-type]
    value = Value(term, (), Piece(op.dst.row, op.rows), Piece(op.dst.col, op.cols), op.guard)
    _written(run, actor, leaf, op, value, known, state, domain, where)


def _renamed(expr: Expr, fresh: str) -> Expr:
    if isinstance(expr, Reduce):
        return Reduce(expr.kind, fresh, expr.extent, substitute(expr.body, {expr.var: quasi(fresh)}))
    if isinstance(expr, Fn):
        return Fn(expr.op, tuple(_renamed(a, fresh) for a in expr.args), expr.dtype)
    return expr


def _affordable(expr: Expr, known: dict[str, Expr], where: str) -> None:
    sizes = {name: size_of(term) for name, term in known.items()}
    need = sum(sizes[node.name] for node in walk(expr) if isinstance(node, At))
    if need > 20_000:
        raise OutsideFragment("the value of a buffer is too large an expression", where=where, needed=f"{need} nodes")


def _written(
    run: _Run,
    actor: Actor,
    leaf: Leaf,
    op: Generic | MatmulTiles,
    value: Value,
    known: dict[str, Expr],
    state: _State,
    domain: Domain,
    where: str,
    added: tuple[Expr, bool] | None = None,
) -> None:
    if op.dst.name not in state.own and op.dst.name not in run.section.carries:
        raise MeaningRefused(f"{op.dst.name} is written without a reserved slot", where=where)
    run.evidence.writes.append(
        Write(where, actor, leaf.index, op.dst.name, Piece(op.dst.row, op.rows), Piece(op.dst.col, op.cols), domain)
    )
    onto, again = added or (ZERO_TERM, False)
    run.evidence.computes.append(Computed(actor, leaf, op, known, (value.base, *value.addends), domain, onto, again))
    state.own[op.dst.name] = value


def _matmul(run: _Run, actor: Actor, leaf: Leaf, op: MatmulTiles, state: _State, where: str) -> None:
    domain = run.section.domain(actor, leaf.nest)
    a, b, onto = (_lookup(state, ref.name, where) for ref in (op.a, op.b, op.dst))
    row, col, k = quasi(LV_GEN_ROW), quasi(LV_GEN_COL), quasi(LV_GEN_K)
    counted = (Counted(LV_GEN_ROW, op.rows), Counted(LV_GEN_COL, op.cols), Counted(LV_GEN_K, op.k))
    b_row, b_col = (op.b.row + col, op.b.col + k) if op.transposed else (op.b.row + k, op.b.col + col)
    target = onto.onto if onto.rows is None else onto
    reads = [(op.a.name, a, op.a.row + row, op.a.col + k), (op.b.name, b, b_row, b_col)]
    if target is not None:
        reads.append((op.dst.name, target, op.dst.row + row, op.dst.col + col))
    for name, value, r, c in reads:
        guards = op.guard if value is not target else (*op.guard, *value.guards)
        run.evidence.reads.append(Read(where, name, value, r, c, counted, guards, domain))
    known = {op.a.name: a.term(where), op.b.name: b.term(where)}
    fresh = run.variable()
    local = {LV_GEN_ROW: quasi(ROW) - op.dst.row, LV_GEN_COL: quasi(COL) - op.dst.col, LV_GEN_K: quasi(fresh)}
    left = element(known[op.a.name], (op.a.row + row).substitute(local), (op.a.col + k).substitute(local))
    right = element(known[op.b.name], b_row.substitute(local), b_col.substitute(local))
    addend = _contraction(op.k, fresh, bounded(Fn("mul", (left, right)), where), actor, leaf, domain, where)
    rows, cols = Piece(op.dst.row, op.rows), Piece(op.dst.col, op.cols)
    if onto.rows is not None and onto.addends and (onto.rows, onto.cols) != (rows, cols):
        raise OutsideFragment(f"{op.dst.name} is added to in two different regions", where=where)
    guards = tuple(dict.fromkeys((*onto.guards, *op.guard)))
    value = replace(onto, addends=(*onto.addends, addend), rows=rows, cols=cols, guards=guards, loaded=False)
    added = (onto.base if target is None else target.base, bool(onto.addends))
    _written(run, actor, leaf, op, value, known, state, domain, where, added)


def _contraction(
    span: Span, var: str, body: Expr, actor: Actor, leaf: Leaf, domain: Domain, where: str
) -> Expr | Strip:
    """A sum over a span: a reduction where its length is quasi-affine, else a strip that a loop completes."""
    if any(_mentions(span, loop) for loop, _ in leaf.nest):
        return Strip(var, span, body)
    rest = span.limit - span.start
    if never_negative(rest - span.size, domain):
        return Reduce("SUM", var, quasi(span.size), body)
    if never_negative(rest, domain) and never_negative(rest * -1 + span.size, domain):
        return Reduce("SUM", var, rest, body)
    raise OutsideFragment("the length of a contraction is neither its size nor what is left of it", where=where)


def _store(run: _Run, actor: Actor, leaf: Leaf, state: _State, where: str) -> None:
    step: Store = leaf.placed  # type: ignore[assignment]
    value = state.held.get(step.fifo)
    if value is None:
        raise MeaningRefused(f"{step.fifo} is stored, but nothing known has been written to it", where=where)
    shape = run.section.formals[step.tensor].shape
    rows, cols = window_spans(step.window, shape)
    counted = (Counted(LV_GEN_ROW, rows), Counted(LV_GEN_COL, cols))
    domain = run.section.domain(actor, leaf.nest)
    guard = window_guard(step.window, shape)
    read = Read(where, step.fifo, value, quasi(LV_GEN_ROW), quasi(LV_GEN_COL), counted, guard, domain)
    run.evidence.reads.append(read)
    run.evidence.stores.append(Stored(actor, leaf, value, domain))
