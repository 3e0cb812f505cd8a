"""Compute steps: spans, operands inside their buffers, whole blocks, the expressions that a Generic may be.

Whether each element read was filled is the checker's to prove; here is refused what cannot be right for any value.
"""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.expr import At, Indirect, Reduce, walk
from pavane.ir.program import (
    LV_GEN_COL,
    LV_GEN_K,
    LV_GEN_ROW,
    Carry,
    Compute,
    Fifo,
    Generic,
    MatmulTiles,
    Ref,
    Span,
)
from pavane.ir.quasi import Domain, Quasi, quasi
from pavane.ir.types import INTEGER_DTYPES, block_elements
from pavane.validate.section import Section, greatest, is_multiple, least
from pavane.validate.specs import cast_faults, gives_integers
from pavane.validate.violation import Finding, RuleTable

Buffer = Fifo | Carry


def spans(section: Section) -> Iterator[Finding]:
    """Spans have a size of at least 1; a guard is one index."""
    for place, _, op in _ops(section):
        for span in (op.rows, op.cols, *((op.k,) if isinstance(op, MatmulTiles) else ())):
            if span.size < 1:
                yield place, f"a span of size {span.size}"
        yield from ((place, f"a guard of size {guard.size}, not 1") for guard in op.guard if guard.size != 1)


def places(section: Section) -> Iterator[Finding]:
    """Destinations and the operands of products fit into their buffers."""
    for place, domain, op in _ops(section):
        for ref, rows, cols in _boxes(op):
            buffer = section.buffer(ref.name)
            yield from ((place, text) for text in _box_faults(ref, rows, cols, buffer, domain))


def _boxes(op: Generic | MatmulTiles) -> Iterator[tuple[Ref, Span, Span]]:
    """What each Ref of an op covers: rows and columns, from its origin."""
    yield op.dst, op.rows, op.cols
    if isinstance(op, MatmulTiles):
        yield op.a, op.rows, op.k
        yield (op.b, op.cols, op.k) if op.transposed else (op.b, op.k, op.cols)


def _box_faults(ref: Ref, rows: Span, cols: Span, buffer: Buffer, domain: Domain) -> Iterator[str]:
    """A span may pass the end of a buffer where its limit ends it; no span is longer, and no origin is outside."""
    for origin, span, extent, what in ((ref.row, rows, buffer.rows, "rows"), (ref.col, cols, buffer.cols, "columns")):
        first, last = least(origin, domain), greatest(origin, domain)
        if span.size > extent and not _ends_within(span, extent, domain):
            yield f"{span.size} {what} of {ref.name}, which has {extent}"
        if first is None or last is None or last < 0 or first >= extent:
            yield f"{ref.name} from {what[:-1]} {origin} on; it has {extent} {what}"


def _ends_within(span: Span, extent: int, domain: Domain) -> bool:
    most = greatest(span.limit - span.start, domain)
    return most is not None and most <= extent


def blocks(section: Section) -> Iterator[Finding]:
    """Types in blocks: a Generic writes whole ones; a product whose k lies along the blocks takes whole blocks."""
    for place, _, op in _ops(section):
        if isinstance(op, Generic):
            yield from ((place, text) for text in _block_faults(section, op.dst, op.cols))
            continue
        yield from ((place, text) for text in _block_faults(section, op.a, op.k))
        if op.transposed:
            yield from ((place, text) for text in _block_faults(section, op.b, op.k))


def _block_faults(section: Section, ref: Ref, along: Span) -> Iterator[str]:
    block = block_elements(section.buffer(ref.name).dtype)
    if block == 1:
        return
    if along.size % block or not all(is_multiple(q, block) for q in (along.start, along.limit, ref.col)):
        yield f"columns of {ref.name} do not start, end and clip at multiples of {block}"


def generics(section: Section) -> Iterator[Finding]:
    """At most one reduction, over LV_GEN_K; operands by (row, column); nothing indirect, nothing `next`."""
    for place, _, op in _ops(section):
        if isinstance(op, Generic):
            yield from ((place, text) for text in _generic_faults(section, op))


