"""Steps of one stage in an order that means something: what is held, what is still under way.

A state per body: slots reserved, slots held in front, FIFOs with a load or send that no fence has ended, FIFOs with
such a store. A loop must leave reserved and held as it found them; its turns are walked twice, so that what one turn
leaves under way meets the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pavane.ir.expr import Indirect
from pavane.ir.program import (
    Compute,
    Fence,
    Fifo,
    Front,
    Generic,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Pop,
    Push,
    Reserve,
    Send,
    Step,
    Store,
)
from pavane.ir.walk import operands
from pavane.validate.section import Section
from pavane.validate.violation import Finding, RuleTable


class _State:
    """What a stage holds at a point of its body, in the order in which it came to hold it."""

    def __init__(self) -> None:
        self.reserved: dict[str, None] = {}
        self.held: dict[str, None] = {}
        self.filling: dict[str, None] = {}
        self.storing: dict[str, None] = {}
        self.bound: dict[str, None] = {}

    def slots(self) -> tuple[frozenset[str], frozenset[str]]:
        return frozenset(self.reserved), frozenset(self.held)


def step_order(section: Section) -> Iterator[Finding]:
    """Reserve before load, write, push; front before read, store, pop; a fence after moves, before push or pop."""
    for body in section.bodies:
        state = _State()
        found = dict.fromkeys(_walk(body.nodes, section.fifos, state))
        yield from ((body.place, text) for text in found)
        yield from ((body.place, text) for text in _left_over(state))


def _walk(nodes: tuple[Node, ...], fifos: Mapping[str, Fifo], state: _State) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Loop):
            yield from _walk_loop(node, fifos, state)
        else:
            yield from _step(node, fifos, state)


def _walk_loop(loop: Loop, fifos: Mapping[str, Fifo], state: _State) -> Iterator[str]:
    before = state.slots()
    yield from _walk(loop.body, fifos, state)
    if state.slots() != before:
        yield f"a turn of {loop.var} ends with other slots reserved or held than it began with"
        return
    if state.filling or state.storing:
        yield from _walk(loop.body, fifos, state)


def _step(step: Step, fifos: Mapping[str, Fifo], state: _State) -> Iterator[str]:
    if isinstance(step, Reserve):
        yield from _take(state.reserved, step.fifo, "reserves")
        state.bound.pop(step.fifo, None)
    elif isinstance(step, Front):
        yield from _take(state.held, step.fifo, "fronts")
    elif isinstance(step, Push):
        yield from _give(state.reserved, state.filling, step.fifo, "pushes")
    elif isinstance(step, Pop):
        yield from _give(state.held, state.storing, step.fifo, "pops")
    elif isinstance(step, Load):
        yield from _load(step, fifos, state)
    elif isinstance(step, Send | Store):
        yield from _send_or_store(step, state)
    elif isinstance(step, Fence):
        state.filling.clear()
        state.storing.clear()
    elif isinstance(step, Compute):
        yield from _compute(step, fifos, state)


def _take(slots: dict[str, None], fifo: str, verb: str) -> Iterator[str]:
    if fifo in slots:
        yield f"{verb} {fifo} while it has a slot of it"
    slots[fifo] = None


def _give(slots: dict[str, None], under_way: Mapping[str, None], fifo: str, verb: str) -> Iterator[str]:
    if fifo not in slots:
        yield f"{verb} {fifo} without a slot of it"
    if fifo in under_way:
        yield f"{verb} {fifo} before a fence has ended what moves it"
    slots.pop(fifo, None)


def _load(step: Load, fifos: Mapping[str, Fifo], state: _State) -> Iterator[str]:
    if step.fifo not in state.reserved:
        yield f"loads into {step.fifo} without having reserved a slot"
    if fifos[step.fifo].kind != "ALIAS":
        state.filling[step.fifo] = None
    elif step.fifo in state.bound or step.row.terms or step.row.const:
        yield f"binds the alias {step.fifo} a second time, or not from its row 0"
    state.bound[step.fifo] = None
    for start in step.window.start:
        if isinstance(start, Indirect) and start.via not in state.held:
            yield f"takes an index from {start.via}, which is not in front"


def _send_or_store(step: Send | Store, state: _State) -> Iterator[str]:
    if isinstance(step, Send):
        if step.fifo not in state.reserved:
            yield f"sends {step.fifo} without having reserved a slot"
        if step.fifo in state.filling:
            yield f"sends {step.fifo} before a fence has ended what moves it"
        state.filling[step.fifo] = None
    else:
        if step.fifo not in state.held:
            yield f"stores {step.fifo} without a slot in front"
        state.storing[step.fifo] = None


def _compute(step: Compute, fifos: Mapping[str, Fifo], state: _State) -> Iterator[str]:
    target = step.op.dst.name
    if target in fifos and target not in state.reserved:
        yield f"writes {target} without having reserved a slot"
    for name in operands(step.op):
        if name not in fifos:
            continue
        if name in state.reserved and name in state.held:
            yield f"reads {name} while it has a slot of it at both ends"
        elif name not in state.reserved and name not in state.held:
            yield f"reads {name} without a slot in front"
        if name in state.filling:
            yield f"reads {name} before a fence has ended what moves it"


def _left_over(state: _State) -> Iterator[str]:
    for slots, verb in (
        (state.reserved, "reserved"),
        (state.held, "held"),
        (state.filling, "loading"),
        (state.storing, "storing"),
    ):
        yield from (f"ends with {fifo} still {verb}" for fifo in slots)


def initialised(section: Section) -> Iterator[Finding]:
    """A carry that a product adds into is set by an Init or a Generic somewhere in its stage."""
    for body in section.bodies:
        steps = [step for _, _, step in body.steps]
        ops = [step.op for step in steps if isinstance(step, Compute)]
        ready = {step.carry for step in steps if isinstance(step, Init)} | {
            op.dst.name for op in ops if isinstance(op, Generic)
        }
        for op in ops:
            if isinstance(op, MatmulTiles) and op.dst.name in section.carries and op.dst.name not in ready:
                yield body.place, f"adds into the carry {op.dst.name}, which nothing sets"


RULES: RuleTable[Section] = (
    ("order.step", step_order),
    ("order.initial", initialised),
)
