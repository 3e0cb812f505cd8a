"""The prover: evidence for a program, in a form that the checker can check by itself.

It may be clever and may be wrong; nothing that it says is trusted. Its evidence is one reference schedule a shape.
Raises ProgressRefused where it finds none.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.digest import program_digest
from pavane.ir.program import Certificate, Program, ShapeSchedule
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.verify.check.fragment import admit
from pavane.verify.check.section import resident
from pavane.verify.schedule import find_schedule


def prove(program: Program, target: SpatialTarget) -> Certificate:
    """The certificate of a PERSISTENT program; OutsideFragment when it is none that the checker reasons about."""
    program = admit(program, target)
    schedules = []
    for shape in program.shapes:
        processes = tuple(replace(process, body=resident(process.body)) for process in shape.processes)
        schedules.append(ShapeSchedule(shape.name, find_schedule(shape, processes)))
    return Certificate(program_digest(program), target_digest(target), tuple(schedules))
