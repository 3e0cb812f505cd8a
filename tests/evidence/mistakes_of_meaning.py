"""Mistakes with what is read, written and claimed: sections, symbols, operands, bindings, indices, exactness."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

from msgspec.structs import replace

from pavane.ir.expr import At, Indirect, Reduce, replace_operands, walk
from pavane.ir.program import (
    Compute,
    Formal,
    Generic,
    Load,
    MatmulTiles,
    Program,
    Store,
)
from pavane.ir.quasi import quasi
from pavane.ir.types import Ints, block_elements
from pavane.ir.walk import substituted
from pavane.targets.descriptor import SpatialTarget
from tests.checker_oracle.mutants import put
from tests.evidence import edits
from tests.evidence.hand import signed
from tests.evidence.mistakes import Mutant, mistake


@mistake("wrong position symbol", "meaning", "bounds", "coverage", "order", "outside-fragment", "numerics")
def wrong_position(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """In one step, or in all of a process, `pos` (or `rows`) is another value."""
    names = [s.name for s in program.symbols]
    for place in edits.steps(program, Load, Store, Compute):
        for name in names:
            for other in (quasi(name) + 1, quasi(0), quasi(names[-1])):
                changed = substituted(place.step, {name: other})
                if changed != place.step:
                    yield Mutant(put(program, place.path, changed), target, place.nested)


@mistake("wrong operand", "meaning", "bounds", "order", "balance", "numerics", "outside-fragment")
def wrong_operand(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """An op reads another buffer; a load brings another tensor."""
    for place in edits.steps(program, Compute):
        shape, op = edits.shape_of_place(program, place), place.step.op
        buffers = [b.name for b in (*shape.fifos, *shape.carries)]
        if isinstance(op, MatmulTiles):
            yield Mutant(put(program, (*place.path, "op"), replace(op, a=op.b, b=op.a)), target, place.nested)
            continue
        read = list(dict.fromkeys(e.name for e in _ats(op)))
        for name in read:
            for other in buffers:
                if other not in (name, op.dst.name):
                    expr = replace_operands(
                        op.expr, lambda a, n=name, o=other: replace(a, name=o) if a.name == n else a
                    )
                    yield Mutant(put(program, (*place.path, "op", "expr"), expr), target, place.nested)
    for place in edits.steps(program, Load):
        shape = edits.shape_of_place(program, place)
        mine = next((f for f in shape.formals if f.name == place.step.tensor), None)
        for formal in shape.formals:
            if mine is not None and formal != mine and _alike(formal, mine):
                yield Mutant(edits.set_step(program, place, tensor=formal.name), target, place.nested)


def _alike(one: Formal, other: Formal) -> bool:
    """May a load of one be a load of the other, by type, rank and role?"""
    return one.dtype == other.dtype and len(one.shape) == len(other.shape) and "OUT" not in (one.role, other.role)


def _ats(op: Generic) -> Iterator[At]:
    return (e for e in walk(op.expr) if isinstance(e, At))


@mistake("wrong binding of an instance", "certificate-mismatch", "bounds", "order", "coverage", "numerics", "capacity")
def wrong_binding(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A formal is another tensor: under the graph's old digest, and (a forger's) under a new one."""
    for i, instance in enumerate(program.instances):
        for b, binding in enumerate(instance.bindings):
            for tensor in program.tensors:
                if tensor.name != binding.tensor:
                    changed = put(program, ("instances", i, "bindings", b, "tensor"), tensor.name)
                    yield Mutant(changed, target, False)
                    yield Mutant(signed(changed), target, False)


