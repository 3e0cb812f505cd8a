"""What a program has, and has not yet, at each phase.

TEMPLATE      groups without rectangles, nothing chosen        PLACED        rectangles; SITE_X, SITE_Y in indices
TILED         a plan                                           SIZED         depths and addresses
FUSED         multicast FIFOs                                  SYNCHRONIZED  counters, posts, waits, sends
PERSISTENT    processes instead of groups, workers             VERIFIED      a certificate
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pavane.ir.program import Post, Program, Run, Send, Wait
from pavane.ir.rects import area, covers
from pavane.validate.section import Section, is_constant, level_of
from pavane.validate.violation import Finding, RuleTable

TILED, FUSED, PLACED, SIZED = (level_of(p) for p in ("TILED", "FUSED", "PLACED", "SIZED"))
SYNCHRONIZED, PERSISTENT, VERIFIED = (level_of(p) for p in ("SYNCHRONIZED", "PERSISTENT", "VERIFIED"))


def program_parts(program: Program) -> Iterator[Finding]:
    """Before PERSISTENT a program is one section without workers; a certificate is what VERIFIED means."""
    level = level_of(program.phase)
    if level < PERSISTENT:
        if len(program.shapes) != 1 or len(program.instances) != 1:
            yield (
                "program",
                f"{len(program.shapes)} shapes, {len(program.instances)} instances; one of each before PERSISTENT",
            )
        if program.workers or program.counters:
            yield "program", "workers or counters of the program before PERSISTENT"
    if (level == VERIFIED) != (program.certificate is not None):
        yield "program", f"a certificate is {'missing' if level == VERIFIED else 'there'} at {program.phase}"


def groups_or_processes(section: Section) -> Iterator[Finding]:
    """Groups of stages up to SYNCHRONIZED, processes from PERSISTENT on; never both, never neither."""
    shape, resident = section.shape, section.level >= PERSISTENT
    if resident and (shape.groups or not shape.processes):
        yield section.place, f"needs processes and no groups at {section.program.phase}"
    if not resident and (shape.processes or not shape.groups):
        yield section.place, f"needs groups and no processes at {section.program.phase}"


def plan(section: Section) -> Iterator[Finding]:
    """A plan is chosen by `tile`; once processes stand, it is a memory and may be missing."""
    if section.level < TILED and section.shape.plan is not None:
        yield section.place, "has a plan before TILED"
    if TILED <= section.level < PERSISTENT and section.shape.plan is None:
        yield section.place, f"has no plan at {section.program.phase}"


def rectangles(section: Section) -> Iterator[Finding]:
    """Groups get rectangles of constants at PLACED; processes have them."""
    for body in section.bodies:
        if section.level < PLACED and body.rect is not None:
            yield body.place, "has a rectangle before PLACED"
        elif section.level >= PLACED and body.rect is None:
            yield body.place, f"has no rectangle at {section.program.phase}"
        elif body.rect is not None and not is_constant(body.rect):
            yield body.place, "has a rectangle that is not four numbers"


def layout(section: Section) -> Iterator[Finding]:
    """Addresses are chosen at SIZED, with depths; an alias has no address, ever."""
    sized = section.level >= SIZED
    for fifo in section.shape.fifos:
        place = f"{section.place}, FIFO {fifo.name}"
        if sized and fifo.depth < 1:
            yield place, f"depth {fifo.depth} at {section.program.phase}"
        yield from _address(place, fifo.address, sized and fifo.kind != "ALIAS", section.program.phase)
    for carry in section.shape.carries:
        yield from _address(f"{section.place}, carry {carry.name}", carry.address, sized, section.program.phase)


def _address(place: str, address: int, wanted: bool, phase: str) -> Iterator[Finding]:
    if wanted and address < 0:
        yield place, f"has no address at {phase}"
    if not wanted and address != -1:
        yield place, f"has the address {address}, but none belongs there at {phase}"


def multicast(section: Section) -> Iterator[Finding]:
    """Multicast FIFOs are what `fuse_readers` makes."""
    if section.level < FUSED:
        for fifo in section.shape.fifos:
            if fifo.kind.startswith("MULTICAST"):
                yield f"{section.place}, FIFO {fifo.name}", "is multicast before FUSED"


def handshakes(section: Section) -> Iterator[Finding]:
    """Counters and the steps that use them, and sends, are what `synthesize_handshakes` makes."""
    if section.level >= SYNCHRONIZED:
        return
    if section.shape.counters:
        yield section.place, f"has counters at {section.program.phase}"
    for body in section.bodies:
        for place, _, step in body.steps:
            if isinstance(step, Post | Wait | Send):
                yield place, f"stands at {section.program.phase}, before SYNCHRONIZED"


def workers(program: Program) -> Iterator[Finding]:
    """Each process of each instance is run on each of its sites once, by workers of its engine, instances in order."""
    if level_of(program.phase) < PERSISTENT:
        return
    shapes = {shape.name: {p.name: p for p in shape.processes} for shape in program.shapes}
    listed = {shape.name: shape for shape in program.shapes}
    sites: dict[tuple[int, str], int] = {}
    for worker in program.workers:
        done = [turn for turn in worker.body if isinstance(turn, Run)]
        if any(later.instance < earlier.instance for earlier, later in pairwise(done)):
            yield f"worker {worker.name}", "runs instances out of order"
        for turn in done:
            shape = listed[program.instances[turn.instance].shape]
            process = shapes[shape.name][turn.process]
            sites[turn.instance, turn.process] = sites.get((turn.instance, turn.process), 0) + area(worker.rect)
            if process.engine != worker.engine or not covers(shape, process, worker.rect):
                yield (
                    f"worker {worker.name}",
                    f"runs {turn.process} of instance {turn.instance}, which has another engine or other sites",
                )
    for number, instance in enumerate(program.instances):
        for name, process in shapes[instance.shape].items():
            if sites.get((number, name), 0) != area(process.rect):
                yield f"instance {number}", f"process {name} is not run once an epoch on each of its sites"


PROGRAM_RULES: RuleTable[Program] = (("phase.program", program_parts), ("phase.workers", workers))
SECTION_RULES: RuleTable[Section] = (
    ("phase.parts", groups_or_processes),
    ("phase.plan", plan),
    ("phase.rectangle", rectangles),
    ("phase.layout", layout),
    ("phase.multicast", multicast),
    ("phase.handshake", handshakes),
)
