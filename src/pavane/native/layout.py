"""Where the run-time words of a program are, in bytes: a function of program and target.

control    go | done | stop spins target | the addresses of the areas below
counters   a cell for each (owner, counter, site): counter and sleepers; 64 bytes on, the waiter's running register
queues     a cell for each (shape, FIFO, site): the pushing end, the popping end, the addresses an ALIAS is bound to
bindings   an address for each (instance, formal)
locals     a local memory for each site          scratch    an area for each thread
clocks     for each thread: cycles in each instance (only written where that was asked for), in waits, in all

Instances of a shape have its FIFOs and counters one after the other: who runs ahead finds the slots of the instance
before taken.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pavane.ir.program import Compute, Counter, MatmulTiles, Program, Rect, Shape
from pavane.ir.walk import bodies, leaves, named
from pavane.native.matmul import scratch_bytes
from pavane.native.packing import packed_formals
from pavane.native.panels import panel_offsets
from pavane.targets.descriptor import SpatialTarget

GO, DONE, STOP, SPINS, TARGET = 0, 64, 128, 136, 144
BINDINGS, SYMBOLS, LOCALS, SCRATCH, QUEUES, COUNTERS = (192 + 8 * i for i in range(6))
CLOCKS = 240
CONTROL_BYTES = 256
CELL, REGISTER = 128, 64
PUSHING, POPPING, ADDRESSES = 0, 64, 128  # in a queue's cell; an end is (count, sleepers, index of 64 bits)
_PAGE = 4096


class Thread(msgspec.Struct, frozen=True):
    """One worker on one site."""

    worker: int
    x: int
    y: int


class Layout(msgspec.Struct, frozen=True):
    """`queues`, `counters`: the offset of each shape's part, `bindings` of each instance's; the program's own counters
    come after the shapes'.
    """

    width: int
    sites: int
    threads: tuple[Thread, ...]
    local_bytes: int
    scratch_bytes: int
    queues: tuple[int, ...]
    queue_bytes: int
    counters: tuple[int, ...]
    program_counters: int
    counter_bytes: int
    bindings: tuple[int, ...]
    binding_bytes: int


def program_layout(program: Program, target: SpatialTarget) -> Layout:
    """The layout of a PERSISTENT program on its target."""
    sites = target.sites
    queues, queue_bytes = _stacked(queue_cell_bytes(shape) * sites for shape in program.shapes)
    counters, own = _stacked(len(shape.counters) * sites * CELL for shape in program.shapes)
    bindings, binding_bytes = _stacked(8 * len(named(program.shapes, i.shape).formals) for i in program.instances)
    return Layout(
        width=target.grid.width,
        sites=sites,
        threads=tuple(_threads(program)),
        local_bytes=-(-target.memory.bytes // _PAGE) * _PAGE,
        scratch_bytes=-(-max([0, *_scratch(program)]) // _PAGE) * _PAGE,
        queues=queues,
        queue_bytes=queue_bytes,
        counters=counters,
        program_counters=own,
        counter_bytes=own + len(program.counters) * sites * CELL,
        bindings=bindings,
        binding_bytes=binding_bytes,
    )


def _stacked(sizes: Iterator[int]) -> tuple[tuple[int, ...], int]:
    offsets, total = [], 0
    for size in sizes:
        offsets.append(total)
        total += size
    return tuple(offsets), total


def _threads(program: Program) -> Iterator[Thread]:
    for number, worker in enumerate(program.workers):
        x0, x1, y0, y1 = rect_numbers(worker.rect)
        yield from (Thread(number, x, y) for y in range(y0, y1) for x in range(x0, x1))


def clock_count(program: Program) -> int:
    """Words of one thread's row in the table of clocks: the instances, then waits, then the whole share."""
    return len(program.instances) + 2


def rect_numbers(rect: Rect) -> tuple[int, int, int, int]:
    """x0, x1, y0, y1 of a rectangle that depends on nothing."""
    x0, x1, y0, y1 = (q.evaluate({}) for q in (rect.x0, rect.x1, rect.y0, rect.y1))
    return x0, x1, y0, y1


def _scratch(program: Program) -> Iterator[int]:
    for shape in program.shapes:
        _, panels = panel_offsets(shape, packed_formals(program, shape))
        products = (s.op for _, body in bodies(shape) for _, s in leaves(body) if isinstance(s, Compute))
        yield panels + max([0, *(scratch_bytes(op) for op in products if isinstance(op, MatmulTiles))])


def queue_cell_bytes(shape: Shape) -> int:
    """Of one site, all FIFOs."""
    return sum(_queue_bytes(fifo.depth) for fifo in shape.fifos)


def queue_offset(shape: Shape, fifo: int) -> int:
    """Of a FIFO inside its site's part."""
    return sum(_queue_bytes(f.depth) for f in shape.fifos[:fifo])


def _queue_bytes(depth: int) -> int:
    return ADDRESSES + -(-8 * depth // 64) * 64


def credits(program: Program, layout: Layout) -> Iterator[tuple[int, int]]:
    """(offset, first value) of every counter cell that does not start at 0."""
    owners: list[tuple[int, tuple[Counter, ...]]] = [
        (offset, shape.counters) for offset, shape in zip(layout.counters, program.shapes, strict=True)
    ]
    for base, counters in (*owners, (layout.program_counters, program.counters)):
        for number, counter in enumerate(counters):
            first = base + number * layout.sites * CELL
            yield from ((first + site * CELL, counter.ahead) for site in range(layout.sites) if counter.ahead)
