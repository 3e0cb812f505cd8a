"""What a buffer holds after a loop, from what one symbolic turn of it did. Loops are closed by three lemmas:

- *sum*: a buffer that a loop's body only adds to holds, after it, what it held before plus the sum over the turns;
- *strip*: SUM(v < E) SUM(j < len[s*v, s*v+s | L)) f(v, j) = SUM(k < L) f(floor(k/s), k - s*floor(k/s)) where s*E >= L
  >= 0: every k below L is s*v + j once;
- *step*: a region of width s that stands at s*f(v) (rows or columns [s*f(v), s*f(v)+s | L)), where f takes the values
  0 .. n-1, fills [0, min(s*n, L)), and the element at c was written in turn g(floor(c/s)) where f(g(u)) = u. Each turn
  has its own region when n = E, whatever the order; when n < E, what is written must be that of turn g(f(v)), so that
  writing it again changes nothing.

A buffer that a turn sets before it reads is local to the turn: after the loop it is unknown unless its value does not
mention the loop. Any other use of a buffer from turn to turn is outside the fragment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pavane.ir.expr import Const, Expr, Reduce, substitute
from pavane.ir.program import Compute, Init, Load, Loop, MatmulTiles, Reserve, Send, Span, Step
from pavane.ir.quasi import ZERO, Domain, Quasi, quasi
from pavane.ir.walk import operands
from pavane.reject import MeaningRefused, OrderRefused, OutsideFragment
from pavane.verify.check.inequalities import never_negative
from pavane.verify.check.resident import MAX_WRITTEN_OUT
from pavane.verify.check.section import Leaf, Section, named_by
from pavane.verify.check.terms import COL, ROW
from pavane.verify.check.values import Piece, Strip, Value, mentions

_EVENTS: dict[type, str] = {Init: "set", Load: "set", Reserve: "set", Send: "read"}


@dataclass(frozen=True)
class Closing:
    """A loop that is being closed: the domain outside it, and a source of variables that no program can write."""

    section: Section
    loop: Loop
    domain: Domain
    where: str
    fresh: Callable[[], str]


def use_of(leaves: tuple[Leaf, ...], name: str) -> str:
    """How a loop's body uses a buffer from turn to turn: `reads` (or nothing), `adds`, `sets` first, or `mixed`."""
    events = [event for leaf in leaves for event in _events(leaf.step, name)]
    if all(event == "read" for event in events):
        return "reads"
    if events[0] == "set":
        return "sets"
    return "adds" if all(event == "add" for event in events) else "mixed"


def _events(step: Step, name: str) -> list[str]:
    if not isinstance(step, Compute):
        event = _EVENTS.get(type(step), "")
        return [event] if event and named_by(step) == name else []
    op = step.op
    product = isinstance(op, MatmulTiles)
    reads = name in ((op.a.name, op.b.name) if isinstance(op, MatmulTiles) else operands(op))
    return ["read"] * reads + ["add" if product else "set"] * (op.dst.name == name)


def adding(before: Value | None, name: str, where: str) -> Value:
    """What a loop's body that only adds to a buffer begins with: nothing yet, onto what was there before."""
    if before is None:
        raise MeaningRefused(f"{name} is added to before it is set", where=where, remedy="an init step before the loop")
    onto = before if before.rows is not None else before.onto
    return Value(Const(0.0), (), None, None, onto=onto, under=before.under)


# --- sums -------------------------------------------------------------------------------------------------------------


def summed(close: Closing, name: str, before: Value | None, turn: Value | None) -> Value:
    """The sum lemma, with the strip and the step lemma where they apply."""
    var, where = close.loop.var, close.where
    if before is None or turn is None or turn.rows is None or turn.cols is None:
        raise MeaningRefused(f"{name} is added to before it is set", where=where)
    if any(mentions(guard, var) for guard in turn.guards):
        raise OutsideFragment(f"{name} is added to under a guard that depends on the loop", where=where)
    if turn.moves(var):
        stepped = _stepped(close, name, turn, once=True)
        if stepped is None:
            raise OutsideFragment(f"{name} is added to at places that do not step through it", where=where)
        turn, addends = stepped, stepped.addends
    else:
        addends = tuple(_sum(close, addend) for addend in turn.addends)
    addends = (*before.addends, *addends)
    if before.rows is None:
        return replace(before, addends=addends, rows=turn.rows, cols=turn.cols, guards=turn.guards)
    if before.addends and (before.rows, before.cols) != (turn.rows, turn.cols):
        raise OutsideFragment(f"{name} is added to in two different regions", where=where)
    guards = tuple(dict.fromkeys((*before.guards, *turn.guards)))
    return replace(before, addends=addends, rows=turn.rows, cols=turn.cols, guards=guards, loaded=False)


