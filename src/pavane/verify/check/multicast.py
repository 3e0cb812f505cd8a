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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from pavane.ir.program import Compute, Counter, Fence, Fifo, Load, Post, Push, Rect, Reserve, Send, Wait
from pavane.ir.walk import operands
from pavane.reject import MulticastRefused
from pavane.verify.check.boxes import Box
from pavane.verify.check.resident import token_nest
from pavane.verify.check.section import Actor, Leaf, Section
from pavane.verify.check.site_state import edges_on_sites

_NEEDED = "leader: reserve, load, fence, wait, send, fence, post, push; member: reserve, post, wait, push"
Stretch = tuple[Actor, tuple[int, ...], int, int]  # in one loop body of a process, between two of its steps


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


def multicast_leaders(section: Section) -> dict[str, Actor]:
    """The leader of each multicast FIFO; refuses any other protocol and any counter that is in none."""
    leaders, used = {}, set()
    for name, fifo in section.fifos.items():
        where = f"{section.where}, FIFO {name}"
        senders = [a for a in section.pushers[name] if a.uses(Send, name)]
        empty = [a.name for a in section.pushers[name] if not a.fills(name)]
        if senders:
            leaders[name] = _leader(fifo, senders, where)
            used |= _protocol(section, fifo, leaders[name], where)
        elif empty:
            raise MulticastRefused(f"{empty[0]} hands over slots that nothing fills", where=where)
    stray = sorted(set(section.counters) - used)
    if stray:
        raise MulticastRefused("counters inside a section serve multicast only", where=section.where, terms=stray)
    return leaders


def _leader(fifo: Fifo, senders: list[Actor], where: str) -> Actor:
    if fifo.kind not in ("MULTICAST_ROW", "MULTICAST_COLUMN"):
        raise MulticastRefused(f"a {fifo.kind} FIFO is sent", where=where)
    if len(senders) != 1:
        raise MulticastRefused("more than one process sends", where=where, terms=[a.name for a in senders])
    if _in_line(senders[0].box, fifo.kind == "MULTICAST_ROW") != 1:
        raise MulticastRefused("a row or a column has more than one leader", where=where)
    return senders[0]


def _in_line(edges: Box, along_x: bool) -> int:
    """The sites of a rectangle in one row (column)."""
    return edges[1] - edges[0] if along_x else edges[3] - edges[2]


def _protocol(section: Section, fifo: Fifo, leader: Actor, where: str) -> set[str]:
    """The counters with which the protocol holds; the first refusal when there are none."""
    members = [a for a in section.pushers[fifo.name] if a is not leader]
    sends = leader.uses(Send, fifo.name)
    if len(members) != 1 or len(sends) != 1:
        what = f"{len(sends)} send steps, {len(members)} processes of members"
        raise MulticastRefused(what, where=where, needed="one of each")
    member, send = members[0], sends[0]
    _untouched(section, member, fifo.name)
    ours, theirs = (token_nest(actor.body, Push, fifo.name) for actor in (leader, member))
    if not ours == theirs == token_nest(leader.body, Send, fifo.name):
        raise MulticastRefused("leader and members do not take part in equally many transfers", where=where)
    credits, valids = _paired(*_signals(section, leader, member, send, fifo.name))
    if not credits:
        what = "no two counters order the sends after the reserves and before the pushes"
        raise MulticastRefused(what, where=where, needed=f"{_NEEDED}, each in one loop body")
    along_x = fifo.kind == "MULTICAST_ROW"
    to_members = partial(_names_line, doer=leader.box, whom=member.box, along_x=along_x)
    to_leader = partial(_names_line, doer=member.box, whom=leader.box, along_x=along_x)
    if not to_members(send.step.to):  # type: ignore[union-attr]
        raise MulticastRefused("the send does not name every member of its row or column once", where=where)
    count = _in_line(member.box, along_x)
    faults = {s: next(_credit_faults(section, s, to_leader(s.post.to), count, where), None) for s in credits}
    faults |= {s: next(_valid_faults(section, s, to_members(s.post.to), where), None) for s in valids}
    credits, valids = _paired(*([s for s in signals if faults[s] is None] for signals in (credits, valids)))
    if not credits:
        raise next(fault for fault in faults.values() if fault is not None)
    return {signal.counter.name for signal in (*credits, *valids)}


def _untouched(section: Section, member: Actor, name: str) -> None:
    """A member neither fills the slot nor reads it before it holds it in front."""
    fronts = member in section.poppers[name]
    for leaf in member.leaves:
        where = f"{member.where}, step {leaf.index}"
        if isinstance(leaf.step, Load | Send) and leaf.step.fifo == name:
            raise MulticastRefused("a member fills the slot that is sent to it", where=where)
        if isinstance(leaf.step, Compute):
            op = leaf.step.op
            if op.dst.name == name or (name in operands(op) and not fronts):
                raise MulticastRefused("a member uses the slot before it is delivered", where=where)


