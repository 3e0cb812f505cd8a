"""What a step does to data, in functional mode. Each function prepares a step once and returns what to call each
time.

Loads, stores and sends return a thunk that moves the bytes; steps.py calls it when the transfer completes. `env`
gives every variable's value at the step. A read of what its buffer's present user has not written is a `PoisonRead`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from pavane.ir.expr import Indirect
from pavane.ir.program import Generic, Init, Load, MatmulTiles, Ref, Send, Store, Window
from pavane.ir.types import INTEGER_DTYPES, block_elements
from pavane.ir.walk import named
from pavane.sim.engine import Place, Site
from pavane.sim.faults import PoisonRead, ProtocolFault, SimulationFault
from pavane.sim.generic import evaluated
from pavane.sim.matmul import accumulated, accumulated_integers, accumulated_q8
from pavane.sim.memory import Buffer, Origin, Piece, Region, bound_region
from pavane.sim.numbers import FLOAT_BITS, picked, quantised, shortened, stored, values
from pavane.sim.section import Context, FormalState, buffer_of, product_mode, product_types, units
from pavane.sim.shards import Box, Shards
from pavane.sim.state import FifoState
from pavane.sim.tensors import raw_bytes

Env = dict[str, int]
Effect = Callable[[], None]


# --- transfers --------------------------------------------------------------------------------------------


def load(context: Context, step: Load) -> Callable[[Env, int, int], Effect]:
    fifo, formal = context.fifo(step.fifo), context.section.formals[step.tensor]
    alias = fifo.fifo.kind == "ALIAS"

    def prepare(env: Env, rows: int, cols: int) -> Effect:
        start = _start(context, step.window, env)
        buffer, row = fifo.slots[fifo.tail], step.row.evaluate(env)
        buffer.origin = Origin(formal.name, start, step.window.row)
        if formal.shards is not None:
            box = formal.box(step.window, formal.address(start), rows, cols)
            return partial(_gather, context.place, buffer, fifo.fifo.name, row, formal.shards, box)
        source = formal.seen_from(context.agent.site)
        part = _window_part(context.place, formal, source, step.window, start, rows, cols)
        if alias:
            return partial(_bind, buffer, row, part)
        return partial(_fill, context.place, buffer, fifo.fifo.name, row, part)

    return prepare


def _bind(buffer: Buffer, row: int, part: Region) -> None:
    buffer.fresh = False
    buffer.pieces.append(Piece(row, part))


def _fill(place: Place, buffer: Buffer, name: str, row: int, part: Region) -> None:
    rows, cols = part.array.shape
    _inside(place, buffer.touched(), name, row, rows, 0, cols)
    buffer.touched().part(slice(row, row + rows), slice(0, cols)).copy_from(part)


def _gather(place: Place, buffer: Buffer, name: str, row: int, shards: Shards, box: Box) -> None:
    _fill(place, buffer, name, row, shards.region(box))


def store(context: Context, step: Store) -> Callable[[Env, int, int, int], Effect]:
    fifo, formal, place = context.fifo(step.fifo), context.section.formals[step.tensor], context.place

    def prepare(env: Env, address: int, rows: int, cols: int) -> Effect:
        start, width = _start(context, step.window, env), units(cols, formal.dtype)
        _check_transition(place, formal, step.window, address, rows, width)
        slot, name, shards = fifo.slots[fifo.head], fifo.fifo.name, formal.shards
        if shards is not None:
            box = formal.box(step.window, formal.address(start), rows, cols)
            return partial(_scatter, place, slot, name, shards, box, width)
        parts = [
            _window_part(place, formal, region, step.window, start, rows, cols) for region in _written(context, formal)
        ]
        return partial(_write_back, place, slot, name, parts)

    return prepare


def _scatter(place: Place, buffer: Buffer, name: str, shards: Shards, box: Box, width: int) -> None:
    shards.write(box, raw_bytes(_taken_from(place, buffer, name, box.rows, width)))


def _written(context: Context, formal: FormalState) -> list[Region | None]:
    """What a store writes: the copies of all sites, or the one tensor."""
    if formal.copy_at is None:
        return [formal.region]
    return [formal.copy_at(site) for site in context.machine.sites]


def _write_back(place: Place, buffer: Buffer, name: str, parts: list[Region]) -> None:
    array = _taken_from(place, buffer, name, *parts[0].array.shape)
    for part in parts:
        part.write(array)


def _taken_from(place: Place, buffer: Buffer, name: str, rows: int, cols: int) -> np.ndarray:
    """What a store takes of a slot: stored units, every byte of them written."""
    source = _shown(buffer)
    _inside(place, source, name, 0, rows, 0, cols)
    source = source.part(slice(0, rows), slice(0, cols))
    if not source.whole():
        raise _poison(place, name, "stores elements that nothing has written")
    return source.array


def _check_transition(place: Place, formal: FormalState, window: Window, address: int, rows: int, width: int) -> None:
    if formal.writable is None:
        return
    pitch = formal.pitches[window.row] if window.row >= 0 else 0
    low, high = formal.writable
    if address < low or address + (rows - 1) * pitch + width * formal.pitches[-1] > high:
        raise SimulationFault(f"a store to {formal.name} leaves the rows of its transition", where=str(place))


def send(context: Context, step: Send) -> Callable[[tuple[Site, ...]], Effect]:
    fifo = context.fifo(step.fifo)

    def prepare(sinks: tuple[Site, ...]) -> Effect:
        return partial(_deliver, context, fifo.slots[fifo.tail], [context.fifo_at(s, step.fifo) for s in sinks])

    return prepare


def _deliver(context: Context, source: Buffer, sinks: list[FifoState]) -> None:
    for sink in sinks:
        if sink.reserved_by is None:
            raise ProtocolFault("a send arrives in a slot that nobody has reserved", where=str(context.place))
        buffer = sink.slots[sink.tail]
        buffer.touched().copy_from(source.touched())
        buffer.origin = source.origin


def _start(context: Context, window: Window, env: Env) -> tuple[int, ...]:
    return tuple(_index(context, s, env) if isinstance(s, Indirect) else s.evaluate(env) for s in window.start)


def _index(context: Context, index: Indirect, env: Env) -> int:
    """The element of the index tensor, out of the slot of `via` in front."""
    buffer = _held(context, index.via)
    element = tuple(q.evaluate(env) for q in index.index)
    row, col = _place_in_slot(buffer.origin, element)
    shown = _shown(buffer)
    _inside(context.place, shown, index.via, row, 1, col, 1)
    if not shown.part(slice(row, row + 1), slice(col, col + 1)).whole():
        raise _poison(context.place, index.via, "reads an index that nothing has written")
    value = int(shown.array[row, col])
    if not index.lo <= value < index.hi:
        raise SimulationFault(
            f"an index of {index.tensor} is {value}", where=str(context.place), needed=f"[{index.lo}, {index.hi})"
        )
    return value


def _place_in_slot(origin: Origin | None, element: tuple[int, ...]) -> tuple[int, int]:
    if origin is None:
        return (0 if len(element) < 2 else element[-2]), element[-1]
    row = element[origin.row] - origin.start[origin.row] if origin.row >= 0 else 0
    return row, element[-1] - origin.start[-1]


def _window_part(
    place: Place,
    formal: FormalState,
    region: Region | None,
    window: Window,
    start: tuple[int, ...],
    rows: int,
    cols: int,
) -> Region:
    """The two-dimensional part of a formal's bytes that a window covers, already clipped to rows x cols."""
    block = block_elements(formal.dtype)
    where: list[slice | int | None] = [] if window.row >= 0 else [None]
    for dimension, at in enumerate(start[:-1]):
        where.append(slice(at, at + rows) if dimension == window.row else at)
    first = start[-1] // block
    where.append(slice(first, first + units(cols, formal.dtype)))
    if min(start) < 0:
        raise SimulationFault(f"a window of {formal.name} starts at {start}", where=str(place))
    return region.part(*where)  # type: ignore[union-attr, arg-type]


