"""What every buffer holds, by walking every process in its own order, each loop for one symbolic turn (values.py).

A `Front` takes the value of the `Push` of the same number, which is the same slot because `balance` has shown equal
token nests; so a process that comes to a slot that is not handed over yet waits for another's shared. Single steps are
in `step_values`, what a loop leaves behind in `lemmas`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pavane.ir.program import Front, Loop, Node
from pavane.reject import OutsideFragment, ProgressRefused
from pavane.verify.check.lemmas import Closing, adding, settled, summed, use_of
from pavane.verify.check.section import Actor, Section
from pavane.verify.check.step_values import Buffers, Shared, do, ordinal
from pavane.verify.check.terms import Effort
from pavane.verify.check.values import Evidence, Place, Strip, Summed, Write

Token = tuple[str, int]


def evaluate(section: Section, leaders: dict[str, Actor], effort: Effort) -> Evidence:
    """Walk all processes; `leaders` names the process that fills each multicast FIFO for all its sites."""
    shared = Shared(section, leaders, effort)
    waiting = {a.number: _body(shared, a, a.body, 0, Buffers()) for a in section.actors}
    wanted: dict[int, Token | None] = {}
    while waiting:
        before = dict(wanted)
        for number, steps in tuple(waiting.items()):
            wanted[number] = next(steps, None)
            if wanted[number] is None:
                del waiting[number]
        if waiting and wanted == before and not any(token in shared.tokens for token in wanted.values()):
            names = ", ".join(section.actors[n].name for n in waiting)
            raise ProgressRefused(
                "a slot is taken before any process hands it over", where=section.where, terms=[names]
            )
    return shared.evidence


def _body(shared: Shared, actor: Actor, body: tuple[Node, ...], index: int, buffers: Buffers) -> Iterator[Token]:
    """Walk some nodes, the first step of which has number `index`; yields the token that it waits for."""
    for node in body:
        if isinstance(node, Loop):
            size = _steps_in(node.body)
            yield from _loop(shared, actor, node, index, size, buffers)
            index += size
            continue
        leaf = actor.leaves[index]
        if isinstance(node, Front):
            token = (node.fifo, ordinal(actor, leaf, Front, node.fifo))
            while token not in shared.tokens:
                yield token
            buffers.held[node.fifo] = shared.tokens[token]
        else:
            do(shared, Place(shared.section, actor, leaf), buffers)
        index += 1


def _steps_in(body: tuple[Node, ...]) -> int:
    return sum(_steps_in(n.body) if isinstance(n, Loop) else 1 for n in body)


def _loop(shared: Shared, actor: Actor, loop: Loop, index: int, size: int, buffers: Buffers) -> Iterator[Token]:
    """One symbolic turn, then the loop is closed for every buffer that outlives a turn."""
    where = f"{actor.where}, loop over {loop.var}"
    before, leaves, since = dict(buffers.own), actor.leaves[index : index + size], len(shared.evidence.writes)
    named = {name for leaf in leaves for name in leaf.buffers}
    uses = {name: use_of(leaves, name) for name in sorted(named & (set(shared.section.carries) | set(before)))}
    for name, use in uses.items():
        if use == "mixed":
            raise OutsideFragment(f"{name} carries a value from turn to turn that is not a sum", where=where)
        if use == "adds":
            buffers.own[name] = adding(before.get(name), name, where)
        elif use == "sets":
            buffers.own[name] = None
    yield from _body(shared, actor, loop.body, index, buffers)
    around = next(d for d, (var, _) in enumerate(leaves[0].nest) if var == loop.var)
    domain = shared.section.domain(actor, leaves[0].nest[:around])
    close = Closing(shared.section, loop, domain, where, shared.variable)
    for name, use in uses.items():
        if use != "reads":
            shared.afford(buffers.own.get(name), where)
        if use == "adds":
            turn = buffers.own[name]
            if turn is not None and not turn.moves(loop.var):
                mixed = len(turn.addends) > 1 and any(isinstance(addend, Strip) for addend in turn.addends)
                shared.evidence.sums.append(Summed(actor, index, index + size - 1, loop.var, name, mixed))
            buffers.own[name] = summed(close, name, before[name], turn)
        elif use == "sets":
            writes = [w for w in shared.evidence.writes[since:] if w.place.actor is actor and w.name == name]
            buffers.own[name] = settled(close, name, buffers.own.get(name), _alike(writes))


def _alike(writes: Sequence[Write]) -> bool:
    """Do a process's writes to a buffer in a turn all go to one and the same region, and to nothing beyond what is then
    known?
    """
    return len({(w.rows, w.cols) for w in writes}) == 1 and not any(w.beyond for w in writes)
