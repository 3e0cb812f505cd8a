"""Balance: each FIFO has one pushing and one popping process on every site it is used on, with the same token nest;
each turn is neutral.

Token nest: restrict a process's loop tree to the `Push` (or `Front`) steps of one FIFO and drop empty loops. When the
two trees are equal, the n-th slot pushed and the n-th slot in front belong to the same step pair and the same loop
values, because both enumerate them in the same lexicographic order and a FIFO keeps order; so too where one process has
both ends. `Reserve` stands like `Push`, `Pop` like `Front`. Then pushes and pops are equally many for every value of
the symbols without counting them. What a turn of a loop does to FIFOs and counters is read from the replayed schedule.
"""

from __future__ import annotations

from pavane.ir.program import Front, Pop, Post, Push, Reserve, Wait
from pavane.reject import BalanceRefused
from pavane.verify.check.abstract_run import AbstractRun
from pavane.verify.check.boxes import area, box, clashing, common_part
from pavane.verify.check.resident import token_nest
from pavane.verify.check.section import Actor, Section


def balance(section: Section, run: AbstractRun) -> str:
    """Refuse unequal nests, shared ends, unequal counts."""
    for name in section.fifos:
        _ends(section, name)
    for name in section.counters:
        _counter(section, name)
    if run.unbalanced:
        what = "a turn of a loop does not leave FIFOs and counters as it found them"
        raise BalanceRefused(what, where=section.where, terms=run.unbalanced[:4])
    return f"{len(section.fifos)} FIFOs, {run.turns} loops neutral"


def _ends(section: Section, name: str) -> None:
    where = f"{section.where}, FIFO {name}"
    pushers, poppers = section.pushers[name], section.poppers[name]
    if not pushers and not poppers:
        raise BalanceRefused("no process uses the FIFO", where=where)
    for actors, ends in ((pushers, "fill"), (poppers, "empty")):
        if both := clashing((actor.name, actor.box) for actor in actors):
            raise BalanceRefused(f"{' and '.join(both)} both {ends} it on one site", where=where)
    if not _on_the_same_sites(pushers, poppers):
        raise BalanceRefused("the FIFO is filled on other sites than it is emptied on", where=where)
    nests = [(actor, _nest(actor, name, Reserve, Push, where)) for actor in pushers]
    nests += [(actor, _nest(actor, name, Front, Pop, where)) for actor in poppers]
    if len({nest for _, nest in nests}) > 1:
        what = "slots are handed over in another loop nest than they are taken"
        raise BalanceRefused(what, where=where, terms=[f"{actor.name}: {_worded(nest)}" for actor, nest in nests])


def _nest(actor: Actor, name: str, opens: type, closes: type, where: str) -> tuple:
    first, last = actor.uses(opens, name), actor.uses(closes, name)
    nest = token_nest(actor.body, closes, name)
    if token_nest(actor.body, opens, name) != nest:
        raise BalanceRefused(
            f"{actor.name} has {len(first)} {opens.__name__.lower()} and {len(last)} {closes.__name__.lower()} steps "
            "that do not stand in the same loops",
            where=where,
        )
    return nest


def _worded(nest: tuple) -> str:
    trees = ("once" if tree == "step" else f"{tree[0]}<{tree[1]}: {_worded(tree[2])}" for tree in nest)
    return ", ".join(trees) or "never"


def _on_the_same_sites(some: tuple[Actor, ...], others: tuple[Actor, ...]) -> bool:
    """For processes of which no two of a kind share a site."""
    shared = sum(area(common_part(a.box, b.box)) for a in some for b in others)
    return sum(area(a.box) for a in some) == shared == sum(area(b.box) for b in others)


def _counter(section: Section, name: str) -> None:
    """One waiting process a site, on the counter's own sites and engine; posts go nowhere else."""
    where = f"{section.where}, counter {name}"
    waiters = tuple(a for a in section.actors if a.uses(Wait, name))
    posters = [leaf for a in section.actors for leaf in a.uses(Post, name)]
    if len(waiters) != 1 or not posters:
        raise BalanceRefused(
            f"{len(waiters)} processes wait for the counter and {len(posters)} steps post to it", where=where
        )
    counter = section.counters[name]
    if box(counter.rect, where) != waiters[0].box or counter.engine != waiters[0].process.engine:
        raise BalanceRefused(
            f"the counter is not on the sites and the engine of {waiters[0].name}, which waits for it", where=where
        )
