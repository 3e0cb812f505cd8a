"""persist: SYNCHRONIZED -> PERSISTENT. One resident process per engine and rectangle, and one worker for each.

Stages that share an engine become one process with a written order: the reference schedule of all stages
(`verify.schedule`), restricted to that engine. Where only some sites of an engine run a stage (leaders, members) the
rectangle is cut, and SITE_X, SITE_Y count inside the part.

Refuses with ProgressRefused when no order of the steps completes.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.program import Process, Program, Run, Shape, Worker
from pavane.passes.section import rect_of, section_of, with_section
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.schedule import merge_stages


def persist(program: Program, target: SpatialTarget) -> Program:
    """The section as processes, and the workers that run them forever."""
    shape = section_of(program, "SYNCHRONIZED")
    processes = merge_stages(_stages(shape), shape)
    workers = tuple(Worker(p.name, p.rect, p.engine, (Run(0, p.name),)) for p in processes)
    return replace(with_section(program, replace(shape, groups=(), processes=processes), "PERSISTENT"), workers=workers)


def _stages(shape: Shape) -> tuple[Process, ...]:
    """Every stage as a process of its own: its group's rectangle, producers first, a name nobody else has."""
    alone = [stage.name for group in shape.groups for stage in group.stages]
    found = []
    for group in shape.groups:
        for stage in group.stages:
            name = stage.name if alone.count(stage.name) == 1 else f"{group.name}.{stage.name}"
            found.append(Process(name, rect_of(group), stage.engine, stage.body, stage.registers))
    return tuple(found)
