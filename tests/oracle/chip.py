"""What the chip does not have: roles of engines, in-place memory, multicast, FIFOs, counters, products, their sums."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from pavane.ir.program import (
    Compute,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Process,
    Program,
    Send,
    Shape,
    Step,
    Store,
    Tensor,
)  # fmt: skip
from pavane.ir.types import row_bytes
from pavane.targets.descriptor import Engine, SpatialTarget
from tests.oracle.meaning import extents
from tests.oracle.spaces import Fault

_ROLES: dict[type, str] = {Load: "reader", Send: "reader", Store: "writer", Compute: "compute", Init: "compute"}


def require_on_chip(program: Program, target: SpatialTarget) -> None:
    """Raise a Fault for the first thing that the descriptor does not have."""
    engines = {engine.name: engine for engine in target.engines}
    for shape in program.shapes:
        for process in shape.processes:
            if process.engine not in engines:
                raise Fault(f"chip: no engine {process.engine}")
            for step in steps_of(process.body):
                role = _ROLES.get(type(step))
                if role is not None and role not in engines[process.engine].roles:
                    raise Fault(f"chip: engine {process.engine} is no {role}")
                if isinstance(step, Send) and not target.noc.multicast and _members(process) > 1:
                    raise Fault("chip: no multicast")
                if isinstance(step, Compute) and isinstance(step.op, MatmulTiles):
                    _require_product(shape, step.op, engines[process.engine])
        if len(shape.fifos) > target.fifos.per_site:
            raise Fault("chip: too many FIFOs")
        if not target.alias and any(f.kind == "ALIAS" for f in shape.fifos):
            raise Fault("chip: no memory in place")
    for counter in (*program.counters, *(c for s in program.shapes for c in s.counters)):
        kind = (counter.bits, counter.kind)
        if not 0 <= counter.id < target.counters.per_site or kind != (target.counters.bits, target.counters.kind):
            raise Fault(f"chip: no counter {counter.id} of {kind}")
    for tensor in program.tensors:
        place = target.dram if tensor.home == "dram" else target.memory
        if tensor.role == "SCRATCH" and tensor.offset % place.alignment_bytes:
            raise Fault(f"chip: {tensor.name} is not aligned")
        if tensor.home == "sites":
            _require_copies(program, tensor, target)
        if tensor.home == "sharded":
            _require_shares(program, tensor, target)


def _require_copies(program: Program, tensor: Tensor, target: SpatialTarget) -> None:
    """SCRATCH with a copy on every site, which sections know, inside what local memory is free to programs."""
    bound = {(i.shape, b.formal) for i in program.instances for b in i.bindings if b.tensor == tensor.name}
    formals = [f for s in program.shapes for f in s.formals if (s.name, f.name) in bound]
    most = extents(tensor.shape, {s.name: s.hi for s in program.symbols})
    end = tensor.offset + prod(most[:-1]) * row_bytes(tensor.dtype, most[-1])
    if tensor.role not in ("SCRATCH", "WEIGHT") or target.alias or any(f.home != "sites" for f in formals):
        raise Fault(f"chip: {tensor.name} cannot lie on the sites")
    if tensor.offset % target.memory.alignment_bytes or not target.memory.reserved_bytes <= tensor.offset:
        raise Fault(f"chip: {tensor.name} stands at {tensor.offset} of every site")
    if end > target.memory.bytes:
        raise Fault(f"out of bounds: {tensor.name} ends at {end} of every site")


def _require_shares(program: Program, tensor: Tensor, target: SpatialTarget) -> None:
    """A WEIGHT or STATE in blocks of whole rows, each on its site where nothing else of the program ever stands."""
    most = {s.name: s.hi for s in program.symbols}
    *outer, last = extents(tensor.shape, most)
    row, size = row_bytes(tensor.dtype, last), prod(outer) * row_bytes(tensor.dtype, last)
    bound = {(i.shape, b.formal) for i in program.instances for b in i.bindings if b.tensor == tensor.name}
    formals = [f for s in program.shapes for f in s.formals if (s.name, f.name) in bound]
    alike = all((f.home, f.shard_bytes) == ("sharded", tensor.shard_bytes) for f in formals)
    if tensor.role not in ("WEIGHT", "STATE") or target.alias or not alike:
        raise Fault(f"chip: {tensor.name} cannot be sharded")
    if tensor.shard_bytes < 1 or tensor.shard_bytes % row:
        raise Fault(f"chip: {tensor.name} is cut inside a row")
    turns = range(-(-size // (tensor.shard_bytes * target.sites)))
    mine = [(tensor.offset + n * tensor.shard_bytes, tensor.offset + (n + 1) * tensor.shard_bytes) for n in turns]
    if tensor.offset % target.memory.alignment_bytes or tensor.offset < target.memory.reserved_bytes:
        raise Fault(f"chip: {tensor.name} stands at {tensor.offset} of every site")
    if mine[-1][1] > target.memory.bytes:
        raise Fault(f"out of bounds: {tensor.name} ends at {mine[-1][1]} of some site")
    for low, high, name in _standing(program, most, target):
        if name != tensor.name and any(low < end and start < high for start, end in mine):
            raise Fault(f"race: {name} stands over {tensor.name}, which lasts")


def _standing(program: Program, most: dict[str, int], target: SpatialTarget) -> Iterator[tuple[int, int, str]]:
    """Bytes of local memory that anything of the program takes."""
    for shape in program.shapes:
        for fifo in shape.fifos:
            if fifo.kind != "ALIAS":
                yield fifo.address, fifo.address + fifo.depth * fifo.rows * row_bytes(fifo.dtype, fifo.cols), fifo.name
        for carry in shape.carries:
            yield carry.address, carry.address + carry.rows * row_bytes(carry.dtype, carry.cols), carry.name
    for tensor in program.tensors:
        *outer, last = extents(tensor.shape, most)
        size = prod(outer) * row_bytes(tensor.dtype, last)
        if tensor.home == "sharded" and tensor.shard_bytes > 0:
            size = tensor.shard_bytes * -(-size // (tensor.shard_bytes * target.sites))
        if tensor.home != "dram":
            yield tensor.offset, tensor.offset + size, tensor.name


def _require_product(shape: Shape, op: MatmulTiles, engine: Engine) -> None:
    """The engine multiplies these types, sums in this order into this type, and the contract says so."""
    held = {b.name: b.dtype for b in (*shape.fifos, *shape.carries)}
    a, b, sums = held[op.a.name], held[op.b.name], held[op.dst.name]
    stated = tuple(dtype for _, dtype in shape.numerics.operands)
    modes = [m for m in engine.matrix if m.a in (a, *stated) and m.b in (b, *stated) and m.accumulator == sums]
    tree = (op.tree.atom, op.tree.lanes, op.tree.fused)
    orders = {(0, m.lanes if op.transposed else 1, m.fused) for m in modes}
    if tree not in orders or sums != shape.numerics.accumulator or op.dst.name not in {c.name for c in shape.carries}:
        raise Fault(f"chip: engine {engine.name} has no product {a} x {b} that sums into {sums} in that order")
    if (a == "q8_0") != (b == "q8_0" and shape.numerics.contract == "INT8_ACTIVATIONS"):
        raise Fault(f"chip: a product {a} x {b} under {shape.numerics.contract}")


def steps_of(body: tuple) -> Iterator[Step]:
    for node in body:
        if isinstance(node, Loop):
            yield from steps_of(node.body)
        else:
            yield node


def _members(process: Process) -> int:
    """At most how many sites one send of the process reaches (its rectangles have constant widths)."""
    most = 0
    for step in steps_of(process.body):
        if isinstance(step, Send):
            width, height = step.to.x1 - step.to.x0, step.to.y1 - step.to.y0
            most = max(most, (width.const if width.is_const else 2) * (height.const if height.is_const else 2))
    return most
