"""Which bytes of a buffer a process uses on some sites: where two sections lay out buffers over each other.

Who reserves slots, or has a carry, may leave anything in what of it holds no value: it uses the whole buffer. A slot
that is sent is copied as it is, so both ends of such a FIFO use it whole. Who only takes slots reads elements, each of
which the section has written on that site (`bounds`). So in each slot it uses no byte outside the hull of the regions
that the section's steps write there (`evaluation`), and none on sites where all of them are empty. Uses without a
common byte, and two that only read, need no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pavane.ir.program import SITE_X, SITE_Y, Reserve, Send
from pavane.ir.quasi import Domain, lower, upper
from pavane.ir.types import block_elements, row_bytes
from pavane.verify.check.boxes import Box, common_part
from pavane.verify.check.capacity import place_of
from pavane.verify.check.inequalities import never_negative
from pavane.verify.check.section import Actor, Section
from pavane.verify.check.values import Piece, Write


@dataclass(frozen=True)
class Bytes:
    """The bytes [first, end) of each of some slots, one behind the other every `pitch` bytes; does the process write
    there? Of a buffer that it writes, all bytes are one slot.
    """

    writes: bool
    first: int
    end: int
    pitch: int
    slots: int = 1

    def meets(self, other: Bytes) -> bool:
        """Can one change what the other uses?"""
        whole, some = (self, other) if self.writes else (other, self)
        slot = max(0, (whole.first - some.end) // some.pitch + 1)  # the first that ends after the beginning
        return whole.writes and slot < some.slots and some.first + slot * some.pitch < whole.end


def changes(section: Section, actor: Actor, name: str) -> bool:
    """May a process leave anything in a buffer?"""
    sent = any(each.uses(Send, name) for each in section.actors)
    return sent or name in section.carries or bool(actor.uses(Reserve, name))


def all_bytes(section: Section, name: str) -> Bytes:
    """Those of a buffer that a process changes."""
    start, end = place_of(section.buffer(name))
    return Bytes(True, start, end, end - start)


def bytes_read(section: Section, writes: Sequence[Write], name: str, sites: Box) -> Bytes | None:
    """Those that can be read of a FIFO on sites of a rectangle of the chip; `writes`: all regions that the section's
    steps write there.
    """
    placed = [(write, _places(section, write, sites)) for write in writes]
    regions = [(write, domain) for write, domain in placed if domain is not None]
    if not regions:
        return None
    fifo = section.fifos[name]
    row, block = row_bytes(fifo.dtype, fifo.cols), block_elements(fifo.dtype)
    top, bottom = _hull(_ends(write.rows, domain) for write, domain in regions)
    left, right = _hull(_ends(write.cols, domain) for write, domain in regions)
    first = fifo.address + top * row + row_bytes(fifo.dtype, left - left % block)
    end = fifo.address + (bottom - 1) * row + row_bytes(fifo.dtype, right)
    return Bytes(False, first, end, fifo.rows * row, fifo.depth)


def _places(section: Section, write: Write, sites: Box) -> Domain | None:
    """The places of a step on some sites of the chip; None where its region is empty at all of them.

    A place along a list of sites says nothing of where it is: then all places.
    """
    edges = write.place.actor.box
    x0, x1, y0, y1 = edges if section.shape.sites else common_part(edges, sites)
    if x0 == x1 or y0 == y1:
        return None
    ranges = {SITE_X: (SITE_X, x0, x1 - 1), SITE_Y: (SITE_Y, y0, y1 - 1)}
    domain = Domain(ranges.get(bound[0], bound) for bound in write.place.domain.ranges)
    spans = (write.rows.span, write.cols.span)
    return None if any(never_negative(span.start - span.limit, domain) for span in spans) else domain


def _ends(piece: Piece, domain: Domain) -> tuple[int, int]:
    """From the least index of a range to the one after the greatest."""
    ends = (piece.offset + piece.span.size, piece.offset + piece.span.limit - piece.span.start)
    return lower(piece.offset, domain), min(upper(end, domain) for end in ends)


def _hull(ranges: Iterable[tuple[int, int]]) -> tuple[int, int]:
    firsts, ends = zip(*ranges, strict=True)
    return min(firsts), max(ends)