def _signals(section: Section, leader: Actor, member: Actor, send: Leaf, name: str) -> tuple[list[_Signal], ...]:
    """Credits and valids by the places of their steps, in the loop bodies of the send and of the member's push.

    reserve < wait credit < send < fence < post valid, and fence < push; a member's between its reserve and its push.
    """
    path = next((leaf.path for leaf in member.uses(Push, name)), ())
    reserve, push = (leader.only(kind, name, send.path) for kind in (Reserve, Push))
    taken, given = (member.only(kind, name, path) for kind in (Reserve, Push))
    if reserve is None or push is None or taken is None or given is None:
        return [], []
    fences = (leaf.index for leaf in leader.leaves if isinstance(leaf.step, Fence) and leaf.path == send.path)
    sent = next((fence for fence in fences if send.index < fence < push.index), None)
    if sent is None:
        return [], []
    filling = member, path, taken.index, given.index
    before, after = (leader, send.path, reserve.index, send.index), (leader, send.path, sent, len(leader.leaves))
    return _between(section, filling, before), _between(section, after, filling)


def _between(section: Section, posting: Stretch, waiting: Stretch) -> list[_Signal]:
    """The counters whose only post and only wait of two processes stand in these stretches."""
    found = []
    for name, counter in section.counters.items():
        post, wait = _only(posting, Post, name), _only(waiting, Wait, name)
        if post is not None and wait is not None:
            found.append(_Signal(counter, post.step, wait.step, post.index, wait.index))  # type: ignore[arg-type]
    return found


def _only(stretch: Stretch, kind: type, name: str) -> Leaf | None:
    actor, path, first, last = stretch
    leaf = actor.only(kind, name, path)
    return leaf if leaf is not None and first < leaf.index < last else None


def _paired(credits: list[_Signal], valids: list[_Signal]) -> tuple[list[_Signal], list[_Signal]]:
    """Those credits that a member posts before it waits for one of the valids, and those valids."""
    if not credits or not valids:
        return [], []
    first, last = min(credit.posted for credit in credits), max(valid.waited for valid in valids)
    return [c for c in credits if c.posted < last], [v for v in valids if v.waited > first]


@lru_cache(maxsize=1024)
def _names_line(to: Rect, doer: Box, whom: Box, along_x: bool) -> bool:
    """Does each site of `doer` name all sites of `whom` in its own row (column) and no other, on the same lines?"""
    x0, x1, y0, y1 = doer
    own_y, own_x = np.mgrid[y0:y1, x0:x1]
    if along_x:
        lines, ends = doer[2:] == whom[2:], (*whom[:2], own_y, own_y + 1)
    else:
        lines, ends = doer[:2] == whom[:2], (own_x, own_x + 1, *whom[2:])
    return lines and all(bool((e == end).all()) for e, end in zip(edges_on_sites(to, doer), ends, strict=True))


def _credit_faults(
    section: Section, credit: _Signal, to_leader: bool, members: int, where: str
) -> Iterator[MulticastRefused]:
    """Each member names the leader of its own row or column once, and the leader waits for all of them."""
    yield from _shared(section, credit.counter, where)
    if not to_leader:
        yield MulticastRefused("a credit is not posted to the member's own leader", where=where)
    if credit.post.n != 1:
        yield MulticastRefused("a turn takes one credit of each member", where=where, available=f"{credit.post.n}")
    if credit.wait.n != members:
        what, needed = "the leader does not wait for all members", f"{members} credits"
        yield MulticastRefused(what, where=where, needed=needed, available=f"{credit.wait.n}")
    most = 1 << (credit.counter.bits - 1)
    if members > most:
        what, needed = "the counter has too few bits", f"{members} posts in flight"
        yield MulticastRefused(what, where=where, needed=needed, available=f"{most}")


def _valid_faults(section: Section, valid: _Signal, to_members: bool, where: str) -> Iterator[MulticastRefused]:
    """The leader names every member of its own row or column once, and each waits for that."""
    yield from _shared(section, valid.counter, where)
    if not to_members:
        what = "the post of valid does not name every member of its row or column once"
        yield MulticastRefused(what, where=where)
    if (valid.post.n, valid.wait.n) != (1, 1):
        yield MulticastRefused("a turn gives each member one valid", where=where)


def _shared(section: Section, counter: Counter, where: str) -> Iterator[MulticastRefused]:
    """Nobody else uses a counter, and it starts at 0."""
    name = counter.name
    posts, waits = (sum(len(a.uses(kind, name)) for a in section.actors) for kind in (Post, Wait))
    if posts != 1 or waits != 1:
        what = f"counter {name} has {posts} post steps and {waits} wait steps"
        yield MulticastRefused(what, where=where)
    if counter.ahead != 0:
        what = f"counter {name} starts {counter.ahead} ahead: a transfer could overtake a reserve"
        yield MulticastRefused(what, where=where)
