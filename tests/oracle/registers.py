"""How many tiles an op holds in its engine's registers, against what the chip has of them.

A Generic holds its result's tile and one of each buffer that it reads, or one of each element that it names where these
are more. A product holds a tile of its sums. Registers hold more tiles where no value of the op, and no sum of the
process, is wider than two bytes; and more in full sync, which not every engine has.
"""

from __future__ import annotations

from pavane.ir.expr import At, Expr, Fn, Reduce
from pavane.ir.program import ComputeOp, MatmulTiles, Process, Shape
from pavane.targets.descriptor import Engine
from tests.oracle.spaces import Fault

_AT_MOST_TWO_BYTES = {"f16", "bf16", "i8"}


def require_registers(shape: Shape, process: Process, ops: list[ComputeOp], engine: Engine) -> None:
    """Raise a Fault where one of the process's ops holds too many tiles."""
    rooms = {"HALF": (engine.register_tiles, engine.register_tiles_16_bit)}
    if engine.full_register_tiles:
        rooms["FULL"] = (engine.full_register_tiles, engine.full_register_tiles_16_bit)
    if process.registers not in rooms:
        raise Fault(f"chip: engine {engine.name} has no full sync")
    types = {buffer.name: buffer.dtype for buffer in (*shape.fifos, *shape.carries)}
    sums = {types[op.dst.name] for op in ops if isinstance(op, MatmulTiles)}
    wide, narrow = rooms[process.registers]
    for op in ops:
        if isinstance(op, MatmulTiles):
            continue
        elements = _elements(op.expr)
        buffers = {op.dst.name} | {name for name, _ in elements}
        small = {*sums, *(types[name] for name in buffers)} <= _AT_MOST_TWO_BYTES
        room = narrow if small and narrow else wide
        if room and (len(buffers) > room or len(elements) > room):
            raise Fault(f"chip: an op into {op.dst.name} holds more tiles than the {room} of engine {engine.name}")


def _elements(expr: Expr) -> set[tuple[str, tuple]]:
    """Every element that a point of the op is made of."""
    if isinstance(expr, At):
        return {(expr.name, expr.index)}
    parts = expr.args if isinstance(expr, Fn) else (expr.body,) if isinstance(expr, Reduce) else ()
    return set().union(*map(_elements, parts))
