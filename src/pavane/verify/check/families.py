"""The counters of a program at its boundaries, by how far the posts to them go: who posts, who waits, how many posts a
round has.

A post reaches all sites of its counter's rectangle (`whole`), those in the poster's row or column of it (`row`,
`column`), or the poster's own site (`own`); all posts to a counter reach alike. (Where a rectangle is one site wide
several of these fit, and it is `own` unless two posters share a site.) The counters of one reach, `own` apart, form a
family. A *group* of it is the whole rectangle, a row or a column: its posters post to
its sites only, and in a row or column stand posters of the same engines on every site. A counter is waited for on its
own sites by its own engine, on each of them unless it is `own`; a worker waits for at most one counter of a family.
"""

from __future__ import annotations

from dataclasses import dataclass

from pavane.ir.program import SITE_X, SITE_Y, Counter, Post, Program, Wait, Worker
from pavane.ir.quasi import Domain, quasi
from pavane.reject import BalanceRefused
from pavane.verify.check.boxes import Box, area, box, clashing, within
from pavane.verify.check.terms import simplify

REACHES = (OWN, WHOLE, ROW, COLUMN) = ("own", "whole", "row", "column")


@dataclass(frozen=True)
class Family:
    """The counters of one reach, the workers that post to them, and the posts of a group's round."""

    counters: tuple[str, ...]
    posters: tuple[int, ...]
    posts: int


def families_of(program: Program, boxes: tuple[Box, ...]) -> tuple[dict[str, str], dict[str, Family]]:
    """The reach of every counter, and the family of every reach but `own`."""
    reaches = _reaches(program, boxes)
    for worker in program.workers:
        names = {t.counter for t in worker.body if isinstance(t, Wait) and reaches[t.counter] != OWN}
        if len({reaches[name] for name in names}) < len(names):
            raise BalanceRefused("a worker waits for two boundary counters", where=f"worker {worker.name}")
    lines = sorted({box(c.rect, c.name) for c in program.counters if reaches[c.name] in (ROW, COLUMN)})
    if len(lines) > 1:  # in one rectangle, a column stands in every row that has met
        what = "rows and columns are not those of one rectangle"
        raise BalanceRefused(what, where=program.name, terms=[f"{edges}" for edges in lines])
    found = (reach for reach in (WHOLE, ROW, COLUMN) if reach in reaches.values())
    return reaches, {reach: _family(program, boxes, reaches, reach) for reach in found}


def _reaches(program: Program, boxes: tuple[Box, ...]) -> dict[str, str]:
    """How far the posts to each counter go."""
    counters = {counter.name: counter for counter in program.counters}
    found: dict[str, tuple[str, ...]] = dict.fromkeys(counters, REACHES)
    for worker, edges in zip(program.workers, boxes, strict=True):
        for turn in worker.body:
            if isinstance(turn, Post):
                fits = _fits(turn, edges, counters[turn.counter], f"worker {worker.name}")
                found[turn.counter] = tuple(reach for reach in found[turn.counter] if reach in fits)
                if not found[turn.counter]:
                    raise BalanceRefused(f"posts of {turn.counter} do not reach alike", where=f"worker {worker.name}")
    return {name: _waited(program, boxes, counters[name], reaches) for name, reaches in found.items()}


def _fits(turn: Post, edges: Box, counter: Counter, where: str) -> tuple[str, ...]:
    """A post goes once to all sites of the counter, to those of the poster's row or column, or to the poster's own.

    Edges are compared by their values on the worker's sites: a coordinate with one value is that value.
    """
    domain = Domain(((SITE_X, 0, edges[1] - edges[0] - 1), (SITE_Y, 0, edges[3] - edges[2] - 1)))
    x0, x1, y0, y1 = (simplify(edge, domain) for edge in (turn.to.x0, turn.to.x1, turn.to.y0, turn.to.y1))
    x, y = simplify(quasi(SITE_X) + edges[0], domain), simplify(quasi(SITE_Y) + edges[2], domain)
    rect = counter.rect
    own_x, own_y = (x0, x1) == (x, x + 1), (y0, y1) == (y, y + 1)
    all_x, all_y = (x0, x1) == (rect.x0, rect.x1), (y0, y1) == (rect.y0, rect.y1)
    inside = within(edges, box(rect, counter.name))
    forms = (inside and own_x and own_y, all_x and all_y, inside and all_x and own_y, inside and own_x and all_y)
    fits = tuple(reach for reach, form in zip(REACHES, forms, strict=True) if form and turn.n == 1)
    if fits:
        return fits
    raise BalanceRefused(
        f"a post of {turn.counter} does not go once to each of its sites, to the poster's row or column of them, or to "
        "the poster's own site",
        where=where,
    )


def _waited(program: Program, boxes: tuple[Box, ...], counter: Counter, reaches: tuple[str, ...]) -> str:
    """The reach of a counter. It is waited for by its own engine on its own sites: on all of them, or it is `own`."""
    where = f"counter {counter.name}"
    if counter.ahead != 0:
        raise BalanceRefused("a boundary's counter starts ahead", where=where)
    edges = box(counter.rect, where)
    waiters = [i for i, worker in enumerate(program.workers) if waits_for(worker, counter.name)]
    inside = all(within(boxes[i], edges) and program.workers[i].engine == counter.engine for i in waiters)
    everywhere = sum(area(boxes[i]) for i in waiters) == area(edges)
    posters = [i for i, worker in enumerate(program.workers) if posts_to(worker, (counter.name,))]
    alone = clashing((program.workers[i].name, boxes[i]) for i in posters) is None
    for reach in reaches:
        if inside and (alone if reach == OWN else everywhere):
            return reach
    raise BalanceRefused("the counter is not waited for on each of its sites by its engine", where=where)


def waits_for(worker: Worker, name: str) -> bool:
    """Does a worker ever wait for a counter?"""
    return any(isinstance(turn, Wait) and turn.counter == name for turn in worker.body)


def posts_to(worker: Worker, names: tuple[str, ...]) -> bool:
    """Does a worker ever post to one of the counters?"""
    return any(isinstance(turn, Post) and turn.counter in names for turn in worker.body)


def _family(program: Program, boxes: tuple[Box, ...], reaches: dict[str, str], reach: str) -> Family:
    """The family of a reach. Posters of a row or column stand on all its sites."""
    names = tuple(sorted(name for name, found in reaches.items() if found == reach))
    posters = tuple(i for i, worker in enumerate(program.workers) if posts_to(worker, names))
    sites = sum(area(boxes[i]) for i in posters)
    if reach == WHOLE:
        return Family(names, posters, sites)
    rect = next(box(counter.rect, counter.name) for counter in program.counters if counter.name in names)
    engines = len({program.workers[i].engine for i in posters})
    if sites != engines * area(rect):
        raise BalanceRefused(
            f"not every site of a {reach} posts to it",
            where=", ".join(names),
            needed=f"{engines} x {area(rect)} posters on one rectangle",
            available=f"{sites}",
        )
    return Family(names, posters, engines * (rect[1] - rect[0] if reach == ROW else rect[3] - rect[2]))
