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

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from pavane.ir.program import Compute, Fence, Fifo, Load, Post, Push, Rect, Reserve, Send, Wait
from pavane.ir.walk import operands
from pavane.reject import MulticastRefused
from pavane.verify.check.resident import token_nest
from pavane.verify.check.section import Actor, Leaf, Section
from pavane.verify.check.site_state import edges_on_sites

_ORDER_LEADER = "reserve, load, fence, wait, send, fence, post, push"
_ORDER_MEMBER = "reserve, post, wait, push"


@dataclass(frozen=True)
class _Transfer:
    """The steps of a protocol, and whose they are."""

    leader: Actor
    member: Actor
    send: Send
    wait_credit: Wait
    post_valid: Post
    post_credit: Post
    wait_valid: Wait


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
    used: set[str] = set()
    refusals = []
    for transfer in _transfers(section, leader, members[0], sends[0], fifo.name):
        try:
            _sites(section, fifo, transfer, where)
            used |= {transfer.wait_credit.counter, transfer.wait_valid.counter}
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


def _transfers(section: Section, leader: Actor, member: Actor, send: Leaf, name: str) -> Iterator[_Transfer]:
    """For each two counters whose steps stand in the order of the protocol in the loop bodies of the send and of the
    member's push.
    """
    credits = [c for c in section.counters if leader.uses(Wait, c) and member.uses(Post, c)]
    valids = [v for v in section.counters if leader.uses(Post, v) and member.uses(Wait, v)]
    path = next((leaf.path for leaf in member.uses(Push, name)), ())
    for credit, valid in product(credits, valids):
        ours = _in_one_body(leader, send.path, (Reserve, name), (Wait, credit), (Post, valid), (Push, name))
        theirs = _in_one_body(member, path, (Reserve, name), (Post, credit), (Wait, valid), (Push, name))
        if theirs == sorted(theirs, key=lambda leaf: leaf.index) and theirs and _leads(leader, send, ours):
            steps = (leaf.step for leaf in (send, ours[1], ours[2], theirs[1], theirs[2]))
            yield _Transfer(leader, member, *steps)  # type: ignore[arg-type]


def _in_one_body(actor: Actor, path: tuple[int, ...], *wanted: tuple[type, str]) -> list[Leaf]:
    """The steps that alone are of their kinds, when all stand in one loop body."""
    steps = [actor.uses(kind, name) for kind, name in wanted]
    alone = all(len(found) == 1 and found[0].path == path for found in steps)
    return [found[0] for found in steps] if alone else []


def _leads(leader: Actor, send: Leaf, steps: list[Leaf]) -> bool:
    """reserve < wait credit < send < fence < post valid, and fence < push."""
    if not steps:
        return False
    reserve, wait, post, push = (leaf.index for leaf in steps)
    fences = [leaf.index for leaf in leader.leaves if isinstance(leaf.step, Fence) and leaf.path == send.path]
    return reserve < wait < send.index and any(send.index < fence < min(post, push) for fence in fences)


def _nests(leader: Actor, member: Actor, fifo: Fifo, where: str) -> None:
    ours, theirs = (token_nest(actor.body, Push, fifo.name) for actor in (leader, member))
    if ours != theirs or token_nest(leader.body, Send, fifo.name) != ours:
        raise MulticastRefused("leader and members do not take part in equally many transfers", where=where)


def _sites(section: Section, fifo: Fifo, transfer: _Transfer, where: str) -> None:
    """Every member is named once by the leader of its own row or column, and names that leader once."""
    leader, member, along_x = transfer.leader, transfer.member, fifo.kind == "MULTICAST_ROW"
    for name in (transfer.wait_credit.counter, transfer.wait_valid.counter):
        _exclusive(section, name, where)
    for what, to in (("the send", transfer.send.to), ("the post of valid", transfer.post_valid.to)):
        if not _names_line(to, leader, member, along_x):
            raise MulticastRefused(f"{what} does not name every member of its row or column once", where=where)
    if not _names_line(transfer.post_credit.to, member, leader, along_x):
        raise MulticastRefused("a credit is not posted to the member's own leader", where=where)
    if (transfer.post_valid.n, transfer.wait_valid.n, transfer.post_credit.n) != (1, 1, 1):
        raise MulticastRefused("a turn takes one credit and one valid of each member", where=where)
    x0, x1, y0, y1 = member.box
    count, taken = x1 - x0 if along_x else y1 - y0, transfer.wait_credit.n
    if taken != count:
        raise MulticastRefused(
            "the leader does not wait for all members", where=where, needed=f"{count} credits", available=f"{taken}"
        )
    most = 1 << (section.counters[transfer.wait_credit.counter].bits - 1)
    if count > most:
        raise MulticastRefused(
            "the counter has too few bits", where=where, needed=f"{count} posts in flight", available=f"{most}"
        )


def _names_line(to: Rect, doer: Actor, whom: Actor, along_x: bool) -> bool:
    """Does each site of `doer` name all sites of `whom` in its own row (column) and no other, on the same lines?"""
    x0, x1, y0, y1 = doer.box
    left, right, top, bottom = edges_on_sites(to, doer.box)
    own_y, own_x = np.mgrid[y0:y1, x0:x1]
    if along_x:
        lines, ends = doer.box[2:] == whom.box[2:], (*whom.box[:2], own_y, own_y + 1)
    else:
        lines, ends = doer.box[:2] == whom.box[:2], (own_x, own_x + 1, *whom.box[2:])
    return lines and all(bool((edge == end).all()) for edge, end in zip((left, right, top, bottom), ends, strict=True))


def _exclusive(section: Section, name: str, where: str) -> None:
    counter = section.counters[name]
    posts, waits = ([leaf for a in section.actors for leaf in a.uses(kind, name)] for kind in (Post, Wait))
    if len(posts) != 1 or len(waits) != 1:
        raise MulticastRefused(f"counter {name} has {len(posts)} post steps and {len(waits)} wait steps", where=where)
    if counter.ahead != 0:
        raise MulticastRefused(
            f"counter {name} starts {counter.ahead} ahead: a transfer could overtake a reserve", where=where
        )
