"""One instance of a section during one launch, and what the handlers of its steps need to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pavane.ir.program import Carry, Fifo, Load, MatmulTiles, Shape, Window
from pavane.ir.types import block_elements, row_bytes
from pavane.ir.walk import leaves, named
from pavane.sim.engine import Agent, Place, Site
from pavane.sim.faults import ProtocolFault
from pavane.sim.memory import Buffer, Region
from pavane.sim.shards import Box, Shards
from pavane.sim.state import FifoState, Machine
from pavane.targets.descriptor import Engine, MatrixMode


@dataclass(frozen=True)
class FormalState:
    """A formal's bytes: where they start for the channels (0 elsewhere), how many of them in a row lie in one channel
    (0: as the chip does it), its pitches, and (functional) the typed view.

    `on_sites`: it has a copy on every site; `copy_at` (functional, where it is laid out) views that of a site.
    `shard_bytes`: it is sharded in such blocks; `shards` (functional) has its bytes.
    `writable`: the byte range that this epoch may write of a STATE tensor; None where all may be written.
    """

    name: str
    dtype: str
    base: int
    pitches: tuple[int, ...]
    region: Region | None
    writable: tuple[int, int] | None
    interleave_bytes: int = 0
    on_sites: bool = False
    copy_at: Callable[[Site], Region] | None = None
    shard_bytes: int = 0
    shards: Shards | None = None

    def seen_from(self, site: Site) -> Region | None:
        """What a load on a site reads."""
        return self.copy_at(site) if self.copy_at is not None else self.region

    def box(self, window: Window, address: int, rows: int, cols: int) -> Box:
        """Where a window's bytes lie, which begin at an address of the formal."""
        width = units(cols, self.dtype) * row_bytes(self.dtype, 1)
        return Box(address, rows, width, window_pitch(self, window) or width)

    def address(self, start: tuple[int, ...]) -> int:
        """The byte at which an element's stored unit begins."""
        *outer, last = start
        within = last // block_elements(self.dtype) * self.pitches[-1]
        return within + sum(at * pitch for at, pitch in zip(outer, self.pitches, strict=False))


@dataclass(frozen=True)
class Section:
    """An instance: its shape and its formals."""

    machine: Machine
    shape: Shape
    name: str
    formals: dict[str, FormalState]
    operand_types: dict[str, str]  # of FIFOs and carries: the type in which a matrix engine takes them
    operand_bits: Mapping[str, int]  # and the significand bits of what they hold

    @cached_property
    def layout(self) -> tuple[object, ...]:
        """Of its formals what time depends on."""
        return tuple((f.base, f.pitches, f.interleave_bytes, f.on_sites, f.shard_bytes) for f in self.formals.values())


@dataclass(frozen=True)
class Context:
    """A step about to be bound: in which section, for which agent."""

    section: Section
    agent: Agent
    place: Place

    @property
    def machine(self) -> Machine:
        return self.section.machine

    def fifo(self, name: str) -> FifoState:
        return self.fifo_at(self.agent.site, name)

    def fifo_at(self, site: Site, name: str) -> FifoState:
        return self.machine.fifo(site, self.section.shape, named(self.section.shape.fifos, name))

    def carry(self, name: str) -> Buffer:
        return self.machine.carry(self.agent.site, self.section.shape, named(self.section.shape.carries, name))

    def label(self, what: str, name: str) -> str:
        return f"{what} {self.section.shape.name}.{name}"


def buffer_of(shape: Shape, name: str) -> Fifo | Carry:
    """The declaration of a FIFO or carry."""
    return next(b for b in declared(shape) if b.name == name)


def declared(shape: Shape) -> tuple[Fifo | Carry, ...]:
    return (*shape.fifos, *shape.carries)


def operand_types(shape: Shape) -> dict[str, str]:
    """In which type a matrix engine takes each buffer: its own, or what the numerics say of the formal behind it."""
    types: dict[str, str] = {b.name: b.dtype for b in declared(shape)}
    overrides = dict(shape.numerics.operands)
    for process in shape.processes:
        for _, step in leaves(process.body):
            if isinstance(step, Load) and step.tensor in overrides:
                types[step.fifo] = overrides[step.tensor]
    return types


def product_types(section: Section, op: MatmulTiles) -> tuple[str, str]:
    return section.operand_types[op.a.name], section.operand_types[op.b.name]


def product_mode(section: Section, op: MatmulTiles, engine: Engine) -> MatrixMode | None:
    """The fidelity that the descriptor gives these types and widths."""
    return engine.product_mode(
        *product_types(section, op), (section.operand_bits[op.a.name], section.operand_bits[op.b.name])
    )


def window_pitch(formal: FormalState, window: Window) -> int:
    """Bytes from one row of a window to the next."""
    return formal.pitches[window.row] if window.row >= 0 else 0


def pitches(shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    """Bytes between neighbours in each dimension; the last one's is a block's."""
    found = [row_bytes(dtype, 1), row_bytes(dtype, shape[-1])]
    for extent in reversed(shape[1:-1]):
        found.append(found[-1] * extent)
    return tuple(reversed(found[: len(shape)]))


def units(elements: int, dtype: str) -> int:
    """Stored units (elements, or blocks) of so many elements."""
    return -(-elements // block_elements(dtype))


def misused(place: Place, why: str) -> ProtocolFault:
    return ProtocolFault(f"a step has no meaning here: {why}", where=str(place))