@mistake("alias written while read", "bounds", "order", "capacity", "outside-fragment", "balance", "coverage")
def alias_written(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """The tensor that an alias shows is the one that is stored, or an op writes through the alias."""
    for s, shape in enumerate(program.shapes):
        aliases = {f.name for f in shape.fifos if f.kind == "ALIAS"}
        shown = {p.step.tensor for p in edits.steps(program, Load) if p.path[1] == s and p.step.fifo in aliases}
        stored = {p.step.tensor for p in edits.steps(program, Store) if p.path[1] == s}
        for i, instance in enumerate(program.instances):
            bound = {b.formal: b.tensor for b in instance.bindings}
            for b, binding in enumerate(instance.bindings):
                for formal in sorted(stored):
                    if instance.shape == shape.name and binding.formal in shown and formal in bound:
                        path = ("instances", i, "bindings", b, "tensor")
                        yield Mutant(signed(put(program, path, bound[formal])), target, True)
        for place in edits.steps(program, Compute):
            if place.path[1] == s:
                for alias in sorted(aliases):
                    yield Mutant(put(program, (*place.path, "op", "dst", "name"), alias), target, place.nested)
        for place in edits.steps(program, Store):
            if place.path[1] == s:
                for tensor in sorted(shown):
                    yield Mutant(edits.set_step(program, place, tensor=tensor), target, place.nested)


@mistake("indirect write without distinctness", "outside-fragment", "coverage")
def indirect_write(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A row is stored where an index says, which may say the same twice."""
    for place in edits.steps(program, Store):
        shape, window = edits.shape_of_place(program, place), place.step.window
        for load in edits.steps(program, Load):
            if load.path[1] != place.path[1]:
                continue
            for start in load.step.window.start:
                for d in range(len(window.start)):
                    if isinstance(start, Indirect):
                        changed = put(program, (*place.path, "window", "start", d), start)
                        yield Mutant(changed, target, place.nested)
                        by = put(changed, (*place.path, "window", "size", d), 1)
                        yield Mutant(put(by, (*place.path, "window", "row"), -1), target, place.nested)
        for formal in shape.formals:
            if formal.dtype == "i32":
                index = Indirect(formal.name, (quasi(0),), 0, 4, f"f{formal.name}")
                yield Mutant(put(program, (*place.path, "window", "start", 0), index), target, place.nested)


@mistake("exactness past the limit", "numerics")
def past_exactness(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A sum of integers that is said to be exact, one past what the accumulator or an operand holds."""
    for s in range(len(program.shapes)):
        products = [p for p in edits.steps(program, Compute) if p.path[1] == s and isinstance(p.step.op, MatmulTiles)]
        if products:
            yield from _claims(program, target, s, products[0].nested)


def _claims(program: Program, target: SpatialTarget, s: int, nested: bool) -> Iterator[Mutant]:
    """Fills whose sums pass 2**24 (f32), a little or by far. In short types by far only: what is a little larger is no
    integer that they hold, or all sums are multiples of so much that f32 holds them. One product alone is held.
    """
    shape = program.shapes[s]
    sums = [e for spec in shape.spec for e in walk(spec.expr) if isinstance(e, Reduce) and e.extent.is_const]
    terms = max([e.extent.const for e in sums], default=1)
    past = isqrt((1 << 24) // terms) + 1 | 1  # odd, so that sums are
    limits: tuple[int, ...] = (past, 2 * past, 1 << 16)
    if any(block_elements(f.dtype) > 1 for f in shape.formals):
        limits = (1 << 13, 1 << 16)
    elif any(f.dtype == "bf16" for f in shape.formals):
        limits = (1 << (2 * past).bit_length(), 1 << 16) if terms > 1 else ()
    for limit in limits:
        fill = Ints(-limit, limit)
        formals = tuple(replace(f, fill=fill) if f.role == "IN" else f for f in shape.formals)
        reads = {f.name for f in formals if f.role == "IN"}
        mine = (i for i in program.instances if i.shape == shape.name)
        bound = {b.tensor for i in mine for b in i.bindings if b.formal in reads}
        given = tuple(t.name for t in program.tensors if t.role in ("INPUT", "WEIGHT"))
        tensors = tuple(replace(t, fill=fill) if t.name in bound else t for t in program.tensors)
        changed = replace(program, tensors=tensors)
        changed = put(changed, ("shapes", s, "formals"), formals)
        changed = put(changed, ("shapes", s, "numerics"), replace(shape.numerics, exact=True))
        if bound <= set(given):
            yield Mutant(signed(changed), target, nested)
