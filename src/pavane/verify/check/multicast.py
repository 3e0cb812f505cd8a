"""Multicast: one leader a row (or column) fills the same slot of every member, with the protocol of docs/ir.md and no
other.

    leader   reserve; load; fence; wait credit, members; send -> members; fence; post valid -> members; push
    member   reserve; post credit -> leader; wait valid, 1; push                          in the same loop nest

Proof that the steps in this order suffice, by induction over the turns. A member posts its (n+1)-th credit after its
n-th `wait valid`, which follows the leader's n-th `post valid`, which follows the leader's n-th `wait credit`: so
each member has at most one credit under way, and `members` credits are one of each member. Hence the leader's n-th
send comes after every member's n-th reserve and before its n-th push; the receive counts are equal because the nests
are; at most `members` credits and one `valid` are in flight, which the bits must hold. The counters start at 0 and
nobody else uses them: a credit ahead would let a send overtake a reserve.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from pavane.ir.program import Compute, Fence, Fifo, Load, Post, Push, Rect, Reserve, Send, Wait
from pavane.ir.walk import operands
from pavane.reject import MulticastRefused
from pavane.verify.check.resident import token_nest
from pavane.verify.check.section import Actor, Leaf, Section
from pavane.verify.check.site_state import edges_on_sites

S = TypeVar("S", Send, Post, Wait)

_ORDER_LEADER = "reserve, load, fence, wait, send, fence, post, push"
_ORDER_MEMBER = "reserve, post, wait, push"


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
        fills = actor.uses(Load, fifo.name) or any(
            isinstance(s.step, Compute) and s.step.op.dst.name == fifo.name for s in actor.leaves
        )
        if not fills:
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
    used: set[str] = set()
    refusals = []
    for credit, valid in _candidates(section, leader, members[0], sends[0], fifo.name):
        try:
            _sites(section, fifo, leader, members[0], credit, valid, where)
            used |= {credit, valid}
        except MulticastRefused as refusal:
            refusals.append(refusal)
    if used:
        return used
    if refusals:
        raise refusals[0]
    raise MulticastRefused(
        "no two counters order the sends after the reserves and before the pushes",
        where=where,
        needed=f"leader: {_ORDER_LEADER}; member: {_ORDER_MEMBER}, each in one loop body",
    )


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


def _candidates(section: Section, leader: Actor, member: Actor, send: Leaf, name: str) -> list[tuple[str, str]]:
    """Pairs (credit, valid) whose steps stand in the order of the protocol in the loop bodies of the send and of the
    member's push.
    """
    credits = [c for c in section.counters if leader.uses(Wait, c) and member.uses(Post, c)]
    valids = [v for v in section.counters if leader.uses(Post, v) and member.uses(Wait, v)]
    return [
        (c, v) for c in credits for v in valids if _leads(leader, send, name, c, v) and _receives(member, name, c, v)
    ]


def _leads(leader: Actor, send: Leaf, name: str, credit: str, valid: str) -> bool:
    """reserve < wait credit < send < fence < post valid, and fence < push, in one loop body."""
    places = _in_one_body(leader, send.path, (Reserve, name), (Wait, credit), (Post, valid), (Push, name))
    if not places:
        return False
    reserve, wait, post, push = places
    fences = [leaf.index for leaf in leader.leaves if isinstance(leaf.step, Fence) and leaf.path == send.path]
    return reserve < wait < send.index and any(send.index < fence < min(post, push) for fence in fences)


def _receives(member: Actor, name: str, credit: str, valid: str) -> bool:
    """reserve < post credit < wait valid < push, in one loop body."""
    path = next((leaf.path for leaf in member.uses(Push, name)), ())
    places = _in_one_body(member, path, (Reserve, name), (Post, credit), (Wait, valid), (Push, name))
    return bool(places) and places == sorted(places)


def _in_one_body(actor: Actor, path: tuple[int, ...], *wanted: tuple[type, str]) -> list[int]:
    """The numbers of the steps that alone are of their kinds, when all stand in one loop body."""
    steps = [actor.uses(kind, name) for kind, name in wanted]
    alone = all(len(found) == 1 and found[0].path == path for found in steps)
    return [found[0].index for found in steps] if alone else []


def _nests(leader: Actor, member: Actor, fifo: Fifo, where: str) -> None:
    ours, theirs = (token_nest(actor.body, Push, fifo.name) for actor in (leader, member))
    if ours != theirs or token_nest(leader.body, Send, fifo.name) != ours:
        raise MulticastRefused("leader and members do not take part in equally many transfers", where=where)


def _sites(section: Section, fifo: Fifo, leader: Actor, member: Actor, credit: str, valid: str, where: str) -> None:
    """Every member is named once by the leader of its own row or column, and names that leader once."""
    for name, waiter in ((credit, leader), (valid, member)):
        _exclusive(section, name, waiter, where)
    send, post_valid = _only(leader, Send, fifo.name), _only(leader, Post, valid)
    post_credit, wait_valid = _only(member, Post, credit), _only(member, Wait, valid)
    along_x = fifo.kind == "MULTICAST_ROW"
    for what, to in (("the send", send.to), ("the post of valid", post_valid.to)):
        if not _names_line(to, leader, member, along_x):
            raise MulticastRefused(f"{what} does not name every member of its row or column once", where=where)
    if not _names_line(post_credit.to, member, leader, along_x):
        raise MulticastRefused("a credit is not posted to the member's own leader", where=where)
    if (post_valid.n, wait_valid.n, post_credit.n) != (1, 1, 1):
        raise MulticastRefused("a turn takes one credit and one valid of each member", where=where)
    x0, x1, y0, y1 = member.box
    count, wait = x1 - x0 if along_x else y1 - y0, _only(leader, Wait, credit)
    if wait.n != count:
        raise MulticastRefused(
            "the leader does not wait for all members", where=where, needed=f"{count} credits", available=f"{wait.n}"
        )
    most = 1 << (section.counters[credit].bits - 1)
    if count > most:
        raise MulticastRefused(
            "the counter has too few bits", where=where, needed=f"{count} posts in flight", available=f"{most}"
        )


def _names_line(to: Rect, doer: Actor, whom: Actor, along_x: bool) -> bool:
    """Does each site of `doer` name all sites of `whom` in its own row (column) and no other, on the same lines?"""
    x0, x1, y0, y1 = doer.box
    left, right, top, bottom = edges_on_sites(to, doer.box, doer.where)
    own_y, own_x = np.mgrid[y0:y1, x0:x1]
    if along_x:
        lines, ends = doer.box[2:] == whom.box[2:], (*whom.box[:2], own_y, own_y + 1)
    else:
        lines, ends = doer.box[:2] == whom.box[:2], (own_x, own_x + 1, *whom.box[2:])
    return lines and all(bool((edge == end).all()) for edge, end in zip((left, right, top, bottom), ends, strict=True))


def _only(actor: Actor, kind: type[S], name: str) -> S:
    """The one step of a kind; `_candidates` has counted it."""
    step = actor.uses(kind, name)[0].step
    if not isinstance(step, kind):
        raise MulticastRefused(f"{name} is used in another way", where=actor.where)
    return step


def _exclusive(section: Section, name: str, waiter: Actor, where: str) -> None:
    counter = section.counters[name]
    posts, waits = ([leaf for a in section.actors for leaf in a.uses(kind, name)] for kind in (Post, Wait))
    if len(posts) != 1 or len(waits) != 1 or not waiter.uses(Wait, name):
        raise MulticastRefused(f"counter {name} has {len(posts)} post steps and {len(waits)} wait steps", where=where)
    if counter.ahead != 0:
        raise MulticastRefused(
            f"counter {name} starts {counter.ahead} ahead: a transfer could overtake a reserve", where=where
        )
