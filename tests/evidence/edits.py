"""Where a program can be edited: its steps, its turns, its buffers, by their places in loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from pavane.ir.program import Loop, Program, Shape
from tests.checker_oracle.mutants import Path, at, put


@dataclass(frozen=True)
class Place:
    """A step of a process, or a turn of a worker. `loops`: how many loops stand around it."""

    path: Path
    step: Any
    loops: int

    @property
    def nested(self) -> bool:
        return self.loops > 0

    @property
    def turn(self) -> bool:
        return self.path[0] == "workers"


def steps(program: Program, *kinds: type) -> Iterator[Place]:
    """Every step of the processes, in written order."""
    for s, shape in enumerate(program.shapes):
        for p, process in enumerate(shape.processes):
            yield from within(process.body, ("shapes", s, "processes", p, "body"), 0, kinds)


def turns(program: Program, *kinds: type) -> Iterator[Place]:
    """Every turn of the workers."""
    for w, worker in enumerate(program.workers):
        for t, turn in enumerate(worker.body):
            if not kinds or isinstance(turn, kinds):
                yield Place(("workers", w, "body", t), turn, 0)


def anywhere(program: Program, *kinds: type) -> Iterator[Place]:
    """Steps, then turns."""
    yield from steps(program, *kinds)
    yield from turns(program, *kinds)


def within(body: tuple, path: Path, loops: int, kinds: tuple[type, ...]) -> Iterator[Place]:
    for i, node in enumerate(body):
        if isinstance(node, Loop):
            yield from within(node.body, (*path, i, "body"), loops + 1, kinds)
        elif not kinds or isinstance(node, kinds):
            yield Place((*path, i), node, loops)


def without(program: Program, place: Place) -> Program:
    return in_body(program, place, lambda body, i: body[:i] + body[i + 1 :])


def in_body(program: Program, place: Place, change: Any) -> Program:
    """The tuple that the step stands in, changed: `change(body, index)`. A loop that is left empty goes."""
    body = change(at(program, place.path[:-1]), place.path[-1])
    if not body and place.loops:
        outer = place.path[:-2]
        return in_body(program, Place(outer, None, place.loops - 1), lambda b, i: b[:i] + b[i + 1 :])
    return put(program, place.path[:-1], body)


def set_step(program: Program, place: Place, **fields: Any) -> Program:
    return put(program, place.path, replace(place.step, **fields))


def swapped(program: Program, place: Place) -> Program | None:
    """The step and the one after it exchanged, where there is one."""
    body, i = at(program, place.path[:-1]), place.path[-1]
    if i + 1 >= len(body):
        return None
    return put(program, place.path[:-1], (*body[:i], body[i + 1], body[i], *body[i + 2 :]))


def shape_of_place(program: Program, place: Place) -> Shape:
    return program.shapes[place.path[1]]


def is_nested(shape: Shape, name: str) -> bool:
    """Does a step inside a loop name the buffer or counter?"""
    return any(
        place.nested and name in (getattr(place.step, f, None) for f in ("fifo", "counter", "carry"))
        for p in shape.processes
        for place in within(p.body, (), 0, ())
    )
