"""Windows fit their tensor and their slot: rank, sizes, row dimension, dtype, blocks, indirect starts."""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.expr import Indirect
from pavane.ir.program import Fifo, Formal, Load, Store, Window
from pavane.ir.quasi import Domain, Quasi, quasi
from pavane.ir.types import block_elements
from pavane.validate.section import Section, greatest, is_multiple, is_never_negative
from pavane.validate.specs import indirect_faults
from pavane.validate.violation import Finding, RuleTable


def shapes(section: Section) -> Iterator[Finding]:
    """A window has its tensor's rank, positive sizes, and size 1 where a dimension is neither row nor column."""
    for place, _, step, formal in _transfers(section):
        yield from ((place, text) for text in _shape_faults(step.window, formal))


def _shape_faults(window: Window, formal: Formal) -> Iterator[str]:
    rank = len(formal.shape)
    if not _has_rank(window, formal):
        yield f"a window of {len(window.start)} starts, {len(window.size)} sizes; {formal.name} has rank {rank}"
        return
    if not -1 <= window.row < rank - 1:
        yield f"dimension {window.row} cannot give the rows of a window of rank {rank}"
    for dimension, size in enumerate(window.size):
        single = dimension not in (window.row, rank - 1)
        if size < 1 or (single and size != 1):
            yield f"size {size} of dimension {dimension}" + (
                "; only the row and column dimensions may exceed 1" if single else ""
            )


def slots(section: Section) -> Iterator[Finding]:
    """The window has the slot's dtype, and what it moves fits: its size, or what the tensor's end leaves of it."""
    for place, domain, step, formal in _transfers(section):
        fifo = section.fifos[step.fifo]
        if fifo.dtype != formal.dtype:
            yield place, f"{formal.name} is {formal.dtype}, the slot {fifo.dtype}"
        if _has_rank(step.window, formal):
            yield from ((place, text) for text in _fit_faults(step, fifo, formal, domain))


def _fit_faults(step: Load | Store, fifo: Fifo, formal: Formal, domain: Domain) -> Iterator[str]:
    window, last = step.window, len(formal.shape) - 1
    first = step.row if isinstance(step, Load) else quasi(0)
    rows = _reaches(first, window, formal, window.row) if 0 <= window.row < last else (first + 1,)
    if not is_never_negative(first, domain) or not _fits(rows, fifo.rows, domain):
        yield f"rows from {first} on, {rows[0] - first} of them, of a slot of {fifo.rows}"
    if not _fits(_reaches(quasi(0), window, formal, last), fifo.cols, domain):
        yield f"{window.size[-1]} columns of a slot of {fifo.cols}"


def _reaches(first: Quasi, window: Window, formal: Formal, dimension: int) -> tuple[Quasi, ...]:
    """Two bounds on where a dimension of the window ends in the slot: by its size, and by the tensor's end."""
    start = window.start[dimension]
    by_size = first + window.size[dimension]
    return (by_size,) if isinstance(start, Indirect) else (by_size, first + formal.shape[dimension] - start)


def _fits(reaches: tuple[Quasi, ...], extent: int, domain: Domain) -> bool:
    ends = [greatest(reach, domain) for reach in reaches]
    return any(end is not None and end <= extent for end in ends)


def roles(section: Section) -> Iterator[Finding]:
    """Loads read what may be read, stores write what may be written."""
    for place, _, step, formal in _transfers(section):
        if formal.role == ("OUT" if isinstance(step, Load) else "IN"):
            yield place, f"{formal.name} is {'only written' if formal.role == 'OUT' else 'only read'}"


def blocks(section: Section) -> Iterator[Finding]:
    """A window of a type in blocks starts and ends at whole ones of its last dimension."""
    for place, _, step, formal in _transfers(section):
        block, window = block_elements(formal.dtype), step.window
        if block == 1 or not _has_rank(window, formal):
            continue
        start = window.start[-1]
        if isinstance(start, Indirect) or not is_multiple(start, block) or window.size[-1] % block:
            yield place, f"columns of {formal.dtype} do not start and end at multiples of {block}"


def indirect(section: Section) -> Iterator[Finding]:
    """An indirect start: in a load, not of the columns, one index a turn, within [0, extent), via an i32 slot."""
    for place, _, step, formal in _transfers(section):
        if not _has_rank(step.window, formal):
            continue
        for dimension, start in enumerate(step.window.start):
            if isinstance(start, Indirect):
                yield from ((place, text) for text in _indirect_faults(section, step, formal, dimension, start))


def _indirect_faults(
    section: Section, step: Load | Store, formal: Formal, dimension: int, start: Indirect
) -> Iterator[str]:
    if isinstance(step, Store):
        yield "a store has an indirect start"
    if dimension == len(formal.shape) - 1 and len(formal.shape) > 1:
        yield "the columns start at an indirect index"
    if step.window.size[dimension] != 1:
        yield f"a window of {step.window.size[dimension]} starts at an indirect index; one index gives one row"
    if section.fifos[start.via].dtype != "i32":
        yield f"the index comes via {start.via}, which is {section.fifos[start.via].dtype}, not i32"
    yield from indirect_faults(start, section.formals)
    if not is_never_negative(formal.shape[dimension] - start.hi, section.symbols):
        yield f"the index may be {start.hi - 1}, outside {formal.shape[dimension]}"


def _has_rank(window: Window, formal: Formal) -> bool:
    """Only then is there more to say of a window."""
    return len(window.start) == len(window.size) == len(formal.shape) > 0


def _transfers(section: Section) -> Iterator[tuple[str, Domain, Load | Store, Formal]]:
    for body in section.bodies:
        for place, nest, step in body.steps:
            if isinstance(step, Load | Store):
                yield place, section.domain(body, nest), step, section.formals[step.tensor]


RULES: RuleTable[Section] = (
    ("window.shape", shapes),
    ("window.slot", slots),
    ("window.role", roles),
    ("window.blocks", blocks),
    ("window.indirect", indirect),
)
