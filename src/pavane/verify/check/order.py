"""Order: every two conflicting accesses to the same bytes are ordered by happens-before; what is read has been written
(`initialised`).

*Inside a section.* A process touches a slot only while it owns it and after its transfers have ended (`ownership`);
slots go from pusher to popper and back through the FIFO; a carry belongs to one process of a site; buffers are
disjoint (`capacity`); a formal that is stored is not loaded and shares bytes with no other formal (`coverage`,
`bindings`), and its windows are disjoint (`coverage`). So no two accesses of one section to the same bytes are
unordered.

*Between sections.* The workers' turns are walked once on clocks (`boundaries`); every access is compared with those of
the sections before it: to tensors (`order_of_tensors`), to local memory and counters (`order_of_memory`).
"""

from __future__ import annotations

from functools import partial

from pavane.reject import OrderRefused, OutsideFragment
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.check.bindings import Memory
from pavane.verify.check.boundaries import Access, walk_program
from pavane.verify.check.boxes import clashing
from pavane.verify.check.initialised import initialised
from pavane.verify.check.order_of_memory import LocalUses, local_order, shared_counters
from pavane.verify.check.order_of_tensors import TensorUses, tensor_order
from pavane.verify.check.ownership import ownership
from pavane.verify.check.scope import MAX_PAIRS
from pavane.verify.check.section import Section
from pavane.verify.check.values import Evidence

MAX_ACCESSES = 1 << 17


def section_order(section: Section) -> str:
    """Ownership of slots and carries inside a section."""
    steps = sum(ownership(section, actor) for actor in section.actors)
    for name in section.carries:
        if both := clashing((actor.name, actor.box) for actor in section.users(name)):
            raise OrderRefused(f"{' and '.join(both)} both use carry {name}", where=section.where)
    return f"{steps} steps own what they touch"


def program_order(memory: Memory, evidence: dict[str, Evidence], target: SpatialTarget) -> str:
    """Accesses of different sections, in the order in which the workers run them; evidence by shape."""
    program = memory.program
    initialised(memory)
    shared_counters(memory)
    untold: frozenset[str] = frozenset()
    while True:
        tensors, local = TensorUses(memory), LocalUses(memory, evidence, target)
        walk = walk_program(program, memory.sections, partial(_visit, tensors, local), untold)
        if walk.ahead <= untold:
            break
        untold |= walk.ahead
    rounds = max(walk.waits.values(), default=0)
    counts = f"{len(program.instances)} sections, {len(program.workers)} workers, {rounds} boundaries"
    return f"{counts}, {tensors.compared + local.compared} pairs of accesses"


def _visit(tensors: TensorUses, local: LocalUses, access: Access) -> None:
    """Compare an access with those of the sections before it, of which there may be so many."""
    tensor_order(tensors, access)
    local_order(local, access)
    tensors.accesses += 1
    for what, count, most in (
        ("it has too many accesses, each a process of a section on one class of sites", tensors.accesses, MAX_ACCESSES),
        ("its sections touch the same bytes too often", tensors.compared + local.compared, MAX_PAIRS),
    ):
        if count > most:
            raise OutsideFragment(what, where=tensors.memory.program.name, available=f"{most}")
