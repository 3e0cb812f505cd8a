"""Initialised: what a section reads, a section before it or an earlier epoch has written; outputs are written whole.

Sections are taken in their order; that accesses to the same bytes happen in that order is `order`'s. WEIGHT and INPUT
are never written. Of a SCRATCH or OUTPUT tensor a section may read the first n elements when one before has written the
first m >= n, with no write to bytes that it shares in between. STATE: each has a transition, read or not, and an epoch
writes exactly its rows, once; rows before them were written in earlier epochs (the launch guards `0 <= pos' <= pos +
rows`), rows of the transition only after this epoch's write. A view of a tensor is its first elements, so a read is
inside what has been written when its elements are as few.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pavane.ir.program import Formal, Program, Spec, Tensor, Transition
from pavane.ir.quasi import Quasi, quasi
from pavane.reject import OrderRefused
from pavane.verify.check.bindings import Memory, Place, elements
from pavane.verify.check.inequalities import never_negative


@dataclass
class _Written:
    """So far: how many elements from the first on, by tensor, and which tensor that is at each place; the STATE tensors
    with their new rows; all tensors.
    """

    first: dict[str, Quasi] = field(default_factory=dict)
    there: dict[Place, str] = field(default_factory=dict)
    appended: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)


def initialised(memory: Memory) -> None:
    """Refuse the first read of what nothing has written, and what an epoch does not write whole."""
    _transitions(memory.program)
    written = _Written()
    for where, section, pairs in memory.bound:
        for formal, tensor in pairs:
            if formal.name not in section.specs and tensor.role not in ("INPUT", "WEIGHT"):
                _read(written, memory, formal, tensor, f"{where}, {formal.name} = {tensor.name}")
        for formal, tensor in pairs:
            if formal.name in section.specs:
                _write(written, memory, section.specs[formal.name], formal, tensor, f"{where}, {formal.name}")
    _outcome(written, memory)


def _transitions(program: Program) -> None:
    """Every STATE tensor has one, nothing else has, and all are of the same rows, from pos on."""
    for tensor in program.tensors:
        where, change = f"tensor {tensor.name}", tensor.transition
        if tensor.role == "STATE" and change is None:
            raise OrderRefused("a STATE tensor has no transition", where=where)
        if change is not None and (tensor.role != "STATE" or change.row != quasi("pos")):
            raise OrderRefused("a transition belongs to a STATE tensor and begins at row pos", where=where)
    if len({t.transition for t in program.tensors if t.transition is not None}) > 1:
        raise OrderRefused("STATE tensors have different transitions", where=program.name)


def _read(written: _Written, memory: Memory, formal: Formal, tensor: Tensor, where: str) -> None:
    count, there = elements(formal.shape), written.first.get(tensor.name)
    if tensor.role == "STATE":
        change: Transition = tensor.transition  # type: ignore[assignment]
        after = tensor.name in written.appended or memory.part
        there = _rows(tensor, change.row + change.rows if after else change.row)
    elif memory.part:
        return
    if count is None or there is None or not never_negative(there - count, memory.symbols):
        what = "a section reads elements that no section before it has written"
        raise OrderRefused(what, where=where, needed=f"{count}", available=f"{there}")


def _rows(tensor: Tensor, rows: Quasi) -> Quasi | None:
    """How many elements the first rows of a tensor have."""
    return elements((rows, *tensor.shape[1:]))


def _write(written: _Written, memory: Memory, spec: Spec, formal: Formal, tensor: Tensor, where: str) -> None:
    written.stored.add(tensor.name)
    at = memory.places[tensor.name]
    for place in memory.meeting[at]:
        other = written.there.pop(place, tensor.name)
        if other != tensor.name:
            del written.first[other]
    if tensor.role == "STATE":
        _transition(written, spec, formal, tensor, where)
        return
    whole = all(o == quasi(0) for o in spec.origin) and spec.extents == formal.shape
    count, before = elements(formal.shape), written.first.get(tensor.name)
    if whole and count is not None and (before is None or never_negative(count - before, memory.symbols)):
        written.first[tensor.name] = count
    if tensor.name in written.first:
        written.there[at] = tensor.name


def _transition(written: _Written, spec: Spec, formal: Formal, tensor: Tensor, where: str) -> None:
    """The one write of an epoch to a STATE tensor: exactly the rows of its transition."""
    change: Transition = tensor.transition  # type: ignore[assignment]
    if tensor.name in written.appended:
        raise OrderRefused("a STATE tensor is written twice", where=where)
    rows = (spec.origin[0], spec.extents[0]) == (change.row, change.rows)
    rest = all(o == quasi(0) for o in spec.origin[1:]) and spec.extents[1:] == formal.shape[1:]
    if not (rows and rest and elements((quasi(1), *formal.shape[1:])) == _rows(tensor, quasi(1))):
        raise OrderRefused(
            "the section does not write exactly the rows of the transition",
            where=where,
            needed=f"rows {change.row} +: {change.rows}",
            available=f"rows {spec.origin[0]} +: {spec.extents[0]}",
        )
    written.appended.add(tensor.name)


def _outcome(written: _Written, memory: Memory) -> None:
    """Outputs are written whole; every STATE tensor makes its transition."""
    for tensor in memory.program.tensors:
        where = f"tensor {tensor.name}"
        if tensor.role == "STATE" and tensor.name not in written.appended and not memory.part:
            raise OrderRefused("an epoch does not write the rows of the transition", where=where)
        count = elements(tensor.shape)
        given = memory.part and tensor.name not in written.stored
        if tensor.role == "OUTPUT" and not given and (count is None or written.first.get(tensor.name) != count):
            raise OrderRefused("an output is not written whole", where=where)
