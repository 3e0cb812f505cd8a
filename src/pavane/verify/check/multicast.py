"""Multicast: one leader a row (or column) fills the same slot of every member, with the protocol of docs/ir.md and no
other.

    leader   reserve; load; fence; wait credit, members; send -> members; fence; post valid -> members; push
    member   reserve; post credit -> leader; wait valid, 1; push                          in the same loop nest

Proof that the steps in this order suffice, by induction over the turns. A member posts its (n+1)-th credit after its
n-th `wait valid`, which follows the leader's n-th `post valid`, which follows the leader's n-th `wait credit`: so
each member has at most one credit under way, and `members` credits are one of each member. Hence the leader's n-th
send comes after every member's n-th reserve and before its n-th push; the receive counts are equal because the nests
are; at most `members` credits and one `valid` are in flight, which the bits must hold. The counters start at 0 and
nobody else uses them: a credit ahead would let a send overtake a reserve. (A credit makes a pair with any `valid` that
the members wait for after they have posted it, so counters are judged one by one.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from pavane.ir.program import Compute, Counter, Fence, Fifo, Load, Post, Push, Rect, Reserve, Send, Wait
from pavane.ir.walk import operands
from pavane.reject import MulticastRefused
from pavane.verify.check.boxes import Box
from pavane.verify.check.resident import token_nest
from pavane.verify.check.section import Actor, Leaf, Section
from pavane.verify.check.site_state import edges_on_sites

_ORDER_LEADER = "reserve, load, fence, wait, send, fence, post, push"
_ORDER_MEMBER = "reserve, post, wait, push"


@dataclass(frozen=True)
class _Stretch:
    """Where in one loop body of a process a step must stand: after step `first`, before step `last`."""

    actor: Actor
    path: tuple[int, ...]
    first: int
    last: int

    def only(self, kind: type, name: str) -> Leaf | None:
        """The only step of its kind in the process, where it stands there."""
        found = self.actor.uses(kind, name)
        leaf = found[0] if len(found) == 1 and found[0].path == self.path else None
        return leaf if leaf is not None and self.first < leaf.index < self.last else None


@dataclass(frozen=True)
class _Signal:
    """A counter with the post and the wait of a protocol, and their numbers in their processes: a credit of the members
    or a valid of the leader.
    """

    counter: Counter
    post: Post
    wait: Wait
    posted: int
    waited: int


@dataclass(frozen=True)
class _Line:
    """The rectangles of a FIFO's leaders and of its members, and whether it is sent along rows."""

    leader: Box
    member: Box
    along_x: bool

    @property
    def members(self) -> int:
        """Those of one leader."""
        x0, x1, y0, y1 = self.member
        return x1 - x0 if self.along_x else y1 - y0

    def to_members(self, to: Rect) -> bool:
        """Does each leader name all members of its row (column) and nobody else?"""
        return _names_line(to, self.leader, self.member, self.along_x)

    def to_leader(self, to: Rect) -> bool:
        """Does each member name the leader of its row (column) and nobody else?"""
        return _names_line(to, self.member, self.leader, self.along_x)


@lru_cache(maxsize=1024)
def _names_line(to: Rect, doer: Box, whom: Box, along_x: bool) -> bool:
    """Does each site of `doer` name all sites of `whom` in its own row (column) and no other, on the same lines?"""
    x0, x1, y0, y1 = doer
    left, right, top, bottom = edges_on_sites(to, doer)
    own_y, own_x = np.mgrid[y0:y1, x0:x1]
    if along_x:
        lines, ends = doer[2:] == whom[2:], (*whom[:2], own_y, own_y + 1)
    else:
        lines, ends = doer[:2] == whom[:2], (own_x, own_x + 1, *whom[2:])
    return lines and all(bool((edge == end).all()) for edge, end in zip((left, right, top, bottom), ends, strict=True))


def multicast_leaders(section: Section) -> dict[str, Actor]:
    """The leader of each multicast FIFO; refuses any other protocol and any counter that is in none."""
    leaders, used = {}, set()
    for name, fifo in section.fifos.items():
        senders = [a for a in section.pushers[name] if a.uses(Send, name)]
        if not senders:
            _local(section, fifo)
            continue
        leaders[name] = _leader(section, fifo, senders)
        used |= _protocol(section, fifo, leaders[name])
    stray = sorted(set(section.counters) - used)
    if stray:
        raise MulticastRefused("counters inside a section serve multicast only", where=section.where, terms=stray)
    return leaders


