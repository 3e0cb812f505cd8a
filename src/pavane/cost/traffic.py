"""What the stages of a section do, as a flat list of events: what moves, what is computed, how often, and how that
grows with blocks.

An `Event` has the loops around it and up to three dimensions (rows, columns, K). A dimension that starts at `size *
v` for a loop variable v around it steps along v: its length is the block's, and the block plan changes it. Every
other length is taken at the symbols' expected values. `total` sums a per-turn cost over the turns of one worker, or
of the whole work grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod
from typing import Literal

from pavane.cost.spread import Run
from pavane.ir.expr import Expr, Fn, Reduce
from pavane.ir.program import (
    LV_ITEM_X,
    LV_ITEM_Y,
    Compute,
    Fence,
    Front,
    Generic,
    Home,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Pop,
    Program,
    Push,
    Reserve,
    Send,
    Shape,
    Span,
    Step,
    Store,
    Wait,
    Window,
)
from pavane.ir.quasi import Quasi
from pavane.ir.types import row_bytes
from pavane.ir.walk import bodies, leaves, named, parts
from pavane.targets.descriptor import Engine, MatrixMode, SpatialTarget
from pavane.targets.fidelity import buffer_bits
from pavane.targets.registers import fits_registers

Kind = Literal["load", "bind", "store", "fence", "reserve", "push", "front", "pop", "wait", "init", "matmul", "generic"]
_HANDOVERS: dict[type, Kind] = {Reserve: "reserve", Push: "push", Front: "front", Pop: "pop"}
FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf")


@dataclass(frozen=True)
class Dim:
    """A length in elements; `var` is the loop variable that it steps along, or empty."""

    size: int
    var: str = ""


@dataclass(frozen=True)
class Event:
    """One step in its loops: `nest` pairs a loop variable with its turns at the symbols' expected values, `loops` says
    which loops of the section these are.

    `weights`: engine cycles * elements/cycle of a Generic per point, outside and inside its reduction. `line`: elements
    from one row of a window to the next. `items`: the item variables that the window moves with. `home`: where the
    tensor of a load or store lies (`shard_bytes`: in such blocks; `unit_bytes`: so many neighbouring bytes in one DRAM
    channel, 0: as the chip does it); of a fence, "sites" when it ends nothing that goes to DRAM. `packed_dtype`: of a
    result in full sync, which leaves the registers before the engine goes on.
    """

    kind: Kind
    engine: str
    nest: tuple[tuple[str, int], ...]
    dims: tuple[Dim, ...] = ()
    fifo: str = ""
    fifo_kind: str = ""
    dtype: str = ""
    mode: MatrixMode | None = None
    weights: tuple[int, int] = (0, 0)
    line: int = 0
    items: tuple[str, ...] = ()
    home: Home = "dram"
    shard_bytes: int = 0
    loops: tuple[int, ...] = ()
    unit_bytes: int = 0
    packed_dtype: str = ""


Lengths = tuple[int, ...]
Turns = Mapping[str, tuple[Run, ...]]


def expected_values(program: Program) -> dict[str, int]:
    """The symbols at the values that cost is computed for."""
    return {s.name: s.expected for s in program.symbols}


def events(shape: Shape, target: SpatialTarget, expected: Mapping[str, int]) -> tuple[Event, ...]:
    """Every step of every stage that takes time."""
    engines = {engine.name: engine for engine in target.engines}
    reader = _Reading(shape, target, expected)
    return tuple(
        event
        for group in shape.groups
        for stage in group.stages
        for event in reader.body(stage.body, engines[stage.engine], ())
    )


def body_events(
    shape: Shape, body: tuple[Node, ...], engine: str, target: SpatialTarget, expected: Mapping[str, int]
) -> tuple[Event, ...]:
    """The same for one body, taken by itself."""
    return tuple(_Reading(shape, target, expected).body(body, named(target.engines, engine), ()))


def total(event: Event, turns: Turns, cost: Callable[[Lengths], int]) -> int:
    """The sum of `cost(lengths)` over the event's turns; `turns` overrides the turns and lengths along a variable."""
    stepped = {dim.var for dim in event.dims if dim.var}
    times, choices = 1, []
    for var, trips in event.nest:
        runs = turns.get(var)
        if var in stepped:
            choices.append([(var, run) for run in runs or ((None, trips),)])
        else:
            times *= sum(count for _, count in runs) if runs else trips
    found = 0
    for combination in product(*choices):
        lengths = {var: length for var, (length, _) in combination}
        count = times
        for _, (_, turns_here) in combination:
            count *= turns_here
        found += count * cost(lengths_of(event, lengths))
    return found


