"""Bounds: every access inside its tensor, every element read inside what was written, every region inside its buffer.

- A window is clipped at its tensor's extent, so only its start can leave the tensor: each start is >= 0, or indirect
  with [lo, hi) inside the extent, and the fill of its indices inside [lo, hi). An indirect index of a spec alike. A
  window of a type in blocks begins and ends at whole ones.
- An element read at (row, col) of a value that is valid on [o, o + len(s)): row - o counts s itself, or o <= row and
  row <= o + size - 1 and row <= o + (limit - start) - 1, for all values of the counted variables where the op's spans
  are not empty; columns alike. Each guard of the value holds under the op's guards.
- A region [o, o + len(s)) written: 0 <= o and o + size <= extent or o + (limit - start) <= extent of the buffer. So a
  load's window may be larger than its slot where the tensor's end clips it, and a store reads only what was written.
"""

from __future__ import annotations

from pavane.ir.expr import At, Indirect, walk
from pavane.ir.program import Load, Reserve, Store
from pavane.ir.quasi import Quasi, lower, quasi
from pavane.ir.types import Ints, block_elements
from pavane.reject import BoundsRefused
from pavane.verify.check.inequalities import aligned, guard_holds, never_negative, never_positive
from pavane.verify.check.section import Actor, Leaf, Section
from pavane.verify.check.values import Evidence, Piece, Read, Write


def bounds(section: Section, evidence: Evidence) -> str:
    """Refuse the first access that cannot be shown to stay inside."""
    windows = 0
    for actor in section.actors:
        for leaf in actor.leaves:
            if isinstance(leaf.placed, Load | Store):
                _window(section, actor, leaf)
                windows += 1
    for spec in section.shape.spec:
        for at in (node for node in walk(spec.expr) if isinstance(node, At)):
            for start, extent in zip(at.index, section.formals[at.name].shape, strict=True):
                if isinstance(start, Indirect):
                    _indirect(section, start, extent, f"{section.where}, the spec of {spec.out}")
    for write in evidence.writes:
        _write(section, write)
    for read in evidence.reads:
        _read(read)
    return f"{windows} windows, {len(evidence.writes)} regions, {len(evidence.reads)} reads"


def _window(section: Section, actor: Actor, leaf: Leaf) -> None:
    step: Load | Store = leaf.placed  # type: ignore[assignment]
    where = f"{actor.where}, step {leaf.index}, {step.tensor}"
    formal, fifo = section.formals[step.tensor], section.fifos[step.fifo]
    if formal.dtype != fifo.dtype:
        raise BoundsRefused(f"a window of {formal.dtype} moves into or out of a slot of {fifo.dtype}", where=where)
    domain = section.domain(actor, leaf.nest)
    for dimension, start in enumerate(step.window.start):
        if isinstance(start, Indirect):
            _indirect(section, start, formal.shape[dimension], where)
        elif not never_negative(start, domain):
            what = f"the window may start before the tensor in dimension {dimension}"
            raise BoundsRefused(what, where=where, needed=f"{start} >= 0", remedy="start windows at or after 0")
    block, first, size = block_elements(formal.dtype), step.window.start[-1], step.window.size[-1]
    if block > 1 and not (isinstance(first, Quasi) and aligned(first, block) and size % block == 0):
        what = f"a window of {formal.dtype} does not begin and end at whole blocks of {block}"
        raise BoundsRefused(what, where=where, needed=f"{first} +: {size}")
    beside = any(leaf.path == reserve.path for reserve in actor.uses(Reserve, step.fifo))
    if isinstance(step, Load) and fifo.kind == "ALIAS" and not beside:  # an alias has one address for a slot
        what = f"the alias {step.fifo} is bound to several windows"
        raise BoundsRefused(what, where=where, remedy="a FIFO that holds its slots, or one load a slot")


def _indirect(section: Section, index: Indirect, extent: Quasi, where: str) -> None:
    ids = section.formals[index.tensor]
    if ids.dtype != "i32" or not isinstance(ids.fill, Ints) or len(ids.shape) != 1:
        raise BoundsRefused(
            f"{index.tensor} is not known to hold indices", where=where, remedy="an i32 formal with integers of a range"
        )
    if ids.fill.lo < index.lo or ids.fill.hi >= index.hi:
        what = f"an index of {index.tensor} may leave [{index.lo}, {index.hi})"
        raise BoundsRefused(what, where=where, needed=f"{ids.fill.lo} .. {ids.fill.hi}")
    if lower(extent, section.symbols) < index.hi:
        raise BoundsRefused(
            "an indirect index may pass the tensor's end", where=where, needed=f"{index.hi}", available=str(extent)
        )


def _write(section: Section, write: Write) -> None:
    buffer = section.buffer(write.name)
    for piece, extent, what in ((write.rows, buffer.rows, "row"), (write.cols, buffer.cols, "column")):
        ends = (piece.offset + piece.span.size, piece.offset + piece.span.limit - piece.span.start)
        inside = any(never_positive(end - extent, write.place.domain) for end in ends)
        if not (inside and never_negative(piece.offset, write.place.domain)):
            raise BoundsRefused(
                f"a {what} outside {write.name} may be written",
                where=write.place.where,
                needed=f"{piece.offset} +: {piece.span.size}",
                available=f"{extent} {what}s",
            )


def _read(read: Read) -> None:
    for guard in read.value.guards:
        if not guard_holds(guard, read.guards, read.place.domain):
            raise BoundsRefused(
                f"{read.name} is empty where {guard.start} is not below {guard.limit}, and is read without that guard",
                where=read.place.where,
                remedy="carry the span in the op's guard",
            )
    if read.value.rows is None or read.value.cols is None:
        raise BoundsRefused(f"{read.name} is read before anything is known of it", where=read.place.where)
    _inside(read, read.row, read.value.rows, "row")
    _inside(read, read.col, read.value.cols, "column")


def _inside(read: Read, index: Quasi, piece: Piece, what: str) -> None:
    place = index - piece.offset
    if any(place == quasi(c.var) and piece.span == c.span for c in read.counted):
        return
    ends = (place - piece.span.size + 1, place - (piece.span.limit - piece.span.start) + 1)
    first = never_negative(place, read.place.domain, read.counted)
    if first and all(never_positive(end, read.place.domain, read.counted) for end in ends):
        return
    raise BoundsRefused(
        f"{what} {index} of {read.name} may be outside the {what}s that hold something",
        where=read.place.where,
        needed=f"inside {piece.offset} +: {piece.span.size}, below {piece.span.limit - piece.span.start} {what}s",
    )
