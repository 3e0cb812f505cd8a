"""What holds on one chip only: its name, its engines, its grid, and the kinds of FIFO it has.

How much of anything is used (memory, FIFOs, counters) is for passes to fit and for the checker to prove.
"""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.program import Compute, Init, Load, Post, Program, Rect, Send, Step, Store, Wait
from pavane.ir.quasi import Domain, quasi
from pavane.ir.rects import inside
from pavane.ir.walk import parts, symbol_domain
from pavane.targets.descriptor import EngineRole, SpatialTarget, target_digest
from pavane.validate.section import Section, greatest, is_constant, least, sections, site_domain
from pavane.validate.violation import Finding, RuleTable

OnTarget = tuple[Program, SpatialTarget]


def same_target(subject: OnTarget) -> Iterator[Finding]:
    """The program is for this chip, figure by figure."""
    program, target = subject
    if program.target != target.name:
        yield "program", f"is for {program.target!r}, not {target.name!r}"
    elif program.target_digest != target_digest(target):
        yield (
            "program",
            f"is for another description of {target.name!r}: {program.target_digest[:12]}",
        )


def engines(subject: OnTarget) -> Iterator[Finding]:
    """Stages, processes, workers and counters name engines of the chip that can do their steps."""
    program, target = subject
    able: dict[str, tuple[EngineRole, ...]] = {engine.name: engine.roles for engine in target.engines}
    named = [(f"worker {w.name}", w.engine) for w in program.workers]
    named += [
        (f"counter {c.name}", c.engine) for c in (*program.counters, *(c for s in program.shapes for c in s.counters))
    ]
    yield from ((place, f"there is no engine {engine!r}") for place, engine in named if engine not in able)
    for section in sections(program):
        yield from _body_engines(section, able)


def _body_engines(section: Section, able: dict[str, tuple[EngineRole, ...]]) -> Iterator[Finding]:
    for body in section.bodies:
        if body.engine not in able:
            yield body.place, f"there is no engine {body.engine!r}"
            continue
        needed = dict.fromkeys(role for _, _, step in body.steps if (role := _role(step)))
        yield from (
            (body.place, f"engine {body.engine!r} is no {role}") for role in needed if role not in able[body.engine]
        )


def _role(step: Step) -> EngineRole | None:
    if isinstance(step, Load | Send):
        return "reader"
    if isinstance(step, Compute | Init):
        return "compute"
    return "writer" if isinstance(step, Store) else None


def registers(subject: OnTarget) -> Iterator[Finding]:
    """Only where the engine has full sync does anything compute in it."""
    program, target = subject
    able = [engine.name for engine in target.engines if "FULL" in engine.windows]
    for shape in program.shapes:
        for part in parts(shape):
            if part.registers == "FULL" and part.engine not in able:
                yield f"section {shape.name}, {part.name}", f"engine {part.engine!r} has no full sync"


def rectangles(subject: OnTarget) -> Iterator[Finding]:
    """Rectangles are not empty and lie inside the grid."""
    program, target = subject
    for place, rect in _rectangles(program):
        if is_constant(rect):
            yield from ((place, text) for text in _rect_faults(rect, Domain(), target))


def _rectangles(program: Program) -> Iterator[tuple[str, Rect]]:
    yield from ((f"worker {w.name}", w.rect) for w in program.workers)
    yield from ((f"counter {c.name}", c.rect) for c in program.counters)
    for section in sections(program):
        yield from ((f"{section.place}, counter {c.name}", c.rect) for c in section.shape.counters)
        if not section.shape.sites:
            yield from ((body.place, body.rect) for body in section.bodies if body.rect is not None)


def listed_sites(subject: OnTarget) -> Iterator[Finding]:
    """A section along a list of sites: different ones of the grid, one for each place of its rectangles, and steps that
    name none.
    """
    program, target = subject
    for section in sections(program):
        sites = section.shape.sites
        if not sites:
            continue
        outside = [s for s in sites if not (0 <= s[0] < target.grid.width and 0 <= s[1] < target.grid.height)]
        yield from ((section.place, f"({x}, {y}) is no site of the grid") for x, y in outside)
        if len(set(sites)) < len(sites):
            yield section.place, "a site is listed twice"
        if target.alias:
            yield section.place, f"has a list of sites; engines of {target.name} address memory in place"
        line = Rect(quasi(0), quasi(len(sites)), quasi(0), quasi(1))
        for body in section.bodies:
            if body.rect is not None and is_constant(body.rect) and not inside(body.rect, line):
                yield body.place, f"stands beyond the section's {len(sites)} sites"
            yield from ((place, "names sites") for place, _, step in body.steps if isinstance(step, Post | Wait | Send))


def destinations(subject: OnTarget) -> Iterator[Finding]:
    """Posts and sends go to sites of the grid, whichever site does them."""
    program, target = subject
    for section in sections(program):
        for body in section.bodies:
            for place, nest, step in body.steps:
                if isinstance(step, Post | Send):
                    yield from ((place, text) for text in _rect_faults(step.to, section.domain(body, nest), target))
    for worker in program.workers:
        domain = site_domain(symbol_domain(program), worker.rect)
        for turn in worker.body:
            if isinstance(turn, Post):
                place = f"worker {worker.name}, post {turn.counter}"
                yield from ((place, text) for text in _rect_faults(turn.to, domain, target))


def _rect_faults(rect: Rect, domain: Domain, target: SpatialTarget) -> Iterator[str]:
    for first, end, extent, axis in (
        (rect.x0, rect.x1, target.grid.width, "x"),
        (rect.y0, rect.y1, target.grid.height, "y"),
    ):
        low, high, width = least(first, domain), greatest(end, domain), least(end - first, domain)
        if low is None or high is None or low < 0 or high > extent:
            yield f"{axis} from {first} to {end}, outside a grid of {target.grid.width} x {target.grid.height} sites"
        elif width is None or width < 1:
            yield f"{axis} from {first} to {end} may be empty"


def kinds(subject: OnTarget) -> Iterator[Finding]:
    """Aliases where engines address memory in place, multicast where there is one, counters of the chip's kind."""
    program, target = subject
    for shape in program.shapes:
        for fifo in shape.fifos:
            place = f"section {shape.name}, FIFO {fifo.name}"
            if fifo.kind == "ALIAS" and not target.alias:
                yield place, f"is an alias; engines of {target.name} reach local memory only"
            if fifo.kind.startswith("MULTICAST") and not target.noc.multicast:
                yield place, f"is multicast; {target.name} has none"
    for counter in (*program.counters, *(c for s in program.shapes for c in s.counters)):
        if counter.kind != target.counters.kind or counter.bits > target.counters.bits:
            known = f"{target.counters.kind} of {target.counters.bits} bits"
            yield f"counter {counter.name}", f"{counter.kind} of {counter.bits} bits; the chip has {known}"


RULES: RuleTable[OnTarget] = (
    ("target.same", same_target),
    ("target.engine", engines),
    ("target.registers", registers),
    ("target.rectangle", rectangles),
    ("target.sites", listed_sites),
    ("target.destination", destinations),
    ("target.kind", kinds),
)
