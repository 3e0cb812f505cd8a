"""The section a pass works on: the one shape of a program before `compose`, taken out and put back; what one uses."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from pavane.ir.program import Group, Instance, Phase, Program, Rect, Shape, Store
from pavane.ir.walk import bodies, leaves
from pavane.reject import ProgramReject


def section_of(program: Program, *phases: Phase) -> Shape:
    """The program's shape. ProgramReject when the program is at another phase, or is not one section."""
    if program.phase not in phases:
        raise ProgramReject(
            f"this pass takes a program at {' or '.join(phases)}",
            where=program.name,
            needed=" or ".join(phases),
            available=program.phase,
            remedy="run the passes in the order of PASS_ORDER",
        )
    if len(program.shapes) != 1 or len(program.instances) != 1:
        raise ProgramReject(
            "the passes before `compose` take one section at a time",
            where=program.name,
            needed="1 shape and 1 instance",
            available=f"{len(program.shapes)} shapes and {len(program.instances)} instances",
            remedy="compile each section by itself and compose the verified sections",
        )
    return program.shapes[0]


def rect_of(group: Group) -> Rect:
    """The rectangle that `place` gave a group."""
    if group.rect is None:
        raise ProgramReject(f"group {group.name} has no rectangle", remedy="run `place` first")
    return group.rect


def with_section(program: Program, shape: Shape, phase: Phase) -> Program:
    """The program with its section replaced, at a new phase."""
    return replace(program, shapes=(shape,), phase=phase)


def with_tensors(section: Program, changes: Mapping[str, Mapping[str, object]]) -> Program:
    """The section with these fields of some tensors, and of the formals bound to them."""
    (shape,), (instance,) = section.shapes, section.instances
    bound = {b.formal: changes[b.tensor] for b in instance.bindings if b.tensor in changes}
    if not bound and not any(tensor.name in changes for tensor in section.tensors):
        return section
    formals = tuple(replace(f, **bound.get(f.name, {})) for f in shape.formals)
    tensors = tuple(replace(t, **changes.get(t.name, {})) for t in section.tensors)
    return replace(section, tensors=tensors, shapes=(replace(shape, formals=formals),))


def uses(shape: Shape, instance: Instance) -> tuple[frozenset[str], frozenset[str]]:
    """Tensors that an instance reads, and writes; at any phase."""
    stored = {step.tensor for _, body in bodies(shape) for _, step in leaves(body) if isinstance(step, Store)}
    roles = {formal.name: formal.role for formal in shape.formals}
    reads = frozenset(b.tensor for b in instance.bindings if roles[b.formal] != "OUT")
    return reads, frozenset(b.tensor for b in instance.bindings if b.formal in stored)
