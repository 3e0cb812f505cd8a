"""Mistakes with what is stated beside the steps: types of operands, transitions, roles of engines."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pavane.ir.program import Compute, Init, Loop, Numerics, Program
from pavane.targets.descriptor import SpatialTarget, target_digest
from tests.checker_oracle.mutants import put
from tests.evidence import edits
from tests.evidence.hand import signed
from tests.evidence.mistakes import Mutant, mistake

TYPES = ("f32", "f16", "bf16", "bfp8", "q8_0", "i8")


@mistake("operand stated in another type", "numerics")
def operand_stated(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """One is stated in another type, not at all, twice; or what no product reads is stated, too."""
    for s, shape in enumerate(program.shapes):
        path, stated = ("shapes", s, "numerics"), shape.numerics.operands
        nested = any(isinstance(node, Loop) for process in shape.processes for node in process.body)
        for number, (name, dtype) in enumerate(stated):
            for other in TYPES:
                if other != dtype:
                    changed = (*stated[:number], (name, other), *stated[number + 1 :])
                    yield _stating(program, target, path, changed, nested)
            yield _stating(program, target, path, (*stated[:number], *stated[number + 1 :]), nested)
            yield _stating(program, target, path, (*stated, (name, dtype)), nested)
        for formal in shape.formals:
            if formal.name not in dict(stated):
                yield _stating(program, target, path, (*stated, (formal.name, formal.dtype)), nested)


def _stating(
    program: Program, target: SpatialTarget, path: tuple, operands: tuple[tuple[str, str], ...], nested: bool
) -> Mutant:
    numerics: Numerics = replace(program.shapes[path[1]].numerics, operands=operands)
    return Mutant(put(program, path, numerics), target, nested)


@mistake("transition that is not stated", "order", "coverage", "outside-fragment", "bounds")
def no_transition(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """What lasts says nothing of the rows that an epoch writes; or what does not last says something."""
    states = [tensor for tensor in program.tensors if tensor.role == "STATE"]
    for number, tensor in enumerate(program.tensors):
        if tensor.role == "STATE":
            yield Mutant(signed(put(program, ("tensors", number, "transition"), None)), target, False)
        elif states:
            stated = put(program, ("tensors", number, "transition"), states[0].transition)
            yield Mutant(signed(stated), target, False)


@mistake("step on an engine without its role", "capacity")
def without_role(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """The chip's engine does not do what the step asks of it; or a carry is set by a process that has none."""
    for number, engine in enumerate(target.engines):
        for role in engine.roles:
            poorer = replace(engine, roles=tuple(r for r in engine.roles if r != role))
            chip = replace(target, engines=(*target.engines[:number], poorer, *target.engines[number + 1 :]))
            used = any(p.engine == engine.name for s in program.shapes for p in s.processes)
            if used:
                yield Mutant(replace(program, target_digest=target_digest(chip)), chip, False)
    for s, shape in enumerate(program.shapes):
        for place in edits.steps(program, Init, Compute):
            if place.path[1] != s or not isinstance(place.step, Init):
                continue
            for p, process in enumerate(shape.processes):
                if p != place.path[3]:
                    body = (place.step, *process.body)
                    yield Mutant(put(program, ("shapes", s, "processes", p, "body"), body), target, False)