def _generic_faults(section: Section, op: Generic) -> Iterator[str]:
    nodes = tuple(walk(op.expr))
    reductions = [node for node in nodes if isinstance(node, Reduce)]
    if len(reductions) > 1:
        yield f"{len(reductions)} reductions; a Generic has at most one"
    yield from (f"reduces over {node.var!r}, not LV_GEN_K" for node in reductions if node.var != LV_GEN_K)
    for node in nodes:
        if isinstance(node, At):
            yield from _operand_faults(node, op.dst)
    yield from cast_faults(op.expr)
    dtypes = {b.name: b.dtype for b in section.buffers()}
    dtype = dtypes[op.dst.name]
    if dtype in INTEGER_DTYPES and not gives_integers(op.expr, dtype, dtypes):
        yield f"{dtype} is stored in {op.dst.name} without a cast to it"


def _operand_faults(operand: At, dst: Ref) -> Iterator[str]:
    if operand.next:
        yield f"reads {operand.name} after a transition; only specs do"
    if len(operand.index) != 2:
        yield f"reads {operand.name} at {len(operand.index)} indices, not (row, column)"
    elif any(isinstance(index, Indirect) for index in operand.index):
        yield f"reads {operand.name} at an indirect index; only loads do"
    elif operand.name == dst.name and operand.index != _same_place(dst):
        yield f"reads its destination {operand.name} elsewhere than where it writes"


def _same_place(dst: Ref) -> tuple[Quasi, Quasi]:
    return dst.row + quasi(LV_GEN_ROW), dst.col + quasi(LV_GEN_COL)


def reads(section: Section) -> Iterator[Finding]:
    """An element that a Generic reads is not outside its buffer for every value of its index."""
    for place, domain, op in _ops(section):
        if not isinstance(op, Generic):
            continue
        inner = domain.with_loop(LV_GEN_ROW, op.rows.size).with_loop(LV_GEN_COL, op.cols.size)
        for node in walk(op.expr):
            if isinstance(node, Reduce):
                inner = inner.with_loop(LV_GEN_K, node.extent)
            elif isinstance(node, At) and len(node.index) == 2:
                buffer = section.buffer(node.name)
                extents = (buffer.rows, buffer.cols)
                yield from ((place, text) for text in _read_faults(node, extents, inner))


def _read_faults(operand: At, extents: tuple[int, int], domain: Domain) -> Iterator[str]:
    for index, extent in zip(operand.index, extents, strict=True):
        if isinstance(index, Indirect):
            continue
        first, last = least(index, domain), greatest(index, domain)
        if first is None or last is None or last < 0 or first >= extent:
            yield f"reads {operand.name} at {index}, outside {extents[0]} x {extents[1]}"


def trees(section: Section) -> Iterator[Finding]:
    """A sum's tree: lanes a power of two, atoms of whole turns of the lanes; one lane has no atoms."""
    for place, _, op in _ops(section):
        if isinstance(op, MatmulTiles):
            atom, lanes = op.tree.atom, op.tree.lanes
            if not 1 <= lanes <= 4096 or lanes & (lanes - 1):
                yield place, f"a sum over {lanes} lanes; a power of two up to 4096"
            elif atom < 0 or (lanes == 1 and atom) or atom % lanes:
                yield place, f"a sum in atoms of {atom} terms over {lanes} lanes"


def _ops(section: Section) -> Iterator[tuple[str, Domain, Generic | MatmulTiles]]:
    for body in section.bodies:
        for place, nest, step in body.steps:
            if isinstance(step, Compute):
                yield place, section.domain(body, nest), step.op


RULES: RuleTable[Section] = (
    ("op.span", spans),
    ("op.place", places),
    ("op.blocks", blocks),
    ("op.generic", generics),
    ("op.read", reads),
    ("op.tree", trees),
)
