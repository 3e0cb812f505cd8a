"""What each process owns at each of its steps: slots it fills, slots it holds, and transfers on their way.

A walk over one process's body. A loop is walked twice: ownership after a turn must be what it was before (else the
second turn would differ from the first), and transfers that are on their way at the end of a turn are on their way at
the start of the next, so the second walk checks the steps under both. Evidence for `order` (a slot is handed over
only when its transfers have ended, and given back only when the stores that read it have) and for `replay` (nothing
is owned or on its way at the end).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pavane.ir.expr import At, Indirect, walk
from pavane.ir.program import (
    LV_GEN_COL,
    LV_GEN_ROW,
    Compute,
    Fence,
    Front,
    Generic,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Pop,
    Push,
    Reserve,
    Send,
    Step,
    Store,
)
from pavane.ir.quasi import quasi
from pavane.ir.walk import operands
from pavane.reject import BalanceRefused, OrderRefused, ReplayRefused
from pavane.verify.check.section import Actor, Section


@dataclass(frozen=True)
class Owned:
    """`filling`: reserved slots; `holding`: slots in front; `sent`: reserved slots that others have got, which must
    stay as they are; the others: FIFOs with a transfer on its way.
    """

    filling: frozenset[str] = frozenset()
    holding: frozenset[str] = frozenset()
    loading: frozenset[str] = frozenset()
    sending: frozenset[str] = frozenset()
    storing: frozenset[str] = frozenset()
    sent: frozenset[str] = frozenset()

    def joined(self, other: Owned) -> Owned:
        """With the transfers of both."""
        tables = zip(vars(self).values(), vars(other).values(), strict=True)
        return Owned(*(mine | theirs for mine, theirs in tables))


def ownership(section: Section, actor: Actor) -> int:
    """The number of steps walked; refuses a step that uses what the process does not own or what is not there yet."""
    end, _ = _walk(section, actor, actor.body, Owned(), 0)
    if end.filling or end.holding:
        names = ", ".join(sorted(end.filling | end.holding))
        raise ReplayRefused("the process ends while it owns slots", where=actor.where, terms=[names])
    if flying := end.loading | end.sending | end.storing:
        what, names = "the process ends before its transfers have ended", ", ".join(sorted(flying))
        raise OrderRefused(what, where=actor.where, terms=[names], remedy="a fence")
    return len(actor.leaves)


def _walk(section: Section, actor: Actor, body: tuple[Node, ...], owned: Owned, index: int) -> tuple[Owned, int]:
    for node in body:
        if not isinstance(node, Loop):
            owned = _step(section, owned, node, f"{actor.where}, step {index}")
            index += 1
            continue
        after, end = _walk(section, actor, node.body, owned, index)
        changed = (after.filling ^ owned.filling) | (after.holding ^ owned.holding)
        if changed:
            what = f"a turn of the loop over {node.var} ends with other slots than it began with"
            raise BalanceRefused(what, where=actor.where, terms=sorted(changed))
        again, _ = _walk(section, actor, node.body, owned.joined(after), index)
        owned, index = again, end
    return owned, index


def _step(section: Section, owned: Owned, step: Step, where: str) -> Owned:
    """Ownership after a step."""
    if isinstance(step, Reserve | Load | Send | Push):
        return _filled(section, owned, step, where)
    if isinstance(step, Front | Pop | Store):
        return _held(owned, step, where)
    if isinstance(step, Compute):
        _computed(section, owned, step.op, where)
    return Owned(owned.filling, owned.holding, sent=owned.sent) if isinstance(step, Fence) else owned


def _filled(section: Section, owned: Owned, step: Reserve | Load | Send | Push, where: str) -> Owned:
    """A slot is reserved, loaded or sent, and handed over."""
    name = step.fifo
    if isinstance(step, Reserve):
        _need(name not in owned.filling, f"{name} is reserved twice before it is pushed", where)
        return replace(owned, filling=owned.filling | {name})
    done = "loaded" if isinstance(step, Load) else "sent" if isinstance(step, Send) else "pushed"
    _need(name in owned.filling, f"{name} is {done} without a reserved slot", where)
    if isinstance(step, Load):
        for via in (start.via for start in step.window.start if isinstance(start, Indirect)):
            _need(via in owned.holding, f"an index is read from {via}, which has no slot in front", where)
        _ended(name not in owned.sent, f"{name} is loaded after it has been sent", where)
        return owned if section.fifos[name].kind == "ALIAS" else replace(owned, loading=owned.loading | {name})
    if isinstance(step, Send):
        _ended(name not in owned.loading, f"{name} is sent before its load has ended", where)
        return replace(owned, sending=owned.sending | {name}, sent=owned.sent | {name})
    _ended(name not in owned.loading | owned.sending, f"{name} is pushed before its transfers have ended", where)
    return replace(owned, filling=owned.filling - {name}, sent=owned.sent - {name})


def _held(owned: Owned, step: Front | Pop | Store, where: str) -> Owned:
    """A slot is taken, stored from, and given back."""
    name = step.fifo
    if isinstance(step, Front):
        _need(name not in owned.holding, f"{name} is taken twice before it is popped", where)
        return replace(owned, holding=owned.holding | {name})
    done = "stored" if isinstance(step, Store) else "popped"
    _need(name in owned.holding, f"{name} is {done} without a slot in front", where)
    if isinstance(step, Store):
        return replace(owned, storing=owned.storing | {name})
    _ended(name not in owned.storing, f"{name} is popped before the store that reads it has ended", where)
    return replace(owned, holding=owned.holding - {name})


def _computed(section: Section, owned: Owned, op: Generic | MatmulTiles, where: str) -> None:
    """What an op reads is there, and what it writes is its process's alone."""
    for name in operands(op):
        if name in section.fifos:
            _need(name in owned.filling | owned.holding, f"{name} is read without a slot", where)
            _need(name not in owned.filling & owned.holding, f"{name} names two slots here", where)
            _ended(name not in owned.loading, f"{name} is read before its load has ended", where)
    name = op.dst.name
    if name in section.fifos:
        _need(name in owned.filling - owned.holding, f"{name} is written without a reserved slot", where)
        _need(section.fifos[name].kind != "ALIAS", f"{name} is an alias and cannot be written", where)
        _ended(name not in owned.loading, f"{name} is written during a load", where)
        _ended(name not in owned.sent, f"{name} is written after it has been sent", where)
    if isinstance(op, MatmulTiles):
        apart = name not in (op.a.name, op.b.name)
        _ended(apart, f"{name} is added to while its elements are still to be read", where)
        return
    own = (op.dst.row + quasi(LV_GEN_ROW), op.dst.col + quasi(LV_GEN_COL))
    alike = all(node.index == own for node in walk(op.expr) if isinstance(node, At) and node.name == name)
    _ended(alike, f"{name} is overwritten while other elements of it are still to be read", where)


def _need(holds: bool, message: str, where: str) -> None:
    if not holds:
        raise BalanceRefused(message, where=where)


def _ended(holds: bool, message: str, where: str) -> None:
    if not holds:
        raise OrderRefused(message, where=where)