def lengths_of(event: Event, lengths: Mapping[str, int | None]) -> Lengths:
    """The dimensions where blocks along variables are so long; None, or no word: as written."""
    chosen = (lengths.get(dim.var) for dim in event.dims)
    return tuple(dim.size if length is None else length for dim, length in zip(event.dims, chosen, strict=True))


def _engines_in_full_sync(shape: Shape, target: SpatialTarget) -> tuple[str, ...]:
    """Engines of which a stage is in full sync, or will have to be: an engine's stages become one process."""
    able = [engine.name for engine in target.engines if "FULL" in engine.windows]
    stages = (stage for stage in parts(shape) if stage.engine in able)
    full = (s.engine for s in stages if s.registers == "FULL" or not fits_registers(shape, s, target))
    return tuple(dict.fromkeys(full))


class _Reading:
    """Walks bodies; knows the shape's declarations and the expected values."""

    def __init__(self, shape: Shape, target: SpatialTarget, expected: Mapping[str, int]) -> None:
        self._dtypes: dict[str, str] = {b.name: b.dtype for b in shape.fifos}
        self._dtypes.update({b.name: b.dtype for b in shape.carries})
        self._in_full_sync = _engines_in_full_sync(shape, target)
        self._fifos = {f.name: f for f in shape.fifos}
        self._formals = shape.formals
        self._open: Home = "sites"  # what the next fence waits for
        self._operands: dict[str, str] = {}
        self._operands.update(shape.numerics.operands)
        self._filled = _filled_from(shape)
        self._bits = buffer_bits(shape)
        self._expected = expected
        self._carries = {c.name: c for c in shape.carries}
        self._written = _written_by(shape)
        self._numbers = iter(range(1 << 30))

    def body(
        self, body: tuple[Node, ...], engine: Engine, nest: tuple[tuple[str, int], ...], loops: tuple[int, ...] = ()
    ) -> Iterator[Event]:
        for node in body:
            if isinstance(node, Loop):
                trips, number = max(0, self._value(node.extent)), next(self._numbers)
                yield from self.body(node.body, engine, (*nest, (node.var, trips)), (*loops, number))
            else:
                for event in self._step(node, engine, nest):
                    yield replace(event, loops=loops)

    def _step(self, step: Step, engine: Engine, nest: tuple[tuple[str, int], ...]) -> Iterator[Event]:
        if isinstance(step, Load | Store):
            fifo = self._fifos[step.fifo]
            kind: Kind = "store" if isinstance(step, Store) else "bind" if fifo.kind == "ALIAS" else "load"
            dims, line = self._window(step.tensor, step.window, nest), self._line(step.tensor, step.window)
            items = tuple(var for var in (LV_ITEM_X, LV_ITEM_Y) if _moves_with(step, var))
            formal = named(self._formals, step.tensor)
            self._open = "dram" if formal.home == "dram" else self._open
            yield Event(
                kind, engine.name, nest, dims, fifo.name, fifo.kind, fifo.dtype, line=line, items=items,
                home=formal.home, shard_bytes=formal.shard_bytes, unit_bytes=formal.interleave_bytes,
            )  # fmt: skip
        elif isinstance(step, Reserve | Push | Front | Pop):
            yield Event(_HANDOVERS[type(step)], engine.name, nest, fifo=step.fifo)
        elif isinstance(step, Init):
            yield Event(
                "init",
                engine.name,
                nest,
                self._carried(step.carry, nest),
                packed_dtype=self._packed(step.carry, engine),
            )
        elif isinstance(step, Fence):
            yield Event("fence", engine.name, nest, home=self._open)
            self._open = "sites"
        elif isinstance(step, Wait | Send):
            yield Event("wait", engine.name, nest)
        elif isinstance(step, Compute):
            yield self._compute(step.op, engine, nest)

    def _compute(self, op: Generic | MatmulTiles, engine: Engine, nest: tuple[tuple[str, int], ...]) -> Event:
        rows, cols = self._span(op.rows, nest), self._span(op.cols, nest)
        packed = self._packed(op.dst.name, engine)
        if isinstance(op, MatmulTiles):
            mode = self._mode(op, engine)
            dims = rows, cols, self._span(op.k, nest)
            return Event("matmul", engine.name, nest, dims, mode=mode, packed_dtype=packed)
        reduces = [e.extent for e in _reductions(op.expr)]
        dims = rows, cols, Dim(max((self._value(extent) for extent in reduces), default=1))
        weights = generic_weights(op.expr, engine)
        return Event("generic", engine.name, nest, dims, weights=weights, packed_dtype=packed)

    def _packed(self, buffer: str, engine: Engine) -> str:
        """The type of what leaves the registers before the engine goes on, where it does."""
        return self._dtypes[buffer] if engine.name in self._in_full_sync else ""

    def _carried(self, name: str, nest: tuple[tuple[str, int], ...]) -> tuple[Dim, Dim]:
        """Rows and columns of a carry: those that an op writes at once step as that op does."""
        carry, op = self._carries[name], self._written[name]
        rows, cols = self._span(op.rows, nest), self._span(op.cols, nest)
        return (
            rows if rows.var and rows.size == carry.rows else Dim(carry.rows),
            cols if cols.var and cols.size == carry.cols else Dim(carry.cols),
        )

    def _mode(self, op: MatmulTiles, engine: Engine) -> MatrixMode | None:
        """The mode for the types and widths of the operands; None: priced as element-wise work."""
        a, b = (self._taken_as(name) for name in (op.a.name, op.b.name))
        mode = engine.product_mode(a, b, (self._bits[op.a.name], self._bits[op.b.name]))
        return mode or (engine.matrix[0] if engine.matrix else None)

    def _taken_as(self, buffer: str) -> str:
        formal = self._filled.get(buffer, "")
        return self._operands.get(formal, self._dtypes[buffer])

    def _window(self, tensor: str, window: Window, nest: tuple[tuple[str, int], ...]) -> tuple[Dim, Dim]:
        shape = named(self._formals, tensor).shape
        last = len(window.size) - 1
        rows = (
            Dim(1)
            if window.row < 0
            else self._dim(window.start[window.row], window.size[window.row], shape[window.row], nest)
        )
        return rows, self._dim(window.start[last], window.size[last], shape[last], nest)

    def _line(self, tensor: str, window: Window) -> int:
        """Elements from one row to the next: a window with as many columns is contiguous."""
        shape = named(self._formals, tensor).shape
        return prod(self._value(extent) for extent in shape[window.row + 1 :]) if window.row >= 0 else 0

    def _span(self, span: Span, nest: tuple[tuple[str, int], ...]) -> Dim:
        return self._dim(span.start, span.size, span.limit, nest)

    def _dim(self, start: object, size: int, limit: Quasi, nest: tuple[tuple[str, int], ...]) -> Dim:
        if isinstance(start, Quasi):
            for var, _ in nest:
                if start.coefficient(var) == size:
                    return Dim(size, var)
            return Dim(max(0, min(size, self._value(limit - start))))
        return Dim(size)

    def _value(self, value: Quasi) -> int:
        """At the expected symbols, in the first turn of every loop."""
        return value.evaluate({name: self._expected.get(name, 0) for name in value.variables()})


