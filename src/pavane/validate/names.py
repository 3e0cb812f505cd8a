"""Every name is unique among its kind, and every reference finds what it names.

Rules after these look names up without asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pavane.ir.expr import At, Indirect, names
from pavane.ir.expr import walk as walk_expr
from pavane.ir.program import (
    Compute,
    Front,
    Generic,
    Init,
    Load,
    MatmulTiles,
    Pop,
    Post,
    Program,
    Push,
    Reserve,
    Run,
    Send,
    Step,
    Store,
    Wait,
)
from pavane.validate.section import Section
from pavane.validate.violation import Finding, RuleTable


def unique_in_program(program: Program) -> Iterator[Finding]:
    """Symbols, tensors, shapes, counters, workers; instances where they are named."""
    yield from _unique("symbol", (s.name for s in program.symbols))
    yield from _unique("tensor", (t.name for t in program.tensors))
    yield from _unique("shape", (s.name for s in program.shapes))
    yield from _unique("counter", (c.name for c in program.counters))
    yield from _unique("worker", (w.name for w in program.workers))
    yield from _unique("instance", (i.name for i in program.instances if i.name))


def instances_resolved(program: Program) -> Iterator[Finding]:
    """An instance's shape exists, and each of its formals is bound once to a tensor that exists."""
    shapes = {shape.name: shape for shape in reversed(program.shapes)}
    tensors = {tensor.name for tensor in program.tensors}
    for number, instance in enumerate(program.instances):
        place = f"instance {number} {instance.name}".rstrip()
        if instance.shape not in shapes:
            yield place, f"no shape is named {instance.shape!r}"
            continue
        formals = [formal.name for formal in shapes[instance.shape].formals]
        bound = [binding.formal for binding in instance.bindings]
        yield from (
            (place, f"formal {f!r} is bound {bound.count(f)} times, not once") for f in formals if bound.count(f) != 1
        )
        yield from ((place, f"no formal is named {b!r}") for b in bound if b not in formals)
        yield from ((place, f"no tensor is named {b.tensor!r}") for b in instance.bindings if b.tensor not in tensors)


def workers_resolved(program: Program) -> Iterator[Finding]:
    """What a worker runs, waits for and posts exists."""
    processes = {shape.name: {p.name for p in shape.processes} for shape in program.shapes}
    counters = {counter.name for counter in program.counters}
    for worker in program.workers:
        place = f"worker {worker.name}"
        for turn in worker.body:
            if not isinstance(turn, Run):
                if turn.counter not in counters:
                    yield place, f"no counter of the program is named {turn.counter!r}"
            elif not 0 <= turn.instance < len(program.instances):
                yield place, f"there is no instance {turn.instance}"
            elif turn.process not in processes.get(program.instances[turn.instance].shape, ()):
                yield place, f"instance {turn.instance} has no process {turn.process!r}"


def schedules_resolved(program: Program) -> Iterator[Finding]:
    """A certificate speaks of shapes that exist."""
    shapes = {shape.name for shape in program.shapes}
    for schedule in program.certificate.schedules if program.certificate else ():
        if schedule.shape not in shapes:
            yield "certificate", f"no shape is named {schedule.shape!r}"


def unique_in_section(section: Section) -> Iterator[Finding]:
    """Formals; FIFOs and carries together (an operand names one of them); counters; stages, groups, processes."""
    shape = section.shape
    kinds: tuple[tuple[str, Iterable[str]], ...] = (
        ("formal", (f.name for f in shape.formals)),
        ("FIFO or carry", (b.name for b in section.buffers())),
        ("counter", (c.name for c in shape.counters)),
        ("group", (g.name for g in shape.groups)),
        ("stage or process", (b.name for b in section.bodies)),
    )
    for kind, found in kinds:
        yield from ((section.place, message) for _, message in _unique(kind, found))


def steps_resolved(section: Section) -> Iterator[Finding]:
    """Steps name FIFOs, carries, counters and formals of their section."""
    tables: dict[str, tuple[str, ...]] = {
        "FIFO": tuple(section.fifos),
        "carry": tuple(section.carries),
        "counter": tuple(section.counters),
        "formal": tuple(section.formals),
        "FIFO or carry": (*section.fifos, *section.carries),
    }
    for body in section.bodies:
        for place, _, step in body.steps:
            for kind, name in _references(step):
                if name not in tables[kind]:
                    yield place, f"no {kind} of the section is named {name!r}"


def _references(step: Step) -> Iterator[tuple[str, str]]:
    if isinstance(step, Reserve | Push | Front | Pop | Send):
        yield "FIFO", step.fifo
    elif isinstance(step, Load | Store):
        yield from (("FIFO", step.fifo), ("formal", step.tensor))
        for start in step.window.start:
            if isinstance(start, Indirect):
                yield from (("formal", start.tensor), ("FIFO", start.via))
    elif isinstance(step, Init):
        yield "carry", step.carry
    elif isinstance(step, Post | Wait):
        yield "counter", step.counter
    elif isinstance(step, Compute):
        yield from (("FIFO or carry", name) for name in _op_names(step.op))


def _op_names(op: Generic | MatmulTiles) -> tuple[str, ...]:
    if isinstance(op, Generic):
        return (op.dst.name, *names(op.expr))
    return (op.dst.name, op.a.name, op.b.name)


def specs_resolved(section: Section) -> Iterator[Finding]:
    """A spec speaks of formals only."""
    for spec in section.shape.spec:
        place = f"{section.place}, spec of {spec.out}"
        if spec.out not in section.formals:
            yield place, f"no formal is named {spec.out!r}"
        for expr in walk_expr(spec.expr):
            if isinstance(expr, At):
                found = (expr.name, *(i.tensor for i in expr.index if isinstance(i, Indirect)))
                yield from ((place, f"no formal is named {name!r}") for name in found if name not in section.formals)


def numerics_resolved(section: Section) -> Iterator[Finding]:
    """Numerics speak of formals."""
    for name, _ in section.shape.numerics.operands:
        if name not in section.formals:
            yield f"{section.place}, numerics", f"no formal is named {name!r}"


def _unique(kind: str, found: Iterable[str]) -> Iterator[Finding]:
    counts: dict[str, int] = {}
    for name in found:
        counts[name] = counts.get(name, 0) + 1
    for name, times in counts.items():
        if times > 1:
            yield "program", f"{times} times a {kind} is named {name!r}"
        if not name:
            yield "program", f"a {kind} has no name"


PROGRAM_RULES: RuleTable[Program] = (
    ("names.unique", unique_in_program),
    ("names.instance", instances_resolved),
    ("names.worker", workers_resolved),
    ("names.certificate", schedules_resolved),
)
SECTION_RULES: RuleTable[Section] = (
    ("names.unique", unique_in_section),
    ("names.step", steps_resolved),
    ("names.spec", specs_resolved),
    ("names.numerics", numerics_resolved),
)
