"""A chip as data: whatever a proof or a prediction needs to know of it, and nothing that runs.

Units: bytes; cycles of the chip's clock. One descriptor describes one chip, a rectangle of it, or a CPU ("host").
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from fractions import Fraction
from math import prod
from typing import Literal

import msgspec

from pavane.ir.types import Registers, row_bytes

EngineRole = Literal["reader", "compute", "writer"]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Base of a descriptor's parts: unknown keys are refused, so a misspelt figure is an error and never a default.

    The digest is of the figures that are not defaults, so a new optional figure leaves other chips' digests.
    """


class Grid(Part, frozen=True, kw_only=True):
    """Columns and rows of compute sites (logical coordinates).

    `missing`: sites (x, y) inside them that do not compute. Only whole rectangles are compiled for: `check_target`
    refuses holes and names the largest rectangle without any. `scattered`: neighbours here are none on a chip, so
    nothing is sent along a row or a column.
    """

    width: int
    height: int
    missing: tuple[tuple[int, int], ...] = ()
    scattered: bool = False


class Memory(Part, frozen=True, kw_only=True):
    """A site's local memory.

    Buffers start at multiples of `alignment_bytes`; `reserved_bytes` at its start are taken.
    """

    bytes: int
    alignment_bytes: int
    reserved_bytes: int = 0


class MatrixMode(Part, frozen=True, kw_only=True):
    """One way in which a matrix engine multiplies: operand and accumulator types, and how it sums.

    `operand_bits`: significand bits of both operands multiplied in full; `a_bits`, `b_bits`: of that one, where it is
    more. An engine may have several modes of the same types, its fidelities: they differ in these bits, in `tile` and
    in `cycles` only. `accumulator_bits`: significand bits of the accumulator. `lanes`, `fused`: the reduction tree of a
    product whose operands both lie along K (transposed b); other products sum one lane in ascending k. `tile`: (m, k,
    n) of one step and `cycles` for it.
    """

    a: str
    b: str
    accumulator: str
    operand_bits: int
    a_bits: int = 0
    b_bits: int = 0
    accumulator_bits: int
    lanes: int = 1
    fused: bool = False
    tile: tuple[int, int, int]
    cycles: int

    @property
    def bits(self) -> tuple[int, int]:
        """Significand bits of a and of b that are multiplied in full."""
        return self.a_bits or self.operand_bits, self.b_bits or self.operand_bits

    @property
    def cost(self) -> Fraction:
        """Cycles a multiply-add, where every step is full."""
        return Fraction(self.cycles, prod(self.tile))


class Engine(Part, frozen=True, kw_only=True):
    """One sequential execution resource of every site.

    `generic_elements_per_cycle`: element-wise operators of a Generic per cycle; `function_cycles` multiplies it for
    exp and its like. `register_tiles`: operand and result tiles one Generic may hold at once (0: no limit), while the
    results of the step before leave the registers; `register_tiles_16_bit`: where these, and the accumulators of its
    stage, have at most 16 bits (0: the same number). `full_register_tiles`, `full_register_tiles_16_bit`: the same in
    full sync (0: the chip has none), where a step's result leaves, `pack_bytes_per_cycle`, before the next one begins.
    `block_floats`: the block floats that it takes out of its buffers and puts into them, converted on the way at no
    cost. They enter a product as bf16 or f32, which hold them.
    """

    name: str
    roles: tuple[EngineRole, ...]
    matrix: tuple[MatrixMode, ...] = ()
    generic_elements_per_cycle: int = 0
    function_cycles: int = 1
    register_tiles: int = 0
    register_tiles_16_bit: int = 0
    full_register_tiles: int = 0
    full_register_tiles_16_bit: int = 0
    pack_bytes_per_cycle: int = 0
    block_floats: tuple[str, ...] = ()

    @property
    def windows(self) -> tuple[Registers, ...]:
        """The parts of its registers that a stage may work in."""
        return ("HALF", "FULL") if self.full_register_tiles else ("HALF",)

    def tiles_held(self, dtypes: Iterable[str], registers: Registers = "HALF") -> int:
        """How many tiles fit the window at once where the widest of these types is to be held; 0: any number."""
        wide, narrow = self.register_tiles, self.register_tiles_16_bit
        if registers == "FULL":
            wide, narrow = self.full_register_tiles, self.full_register_tiles_16_bit
        return narrow if narrow and all(row_bytes(dtype, 1) <= 2 for dtype in dtypes) else wide

    def pack_cycles(self, size_bytes: int) -> int:
        """Until so many bytes of results have left the registers."""
        return -(-size_bytes // self.pack_bytes_per_cycle)

    def product_mode(self, a: str, b: str, bits: tuple[int, int]) -> MatrixMode | None:
        """The mode of a product whose operands enter as types `a` and `b`, and need so many significand bits each.

        The cheapest that multiplies both in full; bits beyond those of the fullest mode of these types no mode
        multiplies, and they do not count. Ties: fewer bits, then the order of description. None: no mode of these
        types.
        """
        modes = [m for m in self.matrix if (m.a, m.b) == (a, b)]
        if not modes:
            return None
        fullest = max(m.bits for m in modes)
        needed = tuple(min(need, most) for need, most in zip(bits, fullest, strict=True))
        enough = [m for m in modes if m.bits[0] >= needed[0] and m.bits[1] >= needed[1]]
        return min(enough, key=lambda m: (m.cost, m.bits))


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


class Dram(Part, frozen=True, kw_only=True):
    """Memory beside the chip, shared by all sites: `channels`, each `bytes_per_cycle`.

    `page_bytes`: addresses go round the channels page by page, and a request stays inside a page and is contiguous (0:
    in units of the alignment, and one request moves any window). `adjacent`: the site (x, y) beside each channel, in
    order of channels; `bytes_per_cycle` is what a channel gives to that site, `far_bytes_per_cycle` what it gives to
    any other. Without them a channel serves all sites alike.
    """

    bytes: int
    channels: int
    bytes_per_cycle: int
    latency_cycles: int
    request_cycles: int
    alignment_bytes: int
    page_bytes: int = 0
    adjacent: tuple[tuple[int, int], ...] = ()
    far_bytes_per_cycle: int = 0

    @property
    def far_rate(self) -> int:
        """Bytes a cycle of a channel for a site that is not beside it."""
        return self.far_bytes_per_cycle or self.bytes_per_cycle

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