def _moves_with(step: Load | Store, var: str) -> bool:
    """Where a window starts at a row that an index names, it moves with everything."""
    return any(not isinstance(start, Quasi) or var in start.variables() for start in step.window.start)


def _filled_from(shape: Shape) -> dict[str, str]:
    """The formal that each FIFO is loaded with."""
    found: dict[str, str] = {}

    def visit(body: tuple[Node, ...]) -> None:
        for node in body:
            if isinstance(node, Loop):
                visit(node.body)
            elif isinstance(node, Load):
                found[node.fifo] = node.tensor

    for group in shape.groups:
        for stage in group.stages:
            visit(stage.body)
    return found


def _written_by(shape: Shape) -> dict[str, Generic | MatmulTiles]:
    """An op that writes each carry."""
    steps = (step for _, body in bodies(shape) for _, step in leaves(body))
    return {step.op.dst.name: step.op for step in steps if isinstance(step, Compute)}


def _reductions(expr: Expr) -> Iterator[Reduce]:
    if isinstance(expr, Reduce):
        yield expr
        yield from _reductions(expr.body)
    elif isinstance(expr, Fn):
        for arg in expr.args:
            yield from _reductions(arg)


def generic_weights(expr: Expr, engine: Engine) -> tuple[int, int]:
    """Operators per point, functions weighed by the engine: (outside the reduction, inside it). A copy counts one."""
    outside, inside = _weigh(expr, engine, False)
    return max(1, outside) if not inside else outside, inside


