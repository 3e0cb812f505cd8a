"""Does a descriptor agree with itself? One rule a function; all disagreements are reported together."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pavane.ir.types import DTYPES, MAGNITUDE_BITS
from pavane.reject import TargetReject
from pavane.targets.descriptor import Engine, SpatialTarget
from pavane.targets.rectangle import largest_rectangle

_MOST = 1 << 44
_MOST_SIDE, _MOST_CHANNELS, _MOST_LANES = 1024, 1024, 1024
_MOST_ENGINES, _MOST_MODES = 64, 256


def check_target(target: SpatialTarget) -> SpatialTarget:
    """Return the descriptor, or raise TargetReject with every contradiction."""
    faults = list(_lists(target)) or [fault for rule in _RULES for fault in rule(target)]
    if faults:
        raise TargetReject(
            f"the descriptor of {target.name!r} contradicts itself", terms=faults, remedy="correct those figures"
        )
    return target


def _lists(target: SpatialTarget) -> Iterator[str]:
    """The other rules compare all of one list with all of another."""
    if len(target.engines) > _MOST_ENGINES:
        yield f"{len(target.engines)} engines: at most {_MOST_ENGINES}"
    if any(len(engine.matrix) > _MOST_MODES for engine in target.engines):
        yield f"an engine has more than {_MOST_MODES} matrix modes"
    if len(target.dram.adjacent) > _MOST_CHANNELS:
        yield f"dram.adjacent names {len(target.dram.adjacent)} sites: at most {_MOST_CHANNELS}"


def _positive_figures(target: SpatialTarget) -> Iterator[str]:
    figures = {
        "clock_hz": target.clock_hz,
        "grid.width": target.grid.width,
        "grid.height": target.grid.height,
        "memory.bytes": target.memory.bytes,
        "memory.alignment_bytes": target.memory.alignment_bytes,
        "tile rows": target.tile[0],
        "tile columns": target.tile[1],
        "fifos.per_site": target.fifos.per_site,
        "counters.per_site": target.counters.per_site,
        "noc.bytes_per_cycle": target.noc.bytes_per_cycle,
        "dram.bytes": target.dram.bytes,
        "dram.channels": target.dram.channels,
        "dram.bytes_per_cycle": target.dram.bytes_per_cycle,
        "dram.alignment_bytes": target.dram.alignment_bytes,
    }
    yield from (f"{name} = {value} must be at least 1" for name, value in figures.items() if value < 1)
    costs = {
        "memory.reserved_bytes": target.memory.reserved_bytes,
        "fifos.handover_cycles": target.fifos.handover_cycles,
        "counters.post_cycles": target.counters.post_cycles,
        "noc.hop_cycles": target.noc.hop_cycles,
        "noc.start_cycles": target.noc.start_cycles,
        "dram.latency_cycles": target.dram.latency_cycles,
        "dram.request_cycles": target.dram.request_cycles,
        "dram.page_bytes": target.dram.page_bytes,
        "dram.far_bytes_per_cycle": target.dram.far_bytes_per_cycle,
        "launch.cycles": target.launch.cycles,
    }
    yield from (f"{name} = {value} must not be negative" for name, value in costs.items() if value < 0)


def _name(target: SpatialTarget) -> Iterator[str]:
    for what, name in (("the", target.name), *(("an engine's", engine.name) for engine in target.engines)):
        if not name.strip() or not name.isprintable() or len(name) > 200:
            yield f"{what} name must be 1 to 200 printable characters"


def _no_giants(target: SpatialTarget) -> Iterator[str]:
    """Sums and products of figures stay far inside 64 bits."""
    stack: list[tuple[str, object]] = [("", msgspec.to_builtins(target))]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict):
            stack.extend((f"{path}.{key}".lstrip("."), item) for key, item in value.items())
        elif isinstance(value, list | tuple):
            stack.extend((f"{path}[{i}]", item) for i, item in enumerate(value))
        elif isinstance(value, int) and value > _MOST:
            yield f"{path} = {value} is above {_MOST}"


def _limits(target: SpatialTarget) -> Iterator[str]:
    if max(target.grid.width, target.grid.height) > _MOST_SIDE:
        yield f"grid: at most {_MOST_SIDE} x {_MOST_SIDE} sites"
    if target.dram.channels > _MOST_CHANNELS:
        yield f"dram.channels = {target.dram.channels}: at most {_MOST_CHANNELS}"
    if not 2 <= target.counters.bits <= 64:
        yield f"counters.bits = {target.counters.bits} must be 2 to 64"
    if target.memory.reserved_bytes >= target.memory.bytes:
        yield f"memory.reserved_bytes = {target.memory.reserved_bytes} leaves nothing of {target.memory.bytes} bytes"
    for name, value in (("memory", target.memory.alignment_bytes), ("dram", target.dram.alignment_bytes)):
        if value > 0 and value & (value - 1):
            yield f"{name}.alignment_bytes = {value} must be a power of two"
    page, unit = target.dram.page_bytes, target.dram.alignment_bytes
    if page > 0 and unit > 0 and page % unit:
        yield f"dram.page_bytes = {page} must be a multiple of dram.alignment_bytes = {unit}"


def _adjacent(target: SpatialTarget) -> Iterator[str]:
    """A site beside each channel, and what the others get; only where sites move what they work on."""
    dram, grid = target.dram, target.grid
    if bool(dram.adjacent) != bool(dram.far_bytes_per_cycle):
        yield "dram.adjacent and dram.far_bytes_per_cycle go together: who gets the full rate, what the others get"
    if not dram.adjacent:
        return
    if target.alias:
        yield "dram.adjacent is for sites that move what they work on; engines of this chip address memory in place"
    if len(dram.adjacent) != dram.channels:
        yield f"dram.adjacent names {len(dram.adjacent)} sites for {dram.channels} channels"
    if dram.far_bytes_per_cycle > dram.bytes_per_cycle:
        yield (
            f"dram.far_bytes_per_cycle = {dram.far_bytes_per_cycle} is above what the sites beside the channels get, "
            f"{dram.bytes_per_cycle}"
        )
    for x, y in dict.fromkeys(dram.adjacent):
        if not (0 <= x < grid.width and 0 <= y < grid.height):
            yield f"dram.adjacent names ({x}, {y}), which is no site of {grid.width} x {grid.height}"
        if dram.adjacent.count((x, y)) > 1:
            yield f"dram.adjacent names ({x}, {y}) for several channels"


def _holes(target: SpatialTarget) -> Iterator[str]:
    """Work is dealt to whole rectangles, so sites that do not compute are left out by describing a smaller one."""
    grid, missing = target.grid, dict.fromkeys(target.grid.missing)
    inside = {(x, y) for x, y in missing if 0 <= x < grid.width and 0 <= y < grid.height}
    for x, y in missing:
        if (x, y) not in inside:
            yield f"grid.missing names ({x}, {y}), which is no site of {grid.width} x {grid.height}"
    if inside and max(grid.width, grid.height) <= _MOST_SIDE:
        holes = f"the rectangle of workers has {len(inside)} hole{'s' if len(inside) > 1 else ''}"
        columns, rows = largest_rectangle(grid.width, grid.height, inside)
        yield f"{holes}: {_without_holes(columns, rows)}"


def _without_holes(columns: range, rows: range) -> str:
    if not columns:
        return "none of its sites computes"
    return (
        f"describe the largest whole one, width = {len(columns)} and height = {len(rows)} (columns {columns[0]} to "
        f"{columns[-1]}, rows {rows[0]} to {rows[-1]}), without `missing`"
    )


def _engines(target: SpatialTarget) -> Iterator[str]:
    names = [engine.name for engine in target.engines]
    yield from (f"engine {name!r} is described twice" for name in sorted({n for n in names if names.count(n) > 1}))
    for role in ("reader", "compute", "writer"):
        if not any(role in engine.roles for engine in target.engines):
            yield f"no engine has the role {role!r}"
    for engine in target.engines:
        if "compute" in engine.roles and engine.generic_elements_per_cycle < 1:
            yield f"engine {engine.name!r} computes: generic_elements_per_cycle must be at least 1"
        if min(engine.register_tiles, engine.register_tiles_16_bit) < 0 or engine.function_cycles < 1:
            yield f"engine {engine.name!r}: register_tiles must not be negative and function_cycles must be at least 1"
        yield from (f"engine {engine.name!r}: {fault}" for fault in _register_windows(engine))
        for dtype in engine.block_floats:
            if dtype not in MAGNITUDE_BITS:
                yield f"engine {engine.name!r}: {dtype!r} is no block float, which are {', '.join(MAGNITUDE_BITS)}"


def _register_windows(engine: Engine) -> Iterator[str]:
    """More tiles of 16 bits than of 32, more in full sync than in half, and what full sync costs beside it."""
    half, full = engine.register_tiles, engine.full_register_tiles
    half_16_bit, full_16_bit = engine.register_tiles_16_bit, engine.full_register_tiles_16_bit
    if min(full, full_16_bit, engine.pack_bytes_per_cycle) < 0:
        yield "full_register_tiles and pack_bytes_per_cycle must not be negative"
    for wide, narrow in ((half, half_16_bit), (full, full_16_bit)):
        if narrow and not 0 < wide <= narrow:
            yield "registers hold fewer tiles of 16 bits than of 32"
    if bool(full) != bool(engine.pack_bytes_per_cycle):
        yield "full_register_tiles and pack_bytes_per_cycle go together: what full sync holds, what it costs"
    if full and not (0 < half < full and half_16_bit <= (full_16_bit or full)):
        yield "full sync must hold more tiles than half of the registers does"


def _matrix_modes(target: SpatialTarget) -> Iterator[str]:
    for engine in target.engines:
        if engine.matrix and "compute" not in engine.roles:
            yield f"engine {engine.name!r} has matrix modes but not the role 'compute'"
        for mode in engine.matrix:
            place = f"engine {engine.name!r}, mode {mode.a} x {mode.b}"
            unknown = [t for t in (mode.a, mode.b, mode.accumulator) if t not in DTYPES]
            yield from (f"{place}: unknown element type {t!r}" for t in unknown)
            blocks = [t for t in (mode.a, mode.b, mode.accumulator) if t in MAGNITUDE_BITS]
            yield from (f"{place}: {t} enters as bf16 or f32, and is named in block_floats" for t in blocks)
            if not 1 <= mode.lanes <= _MOST_LANES or mode.lanes & (mode.lanes - 1):
                yield f"{place}: lanes = {mode.lanes} must be a power of two, at most {_MOST_LANES}"
            if min(mode.tile) < 1 or mode.cycles < 1 or mode.operand_bits < 1 or mode.accumulator_bits < 1:
                yield f"{place}: tile, cycles and bits must be at least 1"
            if any(bits and bits < mode.operand_bits for bits in (mode.a_bits, mode.b_bits)):
                yield f"{place}: a_bits and b_bits are for the operand with more bits than operand_bits"


def _fidelities(target: SpatialTarget) -> Iterator[str]:
    """Modes of one pair of types differ only in what they multiply in full and cost; one of them multiplies most."""
    for engine in target.engines:
        for a, b in dict.fromkeys((m.a, m.b) for m in engine.matrix):
            modes = [m for m in engine.matrix if (m.a, m.b) == (a, b)]
            place = f"engine {engine.name!r}, modes {a} x {b}"
            if len({(m.accumulator, m.accumulator_bits, m.lanes, m.fused) for m in modes}) > 1:
                yield f"{place}: they must sum in one way (accumulator, accumulator_bits, lanes, fused)"
            most = (max(m.bits[0] for m in modes), max(m.bits[1] for m in modes))
            if all(m.bits != most for m in modes):
                yield f"{place}: none multiplies {most[0]} bits of a by {most[1]} of b"
            bits = [m.bits for m in modes]
            yield from (
                f"{place}: bits {n[0]} x {n[1]} are described twice" for n in sorted(set(bits)) if bits.count(n) > 1
            )


_RULES = (_name, _no_giants, _positive_figures, _limits, _adjacent, _holes, _engines, _matrix_modes, _fidelities)
