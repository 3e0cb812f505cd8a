"""size_buffers: PLACED -> SIZED. Depths of FIFOs and the layout of a site's local memory.

Depths: 2 where one engine fills while another drains turn after turn, else 1 (`buffers.least_depths`); more where the
rate model says and memory allows. Rate model: a reader that is slower than its consumer gains from running ahead
while the consumer does something else: as many slots as it fills during an epilogue, or during loops that the consumer
goes through before and for which other engines read. Where two slots do not fit the memory, the largest FIFOs have one,
and a Join says what that costs: the engines take turns. Layout: FIFO slots, then carries, in declared order, each at
the next aligned address; the same on every site. ALIAS FIFOs take no memory.

Refuses: MemoryExceeded with every buffer's bytes; TooManyFifos.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from pavane.cost.event_cycles import event_cycles
from pavane.cost.spread import Spread
from pavane.cost.traffic import body_events, expected_values
from pavane.ir.program import Front, Join, Loop, Node, Pop, Program, Push, Shape, Step
from pavane.ir.walk import leaves, symbol_domain
from pavane.passes.buffers import DOUBLE, aligned, buffer_bytes, least_depths, single_depths, usable_bytes
from pavane.passes.predicting import section_spread
from pavane.passes.section import section_of, with_section
from pavane.reject import MemoryExceeded, TooManyFifos
from pavane.targets.descriptor import SpatialTarget

_MOST_DEPTH = 4


def size_buffers(program: Program, target: SpatialTarget) -> Program:
    """The section with depths and addresses."""
    shape = section_of(program, "PLACED")
    _require_fifos(shape, target)
    _require_memory(shape, single_depths(shape), target)
    least = _least_that_fit(shape, target)
    spread = section_spread(shape, symbol_domain(program), target)
    shape = replace(shape, joins=(*shape.joins, *_given_up(shape, least, target, expected_values(program), spread)))
    wanted = _wanted_depths(shape, least, target, expected_values(program), spread)
    return with_section(program, _laid_out(shape, _affordable(shape, least, wanted, target), target), "SIZED")


def _require_fifos(shape: Shape, target: SpatialTarget) -> None:
    if len(shape.fifos) > target.fifos.per_site:
        raise TooManyFifos(
            "the section needs more FIFOs than a site has",
            where=f"section {shape.name}",
            needed=f"{len(shape.fifos)} FIFOs",
            available=f"{target.fifos.per_site} on a site of {target.name}",
            terms=[f"{f.name} ({f.kind}, {f.rows} x {f.cols} {f.dtype})" for f in shape.fifos],
            remedy="split the op into sections with fewer operands",
        )


def _require_memory(shape: Shape, depths: Mapping[str, int], target: SpatialTarget) -> None:
    terms = _terms(shape, depths, target)
    if not _fits(shape, depths, target):
        raise MemoryExceeded(
            "the section's buffers do not fit a site's local memory",
            where=f"section {shape.name}",
            needed=f"{sum(size for _, size in terms)} bytes",
            available=f"{usable_bytes(target)} bytes on a site of {target.name}",
            terms=[f"{name} {size} bytes" for name, size in terms if size],
            remedy=f"smaller blocks, or more local memory; {max(terms, key=lambda term: term[1])[0]} takes most",
        )


def _terms(shape: Shape, depths: Mapping[str, int], target: SpatialTarget) -> list[tuple[str, int]]:
    """Every buffer with its bytes, rounded up to the alignment of the next."""
    slots = [(fifo, depths[fifo.name]) for fifo in shape.fifos]
    fifos = [(f"{f.name} ({n} slot{'' if n == 1 else 's'})", aligned(n * buffer_bytes(f), target)) for f, n in slots]
    return fifos + [(c.name, aligned(buffer_bytes(c), target)) for c in shape.carries]


def _least_that_fit(shape: Shape, target: SpatialTarget) -> dict[str, int]:
    """Two slots where engines overlap, but one of the largest FIFOs until it fits."""
    depths = least_depths(shape)
    for fifo in sorted(shape.fifos, key=lambda f: (-buffer_bytes(f), f.name)):
        if _fits(shape, depths, target):
            break
        depths[fifo.name] = min(1, depths[fifo.name])
    return depths


def _given_up(
    shape: Shape, depths: Mapping[str, int], target: SpatialTarget, expected: Mapping[str, int], spread: Spread
) -> list[Join]:
    """A record of each second slot that did not fit: cycles of a turn with one slot, and with two."""
    joins = []
    for name, wanted in least_depths(shape).items():
        if depths[name] < wanted:
            fill, drain = (
                _cycles(shape, _turns_with(shape, step)[-1], target, expected, spread)
                for step in (Push(name), Pop(name))
            )
            joins.append(Join(f"slots of {name}", "one", fill + drain, "two", max(fill, drain)))
    return joins


def _affordable(
    shape: Shape, least: Mapping[str, int], wanted: Mapping[str, int], target: SpatialTarget
) -> dict[str, int]:
    """One slot more at a time, in declared order, while it fits."""
    depths = dict(least)
    grown = True
    while grown:
        grown = False
        for fifo in shape.fifos:
            more = {**depths, fifo.name: depths[fifo.name] + 1}
            if more[fifo.name] <= wanted[fifo.name] and _fits(shape, more, target):
                depths, grown = more, True
    return depths


def _fits(shape: Shape, depths: Mapping[str, int], target: SpatialTarget) -> bool:
    return sum(size for _, size in _terms(shape, depths, target)) <= usable_bytes(target)


def _laid_out(shape: Shape, depths: Mapping[str, int], target: SpatialTarget) -> Shape:
    free = aligned(target.memory.reserved_bytes, target)
    fifos, carries = [], []
    for fifo in shape.fifos:
        slots = depths[fifo.name]
        fifos.append(replace(fifo, depth=max(1, slots), address=free if slots else -1))
        free += aligned(slots * buffer_bytes(fifo), target)
    for carry in shape.carries:
        carries.append(replace(carry, address=free))
        free += aligned(buffer_bytes(carry), target)
    return replace(shape, fifos=tuple(fifos), carries=tuple(carries))


# --- the rate model ---------------------------------------------------------------------------------------------------


def _wanted_depths(
    shape: Shape, least: Mapping[str, int], target: SpatialTarget, expected: Mapping[str, int], spread: Spread
) -> dict[str, int]:
    """Slots with which a slow reader uses its consumer's pauses."""
    wanted = dict(least)
    for fifo in shape.fifos:
        if least[fifo.name] >= DOUBLE:
            pushes, pops = (_turns_with(shape, step) for step in (Push(fifo.name), Pop(fifo.name)))
            fill = _cycles(shape, pushes[-1], target, expected, spread)
            drain = _cycles(shape, pops[-1], target, expected, spread)
            pause = _cycles(shape, pops[-2], target, expected, spread) if len(pops) > 1 else 0
            if fill > drain:
                epilogue = min(_MOST_DEPTH, least[fifo.name] + -(-pause // fill))
                wanted[fifo.name] = max(epilogue, _slots_ahead(shape, fifo.name, fill, target, expected, spread))
    return wanted


def _slots_ahead(
    shape: Shape, name: str, fill: int, target: SpatialTarget, expected: Mapping[str, int], spread: Spread
) -> int:
    """Slots that a reader fills while its consumer is in the loops before the one that drains them."""
    own, before = _loops_to(shape, Pop(name))
    engine, _ = _turns_with(shape, Push(name))[-1]
    cycles = 0
    for loop in before:
        read = [_turns_with(shape, Push(step.fifo))[-1] for _, step in leaves((loop,)) if isinstance(step, Front)]
        if all(reader != engine for reader, _ in read):
            slowest = max((_cycles(shape, turn, target, expected, spread) for turn in read), default=0)
            cycles += _turns_of(loop, expected) * slowest
    return min(_turns_of(own, expected), -(-cycles // fill)) if own else 0


def _loops_to(shape: Shape, wanted: Step) -> tuple[Loop | None, tuple[Loop, ...]]:
    """The loop that does a step itself, and the loops before it in one turn of what is around them."""
    bodies = [stage.body for group in shape.groups for stage in group.stages]
    while bodies:
        loops = tuple(node for node in bodies.pop() if isinstance(node, Loop))
        for index, loop in enumerate(loops):
            if wanted in loop.body:
                return loop, loops[:index]
        bodies.extend(loop.body for loop in loops)
    return None, ()


def _turns_of(loop: Loop, expected: Mapping[str, int]) -> int:
    return loop.extent.evaluate({name: expected.get(name, 0) for name in loop.extent.variables()})


_Turn = tuple[str, tuple[Node, ...]]  # an engine and the steps that it does itself in one turn of a loop


def _turns_with(shape: Shape, wanted: Step) -> list[_Turn]:
    """The turns, outermost first, down to the one that does a step."""
    for group in shape.groups:
        for stage in group.stages:
            found = _path(stage.body, wanted)
            if found:
                return [(stage.engine, steps) for steps in found]
    return []


def _path(body: tuple[Node, ...], wanted: Step) -> list[tuple[Node, ...]]:
    own = tuple(node for node in body if not isinstance(node, Loop))
    if wanted in own:
        return [own]
    for node in body:
        if isinstance(node, Loop):
            found = _path(node.body, wanted)
            if found:
                return [own, *found]
    return []


def _cycles(shape: Shape, turn: _Turn, target: SpatialTarget, expected: Mapping[str, int], spread: Spread) -> int:
    engine, steps = turn
    work = body_events(shape, steps, engine, target, expected)
    return sum(
        event_cycles(event, tuple(dim.size for dim in event.dims), target=target, spread=spread) for event in work
    )