def _local(section: Section, fifo: Fifo) -> None:
    """Without a send, every process that pushes the FIFO must fill it itself."""
    for actor in section.pushers[fifo.name]:
        if not actor.fills(fifo.name):
            raise MulticastRefused(
                f"{actor.name} hands over slots that nothing fills", where=f"{section.where}, FIFO {fifo.name}"
            )


def _leader(section: Section, fifo: Fifo, senders: list[Actor]) -> Actor:
    where = f"{section.where}, FIFO {fifo.name}"
    if fifo.kind not in ("MULTICAST_ROW", "MULTICAST_COLUMN"):
        raise MulticastRefused(f"a {fifo.kind} FIFO is sent", where=where)
    if len(senders) != 1:
        raise MulticastRefused("more than one process sends", where=where, terms=[a.name for a in senders])
    x0, x1, y0, y1 = senders[0].box
    if (x1 - x0 if fifo.kind == "MULTICAST_ROW" else y1 - y0) != 1:
        raise MulticastRefused("a row or a column has more than one leader", where=where)
    return senders[0]


def _protocol(section: Section, fifo: Fifo, leader: Actor) -> set[str]:
    """The counters with which the protocol holds; the first refusal when there are none."""
    where = f"{section.where}, FIFO {fifo.name}"
    members = [a for a in section.pushers[fifo.name] if a is not leader]
    sends = leader.uses(Send, fifo.name)
    if len(members) != 1 or len(sends) != 1:
        raise MulticastRefused(
            f"{len(sends)} send steps, {len(members)} processes of members", where=where, needed="one of each"
        )
    _untouched(section, members[0], fifo.name)
    _nests(leader, members[0], fifo, where)
    credits, valids = _paired(*_signals(section, leader, members[0], sends[0], fifo.name))
    if not credits:
        raise MulticastRefused(
            "no two counters order the sends after the reserves and before the pushes",
            where=where,
            needed=f"leader: {_ORDER_LEADER}; member: {_ORDER_MEMBER}, each in one loop body",
        )
    line = _Line(leader.box, members[0].box, fifo.kind == "MULTICAST_ROW")
    if not line.to_members(sends[0].step.to):  # type: ignore[union-attr]
        raise MulticastRefused("the send does not name every member of its row or column once", where=where)
    refusals: list[MulticastRefused] = []
    credits = _holding(partial(_credit, section, line, where), credits, refusals)
    valids = _holding(partial(_valid, section, line, where), valids, refusals)
    credits, valids = _paired(credits, valids)
    if not credits:
        raise refusals[0]
    return {signal.counter.name for signal in (*credits, *valids)}


def _untouched(section: Section, member: Actor, name: str) -> None:
    """A member neither fills the slot nor reads it before it holds it in front."""
    fronts = any(member is popper for popper in section.poppers[name])
    for leaf in member.leaves:
        if isinstance(leaf.step, Load | Send) and leaf.step.fifo == name:
            raise MulticastRefused(
                "a member fills the slot that is sent to it", where=f"{member.where}, step {leaf.index}"
            )
        if isinstance(leaf.step, Compute):
            op = leaf.step.op
            if op.dst.name == name or (name in operands(op) and not fronts):
                raise MulticastRefused(
                    "a member uses the slot before it is delivered", where=f"{member.where}, step {leaf.index}"
                )


