"""A section's shape with what every rule looks up: steps numbered and placed, who uses which end of which FIFO, and
domains.

Steps stand twice: `step` as written (SITE_X, SITE_Y count inside the process's rectangle), `placed` with SITE_X,
SITE_Y counted over the whole section, so that expressions of different processes can be compared. The
steps are those of `resident`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from pavane.ir.expr import Indirect
from pavane.ir.program import (
    SITE_X,
    SITE_Y,
    Carry,
    Compute,
    Counter,
    Fence,
    Fifo,
    Formal,
    Front,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Pop,
    Post,
    Process,
    Push,
    Reserve,
    Send,
    Shape,
    ShapeSchedule,
    Spec,
    Step,
    Store,
    Wait,
)
from pavane.ir.quasi import Domain, Quasi, quasi
from pavane.ir.walk import operands, substituted
from pavane.verify.check.boxes import Box, box, extent_of
from pavane.verify.check.resident import form_of

Nest = tuple[tuple[str, Quasi], ...]


@dataclass(frozen=True)
class Leaf:
    """A step of a process: its number, the loops around it, and the step in both coordinates."""

    index: int
    nest: Nest
    path: tuple[int, ...]
    step: Step
    placed: Step

    @cached_property
    def buffers(self) -> tuple[str, ...]:
        """Every buffer that it reads, writes or claims."""
        if isinstance(self.step, Compute):
            return tuple(dict.fromkeys((self.step.op.dst.name, *operands(self.step.op))))
        if isinstance(self.step, Post | Wait | Fence):
            return ()
        starts = self.step.window.start if isinstance(self.step, Load) else ()
        return (named_by(self.step), *(start.via for start in starts if isinstance(start, Indirect)))


@dataclass(frozen=True)
class Actor:
    """A process of a shape with its rectangle and its numbered steps."""

    number: int
    process: Process
    where: str
    box: Box
    leaves: tuple[Leaf, ...]
    body: tuple[Node, ...]
    found: dict[tuple[type | tuple[type, ...], str], tuple[Leaf, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def name(self) -> str:
        return self.process.name

    def uses(self, kind: type | tuple[type, ...], name: str) -> tuple[Leaf, ...]:
        """Its steps of a kind that name a FIFO, a carry or a counter."""
        if (kind, name) not in self.found:
            self.found[(kind, name)] = tuple(leaf for leaf in self.by_name.get(name, ()) if isinstance(leaf.step, kind))
        return self.found[(kind, name)]

    def only(self, kind: type, name: str, path: tuple[int, ...]) -> Leaf | None:
        """Its only step of a kind that names a FIFO or a counter, where that stands in the loops of `path`."""
        found = self.uses(kind, name)
        return found[0] if len(found) == 1 and found[0].path == path else None

    def fills(self, fifo: str) -> bool:
        """Does it put something into the slots that it reserves?"""
        return bool(self.uses((Load, Send), fifo)) or fifo in self.computed

    @cached_property
    def computed(self) -> frozenset[str]:
        """The buffers that its ops write."""
        return frozenset(leaf.step.op.dst.name for leaf in self.leaves if isinstance(leaf.step, Compute))

    @cached_property
    def sums(self) -> tuple[str, ...]:
        """The buffers that its products add in."""
        ops = (leaf.step.op for leaf in self.leaves if isinstance(leaf.step, Compute))
        return tuple(dict.fromkeys(op.dst.name for op in ops if isinstance(op, MatmulTiles)))

    @cached_property
    def buffers(self) -> tuple[str, ...]:
        """Every buffer that its steps read, write or claim, in the order of the first."""
        return tuple(dict.fromkeys(name for leaf in self.leaves for name in leaf.buffers))

    @cached_property
    def by_name(self) -> dict[str, list[Leaf]]:
        found: dict[str, list[Leaf]] = {}
        for leaf in self.leaves:
            found.setdefault(named_by(leaf.step), []).append(leaf)
        return found


@dataclass(frozen=True)
class Section:
    """A shape and its actors over the symbols' ranges."""

    shape: Shape
    actors: tuple[Actor, ...]
    symbols: Domain
    domains: dict[tuple[Box, Nest], Domain] = field(default_factory=dict, compare=False, repr=False)

    @property
    def where(self) -> str:
        return f"section shape {self.shape.name}"

    @cached_property
    def formals(self) -> dict[str, Formal]:
        return {f.name: f for f in self.shape.formals}

    @cached_property
    def specs(self) -> dict[str, Spec]:
        return {spec.out: spec for spec in self.shape.spec}

    @cached_property
    def fifos(self) -> dict[str, Fifo]:
        return {f.name: f for f in self.shape.fifos}

    @cached_property
    def carries(self) -> dict[str, Carry]:
        return {c.name: c for c in self.shape.carries}

    @cached_property
    def counters(self) -> dict[str, Counter]:
        return {c.name: c for c in self.shape.counters}

    @cached_property
    def pushers(self) -> dict[str, tuple[Actor, ...]]:
        return {f: tuple(a for a in self.actors if a.uses((Reserve, Push, Load, Send), f)) for f in self.fifos}

    @cached_property
    def poppers(self) -> dict[str, tuple[Actor, ...]]:
        return {f: tuple(a for a in self.actors if a.uses((Front, Pop, Store), f)) for f in self.fifos}

    def users(self, buffer: str) -> tuple[Actor, ...]:
        """The processes that use a buffer."""
        return tuple(a for a in self.actors if buffer in a.buffers)

    def buffer(self, name: str) -> Fifo | Carry:
        return self.fifos[name] if name in self.fifos else self.carries[name]

    def domain(self, actor: Actor, nest: Nest) -> Domain:
        """Symbols, sites of the actor (counted over the section), and the loops of a nest."""
        key, (x0, x1, y0, y1) = (actor.box, nest), actor.box
        if key not in self.domains:
            sites = Domain((*self.symbols.ranges, (SITE_X, x0, x1 - 1), (SITE_Y, y0, y1 - 1)))
            self.domains[key] = self.domain(actor, nest[:-1]).with_loop(*nest[-1]) if nest else sites
        return self.domains[key]


