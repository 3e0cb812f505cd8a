"""FIFOs, carries and counters: sizes, and who may use an end of them.

Each FIFO has one stage that reserves and pushes and one that fronts and pops; a carry and a counter's waiting belong
to one stage. On PERSISTENT programs, and for the groups of a multicast, that holds site by site: several may, on
rectangles that do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from pavane.ir.program import (
    Compute,
    Counter,
    Front,
    Init,
    Load,
    MatmulTiles,
    Pop,
    Post,
    Program,
    Push,
    Rect,
    Reserve,
    Send,
    Step,
    Store,
    Wait,
)
from pavane.ir.rects import inside
from pavane.ir.types import block_elements
from pavane.ir.walk import operands
from pavane.validate.section import Body, Section, is_constant
from pavane.validate.violation import Finding, RuleTable


def slots(section: Section) -> Iterator[Finding]:
    """Slots and carries have at least one element; types in blocks have whole ones; depths are not negative."""
    for buffer in section.buffers():
        place = f"{section.place}, {buffer.name}"
        if buffer.rows < 1 or buffer.cols < 1:
            yield place, f"a buffer of {buffer.rows} x {buffer.cols}"
        if buffer.cols % block_elements(buffer.dtype):
            yield (
                place,
                f"{buffer.cols} columns of {buffer.dtype} are not whole blocks of {block_elements(buffer.dtype)}",
            )
    for fifo in section.shape.fifos:
        if fifo.depth < 0:
            yield f"{section.place}, {fifo.name}", f"depth {fifo.depth}"


def fifo_ends(section: Section) -> Iterator[Finding]:
    """One stage pushes, one pops."""
    for fifo in section.shape.fifos:
        place = f"{section.place}, FIFO {fifo.name}"
        pushing = _users(section, partial(_fills, fifo.name))
        popping = _users(section, partial(_drains, fifo.name))
        if not pushing or not popping:
            yield place, f"{'no stage pushes' if not pushing else 'no stage pops'}"
        yield from _shared(place, "fill it", pushing)
        yield from _shared(place, "take from it", popping)


def _fills(fifo: str, step: Step) -> bool:
    return isinstance(step, Reserve | Load | Push | Send) and step.fifo == fifo


def _drains(fifo: str, step: Step) -> bool:
    return isinstance(step, Front | Pop | Store) and step.fifo == fifo


def carry_owners(section: Section) -> Iterator[Finding]:
    """A carry belongs to one stage."""
    for carry in section.shape.carries:
        users = _users(section, partial(_touches, carry.name))
        yield from _shared(f"{section.place}, carry {carry.name}", "use it", users)


def _touches(carry: str, step: Step) -> bool:
    if isinstance(step, Init):
        return step.carry == carry
    return isinstance(step, Compute) and (step.op.dst.name == carry or carry in operands(step.op))


def aliases(section: Section) -> Iterator[Finding]:
    """An alias is a window of a tensor that the section only reads: nothing is written or sent into it."""
    for body in section.bodies:
        for place, _, step in body.steps:
            if isinstance(step, Load | Send):
                if section.fifos[step.fifo].kind == "ALIAS" and (
                    isinstance(step, Send) or section.formals[step.tensor].role != "IN"
                ):
                    yield place, f"the alias {step.fifo} is for tensors that are only read"
            elif isinstance(step, Compute):
                fifo = section.fifos.get(step.op.dst.name)
                if fifo is not None and fifo.kind == "ALIAS":
                    yield place, f"writes into the alias {fifo.name}"


def counters(section: Section) -> Iterator[Finding]:
    """A counter has bits, is waited for by one process a site of its rectangle on its engine, and is posted."""
    for counter in section.shape.counters:
        place = f"{section.place}, counter {counter.name}"
        waiting = _users(section, partial(_handshakes, Wait, counter.name))
        posting = _users(section, partial(_handshakes, Post, counter.name))
        yield from ((place, text) for text in _counter_faults(counter))
        if not waiting or not posting:
            yield place, "nobody waits for it" if not waiting else "nobody posts to it"
        for body in waiting:
            if (body.engine, body.rect) != (counter.engine, counter.rect):
                yield place, f"{body.name} waits for it with another engine or rectangle"
        yield from _shared(place, "wait for it", waiting)
    for body in section.bodies:
        for place, _, step in body.steps:
            if isinstance(step, Post | Wait):
                yield from ((place, text) for text in _amount_faults(step, section.counters[step.counter]))


def program_counters(program: Program) -> Iterator[Finding]:
    """The same, for what workers wait for and post between sections."""
    counters = {counter.name: counter for counter in program.counters}
    for counter in program.counters:
        yield from ((f"counter {counter.name}", text) for text in _counter_faults(counter))
    for worker in program.workers:
        for turn in worker.body:
            if isinstance(turn, Post | Wait):
                counter = counters[turn.counter]
                place = f"worker {worker.name}, {type(turn).__name__.lower()} {counter.name}"
                yield from ((place, text) for text in _amount_faults(turn, counter))
                waits_here = worker.engine == counter.engine and inside(worker.rect, counter.rect)
                if isinstance(turn, Wait) and not waits_here:
                    yield place, "waits for it with another engine or on other sites"


def _handshakes(kind: type[Post] | type[Wait], counter: str, step: Step) -> bool:
    return isinstance(step, kind) and step.counter == counter


def _counter_faults(counter: Counter) -> Iterator[str]:
    if not 2 <= counter.bits <= 64:
        yield f"{counter.bits} bits; 2 to 64 are allowed"
    elif not 0 <= counter.ahead <= 1 << (counter.bits - 1):
        yield f"starts at {counter.ahead}, outside 0 to {1 << (counter.bits - 1)}"
    if not is_constant(counter.rect):
        yield "has a rectangle that is not four numbers"


def _amount_faults(step: Post | Wait, counter: Counter) -> Iterator[str]:
    most = 1 << (max(2, min(64, counter.bits)) - 1)
    if not 1 <= step.n <= most:
        yield f"{step.n} at once on a counter of {counter.bits} bits; 1 to {most} are allowed"


def _users(section: Section, uses: Callable[[Step], bool]) -> tuple[Body, ...]:
    return tuple(body for body in section.bodies if any(uses(step) for _, _, step in body.steps))


def _shared(place: str, verb: str, users: tuple[Body, ...]) -> Iterator[Finding]:
    for number, one in enumerate(users):
        for other in users[number + 1 :]:
            if one.rect is None or other.rect is None or _overlap(one.rect, other.rect):
                yield place, f"{one.name} and {other.name} both {verb} on one site"


def _overlap(one: Rect, other: Rect) -> bool:
    if not (is_constant(one) and is_constant(other)):
        return True
    across = one.x0.const < other.x1.const and other.x0.const < one.x1.const
    return across and one.y0.const < other.y1.const and other.y0.const < one.y1.const


def operand_kinds(section: Section) -> Iterator[Finding]:
    """A product adds into a buffer of the section's accumulator type."""
    for body in section.bodies:
        for place, _, step in body.steps:
            if isinstance(step, Compute) and isinstance(step.op, MatmulTiles):
                found = section.buffer(step.op.dst.name).dtype
                if found != section.shape.numerics.accumulator:
                    yield place, f"adds into {found}; the section's accumulator is {section.shape.numerics.accumulator}"


SECTION_RULES: RuleTable[Section] = (
    ("buffer.slot", slots),
    ("buffer.ends", fifo_ends),
    ("buffer.carry", carry_owners),
    ("buffer.alias", aliases),
    ("buffer.counter", counters),
    ("buffer.accumulator", operand_kinds),
)
PROGRAM_RULES: RuleTable[Program] = (("buffer.counter", program_counters),)
