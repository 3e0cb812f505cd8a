"""Programs with one fault of choreography each, and what SPIN calls it. Edits of tiny programs that are right."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from pavane.ir.program import Counter, Node, Post, Program, Push, Reserve, Wait
from pavane.ir.quasi import quasi
from pavane.targets.load import load_target
from tests.building import SX, X, rect, site, window
from tests.checker import editing as e
from tests.checker.two_sections import twice_on_host, twice_on_toy
from tests.spin.programs import SIDE, multicast_pair, pipeline

TOY, HOST = load_target("toy"), load_target("host", 2)
LINE, PAIR, TWO, CORES = pipeline(TOY), multicast_pair(TOY), twice_on_toy(TOY), twice_on_host(HOST, 8, 70)


@dataclass(frozen=True)
class Faulty:
    """A right program, the edit that breaks it, and how SPIN's words for the fault begin (any of them)."""

    program: Program
    edit: e.Edit
    words: tuple[str, ...]


def _swapped(process: str, first: int) -> e.Edit:
    """Two neighbouring steps of the innermost loop exchanged."""

    def change(steps: tuple[Node, ...]) -> tuple[Node, ...]:
        return (*steps[:first], steps[first + 1], steps[first], *steps[first + 2 :])

    return e.in_process(process, lambda body: _inner(body, change))


def _inner(body: tuple, change) -> tuple:
    if len(body) == 1 and hasattr(body[0], "body"):
        return (replace(body[0], body=_inner(body[0].body, change)),)
    return change(body)


def _turns(worker: str, change) -> e.Edit:
    """Edit what a worker does in an epoch."""

    def edit(program: Program) -> Program:
        workers = tuple(replace(w, body=change(w.body)) if w.name == worker else w for w in program.workers)
        return replace(program, workers=workers)

    return edit


def _without(kind: type) -> e.Edit:
    return lambda turns: tuple(t for t in turns if not isinstance(t, kind))


def _not_to(counter: str) -> e.Edit:
    return lambda turns: tuple(t for t in turns if not isinstance(t, Post) or t.counter != counter)


def _bits(name: str, bits: int) -> e.Edit:
    return lambda program: replace(
        program, counters=tuple(replace(c, bits=bits) if c.name == name else c for c in program.counters)
    )


def _first_wait_first(turns: tuple) -> tuple:
    """The writer of TWO waits for the others before it posts."""
    return (turns[0], turns[2], turns[1], *turns[3:])


def _both_slots_first(steps: tuple[Node, ...]) -> tuple[Node, ...]:
    """A core of CORES fills two slots of fI before it takes one: right with two slots."""
    filling, rest = steps[:3], steps[3:]
    return (*filling, *filling, *rest, *rest)


TWO_SLOTS = e.in_process("core", lambda body: _inner(body, _both_slots_first))(e.fifo("fI", depth=2)(CORES))

TICK = Counter("tick", rect(0, 1, 0, 1), "writer", bits=TOY.counters.bits, id=0)
TICKING = e.every(
    e.at_step("read", 3, lambda step: (step, Post("tick", site(0, 0)))),
    e.at_step("write", 0, lambda step: (Wait("tick"), step)),
    lambda program: e.in_shape(program, lambda shape: replace(shape, counters=(TICK,))),
)(LINE)

FAULTS: dict[str, Faulty] = {
    "a dropped post": Faulty(PAIR, e.without("receive", 1), ("deadlock",)),
    "a dropped wait for credit": Faulty(PAIR, e.without("lead", 3), ("multicast",)),
    "a dropped wait for the data": Faulty(PAIR, e.without("receive", 2), ("multicast",)),
    "a dropped fence of a load": Faulty(LINE, e.without("read", 2), ("race",)),
    "a dropped fence of a send": Faulty(PAIR, e.without("lead", 5), ("multicast",)),
    "a dropped fence of a store": Faulty(LINE, e.without("write", 2), ("race", "unbalanced")),
    "one credit ahead": Faulty(PAIR, e.counter("credit", ahead=1), ("multicast", "unbalanced")),
    "a post of two": Faulty(PAIR, e.with_fields("lead", 6, n=2), ("unbalanced", "multicast")),
    "a wait for two": Faulty(PAIR, e.with_fields("receive", 2, n=2), ("deadlock",)),
    "a send before the credit": Faulty(PAIR, _swapped("lead", 3), ("multicast",)),
    "a slot pushed before its load is done": Faulty(LINE, _swapped("read", 2), ("race",)),
    "a slot popped before its store is done": Faulty(LINE, _swapped("write", 2), ("race",)),
    "a slot popped while it is read": Faulty(
        LINE, e.every(_swapped("compute", 3), _swapped("compute", 2)), ("misuse",)
    ),
    "two sites store to one place": Faulty(
        PAIR, e.with_fields("write", 1, window=window((SIDE * SX // 2, SIDE), (SIDE * X, SIDE), row=0)), ("race",)
    ),
    "two processes push one FIFO": Faulty(
        LINE, e.at_step("write", 0, lambda step: (Reserve("fI"), Push("fI"), step)), ("misuse", "unbalanced")
    ),
    "one slot too few": Faulty(TWO_SLOTS, e.fifo("fI", depth=1), ("deadlock",)),
    "one push too many": Faulty(LINE, e.doubled("read", 3), ("misuse",)),
    "a turn too few": Faulty(LINE, e.loop_extent("write", "LV_ITEM_X", quasi(2)), ("unbalanced", "deadlock")),
    "a turn too many": Faulty(LINE, e.loop_extent("compute", "LV_ITEM_X", quasi(4)), ("deadlock",)),
    "no boundary for the reader": Faulty(
        TWO, e.every(_turns("reader_a", _without(Wait)), _turns("writer", _not_to("start.reader_a"))), ("race",)
    ),
    "a boundary that nobody begins": Faulty(TWO, _turns("writer", _first_wait_first), ("deadlock",)),
    "too few posters waited for": Faulty(
        TWO,
        _turns("writer", lambda turns: tuple(replace(t, n=3) if isinstance(t, Wait) else t for t in turns)),
        ("race", "unbalanced"),
    ),
    "too few bits": Faulty(TWO, _bits("go.writer", 2), ("overflow",)),
    "a post carried into the next epoch": Faulty(
        TWO, _turns("writer", lambda turns: (*turns, Post("start.matrix", rect(0, 1, 0, 1)))), ("unbalanced", "race")
    ),
    "posts that run ahead": Faulty(TICKING, e.counter("tick", bits=1), ("overflow",)),
}
