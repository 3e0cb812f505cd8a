"""Mistakes with FIFOs and with where buffers lie."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pavane.ir.program import (
    Carry,
    Compute,
    Fifo,
    Load,
    Loop,
    Program,
    Push,
    Reserve,
    Send,
    Shape,
)
from pavane.ir.types import row_bytes
from pavane.targets.descriptor import SpatialTarget
from tests.checker_oracle.mutants import at, put
from tests.evidence import edits
from tests.evidence.mistakes import Mutant, mistake


@mistake("two stages pushing one FIFO", "balance", "progress", "order", "multicast")
def two_pushers(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A process pushes a FIFO that another one fills: it fills it too, or hands over what nothing fills."""
    for s, shape in enumerate(program.shapes):
        for place in edits.steps(program, Push):
            if place.path[1] != s:
                continue
            for fifo in shape.fifos:
                mine = {p.step.fifo for p in edits.steps(program, Push) if p.path[:4] == place.path[:4]}
                if fifo.name in mine:
                    continue
                body = at(program, place.path[:-1])
                more = (*body, Reserve(fifo.name), Push(fifo.name))
                yield Mutant(put(program, place.path[:-1], more), target, place.nested)
                path = place.path[:5]
                yield Mutant(
                    put(program, path, _renamed(at(program, path), place.step.fifo, fifo.name)), target, place.nested
                )


def _renamed(body: tuple, old: str, new: str) -> tuple:
    """A process's FIFO under another name, at the filling end."""
    out = []
    for node in body:
        if isinstance(node, Loop):
            node = replace(node, body=_renamed(node.body, old, new))
        elif isinstance(node, Reserve | Load | Push | Send) and node.fifo == old:
            node = replace(node, fifo=new)
        elif isinstance(node, Compute) and node.op.dst.name == old:
            node = Compute(replace(node.op, dst=replace(node.op.dst, name=new)))
        out.append(node)
    return tuple(out)


@mistake("depth reduced", "capacity", "progress")
def depth_reduced(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    for s, shape in enumerate(program.shapes):
        for f, fifo in enumerate(shape.fifos):
            for depth in sorted({fifo.depth - 1, 0}):
                yield Mutant(
                    put(program, ("shapes", s, "fifos", f, "depth"), depth), target, edits.is_nested(shape, fifo.name)
                )


@mistake("overlapping layout", "capacity")
def overlapping(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    for path, shape, buffer in _buffers(program):
        for _, owner, other in _buffers(program):
            if owner is shape and other is not buffer:
                align = target.memory.alignment_bytes
                for address in sorted({other.address, other.address + _bytes(other) - align}):
                    if address >= 0 and address % align == 0:
                        yield Mutant(put(program, (*path, "address"), address), target, _used_nested(shape, buffer))


@mistake("buffer past the end of memory", "capacity")
def past_the_end(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    align, end = target.memory.alignment_bytes, target.memory.bytes
    for path, shape, buffer in _buffers(program):
        last = (end - _bytes(buffer)) // align * align
        for address in (last + align, end, end - align if _bytes(buffer) > align else end + align):
            yield Mutant(put(program, (*path, "address"), address), target, _used_nested(shape, buffer))


def _buffers(program: Program) -> Iterator[tuple[tuple, Shape, Fifo | Carry]]:
    for s, shape in enumerate(program.shapes):
        for kind in ("fifos", "carries"):
            for i, buffer in enumerate(getattr(shape, kind)):
                if getattr(buffer, "kind", "") != "ALIAS":
                    yield ("shapes", s, kind, i), shape, buffer


def _bytes(buffer: Fifo | Carry) -> int:
    return buffer.rows * row_bytes(buffer.dtype, buffer.cols) * getattr(buffer, "depth", 1)


def _used_nested(shape: Shape, buffer: Fifo | Carry) -> bool:
    return isinstance(buffer, Carry) or edits.is_nested(shape, buffer.name)
