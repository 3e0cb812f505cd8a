"""What each process owns at each of its steps: slots it fills, slots it holds, and transfers on their way.

A walk over one process's body. A loop is walked twice: ownership after a turn must be what it was before (else the
second turn would differ from the first), and transfers that are on their way at the end of a turn are on their way at
the start of the next, so the second walk checks the steps under both. Evidence for `order` (a slot is handed over
only when its transfers have ended, and given back only when the stores that read it have) and for `replay` (nothing
is owned or on its way at the end).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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

    @property
    def on_its_way(self) -> frozenset[str]:
        return self.loading | self.sending | self.storing


def ownership(section: Section, actor: Actor) -> int:
    """The number of steps walked; refuses a step that uses what the process does not own or what is not there yet."""
    end, _ = _walk(section, actor, actor.body, Owned(), 0)
    if end.filling or end.holding:
        names = ", ".join(sorted(end.filling | end.holding))
        raise ReplayRefused("the process ends while it owns slots", where=actor.where, terms=[names])
    if end.on_its_way:
        names = ", ".join(sorted(end.on_its_way))
        raise OrderRefused(
            "the process ends before its transfers have ended", where=actor.where, terms=[names], remedy="a fence"
        )
    return len(actor.leaves)


def _walk(section: Section, actor: Actor, body: tuple[Node, ...], owned: Owned, index: int) -> tuple[Owned, int]:
    for node in body:
        if not isinstance(node, Loop):
            owned = _RULES.get(type(node), _keep)(section, owned, node, f"{actor.where}, step {index}")
            index += 1
            continue
        after, end = _walk(section, actor, node.body, owned, index)
        if (after.filling, after.holding) != (owned.filling, owned.holding):
            changed = sorted((after.filling ^ owned.filling) | (after.holding ^ owned.holding))
            raise BalanceRefused(
                f"a turn of the loop over {node.var} ends with other slots than it began with",
                where=actor.where,
                terms=changed,
            )
        joined = replace(
            owned,
            loading=owned.loading | after.loading,
            sending=owned.sending | after.sending,
            storing=owned.storing | after.storing,
            sent=owned.sent | after.sent,
        )
        again, _ = _walk(section, actor, node.body, joined, index)
        owned, index = again, end
    return owned, index


Rule = Callable[[Section, Owned, Any, str], Owned]


def _keep(section: Section, owned: Owned, step: Step, where: str) -> Owned:
    return owned


def _reserve(section: Section, owned: Owned, step: Reserve, where: str) -> Owned:
    _need(step.fifo not in owned.filling, f"{step.fifo} is reserved twice before it is pushed", where)
    return replace(owned, filling=owned.filling | {step.fifo})


def _load(section: Section, owned: Owned, step: Load, where: str) -> Owned:
    _need(step.fifo in owned.filling, f"{step.fifo} is loaded without a reserved slot", where)
    for start in step.window.start:
        if isinstance(start, Indirect):
            _need(start.via in owned.holding, f"an index is read from {start.via}, which has no slot in front", where)
    _ended(step.fifo not in owned.sent, f"{step.fifo} is loaded after it has been sent", where)
    if section.fifos[step.fifo].kind == "ALIAS":
        return owned
    return replace(owned, loading=owned.loading | {step.fifo})


def _send(section: Section, owned: Owned, step: Send, where: str) -> Owned:
    _need(step.fifo in owned.filling, f"{step.fifo} is sent without a reserved slot", where)
    _ended(step.fifo not in owned.loading, f"{step.fifo} is sent before its load has ended", where)
    return replace(owned, sending=owned.sending | {step.fifo}, sent=owned.sent | {step.fifo})


def _push(section: Section, owned: Owned, step: Push, where: str) -> Owned:
    _need(step.fifo in owned.filling, f"{step.fifo} is pushed without a reserved slot", where)
    _ended(
        step.fifo not in owned.loading | owned.sending, f"{step.fifo} is pushed before its transfers have ended", where
    )
    return replace(owned, filling=owned.filling - {step.fifo}, sent=owned.sent - {step.fifo})


def _front(section: Section, owned: Owned, step: Front, where: str) -> Owned:
    _need(step.fifo not in owned.holding, f"{step.fifo} is taken twice before it is popped", where)
    return replace(owned, holding=owned.holding | {step.fifo})


def _pop(section: Section, owned: Owned, step: Pop, where: str) -> Owned:
    _need(step.fifo in owned.holding, f"{step.fifo} is popped without a slot in front", where)
    _ended(step.fifo not in owned.storing, f"{step.fifo} is popped before the store that reads it has ended", where)
    return replace(owned, holding=owned.holding - {step.fifo})


def _store(section: Section, owned: Owned, step: Store, where: str) -> Owned:
    _need(step.fifo in owned.holding, f"{step.fifo} is stored without a slot in front", where)
    return replace(owned, storing=owned.storing | {step.fifo})


def _compute(section: Section, owned: Owned, step: Compute, where: str) -> Owned:
    op = step.op
    for name in operands(op):
        if name in section.fifos:
            _need(name in owned.filling | owned.holding, f"{name} is read without a slot", where)
            _need(name not in owned.filling & owned.holding, f"{name} names two slots here", where)
            _ended(name not in owned.loading, f"{name} is read before its load has ended", where)
    target = op.dst.name
    if target in section.fifos:
        _need(
            target in owned.filling and target not in owned.holding,
            f"{target} is written without a reserved slot",
            where,
        )
        _need(section.fifos[target].kind != "ALIAS", f"{target} is an alias and cannot be written", where)
        _ended(target not in owned.loading, f"{target} is written during a load", where)
        _ended(target not in owned.sent, f"{target} is written after it has been sent", where)
    if isinstance(op, Generic):
        _in_place(op, where)
    else:
        apart = target not in (op.a.name, op.b.name)
        _ended(apart, f"{target} is added to while its elements are still to be read", where)
    return owned


def _in_place(op: Generic, where: str) -> None:
    """An operand that is the destination too is read at the element that is written."""
    own = (op.dst.row + quasi(LV_GEN_ROW), op.dst.col + quasi(LV_GEN_COL))
    for node in walk(op.expr):
        if isinstance(node, At) and node.name == op.dst.name and node.index != own:
            raise OrderRefused(
                f"{op.dst.name} is overwritten while other elements of it are still to be read", where=where
            )


def _fence(section: Section, owned: Owned, step: Fence, where: str) -> Owned:
    return Owned(owned.filling, owned.holding, sent=owned.sent)


def _need(holds: bool, message: str, where: str) -> None:
    if not holds:
        raise BalanceRefused(message, where=where)


def _ended(holds: bool, message: str, where: str) -> None:
    if not holds:
        raise OrderRefused(message, where=where)


_RULES: dict[type, Rule] = {
    Reserve: _reserve,
    Load: _load,
    Send: _send,
    Push: _push,
    Front: _front,
    Pop: _pop,
    Store: _store,
    Compute: _compute,
    Fence: _fence,
}
