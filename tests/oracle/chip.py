"""What the chip does not have: roles of engines, in-place memory, multicast, FIFOs, counters, products, their sums.

Where tensors lie is `homes`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.expr import names
from pavane.ir.program import (
    Compute,
    ComputeOp,
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
)  # fmt: skip
from pavane.targets.descriptor import Engine, SpatialTarget
from tests.oracle.registers import require_registers
from tests.oracle.spaces import Fault

_BLOCK_FLOATS = {"bfp8", "bfp4"}
_FLOATS = {"f32", "f16", "bf16"}
# Of floats engines make floats; of what is in blocks, what holds it.
_MADE_OF = {"bfp8": {"f32", "bf16"}, "bfp4": {"f32", "bf16"}, "q8_0": {"f32"}, "i32": set()}
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
                if isinstance(step, Compute):
                    _require_block_floats(shape, step.op, engines[process.engine])
                if isinstance(step, Compute) and isinstance(step.op, MatmulTiles):
                    _require_product(shape, step.op, engines[process.engine])
            ops = [step.op for step in steps_of(process.body) if isinstance(step, Compute)]
            require_registers(shape, process, ops, engines[process.engine])
        if len(shape.fifos) > target.fifos.per_site:
            raise Fault("chip: too many FIFOs")
        if not target.alias and any(f.kind == "ALIAS" for f in shape.fifos):
            raise Fault("chip: no memory in place")
    for counter in (*program.counters, *(c for s in program.shapes for c in s.counters)):
        kind = (counter.bits, counter.kind)
        if not 0 <= counter.id < target.counters.per_site or kind != (target.counters.bits, target.counters.kind):
            raise Fault(f"chip: no counter {counter.id} of {kind}")


def _require_block_floats(shape: Shape, op: ComputeOp, engine: Engine) -> None:
    """Whoever takes them out of a buffer or puts them into one converts them."""
    read = {op.a.name, op.b.name} if isinstance(op, MatmulTiles) else names(op.expr)
    for buffer in (*shape.fifos, *shape.carries):
        if buffer.name in {op.dst.name, *read} and buffer.dtype in _BLOCK_FLOATS - {*engine.block_floats}:
            raise Fault(f"chip: engine {engine.name} does not convert {buffer.dtype} of {buffer.name}")


def _require_product(shape: Shape, op: MatmulTiles, engine: Engine) -> None:
    """The engine multiplies these types, sums in this order into this type, and the contract says so."""
    held = {b.name: b.dtype for b in (*shape.fifos, *shape.carries)}
    a, b, sums = held[op.a.name], held[op.b.name], held[op.dst.name]
    modes = [m for m in engine.matrix if m.accumulator == sums]
    taken = (taken_as(shape, op.a.name, a), taken_as(shape, op.b.name, b))
    modes = [m for m in modes if (m.a, m.b) == taken]
    tree = (op.tree.atom, op.tree.lanes, op.tree.fused)
    orders = {(0, m.lanes if op.transposed else 1, m.fused) for m in modes}
    if tree not in orders or sums != shape.numerics.accumulator or op.dst.name not in {c.name for c in shape.carries}:
        raise Fault(f"chip: engine {engine.name} has no product {a} x {b} that sums into {sums} in that order")
    for dtype, made in zip((a, b), taken, strict=True):
        if made != dtype and made not in _MADE_OF.get(dtype, _FLOATS):
            raise Fault(f"chip: a product takes {dtype} as {made}, which no engine makes of it")
    if (a == "q8_0") != (b == "q8_0" and shape.numerics.contract == "INT8_ACTIVATIONS"):
        raise Fault(f"chip: a product {a} x {b} under {shape.numerics.contract}")


def taken_as(shape: Shape, name: str, dtype: str) -> str:
    """In which type the engine takes an operand: the one stated for what is loaded into its slot, else its own."""
    stated = dict(shape.numerics.operands)
    loads = (step for process in shape.processes for step in steps_of(process.body) if isinstance(step, Load))
    types = {stated.get(load.tensor, dtype) for load in loads if load.fifo == name} or {dtype}
    if len(types) > 1:
        raise Fault(f"misuse: what is loaded into {name} is taken as {sorted(types)}")
    (taken,) = types
    return taken


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