def _signals(
    section: Section, leader: Actor, member: Actor, send: Leaf, name: str
) -> tuple[list[_Signal], list[_Signal]]:
    """Credits and valids by the places of their steps, in the loop bodies of the send and of the member's push.

    reserve < wait credit < send < fence < post valid, and fence < push; a member's between its reserve and its push.
    """
    path = next((leaf.path for leaf in member.uses(Push, name)), ())
    ours, theirs = (_Stretch(a, p, -1, len(a.leaves)) for a, p in ((leader, send.path), (member, path)))
    reserve, push = ours.only(Reserve, name), ours.only(Push, name)
    taken, given = theirs.only(Reserve, name), theirs.only(Push, name)
    if reserve is None or push is None or taken is None or given is None:
        return [], []
    fences = (leaf.index for leaf in leader.leaves if isinstance(leaf.step, Fence) and leaf.path == send.path)
    sent = next((fence for fence in fences if send.index < fence < push.index), None)
    if sent is None:
        return [], []
    filling = replace(theirs, first=taken.index, last=given.index)
    before, after = replace(ours, first=reserve.index, last=send.index), replace(ours, first=sent)
    return _between(section, filling, before), _between(section, after, filling)


def _between(section: Section, posting: _Stretch, waiting: _Stretch) -> list[_Signal]:
    """The counters whose only post and only wait of two processes stand in these stretches."""
    found = []
    for name, counter in section.counters.items():
        post, wait = posting.only(Post, name), waiting.only(Wait, name)
        if post is not None and wait is not None:
            found.append(_Signal(counter, post.step, wait.step, post.index, wait.index))  # type: ignore[arg-type]
    return found


def _paired(credits: list[_Signal], valids: list[_Signal]) -> tuple[list[_Signal], list[_Signal]]:
    """Those credits that a member posts before it waits for one of the valids, and those valids."""
    if not credits or not valids:
        return [], []
    first, last = min(credit.posted for credit in credits), max(valid.waited for valid in valids)
    return [c for c in credits if c.posted < last], [v for v in valids if v.waited > first]


def _holding(
    rule: Callable[[_Signal], None], signals: list[_Signal], refusals: list[MulticastRefused]
) -> list[_Signal]:
    """Those for which a rule holds; notes the refusals of the others."""
    holding = []
    for signal in signals:
        try:
            rule(signal)
            holding.append(signal)
        except MulticastRefused as refusal:
            refusals.append(refusal)
    return holding


def _nests(leader: Actor, member: Actor, fifo: Fifo, where: str) -> None:
    ours, theirs = (token_nest(actor.body, Push, fifo.name) for actor in (leader, member))
    if ours != theirs or token_nest(leader.body, Send, fifo.name) != ours:
        raise MulticastRefused("leader and members do not take part in equally many transfers", where=where)


def _credit(section: Section, line: _Line, where: str, credit: _Signal) -> None:
    """Each member names the leader of its own row or column once, and the leader waits for all of them."""
    _exclusive(section, credit.counter, where)
    if not line.to_leader(credit.post.to):
        raise MulticastRefused("a credit is not posted to the member's own leader", where=where)
    if credit.post.n != 1:
        raise MulticastRefused("a turn takes one credit of each member", where=where, available=f"{credit.post.n}")
    count, most = line.members, 1 << (credit.counter.bits - 1)
    if credit.wait.n != count:
        raise MulticastRefused(
            "the leader does not wait for all members",
            where=where,
            needed=f"{count} credits",
            available=f"{credit.wait.n}",
        )
    if count > most:
        raise MulticastRefused(
            "the counter has too few bits", where=where, needed=f"{count} posts in flight", available=f"{most}"
        )


def _valid(section: Section, line: _Line, where: str, valid: _Signal) -> None:
    """The leader names every member of its own row or column once, and each waits for that."""
    _exclusive(section, valid.counter, where)
    if not line.to_members(valid.post.to):
        raise MulticastRefused("the post of valid does not name every member of its row or column once", where=where)
    if (valid.post.n, valid.wait.n) != (1, 1):
        raise MulticastRefused("a turn gives each member one valid", where=where)


def _exclusive(section: Section, counter: Counter, where: str) -> None:
    name = counter.name
    posts, waits = ([leaf for a in section.actors for leaf in a.uses(kind, name)] for kind in (Post, Wait))
    if len(posts) != 1 or len(waits) != 1:
        raise MulticastRefused(f"counter {name} has {len(posts)} post steps and {len(waits)} wait steps", where=where)
    if counter.ahead != 0:
        raise MulticastRefused(
            f"counter {name} starts {counter.ahead} ahead: a transfer could overtake a reserve", where=where
        )
