"""Mistakes with caches: rows that are read, rows that are appended, epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from pavane.ir.program import Instance, Program, Run, Store, Tensor, Transition, Turn
from pavane.ir.quasi import Quasi, quasi
from pavane.targets.descriptor import SpatialTarget
from tests.checker_oracle.mutants import put
from tests.evidence import edits
from tests.evidence.hand import signed
from tests.evidence.mistakes import Mutant, mistake

POS, ROWS = quasi("pos"), quasi("rows")


@mistake("cache read before append", "order")
def cache_before_append(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A section that reads what another appends stands before it."""
    states = {t.name for t in program.tensors if t.role in ("STATE", "SCRATCH")}
    writes = [_bound(program, i, "OUT") & states for i in range(len(program.instances))]
    reads = [_bound(program, i, "IN") & states for i in range(len(program.instances))]
    for w, made in enumerate(writes):
        for r in range(w + 1, len(program.instances)):
            if made & reads[r]:
                yield Mutant(_exchanged(program, w, r), target, False)


def _bound(program: Program, number: int, role: str) -> set[str]:
    instance = program.instances[number]
    shape = next(s for s in program.shapes if s.name == instance.shape)
    roles = {f.name: f.role for f in shape.formals}
    return {b.tensor for b in instance.bindings if roles[b.formal] in (role, "STATE")}


def _exchanged(program: Program, one: int, other: int) -> Program:
    """Two instances change places in the order; their runs with them."""
    order = list(range(len(program.instances)))
    order[one], order[other] = other, one
    changed = replace(program, instances=tuple(program.instances[i] for i in order))
    for w, worker in enumerate(program.workers):
        runs = {n: [t.process for t in worker.body if isinstance(t, Run) and t.instance == n] for n in (one, other)}
        body: list[Turn] = []
        for i, turn in enumerate((*worker.body, None)):
            for n in (one, other):
                if i == _first_run(worker.body, n):
                    body += [Run(n, process) for process in runs[one + other - n]]
            if turn is not None and (not isinstance(turn, Run) or turn.instance not in runs):
                body.append(turn)
        changed = put(changed, ("workers", w, "body"), tuple(body))
    return signed(changed)


def _first_run(body: tuple[Turn, ...], instance: int) -> int:
    """Where a worker begins an instance, or would."""
    return next(i for i, t in enumerate((*body, Run(instance, ""))) if isinstance(t, Run) and t.instance >= instance)


@mistake("cache appended at another row", "coverage", "meaning", "bounds", "order", "outside-fragment")
def appended_elsewhere(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """Beside its place, over what is there, beyond it, or round a ring: the store; its spec too; the transition too."""
    ring = POS - 2 * (POS // 2)
    for place in edits.steps(program, Store):
        start = place.step.window.start[0]
        if not isinstance(start, Quasi) or "pos" not in start.variables():
            continue
        for row in (POS - 1, POS + 1, quasi(0), POS + 2, ring):
            moved = put(program, (*place.path, "window", "start", 0), start.substitute({"pos": row}))
            yield Mutant(moved, target, place.nested)
            meant = put(moved, ("shapes", place.path[1], "spec", 0, "origin", 0), row)
            yield Mutant(signed(meant), target, place.nested)
            yield Mutant(signed(_with_transitions(meant, row)), target, place.nested)


def _with_transitions(program: Program, row: Quasi) -> Program:
    tensors = program.tensors
    changed = (replace(t, transition=Transition(row, t.transition.rows)) if t.transition else t for t in tensors)
    return replace(program, tensors=tuple(changed))


@mistake("cache read past what was written", "order", "bounds", "meaning", "outside-fragment")
def past_the_rows(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A section takes the position to be further on: so do its formals, its spec and the tensors that only it knows."""
    states = {t.name: t for t in program.tensors if t.role == "STATE"}
    for instance in program.instances:
        s, shape = next((n, s) for n, s in enumerate(program.shapes) if s.name == instance.shape)
        bound = {b.formal: b.tensor for b in instance.bindings}
        read = [states[bound[f.name]] for f in shape.formals if f.role == "IN" and bound[f.name] in states]
        for cache in read:
            nested = any(place.nested for place in edits.steps(program, Store) if place.path[1] == s)
            for on in (POS + 1, POS + ROWS, cache.shape[0] - ROWS):
                yield Mutant(signed(_further(program, s, instance, {"pos": on})), target, nested)


def _further(program: Program, s: int, instance: Instance, values: Mapping[str, Quasi]) -> Program:
    """Of an instance that is the only one of its shape, or of all of that shape."""
    mine = {b.tensor for b in instance.bindings}
    others = {b.tensor for i in program.instances if i.shape != instance.shape for b in i.bindings}

    def seen(tensor: Tensor) -> Tensor:
        own = tensor.name in mine - others and tensor.role in ("INPUT", "OUTPUT")
        return _substituted(tensor, values) if own else tensor

    changed = put(program, ("shapes", s), _substituted(program.shapes[s], values))
    return replace(changed, tensors=tuple(map(seen, program.tensors)))


def _substituted(value: Any, values: Mapping[str, Quasi]) -> Any:
    """Everything of a part that is quasi-affine, with other values of symbols."""
    if isinstance(value, Quasi):
        return value.substitute(values)
    if isinstance(value, tuple):
        return tuple(_substituted(item, values) for item in value)
    if isinstance(value, msgspec.Struct):
        return replace(value, **{n: _substituted(getattr(value, n), values) for n in value.__struct_fields__})
    return value