def _sum(close: Closing, addend: Expr | Strip) -> Expr | Strip:
    var, extent, where = close.loop.var, close.loop.extent, close.where
    fresh = close.fresh()
    if not isinstance(addend, Strip):
        return Reduce("SUM", fresh, extent, substitute(addend, {var: quasi(fresh)}))
    size, limit = addend.span.size, addend.span.limit
    if addend.span.start != quasi(var) * size or var in limit.variables():
        raise OutsideFragment(f"the blocks of a sum do not step through it along {var}", where=where)
    inside = close.domain.with_loop(var, extent)
    if not (never_negative(extent * size - limit, inside) and never_negative(limit, inside)):
        what = f"the loop over {var} does not reach the end of the sum"
        raise MeaningRefused(what, where=where, needed=f"{limit} terms", available=f"{size} * ({extent})")
    turn = quasi(fresh) // size
    body = substitute(addend.body, {var: turn, addend.var: quasi(fresh) - turn * size})
    return Reduce("SUM", fresh, limit, body)


# --- assignments ------------------------------------------------------------------------------------------------------


def settled(close: Closing, name: str, turn: Value | None, alone: bool) -> Value | None:
    """After a loop that sets a buffer: stepped through, the same in every turn, or unknown.

    Stepped through only where nothing else is written to the buffer in a turn (`alone`): an init would undo the turns
    before, and so would what an op writes beyond the region that is known.
    """
    var = close.loop.var
    if turn is None or turn.rows is None or turn.cols is None:
        return None
    stepped = _stepped(close, name, turn, once=turn.loaded) if turn.moves(var) and alone else None
    if turn.loaded and stepped is None:
        raise OrderRefused(f"the turns of a loop load into the same places of one slot of {name}", where=close.where)
    if turn.moves(var):
        return stepped
    turn = replace(turn, held=None)
    same = not any(isinstance(a, Strip) for a in turn.addends) and turn == turn.substituted({var: 0})
    return turn if same else None


def _stepped(close: Closing, name: str, turn: Value, once: bool) -> Value | None:
    """The step lemma; None where the region does not step by its own width, or (`once`) stands twice in one place."""
    var, buffer = close.loop.var, close.section.buffer(name)
    if any(mentions(guard, var) for guard in turn.guards) or any(isinstance(a, Strip) for a in turn.addends):
        return None
    if turn.rows is None or turn.cols is None or turn.rows.mentions(var) == turn.cols.mentions(var):
        return None
    along_rows = turn.rows.mentions(var)
    moving, place, extent = (turn.rows, ROW, buffer.rows) if along_rows else (turn.cols, COL, buffer.cols)
    block = moving.offset // moving.span.size
    order = _order(close.loop, block)
    if order is None or moving.offset != block * moving.span.size:
        return None
    blocks, turn_of = order
    first = turn.substituted({var: turn_of.substitute({var: block})})
    if blocks != close.loop.extent and (once or (first.base, first.addends) != (turn.base, turn.addends)):
        return None
    piece = _joined(close, moving, blocks, extent)
    if piece is None:
        return None
    after = turn.substituted({var: turn_of.substitute({var: quasi(place) // moving.span.size})})
    rows, cols = (piece, turn.cols) if along_rows else (turn.rows, piece)
    return replace(after, rows=rows, cols=cols, held=None)


def _order(loop: Loop, block: Quasi) -> tuple[Quasi, Quasi] | None:
    """(n, g) where `block` takes the values 0 .. n-1 over a loop's turns, u in turn g (u in place of the variable)."""
    turn, extent = quasi(loop.var), loop.extent
    for same in (turn, extent - 1 - turn):
        if block == same:
            return extent, same
    if not extent.is_const or extent.const > MAX_WRITTEN_OUT or block.variables() != (loop.var,):
        return None
    first: dict[int, int] = {}
    for number in range(extent.const):
        first.setdefault(block.evaluate({loop.var: number}), number)
    if sorted(first) != list(range(len(first))):
        return None
    line = turn * (first[1] - first[0] if len(first) > 1 else 0) + first[0]
    for found in (line, line % extent.const):
        if all(found.evaluate({loop.var: u}) == number for u, number in first.items()):
            return quasi(len(first)), found
    return None


def _joined(close: Closing, piece: Piece, blocks: Quasi, extent: int) -> Piece | None:
    """The union of the regions [s*u, s*u + len) over the blocks u, when it is one region from 0 on."""
    var, size, span = close.loop.var, piece.span.size, piece.span
    if not mentions(span, var):
        full = never_negative(span.limit - span.start - size, close.domain)
        return Piece(ZERO, Span(ZERO, extent, blocks * size)) if full else None
    if span.start != piece.offset or var in span.limit.variables():
        return None
    if blocks.is_const:
        return Piece(ZERO, Span(ZERO, blocks.const * size, span.limit))
    covered = never_negative(blocks * size - span.limit, close.domain)
    return Piece(ZERO, Span(ZERO, extent, span.limit)) if covered else None