def section_of(shape: Shape, symbols: Domain, schedule: ShapeSchedule) -> Section:
    """Number and place the steps of every process, in the form that the schedule is about; refuses too many sites."""
    processes = form_of(shape, symbols, schedule.schedule)
    actors = tuple(_actor(shape, number, p) for number, p in enumerate(processes))
    extent_of(actor.box for actor in actors)
    return Section(shape, actors, symbols)


def _actor(shape: Shape, number: int, process: Process) -> Actor:
    where = f"section shape {shape.name}, process {process.name}"
    edges = box(process.rect, where)
    shift = {SITE_X: quasi(SITE_X) - edges[0], SITE_Y: quasi(SITE_Y) - edges[2]} if edges[0] or edges[2] else {}
    leaves = []
    for index, (nest, path, step) in enumerate(_numbered(process.body, (), ())):
        leaves.append(Leaf(index, nest, path, step, substituted(step, shift) if shift else step))
    return Actor(number, process, where, edges, tuple(leaves), process.body)


def _numbered(
    body: tuple[Node, ...], nest: Nest, path: tuple[int, ...]
) -> Iterator[tuple[Nest, tuple[int, ...], Step]]:
    """Steps in written order with their loops; `path` numbers the loops so that two equal loops in a row stay apart."""
    for place, node in enumerate(body):
        if isinstance(node, Loop):
            yield from _numbered(node.body, (*nest, (node.var, node.extent)), (*path, place))
        else:
            yield nest, path, node


def named_by(step: Step) -> str:
    """The FIFO, carry or counter that a step names; nothing for a fence or an op."""
    if isinstance(step, Post | Wait):
        return step.counter
    if isinstance(step, Init):
        return step.carry
    return getattr(step, "fifo", "")