# --- computing --------------------------------------------------------------------------------------------


def init(context: Context, step: Init) -> Effect:
    carry, buffer = named(context.section.shape.carries, step.carry), context.carry(step.carry)
    whole = np.full((carry.rows, carry.cols), carry.initial)
    initial = stored(whole, carry.dtype)
    return lambda: buffer.touched().write(initial)


def generic(context: Context, op: Generic) -> Callable[[Env, int, int, int], None]:
    def run(env: Env, rows: int, cols: int, _last: int) -> None:
        found = evaluated(op.expr, partial(_gathered, context), env, rows, cols)
        _assign(context, op.dst, env, found)

    return run


def product(context: Context, op: MatmulTiles) -> Callable[[Env, int, int, int], None]:
    types = product_types(context.section, op)
    bits_a, bits_b = _operand_bits(context, op, types)

    def run(env: Env, rows: int, cols: int, k: int) -> None:
        a = _in_full(_operand(context, op.a, env, rows, k, types[0]), bits_a)
        b = _in_full(_operand(context, op.b, env, *((cols, k) if op.transposed else (k, cols)), types[1]), bits_b)
        acc = _taken(context, op.dst, env, rows, cols)
        _assign(context, op.dst, env, _summed(op, acc, a, b))

    return run


def _operand_bits(context: Context, op: MatmulTiles, types: tuple[str, str]) -> tuple[int, int]:
    """Significand bits of floats that the engine multiplies; blocks meet blocks as integers and keep theirs."""
    mode = product_mode(context.section, op, context.agent.engine)
    return (FLOAT_BITS, FLOAT_BITS) if mode is None or types == ("q8_0", "q8_0") else mode.bits


def _in_full(numbers: np.ndarray, bits: int) -> np.ndarray:
    """What of an operand is multiplied: floats rounded to so many significand bits."""
    if bits >= FLOAT_BITS or numbers.dtype.kind in "iu":
        return numbers
    return shortened(values(numbers, "q8_0") if numbers.dtype.names else numbers, bits)


