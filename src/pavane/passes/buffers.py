"""Bytes and least depths of a section's local buffers: what `tile` counts and `size_buffers` lays out."""

from __future__ import annotations

from pavane.ir.program import Carry, Fifo, Front, Loop, Node, Push, Shape
from pavane.ir.quasi import quasi
from pavane.ir.types import row_bytes
from pavane.targets.descriptor import SpatialTarget

DOUBLE = 2


def is_multicast(fifo: Fifo) -> bool:
    """One reader fills it for a whole row or column of sites."""
    return fifo.kind in ("MULTICAST_ROW", "MULTICAST_COLUMN")


def buffers_of(shape: Shape) -> tuple[Fifo | Carry, ...]:
    """Everything that lies in local memory, in the order of the layout."""
    return (*shape.fifos, *shape.carries)


def buffer_bytes(buffer: Fifo | Carry) -> int:
    """One slot of a FIFO, or a carry: row-major rows x columns."""
    return buffer.rows * row_bytes(buffer.dtype, buffer.cols)


def aligned(size_bytes: int, target: SpatialTarget) -> int:
    """Rounded up to where the next buffer may start."""
    alignment = target.memory.alignment_bytes
    return -(-size_bytes // alignment) * alignment


def usable_bytes(target: SpatialTarget) -> int:
    """A site's local memory without what is reserved at its start (the first buffer starts at an aligned address)."""
    return target.memory.bytes - aligned(target.memory.reserved_bytes, target)


def single_depths(shape: Shape) -> dict[str, int]:
    """One slot of each FIFO, with which engines take turns; 0 for ALIAS (no memory)."""
    return {fifo.name: 0 if fifo.kind == "ALIAS" else 1 for fifo in shape.fifos}


def least_depths(shape: Shape) -> dict[str, int]:
    """Slots for overlap: 2 where one engine fills while another drains in a loop, else 1; 0 for ALIAS (no memory)."""
    pushers, poppers = _ends(shape)
    depths = {}
    for fifo in shape.fifos:
        push_engine, streamed = pushers.get(fifo.name, ("", False))
        same_engine = push_engine == poppers.get(fifo.name, ("", False))[0]
        depths[fifo.name] = 0 if fifo.kind == "ALIAS" else DOUBLE if streamed and not same_engine else 1
    return depths


def _ends(shape: Shape) -> tuple[dict[str, tuple[str, bool]], dict[str, tuple[str, bool]]]:
    """Per FIFO, who pushes and who pops: engine, and whether inside a loop of more than one turn."""
    pushers: dict[str, tuple[str, bool]] = {}
    poppers: dict[str, tuple[str, bool]] = {}

    def visit(body: tuple[Node, ...], engine: str, streamed: bool) -> None:
        for node in body:
            if isinstance(node, Loop):
                visit(node.body, engine, streamed or node.extent != quasi(1))
            elif isinstance(node, Push):
                pushers[node.fifo] = (engine, streamed)
            elif isinstance(node, Front):
                poppers[node.fifo] = (engine, streamed)

    for group in shape.groups:
        for stage in group.stages:
            visit(stage.body, stage.engine, False)
    return pushers, poppers
