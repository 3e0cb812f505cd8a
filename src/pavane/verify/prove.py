"""The prover: evidence for a program, in a form that the checker can check by itself.

It may be clever and may be wrong; nothing that it says is trusted. Its evidence is one reference schedule a shape.
Raises ProgressRefused where it finds none.
"""

from __future__ import annotations

from contextlib import suppress

from pavane.ir.digest import program_digest
from pavane.ir.program import Certificate, Program, Shape, ShapeSchedule
from pavane.ir.quasi import Domain
from pavane.ir.walk import symbol_domain
from pavane.reject import ProgressRefused
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.verify.check.fragment import admit
from pavane.verify.check.resident import resident, written_out
from pavane.verify.schedule import Schedule, find_schedule


def prove(program: Program, target: SpatialTarget) -> Certificate:
    """The certificate of a PERSISTENT program; OutsideFragment when it is none that the checker reasons about."""
    program = admit(program, target)
    symbols = symbol_domain(program)
    schedules = tuple(ShapeSchedule(shape.name, _schedule(shape, symbols)) for shape in program.shapes)
    return Certificate(program_digest(program), target_digest(target), schedules)


def _schedule(shape: Shape, symbols: Domain) -> Schedule:
    """A schedule by turns of loops; where there is none, of the steps with their loops written out."""
    plain = resident(shape, symbols)
    try:
        return find_schedule(shape, plain)
    except ProgressRefused:
        longer = written_out(shape, symbols)
        with suppress(ProgressRefused):
            if longer != plain:
                return find_schedule(shape, longer)
        raise