def _summed(op: MatmulTiles, acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.names and b.dtype.names and op.transposed:
        return accumulated_q8(acc, a, b, op.tree)
    a, b = (values(x, "q8_0") if x.dtype.names else x for x in (a, b))
    b = b if op.transposed else b.T
    if acc.dtype.kind == "i":
        return accumulated_integers(acc, a, b)
    return accumulated(acc, a.astype(np.float32), b.astype(np.float32), op.tree)


def _operand(context: Context, ref: Ref, env: Env, rows: int, cols: int, taken_as: str) -> np.ndarray:
    """A part of a buffer as the matrix engine takes it: q8_0 stays in blocks."""
    dtype = buffer_of(context.section.shape, ref.name).dtype
    part = _part(context, ref, env, rows, cols)
    if dtype == taken_as == "q8_0":
        return part.array
    numbers = values(part.array, dtype)
    if dtype == taken_as:
        return numbers
    return quantised(numbers) if taken_as == "q8_0" else values(stored(numbers, taken_as), taken_as)


def _taken(context: Context, ref: Ref, env: Env, rows: int, cols: int) -> np.ndarray:
    part = _part(context, ref, env, rows, cols)
    return values(part.array, buffer_of(context.section.shape, ref.name).dtype)


def _part(context: Context, ref: Ref, env: Env, rows: int, cols: int) -> Region:
    """A rectangle of an operand, every element of it written."""
    dtype = buffer_of(context.section.shape, ref.name).dtype
    row, col = ref.row.evaluate(env), ref.col.evaluate(env) // block_elements(dtype)
    shown, width = _shown(_buffer(context, ref.name)), units(cols, dtype)
    _inside(context.place, shown, ref.name, row, rows, col, width)
    part = shown.part(slice(row, row + rows), slice(col, col + width))
    if not part.whole():
        raise _poison(context.place, ref.name, "reads elements that nothing has written")
    return part


def _gathered(context: Context, name: str, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """An operand's elements at index arrays."""
    dtype = buffer_of(context.section.shape, name).dtype
    block = block_elements(dtype)
    shown = _shown(_buffer(context, name))
    if rows.size and cols.size:
        row, col = int(rows.min()), int(cols.min()) // block
        _inside(context.place, shown, name, row, int(rows.max()) - row + 1, col, int(cols.max()) // block - col + 1)
    if shown.owner is not None and not (shown.owner[rows, cols // block] == shown.writer).all():
        raise _poison(context.place, name, "reads elements that nothing has written")
    found = shown.array[rows, cols // block]
    if block > 1:
        return picked(found, cols % block, dtype)
    return found.astype(np.int64 if dtype in INTEGER_DTYPES else np.float32)


def _assign(context: Context, ref: Ref, env: Env, numbers: np.ndarray) -> None:
    dtype = buffer_of(context.section.shape, ref.name).dtype
    row, col = ref.row.evaluate(env), ref.col.evaluate(env) // block_elements(dtype)
    target, array = _buffer(context, ref.name, written=True).touched(), stored(numbers, dtype)
    _inside(context.place, target, ref.name, row, array.shape[0], col, array.shape[1])
    target.part(slice(row, row + array.shape[0]), slice(col, col + array.shape[1])).write(array)


# --- buffers ----------------------------------------------------------------------------------------------


def _buffer(context: Context, name: str, written: bool = False) -> Buffer:
    """What a name means here: a carry, the slot in front, or the slot being filled (for a destination, that first)."""
    if any(c.name == name for c in context.section.shape.carries):
        return context.carry(name)
    fifo, agent = context.fifo(name), context.agent
    reserved, held = fifo.reserved_by is agent, fifo.held_by is agent
    if reserved and (written or not held):
        return fifo.slots[fifo.tail]
    if held and not written:
        return fifo.slots[fifo.head]
    raise ProtocolFault(f"the process has no slot of {name}", where=str(context.place))


def _held(context: Context, name: str) -> Buffer:
    fifo = context.fifo(name)
    if fifo.held_by is not context.agent:
        raise ProtocolFault(f"indices are read through {name}, which is not in front", where=str(context.place))
    return fifo.slots[fifo.head]


def _shown(buffer: Buffer) -> Region:
    return bound_region(buffer) if buffer.pieces else buffer.touched()


def _inside(place: Place, shown: Region, name: str, row: int, rows: int, col: int, cols: int) -> None:
    height, width = shown.array.shape
    if row < 0 or col < 0 or row + rows > height or col + cols > width:
        raise PoisonRead(
            f"{name} is used outside what it holds",
            where=str(place),
            needed=f"rows {row} to {row + rows}, columns {col} to {col + cols} (of types in blocks: blocks)",
            available=f"{height} rows, {width} columns",
        )


def _poison(place: Place, name: str, what: str) -> PoisonRead:
    return PoisonRead(
        f"{name}: {what}",
        where=str(place),
        remedy="a fence, a wait or an initialisation is missing, or a span is too long",
    )
