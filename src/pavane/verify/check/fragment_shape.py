"""The fragment inside a shape: its buffers, specs, loops, steps and ops (see `fragment`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pavane.ir.expr import Indirect
from pavane.ir.program import (
    GENERIC_VARIABLES,
    LOOP_VARIABLES,
    Carry,
    Compute,
    Fence,
    Fifo,
    Generic,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Post,
    Process,
    Send,
    Shape,
    Step,
    Store,
    Wait,
)
from pavane.ir.quasi import Domain, lower, upper
from pavane.ir.types import INTEGER_RANGE, block_elements
from pavane.reject import OutsideFragment
from pavane.verify.check.boxes import MAX_SITES
from pavane.verify.check.scope import (
    LARGEST_F32,
    MAX_INT,
    MAX_NAMED,
    SITES,
    Scope,
    admit_counter,
    admit_expression,
    admit_extents,
    admit_fill,
    admit_handshake,
    at_most,
    in_scope,
    index_in_scope,
    integers,
    known,
    one_to,
    scope_of,
    unique,
)

MAX_PROCESSES, MAX_LEAVES, MAX_NEST = 32, 4096, 12
MAX_BUFFER_SIDE = 1 << 24
MAX_DEPTH = 1 << 12
# What a float type holds; more would become infinite. (q8_0: 127 times the greatest scale, an f16.)
_LARGEST = {
    "f32": LARGEST_F32, "f16": 65504.0, "q8_0": 127 * 65504.0, **dict.fromkeys(("bf16", "bfp8", "bfp4"), 255 * 2.0**120)
}  # fmt: skip


@dataclass(frozen=True)
class Names:
    """What a shape's steps may name; formals with their ranks."""

    ranks: dict[str, int]
    fifos: set[str]
    carries: set[str]
    counters: set[str]


def admit_shape(shape: Shape, domain: Domain) -> None:
    where = f"section shape {shape.name}"
    if shape.groups or not shape.processes:
        raise OutsideFragment("a shape has processes and no groups", where=where)
    unique((f.name for f in shape.formals), "formal", where)
    unique([f.name for f in shape.fifos] + [c.name for c in shape.carries], "buffer", where)
    unique((c.name for c in shape.counters), "counter", where)
    unique((p.name for p in shape.processes), "process", where, MAX_PROCESSES)
    for formal in shape.formals:
        admit_extents(formal.shape, formal.dtype, domain, f"{where}, formal {formal.name}")
        admit_fill(formal.fill, f"{where}, formal {formal.name}")
    at_most(len(shape.sites), MAX_SITES, "a section's list of sites is too long", where)
    integers((*(i for site in shape.sites for i in site), *(f.interleave_bytes for f in shape.formals)), where)
    _buffers(shape, where)
    ranks = {formal.name: len(formal.shape) for formal in shape.formals}
    fifos, carries, counters = ({b.name for b in some} for some in (shape.fifos, shape.carries, shape.counters))
    names = Names(ranks, fifos, carries, counters)
    _specs(shape, ranks, domain, where)
    steps = [step for p in shape.processes for _, step in _steps(p.body, ())]
    at_most(len(steps), MAX_LEAVES, "a shape has too many steps", where)
    posts = sum(isinstance(step, Post) for step in steps)
    at_most(posts, 2 * MAX_NAMED, "a shape has too many steps that post", where)  # one a counter is accepted
    for process in shape.processes:
        _process(names, process, domain, f"{where}, process {process.name}")


def _buffers(shape: Shape, where: str) -> None:
    for fifo in shape.fifos:
        place = f"{where}, FIFO {fifo.name}"
        _side(fifo, place)
        integers((fifo.depth, fifo.address), place)
        at_most(fifo.depth, MAX_DEPTH, "a FIFO has too many slots", place)
    for carry in shape.carries:
        place = f"{where}, carry {carry.name}"
        _side(carry, place)
        integers((carry.address,), place)
        _initial(carry, place)
    for counter in shape.counters:
        admit_counter(counter, f"{where}, counter {counter.name}")


def _initial(carry: Carry, where: str) -> None:
    """Finite, as its type holds it too, and of an integer type a value of it: only floats round what they are given."""
    if not math.isfinite(carry.initial):
        raise OutsideFragment("a carry's initial value is not finite", where=where)
    largest = _LARGEST.get(carry.dtype, 0.0)
    low, high = INTEGER_RANGE.get(carry.dtype, (-largest, largest))
    if not low <= carry.initial <= high or (carry.dtype in INTEGER_RANGE and not carry.initial.is_integer()):
        raise OutsideFragment(f"{carry.initial} is no value of {carry.dtype}", where=where)


def _side(buffer: Fifo | Carry, where: str) -> None:
    for side in (buffer.rows, buffer.cols):
        one_to(MAX_BUFFER_SIDE, side, f"{buffer.rows} x {buffer.cols} is no size of a buffer", where)
    block = block_elements(buffer.dtype)
    if buffer.cols % block:
        what = f"the columns of a {buffer.dtype} buffer are not a multiple of {block}"
        raise OutsideFragment(what, where=where, needed=str(buffer.cols))


