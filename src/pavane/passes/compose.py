"""compose: N VERIFIED sections -> ONE PERSISTENT program, one launch per token or prompt block.

Decides, all by structure: which equal shapes become one; where boundaries between sections stand (docs/ir.md,
Boundaries); where SCRATCH tensors lie in their arena (first fit by lifetime, counted in phases between boundaries, so
that reused bytes always have a boundary between their users); which chip counter each name gets. Local memory needs
no decision: sections on one site follow each other.

Refuses (ComposeReject): sections that declare one tensor or symbol differently; memory beside the chip too small;
more posters than the counters' bits can count. OutOfCounters when the chip has too few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pavane.ir.digest import graph_digest, shape_digest
from pavane.ir.program import (
    SITE_X,
    SITE_Y,
    Compute,
    Counter,
    Front,
    Init,
    Instance,
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
from pavane.ir.quasi import Domain, quasi, upper
from pavane.ir.rects import Site, constant_rect, rectangles, site_in
from pavane.ir.types import row_bytes
from pavane.ir.walk import leaves, named, symbol_domain
from pavane.reject import ComposeReject, OutOfCounters
from pavane.targets.descriptor import SpatialTarget, target_digest


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
        Instance(shapes[shape_digest(s.shapes[0])].name, s.instances[0].bindings, name=s.instances[0].name or s.name)
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
        reads, writes = _uses(program, instance)
        conflict = bool(written & (reads | writes) or read & writes)
        if phases and not one_process and (every_section or conflict):
            phase, read, written = phase + 1, set(), set()
        read |= reads
        written |= writes
        phases.append(phase)
    return tuple(phases)


def _uses(program: Program, instance: Instance) -> tuple[set[str], set[str]]:
    """Tensors that an instance reads, and writes."""
    roles = {formal.name: formal.role for formal in named(program.shapes, instance.shape).formals}
    stores = _stored_formals(named(program.shapes, instance.shape))
    reads = {b.tensor for b in instance.bindings if roles[b.formal] != "OUT"}
    writes = {b.tensor for b in instance.bindings if b.formal in stores}
    return reads, writes


def _stored_formals(shape: Shape) -> set[str]:
    return {step.tensor for process in shape.processes for _, step in leaves(process.body) if isinstance(step, Store)}


# --- scratch --------------------------------------------------------------------------------------------------------


def tensor_bytes(tensor: Tensor, domain: Domain) -> int:
    """The most bytes a tensor takes for any value of the symbols."""
    rows = 1
    for extent in tensor.shape[:-1]:
        rows *= upper(extent, domain)
    return rows * row_bytes(tensor.dtype, upper(tensor.shape[-1], domain))


def _lay_out_scratch(program: Program, phases: tuple[int, ...], target: SpatialTarget) -> tuple[Tensor, ...]:
    """Offsets in the SCRATCH arena: first fit, in order of first use, over phases."""
    domain = symbol_domain(program)
    lives = _lifetimes(program, phases)
    align = target.dram.alignment_bytes
    placed: list[tuple[int, int, int, int]] = []  # first phase, last phase, start, end
    offsets: dict[str, int] = {}
    scratch = {t.name: t for t in program.tensors if t.role == "SCRATCH"}
    for name in sorted(scratch, key=lambda n: (lives.get(n, (0, 0)), n)):
        first, last = lives.get(name, (0, 0))
        size = -(-tensor_bytes(scratch[name], domain) // align) * align
        start = _first_gap([(s, e) for begin, end, s, e in placed if begin <= last and first <= end], size)
        placed.append((first, last, start, start + size))
        offsets[name] = start
    _check_memory(program, domain, max((e for *_, e in placed), default=0), target)
    return tuple(replace(t, offset=offsets[t.name]) if t.name in offsets else t for t in program.tensors)


def _lifetimes(program: Program, phases: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    lives: dict[str, tuple[int, int]] = {}
    for phase, instance in zip(phases, program.instances, strict=True):
        for binding in instance.bindings:
            first, _ = lives.get(binding.tensor, (phase, phase))
            lives[binding.tensor] = (first, phase)
    return lives


def _first_gap(taken: list[tuple[int, int]], size: int) -> int:
    start = 0
    for low, high in sorted(taken):
        if low - start >= size:
            break
        start = max(start, high)
    return start


def _check_memory(program: Program, domain: Domain, scratch_bytes: int, target: SpatialTarget) -> None:
    terms: dict[str, int] = {"SCRATCH": scratch_bytes}
    for tensor in program.tensors:
        if tensor.role != "SCRATCH":
            terms[tensor.role] = terms.get(tensor.role, 0) + tensor_bytes(tensor, domain)
    total = sum(terms.values())
    if total > target.dram.bytes:
        raise ComposeReject(
            f"the tensors of {program.name!r} do not fit the memory beside the chip",
            where=target.name,
            needed=f"{total} B",
            available=f"{target.dram.bytes} B",
            terms=[f"{role} {size} B" for role, size in sorted(terms.items())],
            remedy="a shorter context, a smaller model, or a chip with more memory",
        )


# --- counters -------------------------------------------------------------------------------------------------------


def _recolour(program: Program, target: SpatialTarget) -> tuple[Shape, ...]:
    """Give the k-th counter that an engine waits for in any shape one chip counter:

    its waiting engine is then one in the whole program.
    """
    ids: dict[tuple[str, int], int] = {}
    shapes = []
    for shape in program.shapes:
        seen: dict[str, int] = {}
        counters = []
        for counter in shape.counters:
            index = seen[counter.engine] = seen.get(counter.engine, -1) + 1
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


def _boundary_counters(program: Program, phases: tuple[int, ...], target: SpatialTarget) -> tuple[Counter, ...]:
    """One `go` counter for each engine that waits at boundaries; none when there is no boundary."""
    if not phases or phases[-1] == 0:
        return ()
    first = 1 + max((c.id for s in program.shapes for c in s.counters), default=-1)
    posting = _posting_engines(program, target)
    engines = (*posting, *_released_engines(program, target))
    if first + len(engines) > target.counters.per_site:
        raise OutOfCounters(
            f"the boundaries of {program.name!r} need more counters than a site has",
            needed=f"{first + len(engines)} counters",
            available=f"{target.counters.per_site} counters",
            terms=[f"sections {first}", *(f"go.{e} 1" for e in engines)],
            remedy="a chip with more counters",
        )
    posters = len(posting) * target.sites
    if 2 * posters > 1 << (target.counters.bits - 1):
        raise ComposeReject(
            "two rounds of a boundary do not fit a counter",
            where=target.name,
            needed=f"2 x {posters} posts in flight",
            available=f"{1 << (target.counters.bits - 1)} ({target.counters.bits} bits, half of the range)",
            remedy="fewer sites, or counters of more bits",
        )
    whole = _whole_grid(target)
    kind, bits = target.counters.kind, target.counters.bits
    return tuple(Counter(f"go.{engine}", whole, engine, kind, bits, 0, first + i) for i, engine in enumerate(engines))


def _posting_engines(program: Program, target: SpatialTarget) -> tuple[str, ...]:
    """Engines of processes that end a section: they store, or hand nothing on. They meet at boundaries."""
    return _engines(program, target, lambda p: _stores(p) or not _hands_on(p))


def _released_engines(program: Program, target: SpatialTarget) -> tuple[str, ...]:
    """Other engines of processes that begin a section: a poster lets them go.

    They load, take nothing, or compute before they take anything.
    """
    posting = _posting_engines(program, target)
    return _engines(program, target, lambda p: p.engine not in posting and (_loads(p) or _begins_by_itself(p)))


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
                    body = _meeting_body(own, places, engine, phases, posting, target, rect)
                else:
                    body = _released_body(own, engine if engine in released else "")
                if body:
                    workers.append(Worker(f"{engine}.{len(workers)}", rect, engine, body))
    return tuple(workers)


Runs = tuple[tuple[Run, ...], ...]


def _runs_of(program: Program, engine: str, site: Site, phases: tuple[int, ...]) -> Runs:
    """Per phase, what one engine of one site runs."""
    here = {
        shape.name: next((p.name for p in shape.processes if p.engine == engine and site_in(p.rect, site)), None)
        for shape in program.shapes
    }
    out: list[list[Run]] = [[] for _ in range(phases[-1] + 1)]
    for number, instance in enumerate(program.instances):
        process = here[instance.shape]
        if process is not None:
            out[phases[number]].append(Run(number, process))
    return tuple(tuple(runs) for runs in out)


def _meeting_body(
    own: Runs,
    places: tuple[tuple[str, Runs], ...],
    engine: str,
    phases: tuple[int, ...],
    posting: tuple[str, ...],
    target: SpatialTarget,
    rect: Rect,
) -> tuple[Turn, ...]:
    """Before each phase after the first: meet the other posters, then let this site go where it has work in it."""
    x, y = quasi(SITE_X) + rect.x0, quasi(SITE_Y) + rect.y0
    here = Rect(x, x + 1, y, y + 1)
    turns: list[Turn] = list(own[0])
    for phase in range(1, phases[-1] + 1):
        turns.extend(Post(f"go.{e}", _whole_grid(target)) for e in posting)
        turns.append(Wait(f"go.{engine}", len(posting) * target.sites))
        turns.extend(Post(f"go.{e}", here) for e, runs in places if runs[phase])
        turns.extend(own[phase])
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
