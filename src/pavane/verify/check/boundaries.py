"""The program above its sections: every worker runs each section's process once, in the order of the sections; on
every site of a process exactly one worker runs it. Evidence for `order`.

Clocks (`clocks`) flow inside a section along `facts`, between sections along each worker, and over a boundary to
everybody that its rounds reach (`rounds`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from pavane.ir.program import Program, Run, Wait
from pavane.reject import OrderRefused, ProgressRefused
from pavane.verify.check.boxes import area
from pavane.verify.check.clocks import Class, Clock, joined
from pavane.verify.check.facts import BEGIN, DONE, END, Facts, Point, facts
from pavane.verify.check.rounds import Walk, advance, ended, walk_of
from pavane.verify.check.section import Actor, Section
from pavane.verify.check.standing import stands_on

OrderOf = Callable[[str, frozenset[int]], Facts]
Begin = tuple[tuple[int, str, Clock], ...]  # the processes of a section that are on a class, with engines and clocks
After = Callable[[Begin, int, frozenset[Point]], Clock]


@dataclass(frozen=True)
class Access:
    """A process of a section on the sites of a class, with what happens before a point of it: its first access to
    tensors, to local memory, or to a buffer.
    """

    instance: int
    section: Section
    actor: Actor
    place: Class
    classes: tuple[Class, ...]
    before: Callable[[str], Clock]


def walk_program(
    program: Program, sections: dict[str, Section], visit: Callable[[Access], None], untold: frozenset[str]
) -> Walk:
    """Run all sections in order on clocks and show `visit` every access; refuses workers and boundaries that do not
    fit. Rounds of the families `untold` tell nobody anything.
    """
    walk = walk_of(program, untold)
    order_of = cache(lambda shape, present: facts(sections[shape], present))
    advance(walk)
    for number, instance in enumerate(program.instances):
        _section(walk, order_of, number, sections[instance.shape], visit)
        advance(walk)
    ended(walk)
    return walk


def _section(walk: Walk, order_of: OrderOf, number: int, section: Section, visit: Callable[[Access], None]) -> None:
    """Clocks of the processes of a section, class by class: at their first accesses, then at their ends."""
    runners = {actor.number: _runners(walk, number, section, actor) for actor in section.actors}
    after = cache(partial(_after, number))
    for place in walk.classes:
        engines = ((a.number, a.process.engine) for a in section.actors)
        present = [(a, engine) for a, engine in engines if place.workers.get(engine) in runners[a]]
        order = order_of(section.shape.name, frozenset(a for a, _ in present))
        begin = tuple((a, engine, walk.clocks[(place.number, engine)]) for a, engine in present)
        for process, engine in present:
            at = partial(_at, after, begin, order, process)
            visit(Access(number, section, section.actors[process], place, walk.classes, at))
            walk.clocks[(place.number, engine)] = at(END)
    for workers in runners.values():
        for worker in workers:
            walk.at[worker] += 1


def _runners(walk: Walk, number: int, section: Section, actor: Actor) -> tuple[int, ...]:
    """The workers that run a process of a section next; together they are its sites, each once."""
    where = f"section {number}, process {actor.name}"
    found, waiting = [], []
    for index, worker in enumerate(walk.program.workers):
        turn = worker.body[walk.at[index]] if walk.at[index] < len(worker.body) else None
        if isinstance(turn, Run) and (turn.instance, turn.process) == (number, actor.name):
            found.append(index)
        elif isinstance(turn, Wait) and worker.engine == actor.process.engine:
            waiting.append(f"{worker.name} waits for {turn.n} posts of {turn.counter}, which are never all given")
    covered, whole = sum(area(walk.boxes[i]) for i in found), area(actor.box)
    if covered == whole and all(
        stands_on(section, actor, walk.boxes[i]) and walk.program.workers[i].engine == actor.process.engine
        for i in found
    ):
        return tuple(found)
    if waiting:
        raise ProgressRefused("a boundary is never passed", where=where, terms=waiting)
    what = "the process is not run once on each of its sites, after the sections before it"
    raise OrderRefused(
        what, where=where, needed=f"{whole} sites of engine {actor.process.engine}", available=f"{covered}"
    )


def _at(after: After, begin: Begin, order: Facts, process: int, point: str) -> Clock:
    return after(begin, process, order[(process, point)])


def _after(number: int, begin: Begin, process: int, told: frozenset[Point]) -> Clock:
    """The clock of a process of a section after its begin and some other begins and ends of accesses."""
    engines = {p: engine for p, engine, _ in begin}
    clocks = {p: clock for p, _, clock in begin}
    clock = clocks[process]
    for other, what in sorted(told):
        if what == BEGIN:
            clock = clock.joined(clocks[other])
        elif what == DONE:
            clock = replace(clock, own=joined(clock.own, {engines[other]: number}))
    return clock
