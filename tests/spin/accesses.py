"""Which bytes a step touches: a space (a site's memory, a tensor, the SCRATCH arena) and a set of bytes as a bit mask.

Slots and carries count whole, or by rows where a Load fills some; windows of tensors count to the byte. Where an index
is read at run time, every index in its range counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from pavane.ir.expr import Indirect
from pavane.ir.program import Carry, Fifo, Formal, Instance, Load, Program, Store, Window
from pavane.ir.types import row_bytes
from pavane.ir.walk import named

Site = tuple[int, int]
Values = dict[str, int]


class Misuse(Exception):
    """The program names or does what no model can show; the text says what."""


@dataclass(frozen=True)
class Access:
    """`what` is for people; two accesses are in conflict where spaces are equal, masks meet, and one writes."""

    space: str
    mask: int
    write: bool
    what: str = ""


def memory_of(site: Site) -> str:
    return f"memory of {site[0]},{site[1]}"


def slot_access(
    fifo: Fifo, slot: int, site: Site, write: bool, first: int = 0, rows: int | None = None
) -> Access | None:
    """Rows first .. first + rows of a slot, or all of it; None where it is no memory of the site (an alias)."""
    if fifo.kind == "ALIAS":
        return None
    rows = fifo.rows if rows is None else rows
    pitch = row_bytes(fifo.dtype, fifo.cols)
    start = fifo.address + (slot * fifo.rows + first) * pitch
    return Access(memory_of(site), _run(start, rows * pitch), write, f"slot {slot} of {fifo.name}")


def carry_access(carry: Carry, site: Site, write: bool) -> Access:
    size = carry.rows * row_bytes(carry.dtype, carry.cols)
    return Access(memory_of(site), _run(carry.address, size), write, f"carry {carry.name}")


def window_accesses(
    program: Program, instance: Instance, formal: Formal, step: Load | Store, env: Values, site: Site, grid: Site
) -> tuple[Access, ...]:
    """The bytes of a tensor that a window covers, clipped at the formal's extents.

    A tensor with a copy on every site is loaded from this site's, and stored to all.
    """
    binding = next((b for b in instance.bindings if b.formal == formal.name), None)
    if binding is None:
        raise Misuse(f"formal {formal.name} is not bound")
    tensor = named(program.tensors, binding.tensor)
    write = isinstance(step, Store)
    base = tensor.offset if tensor.role == "SCRATCH" or tensor.home == "sites" else 0
    shape = [extent.evaluate(env) for extent in formal.shape]
    mask = 0
    *outer, columns = _ranges(step.window, shape, env)
    for index in product(*outer):
        line = sum(i * prod(shape[d + 1 : -1]) for d, i in enumerate(index))
        start = row_bytes(formal.dtype, columns.start) if columns else 0
        size = row_bytes(formal.dtype, columns.stop) - start if columns else 0
        mask |= _run(base + line * row_bytes(formal.dtype, shape[-1]) + start, size)
    spaces = ["SCRATCH" if tensor.role == "SCRATCH" else f"tensor {tensor.name}"]
    if tensor.home == "sites":
        everywhere = [(x, y) for y in range(grid[1]) for x in range(grid[0])]
        spaces = [memory_of(place) for place in (everywhere if write else [site])]
    return tuple(Access(space, mask, write, f"a window of {tensor.name}") for space in spaces)


def clipped_rows(window: Window, formal: Formal, env: Values) -> int:
    """How many rows of a slot a window fills; 0 where it is empty."""
    ranges = _ranges(window, [extent.evaluate(env) for extent in formal.shape], env)
    if any(not r for r in ranges):
        return 0
    return 1 if window.row < 0 else min(len(ranges[window.row]), window.size[window.row])


def _ranges(window: Window, shape: list[int], env: Values) -> list[range]:
    if len(window.start) != len(shape) or len(window.size) != len(shape):
        raise Misuse("a window of another rank than its tensor")
    ranges = []
    for start, size, extent in zip(window.start, window.size, shape, strict=True):
        if isinstance(start, Indirect):
            ranges.append(range(max(0, start.lo), min(start.hi - 1 + size, extent)))
            continue
        first = start.evaluate(env)
        if first < 0:
            raise Misuse("a window starts below 0")
        ranges.append(range(first, min(first + size, extent)))
    return ranges


def _run(start: int, size: int) -> int:
    if start < 0 or size < 0 or start + size > 1 << 26:
        raise Misuse(f"bytes {start} to {start + size} are no place")
    return ((1 << size) - 1) << start
