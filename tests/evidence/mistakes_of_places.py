"""Mistakes with where sections stand and where tensors lie: waves, lists of sites, homes, shares, units."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from msgspec.structs import replace

from pavane.ir.expr import replace_operands
from pavane.ir.program import Compute, Generic, Load, Loop, Program, Run, Shape, Tensor
from pavane.ir.quasi import quasi
from pavane.targets.descriptor import SpatialTarget
from tests.checker_oracle.mutants import put
from tests.evidence import edits
from tests.evidence.hand import signed
from tests.evidence.mistakes import Mutant, mistake


@mistake("two sections of a wave on one site", "capacity", "order", "balance", "progress")
def two_on_one_site(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """Two processes of one engine, or two workers with a part of its turns each, meet on a site; of two sections that
    run at once, side by side, one moves onto the sites of the other.
    """
    roles = {e.name: e.roles for e in target.engines}
    for s, shape in enumerate(program.shapes):
        for p, process in enumerate(shape.processes):
            path, nested = ("shapes", s, "processes", p), isinstance(process.body[0], Loop)
            for other in shape.processes:
                if other is process:
                    continue
                if other.engine == process.engine:
                    yield Mutant(put(program, (*path, "rect"), other.rect), target, nested)
                elif roles[other.engine] == roles[process.engine]:
                    yield Mutant(put(program, (*path, "engine"), other.engine), target, nested)
    yield from _waves(program, target)
    for w, worker in enumerate(program.workers):
        rest = (*program.workers[:w], *program.workers[w + 1 :])
        for cut in range(len(worker.body)):
            halves = (worker.body[:cut] or worker.body, worker.body[cut:])
            both = tuple(replace(worker, name=f"{worker.name}.{n}", body=body) for n, body in enumerate(halves))
            yield Mutant(replace(program, workers=(*rest, *both)), target, False)
        for other in rest:
            if other.engine == worker.engine:
                yield Mutant(put(program, ("workers", w, "rect"), other.rect), target, False)


def _waves(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    shapes = {s.name: (n, s) for n, s in enumerate(program.shapes)}
    for one, instance in enumerate(program.instances):
        for other in range(len(program.instances)):
            (_, stays), (number, moves) = shapes[instance.shape], shapes[program.instances[other].shape]
            rects = {p.engine: p.rect for p in stays.processes}
            apart = not any(p.rect in rects.values() for p in moves.processes)
            able = not stays.sites and not moves.sites and all(p.engine in rects for p in moves.processes)
            if one == other or not (apart and able):
                continue
            processes = tuple(replace(p, rect=rects[p.engine]) for p in moves.processes)
            changed = put(program, ("shapes", number, "processes"), processes)
            nested = isinstance(processes[0].body[0], Loop)
            yield Mutant(_run_behind(changed, moves, one, other), target, nested)


def _run_behind(program: Program, moves: Shape, one: int, other: int) -> Program:
    """The workers that run an instance run another one too, before or after it as they are numbered."""
    engines = {p.engine: p.name for p in moves.processes}
    workers = []
    for worker in program.workers:
        body = tuple(t for t in worker.body if not isinstance(t, Run) or t.instance != other)
        at = next((i for i, t in enumerate(body) if isinstance(t, Run) and t.instance == one), None)
        if at is not None and worker.engine in engines:
            at += one < other
            body = (*body[:at], Run(other, engines[worker.engine]), *body[at:])
        workers.append(replace(worker, body=body))
    return replace(program, workers=tuple(w for w in workers if w.body))


@mistake(
    "wrong operand of a forward",
    "meaning",
    "bounds",
    "order",
    "capacity",
    "certificate-mismatch",
    "balance",
    "numerics",
    "outside-fragment",
)
def wrong_forward(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """What lies on the sites is taken for another tensor: in a load, in an op, in a binding, by its place."""
    here = {t.name: t for t in program.tensors if t.home == "sites"}
    for place in edits.steps(program, Load):
        shape = edits.shape_of_place(program, place)
        mine = next(f for f in shape.formals if f.name == place.step.tensor)
        for formal in shape.formals:
            if mine.home == "sites" and formal != mine and formal.role == "IN" and formal.dtype == mine.dtype:
                yield Mutant(edits.set_step(program, place, tensor=formal.name), target, place.nested)
    yield from _other_slots(program, target)
    for i, instance in enumerate(program.instances):
        for b, binding in enumerate(instance.bindings):
            for other in here:
                if binding.tensor in here and other != binding.tensor:
                    yield Mutant(put(program, ("instances", i, "bindings", b, "tensor"), other), target, False)
    for t, tensor in enumerate(program.tensors):
        for other in here.values():
            if tensor.name in here and other != tensor:
                yield Mutant(put(program, ("tensors", t, "offset"), other.offset), target, False)


def _other_slots(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """An op reads another slot than that of what lies on the sites."""
    for place in edits.steps(program, Compute):
        shape, op = edits.shape_of_place(program, place), place.step.op
        here = {f.name for f in shape.formals if f.home == "sites" and f.role == "IN"}
        loads = [p.step for p in edits.steps(program, Load) if p.path[1] == place.path[1]]
        filled = [load.fifo for load in loads if load.tensor in here]
        others = [b.name for b in (*shape.fifos, *shape.carries) if b.name != op.dst.name]
        for fifo in sorted(set(filled)) if isinstance(op, Generic) else ():
            for other in others:
                expr = replace_operands(op.expr, lambda a, f=fifo, o=other: replace(a, name=o) if a.name == f else a)
                if expr != op.expr:
                    yield Mutant(put(program, (*place.path, "op", "expr"), expr), target, place.nested)


@mistake("tensor that lies elsewhere", "capacity", "bounds", "order", "numerics")
def lies_elsewhere(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """On the sites: over buffers, past the end, out of line, cut inside a row. And a section that takes a tensor to be
    in another home, in other blocks, in other units of the channels.
    """
    align, end = target.memory.alignment_bytes, target.memory.bytes
    buffers = [b.address for s in program.shapes for b in (*s.fifos, *s.carries) if b.address >= 0]
    for t, tensor in enumerate(program.tensors):
        for offset in (*sorted(set(buffers)), end, end - align, tensor.offset + 1) if tensor.home != "dram" else ():
            yield Mutant(put(program, ("tensors", t, "offset"), offset), target, False)
        if tensor.shard_bytes or tensor.interleave_bytes or tensor.home != "dram":
            yield from _otherwise(program, target, t, tensor)
    for s, shape in enumerate(program.shapes):
        for f, formal in enumerate(shape.formals):
            path = ("shapes", s, "formals", f)
            for home in ("dram", "sites", "sharded"):
                if formal.home != home and (formal.home != "dram" or f == s):
                    yield Mutant(put(program, (*path, "home"), home), target, False)
            for field in ("shard_bytes", "interleave_bytes"):
                if getattr(formal, field):
                    yield Mutant(put(program, (*path, field), 2 * getattr(formal, field)), target, False)


def _otherwise(program: Program, target: SpatialTarget, t: int, tensor: Tensor) -> Iterator[Mutant]:
    """Its blocks or units are others, and every section knows; or its role is another."""
    fields = [f for f in ("shard_bytes", "interleave_bytes") if getattr(tensor, f)]
    for field in fields:
        for value in (getattr(tensor, field) + 4, -getattr(tensor, field), 1):
            yield Mutant(_known(program, t, field, value), target, False)
    for role in ("INPUT", "SCRATCH") if fields else ("INPUT", "OUTPUT"):
        yield Mutant(signed(put(program, ("tensors", t, "role"), role)), target, False)


def _known(program: Program, t: int, field: str, value: int) -> Program:
    tensor = program.tensors[t]
    bound = {(i.shape, b.formal) for i in program.instances for b in i.bindings if b.tensor == tensor.name}
    shapes = tuple(
        replace(s, formals=tuple(replace(f, **{field: value}) if (s.name, f.name) in bound else f for f in s.formals))
        for s in program.shapes
    )
    return replace(put(program, ("tensors", t, field), value), shapes=shapes)


@mistake("wrong list of sites", "capacity", "order", "coverage", "bounds", "outside-fragment", "balance", "progress")
def wrong_list(program: Program, target: SpatialTarget) -> Iterator[Mutant]:
    """A site twice, one beside the chip, one too few, another, the sites in another order; none; a line too long."""
    for s, shape in enumerate(program.shapes):
        nested = isinstance(shape.processes[0].body[0], Loop)
        for sites in _lists(shape, target) if shape.sites else ():
            yield Mutant(put(program, ("shapes", s, "sites"), sites), target, nested)
        for p, process in enumerate(shape.processes if shape.sites else ()):
            for x1 in (len(shape.sites) - 1, len(shape.sites) + 1):
                line = replace(process.rect, x1=quasi(x1))
                yield Mutant(put(program, ("shapes", s, "processes", p, "rect"), line), target, nested)


def _lists(shape: Shape, target: SpatialTarget) -> Iterator[tuple[tuple[int, int], ...]]:
    first, *rest = shape.sites
    for other in (shape.sites[-1], (target.grid.width, 0), (0, -1)):
        yield (other, *rest)
    for x, y in product(range(target.grid.width), range(target.grid.height)):
        if (x, y) not in shape.sites:
            yield ((x, y), *rest)
    yield from (tuple(rest), (*rest, first), shape.sites[::-1], ())