def _weigh(expr: Expr, engine: Engine, reduced: bool) -> tuple[int, int]:
    own = 0
    args: tuple[Expr, ...] = ()
    if isinstance(expr, Fn):
        own, args = (engine.function_cycles if expr.op in FUNCTIONS else 1), expr.args
    elif isinstance(expr, Reduce):
        own, args, reduced = 1, (expr.body,), True
    parts = [_weigh(arg, engine, reduced) for arg in args]
    outside, inside = sum(p[0] for p in parts), sum(p[1] for p in parts)
    return (outside, inside + own) if reduced else (outside + own, inside)


def event_requests(event: Event, lengths: Lengths, target: SpatialTarget) -> int:
    """Requests of a load or store of these lengths."""
    rows, cols = lengths
    return target.dram.requests(rows, row_bytes(event.dtype, cols), rows == 1 or cols == event.line)


def event_runs(event: Event, lengths: Lengths) -> int:
    """Contiguous runs of bytes that a load or store of these lengths touches."""
    rows, cols = lengths
    return 1 if rows == 1 or cols == event.line else rows


def event_bytes(event: Event, lengths: Lengths) -> int:
    """Bytes that a load, bind or store of these lengths touches."""
    rows, cols = lengths
    return rows * row_bytes(event.dtype, cols)


def event_shards(event: Event, lengths: Lengths) -> int:
    """How many blocks a window of what is sharded touches that begins with a block: each is on a site of its own."""
    rows, cols = lengths
    width, pitch = row_bytes(event.dtype, cols), row_bytes(event.dtype, event.line)
    if event_runs(event, lengths) == 1:
        return -(-rows * width // event.shard_bytes)
    return min(rows, -(-rows * pitch // event.shard_bytes)) * -(-width // event.shard_bytes)


def event_channels(event: Event, lengths: Lengths, target: SpatialTarget) -> int:
    """DRAM channels that a window of these lengths lies in."""
    rows, cols = lengths
    unit, channels = event.unit_bytes or target.dram.interleave_bytes, target.dram.channels
    width, pitch = row_bytes(event.dtype, cols), row_bytes(event.dtype, event.line)
    units = -(-width // unit)
    if rows > 1 and cols != event.line and pitch % unit == 0:
        apart = gcd(pitch // unit, channels)
        found = min(rows, channels // apart) * min(units, apart)
    else:
        found = min(rows * units, -(-((rows - 1) * pitch + width) // unit))
    return max(1, min(channels, found))
