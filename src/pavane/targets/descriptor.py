"""A chip as data: whatever a proof or a prediction needs to know of it, and nothing that runs.

Units: bytes; cycles of the chip's clock. One descriptor describes one chip, a rectangle of it, or a CPU ("host").
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

EngineRole = Literal["reader", "compute", "writer"]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of a descriptor's parts: unknown keys are refused, so a misspelt figure is an error and never a default."""


class Grid(Part, frozen=True, kw_only=True):
    """Columns and rows of compute sites (logical coordinates)."""

    width: int
    height: int


class Memory(Part, frozen=True, kw_only=True):
    """A site's local memory.

    Buffers start at multiples of `alignment_bytes`; `reserved_bytes` at its start are taken.
    """

    bytes: int
    alignment_bytes: int
    reserved_bytes: int = 0


class MatrixMode(Part, frozen=True, kw_only=True):
    """One way in which a matrix engine multiplies: operand and accumulator types, and how it sums.

    `operand_bits`: significand bits multiplied in full. `accumulator_bits`: significand bits of the accumulator.
    `lanes`, `fused`: the reduction tree of a product whose operands both lie along K (transposed b); other products
    sum one lane in ascending k. `tile`: (m, k, n) of one step and `cycles` for it.
    """

    a: str
    b: str
    accumulator: str
    operand_bits: int
    accumulator_bits: int
    lanes: int = 1
    fused: bool = False
    tile: tuple[int, int, int]
    cycles: int


class Engine(Part, frozen=True, kw_only=True):
    """One sequential execution resource of every site.

    `generic_elements_per_cycle`: element-wise operators of a Generic per cycle; `function_cycles` multiplies it for
    exp and its like. `register_tiles`: operand and result tiles one Generic may hold at once (0: no limit).
    """

    name: str
    roles: tuple[EngineRole, ...]
    matrix: tuple[MatrixMode, ...] = ()
    generic_elements_per_cycle: int = 0
    function_cycles: int = 1
    register_tiles: int = 0


class Fifos(Part, frozen=True, kw_only=True):
    """At most `per_site` FIFOs on a site; `handover_cycles` for one push -> front."""

    per_site: int
    handover_cycles: int


class Counters(Part, frozen=True, kw_only=True):
    """Semaphores: what they are, their bits, how many a site has, and what a post costs."""

    kind: Literal["MONOTONE", "CREDIT"]
    bits: int
    per_site: int
    post_cycles: int


class Noc(Part, frozen=True, kw_only=True):
    """The network between sites: a mesh with dimension-ordered routing."""

    bytes_per_cycle: int
    hop_cycles: int
    start_cycles: int
    multicast: bool


class Dram(Part, frozen=True, kw_only=True, omit_defaults=True):
    """Memory beside the chip, shared by all sites: `channels`, each `bytes_per_cycle`.

    `page_bytes`: addresses go round the channels page by page, and a request stays inside a page and is contiguous (0:
    in units of the alignment, and one request moves any window).
    """

    bytes: int
    channels: int
    bytes_per_cycle: int
    latency_cycles: int
    request_cycles: int
    alignment_bytes: int
    page_bytes: int = 0

    @property
    def interleave_bytes(self) -> int:
        """How many neighbouring bytes lie in one channel."""
        return self.page_bytes or self.alignment_bytes

    def requests(self, rows: int, bytes_a_row: int, contiguous: bool) -> int:
        """How many requests move a window of so many rows; `contiguous`: each row begins where the one before ends."""
        if not self.page_bytes:
            return 1
        if contiguous:
            return -(-rows * bytes_a_row // self.page_bytes)
        return rows * -(-bytes_a_row // self.page_bytes)


class Launch(Part, frozen=True, kw_only=True):
    """Cycles to start one epoch."""

    cycles: int


class SpatialTarget(Part, frozen=True, kw_only=True):
    """One chip.

    `tile` is (rows, columns) of the tile that templates are written in; `alias`: engines address memory in place.
    """

    name: str
    description: str
    clock_hz: int
    grid: Grid
    memory: Memory
    tile: tuple[int, int]
    alias: bool
    engines: tuple[Engine, ...]
    fifos: Fifos
    counters: Counters
    noc: Noc
    dram: Dram
    launch: Launch

    def engine_for(self, role: EngineRole, which: int = 0) -> Engine:
        """The engine that does a role; of several (two readers), number `which`, wrapping around."""
        able = [e for e in self.engines if role in e.roles]
        return able[which % len(able)]

    @property
    def sites(self) -> int:
        return self.grid.width * self.grid.height


def target_digest(target: SpatialTarget) -> str:
    """SHA-256 of the descriptor's canonical JSON."""
    return hashlib.sha256(msgspec.json.encode(target, order="deterministic")).hexdigest()
