"""compose: N VERIFIED sections -> ONE PERSISTENT program, one launch per token or prompt block.

Decides, all by structure: which equal shapes become one; where boundaries between sections stand (docs/ir.md,
Boundaries; none inside a wave); where SCRATCH tensors lie in the arena of their home (by lifetime, counted
in phases between boundaries, so that reused bytes always have a boundary between their users; on the sites the arena
is the end of local memory); which chip counter each name gets; whether posters meet
all at once, or first in their rows and then in their columns (where counters cannot count all of them, or there are
many). Buffers in local memory need no decision: sections on one site follow each other.

Refuses (ComposeReject): sections that declare one tensor or symbol differently; memory beside the chip too small;
more posters than the counters' bits can count, in lines too. OutOfCounters when the chip has too few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from pavane.ir.digest import graph_digest, shape_digest
from pavane.ir.program import (
    SITE_X,
    SITE_Y,
    Compute,
    Counter,
    Front,
    Home,
    Init,
    Load,
    Post,
    Process,
    Program,
    Push,
    Rect,
    Run,
    Shape,
    Store,
    Symbol,
    Tensor,
    Turn,
    Wait,
    Worker,
)
from pavane.ir.quasi import quasi
from pavane.ir.rects import Site, constant_rect, rectangles, stands_on
from pavane.ir.walk import leaves, named, symbol_domain
from pavane.passes.arena import arena, end_of_memory
from pavane.passes.memory_beside import bytes_at_home, require_memory
from pavane.passes.section import uses
from pavane.reject import ComposeReject, OutOfCounters
from pavane.targets.descriptor import SpatialTarget, target_digest

_MOST_AT_ONCE = 128  # posters; each posts to every site, so all at once grow with the square of the sites


def compose(name: str, sections: Sequence[Program], target: SpatialTarget) -> Program:
    """The sections, in order, as one program that stays resident for all of them.

    Each has one shape and one instance.
    """
    program = assemble(name, sections, target)
    phases = _phases(program, target)
    program = replace(program, tensors=_lay_out_scratch(program, phases, target), shapes=_recolour(program, target))
    counters = _boundary_counters(program, phases, target)
    return replace(program, counters=counters, workers=_workers(program, phases, counters, target), phase="PERSISTENT")


def assemble(name: str, sections: Sequence[Program], target: SpatialTarget) -> Program:
    """One program of all sections' symbols, tensors, distinct shapes and instances, at the sections' phase."""
    shapes = _distinct_shapes(sections)
    instances = tuple(
        replace(s.instances[0], shape=shapes[shape_digest(s.shapes[0])].name, name=s.instances[0].name or s.name)
        for s in sections
    )
    program = Program(
        name=name,
        phase=sections[0].phase,
        target=target.name,
        target_digest=target_digest(target),
        graph_digest="",
        symbols=_merged([s.symbols for s in sections], "symbol"),
        tensors=_merged([s.tensors for s in sections], "tensor"),
        shapes=tuple(shapes.values()),
        instances=instances,
    )
    return replace(program, graph_digest=graph_digest(program))


def _distinct_shapes(sections: Sequence[Program]) -> dict[str, Shape]:
    """Shapes by digest, in order of first use, with distinct names."""
    shapes: dict[str, Shape] = {}
    taken: dict[str, int] = {}
    for section in sections:
        shape = section.shapes[0]
        key = shape_digest(shape)
        if key in shapes:
            continue
        count = taken[shape.name] = taken.get(shape.name, 0) + 1
        shapes[key] = shape if count == 1 else replace(shape, name=f"{shape.name}.{count}")
    return shapes


def _merged(tables: Sequence[tuple[Symbol, ...]] | Sequence[tuple[Tensor, ...]], what: str) -> tuple:
    merged: dict[str, Symbol | Tensor] = {}
    for item in (item for table in tables for item in table):
        if merged.setdefault(item.name, item) != item:
            raise ComposeReject(
                f"two sections declare the {what} {item.name!r} differently", remedy="give them one declaration"
            )
    return tuple(merged.values())


# --- boundaries -----------------------------------------------------------------------------------------------------


def _phases(program: Program, target: SpatialTarget) -> tuple[int, ...]:
    """The phase of each instance: a new phase starts where a boundary must stand before the section."""
    one_process = len(target.engines) == 1 and target.sites == 1
    every_section = len(target.engines) > 1
    phases: list[int] = []
    read: set[str] = set()
    written: set[str] = set()
    phase = 0
    for instance in program.instances:
        reads, writes = uses(named(program.shapes, instance.shape), instance)
        conflict = bool(written & (reads | writes) or read & writes)
        in_wave = phases and instance.wave >= 0 and instance.wave == program.instances[len(phases) - 1].wave
        if phases and not one_process and (conflict or (every_section and not in_wave)):
            phase, read, written = phase + 1, set(), set()
        read |= reads
        written |= writes
        phases.append(phase)
    return tuple(phases)


# --- scratch --------------------------------------------------------------------------------------------------------


def _lay_out_scratch(program: Program, phases: tuple[int, ...], target: SpatialTarget) -> tuple[Tensor, ...]:
    """Offsets in the arenas (first fit, in order of first use, over phases), and of what lasts on the sites."""
    domain, lives = symbol_domain(program), _lifetimes(program, phases)
    sizes: dict[tuple[Home, bool], dict[str, int]] = {}
    for tensor in program.tensors:
        kind = tensor.home, tensor.role == "SCRATCH"
        sizes.setdefault(kind, {})[tensor.name] = bytes_at_home(tensor, domain, target)
    beside = arena(sizes.get(("dram", True), {}), lives, target.dram.alignment_bytes)
    require_memory(program.name, program.tensors, domain, target, beside.bytes)
    lasting = [sizes.get(kind, {}) for kind in (("sharded", False), ("sites", False))]
    results = sizes.get(("sites", True), {})
    local = end_of_memory(lasting, results, lives, target.memory.bytes, target.memory.alignment_bytes)
    offsets = beside.offsets | local.offsets
    return tuple(replace(t, offset=offsets[t.name]) if t.name in offsets else t for t in program.tensors)


def _lifetimes(program: Program, phases: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    lives: dict[str, tuple[int, int]] = {}
    for phase, instance in zip(phases, program.instances, strict=True):
        for binding in instance.bindings:
            first, _ = lives.get(binding.tensor, (phase, phase))
            lives[binding.tensor] = (first, phase)
    return lives


# --- counters -------------------------------------------------------------------------------------------------------


def _recolour(program: Program, target: SpatialTarget) -> tuple[Shape, ...]:
    """Chip counters for the sections': an engine's own, so that its waiting engine is one in the whole program.

    Within a shape the first of them that no counter on the same sites has: a leader's and its members' are one.
    """
    ids: dict[tuple[str, int], int] = {}
    shapes = []
    for shape in program.shapes:
        taken: list[tuple[str, int, Rect]] = []
        counters = []
        for counter in shape.counters:
            used = {index for engine, index, rect in taken if engine == counter.engine and _meet(rect, counter.rect)}
            index = next(i for i in range(len(taken) + 1) if i not in used)
            taken.append((counter.engine, index, counter.rect))
            counters.append(replace(counter, id=ids.setdefault((counter.engine, index), len(ids))))
        shapes.append(replace(shape, counters=tuple(counters)))
    if len(ids) > target.counters.per_site:
        raise OutOfCounters(
            f"the sections of {program.name!r} need more counters than a site has",
            needed=f"{len(ids)} counters",
            available=f"{target.counters.per_site} counters",
            remedy="a chip with more counters",
        )
    return tuple(shapes)


def _meet(one: Rect, other: Rect) -> bool:
    """Do two constant rectangles share a site?"""
    x = max(one.x0.const, other.x0.const) < min(one.x1.const, other.x1.const)
    return x and max(one.y0.const, other.y0.const) < min(one.y1.const, other.y1.const)


def _boundary_counters(program: Program, phases: tuple[int, ...], target: SpatialTarget) -> tuple[Counter, ...]:
    """One `go` counter for each engine that waits at boundaries; none when there is no boundary."""
    if not phases or phases[-1] == 0:
        return ()
    first = 1 + max((c.id for s in program.shapes for c in s.counters), default=-1)
    posting = _posting_engines(program, target)
    rows = posting if _meets_in_lines(posting, target) else ()
    waiting = [(f"row.{e}", e) for e in rows] + [
        (f"go.{e}", e) for e in (*posting, *_released_engines(program, phases, target))
    ]
    if first + len(waiting) > target.counters.per_site:
        raise OutOfCounters(
            f"the boundaries of {program.name!r} need more counters than a site has",
            needed=f"{first + len(waiting)} counters",
            available=f"{target.counters.per_site} counters",
            terms=[f"sections {first}", *(f"{name} 1" for name, _ in waiting)],
            remedy="a chip with more counters",
        )
    whole = _whole_grid(target)
    kind, bits = target.counters.kind, target.counters.bits
    return tuple(Counter(n, whole, engine, kind, bits, 0, first + i) for i, (n, engine) in enumerate(waiting))


def _meets_in_lines(posting: Sequence[str], target: SpatialTarget) -> bool:
    """All posters at once while counters hold two rounds of them and they are not too many; else rows, then columns."""
    most = 1 << (target.counters.bits - 1)
    at_once, width, height = (len(posting) * n for n in (target.sites, target.grid.width, target.grid.height))
    in_lines = min(width, height) > len(posting) and 2 * max(width, height) <= most
    if 2 * at_once <= most and (at_once <= _MOST_AT_ONCE or not in_lines):
        return False
    if not in_lines:
        raise ComposeReject(
            "two rounds of a boundary do not fit a counter",
            where=target.name,
            needed=f"2 x {at_once} posts in flight, or 2 x {max(width, height)} in rows and columns",
            available=f"{most} ({target.counters.bits} bits, half of the range)",
            remedy="fewer sites, or counters of more bits",
        )
    return True


def _posting_engines(program: Program, target: SpatialTarget) -> tuple[str, ...]:
    """Engines of processes that end a section: they store, or hand nothing on. They meet at boundaries."""
    return _engines(program, target, lambda p: _stores(p) or not _hands_on(p))


def _released_engines(program: Program, phases: tuple[int, ...], target: SpatialTarget) -> tuple[str, ...]:
    """Other engines of processes that begin a section after a boundary: a poster lets them go.

    They load, take nothing, or compute before they take anything.
    """
    posting = _posting_engines(program, target)
    after = {instance.shape for phase, instance in zip(phases, program.instances, strict=True) if phase}
    later = replace(program, shapes=tuple(shape for shape in program.shapes if shape.name in after))
    return _engines(later, target, lambda p: p.engine not in posting and (_loads(p) or _begins_by_itself(p)))


def _engines(program: Program, target: SpatialTarget, of: Callable[[Process], bool]) -> tuple[str, ...]:
    chosen = {p.engine for shape in program.shapes for p in shape.processes if of(p)}
    return tuple(e.name for e in target.engines if e.name in chosen)


def _stores(process: Process) -> bool:
    return any(isinstance(step, Store) for _, step in leaves(process.body))


def _hands_on(process: Process) -> bool:
    """Does the process push a FIFO that another process takes from?"""
    pushed = {step.fifo for _, step in leaves(process.body) if isinstance(step, Push)}
    taken = {step.fifo for _, step in leaves(process.body) if isinstance(step, Front)}
    return bool(pushed - taken)


def _begins_by_itself(process: Process) -> bool:
    """Does it touch memory before it has taken a slot that another process filled?"""
    pushed = {step.fifo for _, step in leaves(process.body) if isinstance(step, Push)}
    for _, step in leaves(process.body):
        if isinstance(step, Front) and step.fifo not in pushed:
            return False
        if isinstance(step, Init | Compute | Load | Store):
            return True
    return True


def _loads(process: Process) -> bool:
    return any(isinstance(step, Load) for _, step in leaves(process.body))


# --- workers --------------------------------------------------------------------------------------------------------


def _workers(
    program: Program, phases: tuple[int, ...], counters: tuple[Counter, ...], target: SpatialTarget
) -> tuple[Worker, ...]:
    """Per engine: sites that do the same over the whole program form one worker, cut into rectangles."""
    posting = _posting_engines(program, target) if counters else ()
    released = tuple(c.engine for c in counters if c.engine not in posting)
    rounds = _rounds(posting, counters, target)
    runs = {
        (e.name, site): _runs_of(program, e.name, site, phases) for e in target.engines for site in _all_sites(target)
    }
    workers: list[Worker] = []
    for engine in (e.name for e in target.engines):
        alike: dict[tuple[Runs, ...], list[Site]] = {}
        for site in _all_sites(target):
            lets_go = released if posting and engine == posting[0] else ()
            alike.setdefault((runs[engine, site], *(runs[e, site] for e in lets_go)), []).append(site)
        for (own, *others), members in alike.items():
            for rect in rectangles(members):
                places = tuple(zip(lets_go, others, strict=True))
                if engine in posting:
                    body = _meeting_body(own, places, engine, posting, rounds, rect, target)
                else:
                    body = _released_body(own, engine if engine in released else "")
                if body:
                    workers.append(Worker(f"{engine}.{len(workers)}", rect, engine, body))
    return tuple(workers)


Runs = tuple[tuple[Run, ...], ...]


def _runs_of(program: Program, engine: str, site: Site, phases: tuple[int, ...]) -> Runs:
    """Per phase, what one engine of one site runs."""
    here = {
        shape.name: next((p.name for p in shape.processes if p.engine == engine and stands_on(shape, p, site)), None)
        for shape in program.shapes
    }
    out: list[list[Run]] = [[] for _ in range(phases[-1] + 1)]
    for number, instance in enumerate(program.instances):
        process = here[instance.shape]
        if process is not None:
            out[phases[number]].append(Run(number, process))
    return tuple(tuple(runs) for runs in out)


class _Round(msgspec.Struct, frozen=True):
    """Every poster posts to the counters `<prefix>.<engine>` of all sites in reach, and waits for `posts`."""

    prefix: str
    reach: Literal["whole", "row", "column"]
    posts: int


def _rounds(posting: Sequence[str], counters: Sequence[Counter], target: SpatialTarget) -> tuple[_Round, ...]:
    """How posters meet at a boundary."""
    if all(c.name != f"row.{engine}" for c in counters for engine in posting):
        return (_Round("go", "whole", len(posting) * target.sites),)
    width, height = len(posting) * target.grid.width, len(posting) * target.grid.height
    return (_Round("row", "row", width), _Round("go", "column", height))


def _meeting_body(
    own: Runs,
    places: tuple[tuple[str, Runs], ...],
    engine: str,
    posting: tuple[str, ...],
    rounds: tuple[_Round, ...],
    rect: Rect,
    target: SpatialTarget,
) -> tuple[Turn, ...]:
    """Before each phase after the first: meet the other posters, then let this site go where it has work in it."""
    x, y = quasi(SITE_X) + rect.x0, quasi(SITE_Y) + rect.y0
    here, whole = Rect(x, x + 1, y, y + 1), _whole_grid(target)
    sites = {
        "whole": whole,
        "row": replace(here, x0=whole.x0, x1=whole.x1),
        "column": replace(here, y0=whole.y0, y1=whole.y1),
    }
    meeting: list[Turn] = []
    for each in rounds:
        meeting.extend(Post(f"{each.prefix}.{e}", sites[each.reach]) for e in posting)
        meeting.append(Wait(f"{each.prefix}.{engine}", each.posts))
    turns: list[Turn] = list(own[0])
    for phase, runs_here in enumerate(own[1:], 1):
        turns.extend(meeting)
        turns.extend(Post(f"go.{e}", here) for e, runs in places if runs[phase])
        turns.extend(runs_here)
    return tuple(turns)


def _released_body(own: Runs, engine: str) -> tuple[Turn, ...]:
    """Wait to be let go before each phase with work; an engine that only takes what others push never waits."""
    turns: list[Turn] = list(own[0])
    for runs in own[1:]:
        if runs and engine:
            turns.append(Wait(f"go.{engine}"))
        turns.extend(runs)
    return tuple(turns)


def _all_sites(target: SpatialTarget) -> list[Site]:
    return [(x, y) for y in range(target.grid.height) for x in range(target.grid.width)]


def _whole_grid(target: SpatialTarget) -> Rect:
    return constant_rect(0, target.grid.width, 0, target.grid.height)
