"""The counters of a program at its boundaries, by how far the posts to them go: who posts, who waits, how many posts a
round has.

A post reaches all sites of its counter's rectangle (`whole`), those in the poster's row or column of it (`row`,
`column`), or the poster's own site (`own`); all posts to a counter reach alike. The counters of one reach, `own` apart,
form a family. A *group* of it is the whole rectangle, a row or a column: its posters post to its sites only, and in a
row or column stand posters of the same engines on every site. A counter is waited for on its own sites by its own
engine, on each of them unless it is `own`; a worker waits for at most one counter of each reach.
"""

from __future__ import annotations

from dataclasses import dataclass

from pavane.ir.program import SITE_X, SITE_Y, Counter, Post, Program, Wait, Worker
from pavane.ir.quasi import quasi
from pavane.reject import BalanceRefused
from pavane.verify.check.boxes import Box, area, box, within

WHOLE, ROW, COLUMN, OWN = "whole", "row", "column", "own"


@dataclass(frozen=True)
class Family:
    """The counters of one reach, the workers that post to them, and the posts of a group's round."""

    counters: tuple[str, ...]
    posters: tuple[int, ...]
    posts: int


def families_of(program: Program, boxes: tuple[Box, ...]) -> tuple[dict[str, str], dict[str, Family]]:
    """The reach of every counter, and the family of every reach but `own`."""
    reaches = _reaches(program, boxes)
    _waiters(program, boxes, reaches)
    found = (reach for reach in (WHOLE, ROW, COLUMN) if reach in reaches.values())
    return reaches, {reach: _family(program, boxes, reaches, reach) for reach in found}


def _reaches(program: Program, boxes: tuple[Box, ...]) -> dict[str, str]:
    """How far the posts to each counter go; a counter that nobody posts to counts as `whole`."""
    counters = {counter.name: counter for counter in program.counters}
    found: dict[str, str] = {}
    for worker, edges in zip(program.workers, boxes, strict=True):
        where = f"worker {worker.name}"
        for turn in worker.body:
            if isinstance(turn, Post):
                reach = _reach(turn, edges, counters[turn.counter], where)
                if found.setdefault(turn.counter, reach) != reach:
                    raise BalanceRefused(f"posts of {turn.counter} do not reach alike", where=where)
    return {name: found.get(name, WHOLE) for name in counters}


def _reach(turn: Post, edges: Box, counter: Counter, where: str) -> str:
    """A post goes once to all sites of the counter, to those of the poster's row or column, or to the poster's own."""
    x, y = quasi(SITE_X) + edges[0], quasi(SITE_Y) + edges[2]
    to, rect = turn.to, counter.rect
    own_x, own_y = (to.x0, to.x1) == (x, x + 1), (to.y0, to.y1) == (y, y + 1)
    all_x, all_y = (to.x0, to.x1) == (rect.x0, rect.x1), (to.y0, to.y1) == (rect.y0, rect.y1)
    inside = within(edges, box(rect, counter.name))
    forms = (
        (WHOLE, all_x and all_y),
        (ROW, inside and all_x and own_y),
        (COLUMN, inside and own_x and all_y),
        (OWN, inside and own_x and own_y),
    )
    for reach, fits in forms:
        if fits and turn.n == 1:
            return reach
    raise BalanceRefused(
        f"a post of {turn.counter} does not go once to each of its sites, to the poster's row or column of them, or to "
        "the poster's own site",
        where=where,
    )


def _waiters(program: Program, boxes: tuple[Box, ...], reaches: dict[str, str]) -> None:
    """Every counter is waited for on its own sites by its own engine, by whole rounds."""
    for counter in program.counters:
        where = f"counter {counter.name}"
        if counter.ahead != 0:
            raise BalanceRefused("a boundary's counter starts ahead", where=where)
        edges = box(counter.rect, where)
        waiters = [i for i, worker in enumerate(program.workers) if waits_for(worker, counter.name)]
        inside = all(within(boxes[i], edges) and program.workers[i].engine == counter.engine for i in waiters)
        everywhere = reaches[counter.name] == OWN or sum(area(boxes[i]) for i in waiters) == area(edges)
        if not (inside and everywhere):
            raise BalanceRefused("the counter is not waited for on each of its sites by its engine", where=where)
    for worker in program.workers:
        names = {turn.counter for turn in worker.body if isinstance(turn, Wait)}
        if len({reaches[name] for name in names}) < len(names):
            raise BalanceRefused("a worker waits for two boundary counters", where=f"worker {worker.name}")


def waits_for(worker: Worker, name: str) -> bool:
    """Does a worker ever wait for a counter?"""
    return any(isinstance(turn, Wait) and turn.counter == name for turn in worker.body)


def _family(program: Program, boxes: tuple[Box, ...], reaches: dict[str, str], reach: str) -> Family:
    """The family of a reach. Posters of a row or column stand on all its sites."""
    names = tuple(sorted(name for name, found in reaches.items() if found == reach))
    posters = tuple(
        i for i, w in enumerate(program.workers) if any(isinstance(t, Post) and t.counter in names for t in w.body)
    )
    sites = sum(area(boxes[i]) for i in posters)
    if reach == WHOLE:
        return Family(names, posters, sites)
    edges = {box(counter.rect, counter.name) for counter in program.counters if counter.name in names}
    rect = min(edges)
    engines = len({program.workers[i].engine for i in posters})
    if len(edges) > 1 or sites != engines * area(rect):
        raise BalanceRefused(
            f"not every site of a {reach} posts to it",
            where=", ".join(names),
            needed=f"{engines} x {area(rect)} posters on one rectangle",
            available=f"{sites}",
        )
    return Family(names, posters, engines * (rect[1] - rect[0] if reach == ROW else rect[3] - rect[2]))
