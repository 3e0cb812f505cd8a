"""What the ops of a stage hold in an engine's registers at once, and whether a window of them has room for it.

A Generic holds a tile of each buffer that it reads or writes, and no fewer than it reads places (a buffer at two
indices is two; the result may lie where one of them lay). A product holds one tile, of its sums. All tiles are as wide
as the widest that the op holds or that a product of its stage adds in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from pavane.ir.expr import At, walk
from pavane.ir.program import Compute, Generic, MatmulTiles, Node, Process, Shape, Stage
from pavane.ir.types import DType, Registers
from pavane.ir.walk import leaves, named, operands
from pavane.targets.descriptor import Engine, SpatialTarget


class RegisterWindow(msgspec.Struct, frozen=True):
    """Where a stage computes: types of all buffers, and those that its products add in."""

    engine: Engine
    registers: Registers
    types: Mapping[str, DType]
    accumulators: tuple[DType, ...]

    def buffers(self, op: Generic) -> tuple[str, ...]:
        """The result's and the operands'."""
        return tuple(dict.fromkeys((op.dst.name, *operands(op))))

    def tiles(self, op: Generic) -> int:
        """How many are held at once."""
        return max(len(self.buffers(op)), len(_places(op)))

    def held(self, op: Generic) -> list[str]:
        """What they are tiles of, worded: buffers, or places where these are more."""
        buffers = [f"{name} ({self.types[name]})" for name in self.buffers(op)]
        places = [f"{at.name}[{', '.join(map(str, at.index))}] ({self.types[at.name]})" for at in _places(op)]
        return max(buffers, places, key=len)

    def room(self, op: Generic) -> int:
        """How many tiles of the op's types there are; 0: any number."""
        dtypes = (*self.accumulators, *(self.types[name] for name in self.buffers(op)))
        return self.engine.tiles_held(dtypes, self.registers)

    def fits(self, op: Generic) -> bool:
        """Whether there is room for what the op holds."""
        room = self.room(op)
        return not room or self.tiles(op) <= room


def _places(op: Generic) -> tuple[At, ...]:
    return tuple(dict.fromkeys(part for part in walk(op.expr) if isinstance(part, At)))


def register_window(shape: Shape, stage: Stage | Process, target: SpatialTarget) -> RegisterWindow:
    """The window that the stage states."""
    types = {f.name: f.dtype for f in shape.fifos} | {c.name: c.dtype for c in shape.carries}
    computes = (step.op for _, step in leaves(stage.body) if isinstance(step, Compute))
    accumulators = tuple(types[op.dst.name] for op in computes if isinstance(op, MatmulTiles))
    return RegisterWindow(named(target.engines, stage.engine), stage.registers, types, accumulators)


def generics(body: tuple[Node, ...]) -> Iterator[Generic]:
    """The Generics of a stage, in written order."""
    for _, step in leaves(body):
        if isinstance(step, Compute) and isinstance(step.op, Generic):
            yield step.op


def fits_registers(shape: Shape, stage: Stage | Process, target: SpatialTarget) -> bool:
    """Whether the stage's window has room for each of its ops."""
    window = register_window(shape, stage, target)
    return all(window.fits(op) for op in generics(stage.body))
