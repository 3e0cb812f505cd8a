"""The fragment inside a shape: its buffers, specs, loops, steps and ops (see `fragment`)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pavane.ir.expr import Indirect
from pavane.ir.program import (
    GENERIC_VARIABLES,
    LOOP_VARIABLES,
    Carry,
    Compute,
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
    Window,
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
    in_scope,
    index_in_scope,
    integers,
    known,
    scope_of,
    unique,
)

MAX_PROCESSES, MAX_LEAVES, MAX_NEST = 32, 4096, 12
MAX_POSTS = 1 << 20
MAX_BUFFER_SIDE = 1 << 24
MAX_DEPTH = 1 << 12
# What a float type holds; more would become infinite. (q8_0: 127 times the greatest scale, an f16.)
_LARGEST = {
    "f32": LARGEST_F32, "f16": 65504.0, "q8_0": 127 * 65504.0, **dict.fromkeys(("bf16", "bfp8", "bfp4"), 255 * 2.0**120)
}  # fmt: skip


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
    if len(shape.sites) > MAX_SITES:
        raise OutsideFragment("a section's list of sites is too long", where=where, available=f"{MAX_SITES}")
    integers((*(i for site in shape.sites for i in site), *(f.interleave_bytes for f in shape.formals)), where)
    _buffers(shape, where)
    _specs(shape, domain, where)
    steps = [step for p in shape.processes for _, step in _steps(p.body, ())]
    for what, count, most in (
        ("steps", len(steps), MAX_LEAVES),
        ("steps that post", sum(isinstance(step, Post) for step in steps), 2 * MAX_NAMED),  # one a counter is accepted
    ):
        if count > most:
            raise OutsideFragment(f"a shape has more than {most} {what}", where=where, needed=str(count))
    for process in shape.processes:
        _process(shape, process, domain, where)


def _buffers(shape: Shape, where: str) -> None:
    for fifo in shape.fifos:
        _side(fifo.rows, fifo.cols, fifo.dtype, f"{where}, FIFO {fifo.name}")
        integers((fifo.depth, fifo.address), f"{where}, FIFO {fifo.name}")
        if fifo.depth > MAX_DEPTH:
            raise OutsideFragment(
                "a FIFO has too many slots",
                where=f"{where}, FIFO {fifo.name}",
                needed=str(fifo.depth),
                available=str(MAX_DEPTH),
            )
    for carry in shape.carries:
        _side(carry.rows, carry.cols, carry.dtype, f"{where}, carry {carry.name}")
        integers((carry.address,), f"{where}, carry {carry.name}")
        _initial(carry, f"{where}, carry {carry.name}")
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


def _side(rows: int, cols: int, dtype: str, where: str) -> None:
    if not (1 <= rows <= MAX_BUFFER_SIDE and 1 <= cols <= MAX_BUFFER_SIDE):
        raise OutsideFragment(f"{rows} x {cols} is no size of a buffer", where=where)
    block = block_elements(dtype)
    if cols % block:
        raise OutsideFragment(
            f"the columns of a {dtype} buffer are not a multiple of {block}", where=where, needed=str(cols)
        )


def _specs(shape: Shape, domain: Domain, where: str) -> None:
    formals = {f.name: f for f in shape.formals}
    outs = [spec.out for spec in shape.spec]
    if len(set(outs)) != len(outs):
        raise OutsideFragment("two specs write one formal", where=where)
    for spec in shape.spec:
        place = f"{where}, spec of {spec.out}"
        if spec.out not in formals or formals[spec.out].role == "IN":
            raise OutsideFragment(f"{spec.out} is no formal that may be written", where=place)
        rank = len(formals[spec.out].shape)
        if len(spec.origin) != rank or len(spec.extents) != rank:
            raise OutsideFragment(f"origin and extents do not have {rank} dimensions", where=place)
        symbols = scope_of(domain)
        in_scope((*spec.origin, *spec.extents), symbols, place)
        places = {f"i{d}": upper(extent, domain) for d, extent in enumerate(formals[spec.out].shape)}
        ranks = {name: len(formal.shape) for name, formal in formals.items()}
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


def _process(shape: Shape, process: Process, domain: Domain, where: str) -> None:
    place = f"{where}, process {process.name}"
    outer = {**scope_of(domain), **SITES}
    admitted: tuple[Loop, ...] = ()
    scope = outer
    for nest, step in _steps(process.body, ()):
        if nest is not admitted:
            _loops(nest, domain, place)
            admitted, scope = nest, {**outer, **{loop.var: upper(loop.extent, domain) for loop in nest}}
        _step(shape, step, scope, place)


def _loops(nest: tuple[Loop, ...], domain: Domain, where: str) -> None:
    names = [loop.var for loop in nest]
    if len(set(names)) != len(names) or any(name not in LOOP_VARIABLES for name in names):
        raise OutsideFragment(f"the loop variables {', '.join(names)} are not distinct fixed names", where=where)
    for loop in nest:
        in_scope((loop.extent,), scope_of(domain), where)
        if lower(loop.extent, domain) < 1:
            raise OutsideFragment(
                f"the loop over {loop.var} may have no turn", where=where, needed=f"{loop.extent} >= 1"
            )
        if upper(loop.extent, domain) > MAX_INT:
            raise OutsideFragment(f"the loop over {loop.var} has too many turns", where=where)


def _step(shape: Shape, step: Step, scope: Scope, where: str) -> None:
    fifos = {f.name for f in shape.fifos}
    carries = {c.name for c in shape.carries}
    if isinstance(step, Post | Wait):
        known(step.counter, {c.name for c in shape.counters}, "counter", where)
        if not 1 <= step.n <= MAX_POSTS:
            raise OutsideFragment(f"{step.n} is no number of posts", where=where)
    elif isinstance(step, Init):
        known(step.carry, carries, "carry", where)
    elif isinstance(step, Compute):
        _op(step.op, fifos | carries, scope, where)
    elif hasattr(step, "fifo"):
        known(step.fifo, fifos, "FIFO", where)
    if isinstance(step, Post | Send):
        in_scope((step.to.x0, step.to.x1, step.to.y0, step.to.y1), SITES, where)
    if isinstance(step, Load | Store):
        _window(shape, step, scope, where)


def _window(shape: Shape, step: Load | Store, scope: Scope, where: str) -> None:
    formals = {f.name: f for f in shape.formals}
    known(step.tensor, set(formals), "formal", where)
    window: Window = step.window
    rank = len(formals[step.tensor].shape)
    if len(window.start) != rank or len(window.size) != rank or not -1 <= window.row < rank - 1:
        raise OutsideFragment(f"a window of {step.tensor} does not have its {rank} dimensions", where=where)
    for dimension, size in enumerate(window.size):
        if not 1 <= size <= MAX_BUFFER_SIDE or (size != 1 and dimension not in (window.row, rank - 1)):
            raise OutsideFragment(f"a window of {step.tensor} is {size} long in dimension {dimension}", where=where)
    for start in window.start:
        index_in_scope(start, scope, where)
        if isinstance(start, Indirect):
            if isinstance(step, Store):
                raise OutsideFragment("an indirect write is not in the fragment", where=where)
            known(start.tensor, set(formals), "formal", where)
            known(start.via, {f.name for f in shape.fifos}, "FIFO", where)
    if isinstance(step, Load):
        in_scope((step.row,), scope, where)


def _op(op: Generic | MatmulTiles, buffers: set[str], scope: Scope, where: str) -> None:
    refs = (op.dst,) if isinstance(op, Generic) else (op.dst, op.a, op.b)
    spans = (op.rows, op.cols, *op.guard) if isinstance(op, Generic) else (op.rows, op.cols, op.k, *op.guard)
    for ref in refs:
        known(ref.name, buffers, "buffer", where)
        in_scope((ref.row, ref.col), scope, where)
    for span in spans:
        if not 1 <= span.size <= MAX_BUFFER_SIDE:
            raise OutsideFragment(f"a span is {span.size} long", where=where)
        in_scope((span.start, span.limit), scope, where)
    if isinstance(op, Generic):
        inside = {**scope, **dict.fromkeys(GENERIC_VARIABLES[:2], MAX_BUFFER_SIDE)}
        admit_expression(op.expr, inside, dict.fromkeys(buffers, 2), where, spec=False)
    elif op.tree.lanes < 1 or op.tree.atom < 0:
        raise OutsideFragment("a reduction tree has no lanes or a negative atom", where=where)
