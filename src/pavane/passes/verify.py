"""verify: PERSISTENT -> VERIFIED. Proves the program, has the independent checker accept the proof, attaches the
certificate.

Decides nothing. A section whose SCRATCH has no place yet is checked as a part of the program that `compose` will
make. The program that comes back is what its own canonical bytes decode to, so that a file of it has the digest that
is certified. Refuses with the class of the obligation that is not shown (NotProven and its subclasses), with a
witness.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.program import Program
from pavane.reject import OutsideFragment
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.check import check, check_part
from pavane.verify.check.fragment import admit
from pavane.verify.prove import prove


def verify(program: Program, target: SpatialTarget) -> Program:
    """The same program with its certificate."""
    if program.phase != "PERSISTENT":
        raise OutsideFragment(f"a program at {program.phase} is not ready to be verified", where=program.name)
    program = admit(program, target)
    certified = replace(program, phase="VERIFIED", certificate=prove(program, target))
    accept = check_part if _is_part(program) else check
    accept(certified, target)
    return certified


def _is_part(program: Program) -> bool:
    """One section that works on STATE or on what has no place yet, or reads an OUTPUT: no program by itself."""
    if len(program.instances) != 1:
        return False
    placed = {t.name for t in program.tensors if t.role == "SCRATCH" or t.home != "dram"}
    open_ = {t.name for t in program.tensors if t.role == "STATE" or (t.name in placed and t.offset < 0)}
    outputs = {t.name for t in program.tensors if t.role == "OUTPUT"}
    reads = {formal.name for formal in program.shapes[0].formals if formal.role == "IN"}
    return bool(open_) or any(b.formal in reads and b.tensor in outputs for b in program.instances[0].bindings)