def _specs(shape: Shape, ranks: dict[str, int], domain: Domain, where: str) -> None:
    formals, symbols = {f.name: f for f in shape.formals}, scope_of(domain)
    if len({spec.out for spec in shape.spec}) != len(shape.spec):
        raise OutsideFragment("two specs write one formal", where=where)
    for spec in shape.spec:
        place = f"{where}, spec of {spec.out}"
        if spec.out not in formals or formals[spec.out].role == "IN":
            raise OutsideFragment(f"{spec.out} is no formal that may be written", where=place)
        if not len(spec.origin) == len(spec.extents) == ranks[spec.out]:
            raise OutsideFragment(f"origin and extents do not have {ranks[spec.out]} dimensions", where=place)
        in_scope((*spec.origin, *spec.extents), symbols, place)
        places = {f"i{d}": upper(extent, domain) for d, extent in enumerate(formals[spec.out].shape)}
        admit_expression(spec.expr, {**symbols, **places}, ranks, place, spec=True)


# --- processes --------------------------------------------------------------------------------------------------------


def _steps(body: tuple[Node, ...], nest: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Step]]:
    if len(nest) > MAX_NEST:
        raise OutsideFragment(f"loops are nested more than {MAX_NEST} deep")
    if not body:
        raise OutsideFragment("a loop or a process has no steps")
    for node in body:
        if isinstance(node, Loop):
            yield from _steps(node.body, (*nest, node))
        else:
            yield nest, node


def _process(names: Names, process: Process, domain: Domain, where: str) -> None:
    outer = {**scope_of(domain), **SITES}
    admitted: tuple[Loop, ...] = ()
    scope = outer
    for nest, step in _steps(process.body, ()):
        if nest is not admitted:
            _loops(nest, domain, where)
            admitted, scope = nest, {**outer, **{loop.var: upper(loop.extent, domain) for loop in nest}}
        _step(names, step, scope, where)


def _loops(nest: tuple[Loop, ...], domain: Domain, where: str) -> None:
    names = [loop.var for loop in nest]
    if len(set(names)) != len(names) or any(name not in LOOP_VARIABLES for name in names):
        raise OutsideFragment(f"the loop variables {', '.join(names)} are not distinct fixed names", where=where)
    for loop in nest:
        in_scope((loop.extent,), scope_of(domain), where)
        if lower(loop.extent, domain) < 1:
            what = f"the loop over {loop.var} may have no turn"
            raise OutsideFragment(what, where=where, needed=f"{loop.extent} >= 1")
        at_most(upper(loop.extent, domain), MAX_INT, f"the loop over {loop.var} has too many turns", where)


def _step(names: Names, step: Step, scope: Scope, where: str) -> None:
    if isinstance(step, Post | Wait):
        known(step.counter, names.counters, "counter", where)
    elif isinstance(step, Init):
        known(step.carry, names.carries, "carry", where)
    elif isinstance(step, Compute):
        _op(step.op, names.fifos | names.carries, scope, where)
    elif not isinstance(step, Fence):
        known(step.fifo, names.fifos, "FIFO", where)
    if isinstance(step, Post | Wait | Send):
        admit_handshake(step, where)
    if isinstance(step, Load | Store):
        _window(names, step, scope, where)


def _window(names: Names, step: Load | Store, scope: Scope, where: str) -> None:
    known(step.tensor, names.ranks, "formal", where)
    window, rank = step.window, names.ranks[step.tensor]
    if len(window.start) != rank or len(window.size) != rank or not -1 <= window.row < rank - 1:
        raise OutsideFragment(f"a window of {step.tensor} does not have its {rank} dimensions", where=where)
    for dimension, size in enumerate(window.size):
        most = MAX_BUFFER_SIDE if dimension in (window.row, rank - 1) else 1
        one_to(most, size, f"a window of {step.tensor} is {size} long in dimension {dimension}", where)
    for start in window.start:
        index_in_scope(start, scope, where)
        if isinstance(start, Indirect):
            if isinstance(step, Store):
                raise OutsideFragment("an indirect write is not in the fragment", where=where)
            known(start.tensor, names.ranks, "formal", where)
            known(start.via, names.fifos, "FIFO", where)
    if isinstance(step, Load):
        in_scope((step.row,), scope, where)


def _op(op: Generic | MatmulTiles, buffers: set[str], scope: Scope, where: str) -> None:
    refs, spans = ((op.dst,), ()) if isinstance(op, Generic) else ((op.dst, op.a, op.b), (op.k,))
    for ref in refs:
        known(ref.name, buffers, "buffer", where)
        in_scope((ref.row, ref.col), scope, where)
    for span in (op.rows, op.cols, *spans, *op.guard):
        one_to(MAX_BUFFER_SIDE, span.size, f"a span is {span.size} long", where)
        in_scope((span.start, span.limit), scope, where)
    if isinstance(op, Generic):
        inside = {**scope, **dict.fromkeys(GENERIC_VARIABLES[:2], MAX_BUFFER_SIDE)}
        admit_expression(op.expr, inside, dict.fromkeys(buffers, 2), where, spec=False)
    elif op.tree.lanes < 1 or op.tree.atom < 0:
        raise OutsideFragment("a reduction tree has no lanes or a negative atom", where=where)
