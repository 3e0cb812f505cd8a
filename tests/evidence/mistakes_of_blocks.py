"""Mistakes with types in blocks: a window or an op that begins or ends inside a block, half a block, another type."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pavane.ir.program import Compute, Load, MatmulTiles, Program, Shape, Span, Store
from pavane.ir.quasi import Quasi
from pavane.ir.types import block_elements
from pavane.targets.descriptor import SpatialTarget, target_digest
from tests.checker_oracle.mutants import at, put
from tests.evidence import edits
from tests.evidence.mistakes import Mutant, mistake


@mistake("part of a block", "bounds", "meaning", "coverage", "numerics", "order", "outside-fragment", "capacity")
def part_of_a_block(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    for place in edits.steps(program, Load, Store):
        shape, window = edits.shape_of_place(program, place), place.step.window
        block, start = _block(shape, place.step.fifo), window.start[-1]
        if block > 1 and isinstance(start, Quasi):
            for by in (block // 2, -block // 2, 1):
                moved = replace(window, start=(*window.start[:-1], start + by))
                yield Mutant(edits.set_step(program, place, window=moved), target, place.nested)
            narrow = replace(window, size=(*window.size[:-1], window.size[-1] - block // 2))
            yield Mutant(edits.set_step(program, place, window=narrow), target, place.nested)
    for place in edits.steps(program, Compute):
        shape, op = edits.shape_of_place(program, place), place.step.op
        block = _block(shape, op.dst.name)
        if block > 1:
            half = Span(op.cols.start, op.cols.size - block // 2, op.cols.limit)
            yield Mutant(put(program, (*place.path, "op", "cols"), half), target, place.nested)
            cut = Span(op.cols.start, op.cols.size, op.cols.limit - block // 2)
            yield Mutant(put(program, (*place.path, "op", "cols"), cut), target, place.nested)
        for ref in ("dst", "a", "b") if isinstance(op, MatmulTiles) else ("dst",):
            if (size := _block(shape, getattr(op, ref).name)) > 1:
                path = (*place.path, "op", ref, "col")
                yield Mutant(put(program, path, at(program, path) + size // 2), target, place.nested)


def _block(shape: Shape, name: str) -> int:
    return next(block_elements(b.dtype) for b in (*shape.fifos, *shape.carries) if b.name == name)


@mistake(
    "block of another type", "bounds", "numerics", "capacity", "meaning", "outside-fragment", "certificate-mismatch"
)
def another_type(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A buffer, a formal or a tensor of another type in blocks or in none; columns that end inside a block; an engine
    that does not convert.
    """
    others = {"bfp8": ("bfp4", "bf16", "q8_0"), "bfp4": ("bfp8", "f16"), "q8_0": ("bfp8", "f32")}
    for t, tensor in enumerate(program.tensors):
        for dtype in others.get(tensor.dtype, ()):
            yield Mutant(put(program, ("tensors", t, "dtype"), dtype), target, False)
    for s, shape in enumerate(program.shapes):
        for kind in ("formals", "fifos", "carries"):
            for i, thing in enumerate(getattr(shape, kind)):
                path, nested = ("shapes", s, kind, i), kind != "formals" and edits.is_nested(shape, thing.name)
                for dtype in others.get(thing.dtype, ()):
                    yield Mutant(put(program, (*path, "dtype"), dtype), target, nested)
                if block_elements(thing.dtype) > 1 and kind != "formals":
                    yield Mutant(put(program, (*path, "cols"), thing.cols - 8), target, nested)
        blocks = any(block_elements(b.dtype) == 16 for b in (*shape.fifos, *shape.carries))
        for n, engine in enumerate(target.engines) if blocks else ():
            if engine.block_floats:
                engines = (*target.engines[:n], replace(engine, block_floats=()), *target.engines[n + 1 :])
                poor = replace(target, engines=engines)
                nested = any(place.nested for place in edits.steps(program, Compute) if place.path[1] == s)
                yield Mutant(replace(program, target_digest=target_digest(poor)), poor, nested)
