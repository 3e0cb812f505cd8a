"""Edits of a program that no pass made, and what the checker says of the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from msgspec.structs import replace

from pavane.ir.digest import graph_digest, program_digest
from pavane.ir.program import Certificate, Compute, Loop, Node, Program, Shape, Step
from pavane.reject import NotProven
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.verify.check import Report, check
from pavane.verify.prove import prove

Edit = Callable[[Program], Program]


def signed(program: Program, target: SpatialTarget, schedules: tuple = ()) -> Program:
    """The program with digests that fit it, as one who forges a file would make them; schedules found anew or given."""
    with contextlib.suppress(KeyError):
        program = replace(program, graph_digest=graph_digest(program))
    try:
        found = prove(program, target).schedules
    except NotProven:
        found = schedules
    certificate = Certificate(program_digest(program), target_digest(target), found)
    return replace(program, phase="VERIFIED", certificate=certificate)


def accepted(program: Program, target: SpatialTarget) -> Report:
    return check(signed(program, target), target)


def refusal(program: Program, target: SpatialTarget, edit: Edit) -> NotProven | None:
    """What the checker raises of the edited program, with the best certificate that a forger has."""
    honest = prove(program, target).schedules
    forged = signed(edit(program), target, honest)
    try:
        check(forged, target)
    except NotProven as refused:
        return refused
    return None


# --- edits ------------------------------------------------------------------------------------------------------------


def in_shape(program: Program, change: Callable[[Shape], Shape], number: int = 0) -> Program:
    shapes = list(program.shapes)
    shapes[number] = change(shapes[number])
    return replace(program, shapes=tuple(shapes))


def in_process(process: str, change: Callable[[tuple[Node, ...]], tuple[Node, ...]]) -> Edit:
    """Edit a process's body."""

    def edit(program: Program) -> Program:
        def one(shape: Shape) -> Shape:
            bodies = tuple(replace(p, body=change(p.body)) if p.name == process else p for p in shape.processes)
            return replace(shape, processes=bodies)

        return in_shape(program, one)

    return edit


def at_step(process: str, number: int, change: Callable[[Step], tuple[Step, ...]]) -> Edit:
    """Replace step `number` of a process by the steps that `change` gives."""
    return in_process(process, lambda body: _at(body, [number], change))


def _at(body: tuple[Node, ...], left: list[int], change: Callable[[Step], tuple[Step, ...]]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in body:
        if isinstance(node, Loop):
            out.append(replace(node, body=_at(node.body, left, change)))
        else:
            out.extend(change(node) if left[0] == 0 else (node,))
            left[0] -= 1
    return tuple(out)


def without(process: str, number: int) -> Edit:
    return at_step(process, number, lambda step: ())


def doubled(process: str, number: int) -> Edit:
    return at_step(process, number, lambda step: (step, step))


def with_fields(process: str, number: int, **fields) -> Edit:
    return at_step(process, number, lambda step: (replace(step, **fields),))


def with_op(process: str, number: int, **fields) -> Edit:
    def change(step: Step) -> tuple[Step, ...]:
        return (Compute(replace(step.op, **fields)),)

    return at_step(process, number, change)


def swapped(process: str, number: int) -> Edit:
    """Steps `number` and `number + 1` of one loop body exchanged."""

    def change(body: tuple[Node, ...]) -> tuple[Node, ...]:
        return _swap(body, [number])

    return in_process(process, change)


def _swap(body: tuple[Node, ...], left: list[int]) -> tuple[Node, ...]:
    out: list[Node] = []
    skip = False
    for place, node in enumerate(body):
        if skip:
            skip = False
        elif isinstance(node, Loop):
            out.append(replace(node, body=_swap(node.body, left)))
        else:
            if left[0] == 0:
                out.extend((body[place + 1], node))
                skip = True
                left[0] -= 1
            else:
                out.append(node)
            left[0] -= 1
    return tuple(out)


def loop_extent(process: str, var: str, extent) -> Edit:
    def change(body: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(
            replace(n, extent=extent if n.var == var else n.extent, body=change(n.body)) if isinstance(n, Loop) else n
            for n in body
        )

    return in_process(process, change)


def every(*edits: Edit) -> Edit:
    def edit(program: Program) -> Program:
        for one in edits:
            program = one(program)
        return program

    return edit


def fifo(name: str, **fields) -> Edit:
    return lambda program: in_shape(
        program, lambda s: replace(s, fifos=tuple(replace(f, **fields) if f.name == name else f for f in s.fifos))
    )


def carry(name: str, **fields) -> Edit:
    return lambda program: in_shape(
        program, lambda s: replace(s, carries=tuple(replace(c, **fields) if c.name == name else c for c in s.carries))
    )


def counter(name: str, **fields) -> Edit:
    return lambda program: in_shape(
        program, lambda s: replace(s, counters=tuple(replace(c, **fields) if c.name == name else c for c in s.counters))
    )


def process(name: str, **fields) -> Edit:
    return lambda program: in_shape(
        program,
        lambda s: replace(s, processes=tuple(replace(p, **fields) if p.name == name else p for p in s.processes)),
    )


def formal(name: str, **fields) -> Edit:
    return lambda program: in_shape(
        program, lambda s: replace(s, formals=tuple(replace(f, **fields) if f.name == name else f for f in s.formals))
    )


def spec(**fields) -> Edit:
    return lambda program: in_shape(program, lambda s: replace(s, spec=(replace(s.spec[0], **fields), *s.spec[1:])))


def numerics(**fields) -> Edit:
    return lambda program: in_shape(program, lambda s: replace(s, numerics=replace(s.numerics, **fields)))


def tensor(name: str, **fields) -> Edit:
    return lambda program: replace(
        program, tensors=tuple(replace(t, **fields) if t.name == name else t for t in program.tensors)
    )


def worker(name: str, **fields) -> Edit:
    return lambda program: replace(
        program, workers=tuple(replace(w, **fields) if w.name == name else w for w in program.workers)
    )
