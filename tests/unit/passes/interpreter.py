"""A program of one section, run step by step in float64 at any phase: what the passes' tests compare.

Every stage or process of every site is a coroutine. Slots and carries start as NaN, so whatever is read without
having been written shows. Before PLACED there is one site; from then on a multicast push reaches the whole line until
the handshakes are written out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from pavane.ir.expr import At, Const, Expr, Fn, Indirect, Reduce, Var
from pavane.ir.program import (
    PHASES,
    Compute,
    Fence,
    Front,
    Generic,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Pop,
    Post,
    Program,
    Push,
    Rect,
    Reserve,
    Send,
    Store,
    Wait,
)
from pavane.ir.walk import span_length

_FUNCTIONS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum, "max": np.maximum,
    "abs": np.abs, "exp": np.exp, "sqrt": np.sqrt, "tanh": np.tanh, "round": np.round, "log": np.log,
    "rsqrt": lambda a: 1 / np.sqrt(a), "sin": np.sin, "cos": np.cos,
    "eq": lambda a, b: np.equal(a, b) * 1.0, "lt": lambda a, b: np.less(a, b) * 1.0,
    "le": lambda a, b: np.less_equal(a, b) * 1.0,
    "select": lambda c, a, b: np.where(c != 0, a, b),
}  # fmt: skip
Values = dict[str, int]


class Stuck(Exception):
    """No coroutine can go on."""


class Machine:
    """The state of all sites while a program runs. `writes` counts, per tensor, how often each element was stored."""

    def __init__(self, program: Program, tensors: dict[str, np.ndarray], symbols: Values) -> None:
        self.shape = program.shapes[0]
        self.level = PHASES.index(program.phase)
        self.bound = {b.formal: tensors[b.tensor] for b in program.instances[0].bindings}
        self.extents = {f.name: tuple(e.evaluate(symbols) for e in f.shape) for f in self.shape.formals}
        self.writes = {f.name: np.zeros(self.extents[f.name], int) for f in self.shape.formals}
        self.symbols = symbols
        self.fifos = {f.name: f for f in self.shape.fifos}
        self.queues: dict[tuple, deque] = {}
        self.reserved: dict[tuple, np.ndarray] = {}
        self.held: dict[tuple, np.ndarray] = {}
        self.carries: dict[tuple, np.ndarray] = {}
        self.counters: dict[tuple, int] = {}

    def run(self) -> None:
        waiting = [
            self._body(body, site, dict(self.symbols, **coordinates)) for body, site, coordinates in self._coroutines()
        ]
        while waiting:
            alive = []
            moved = False
            for coroutine in waiting:
                outcome = next(coroutine, "done")
                moved = moved or outcome in ("moved", "done")
                if outcome != "done":
                    alive.append(coroutine)
            if not moved:
                raise Stuck(f"{len(alive)} coroutines wait")
            waiting = alive

    def _coroutines(self) -> Iterator[tuple]:
        bodies = [(p.body, p.rect) for p in self.shape.processes]
        bodies += [(stage.body, group.rect) for group in self.shape.groups for stage in group.stages]
        for body, rect in bodies:
            x0, x1, y0, y1 = (0, 1, 0, 1) if rect is None else self._box(rect, {})
            for y in range(y0, y1):
                for x in range(x0, x1):
                    yield body, (x, y), {"SITE_X": x - x0, "SITE_Y": y - y0}

    def _box(self, rect: Rect, values: Values) -> tuple[int, int, int, int]:
        return tuple(edge.evaluate(values) for edge in (rect.x0, rect.x1, rect.y0, rect.y1))

    def _body(self, body, site, values) -> Iterator[str]:
        for node in body:
            if isinstance(node, Loop):
                for turn in range(node.extent.evaluate(values)):
                    yield from self._body(node.body, site, {**values, node.var: turn})
            else:
                while not self._enabled(node, site):
                    yield "blocked"
                self._do(node, site, values)
                yield "moved"

    def _enabled(self, step, site) -> bool:
        if isinstance(step, Reserve) and self.level >= PHASES.index("SIZED"):
            queue = self.queues.get((site, step.fifo), ())
            return len(queue) + ((site, step.fifo) in self.held) < self.fifos[step.fifo].depth
        if isinstance(step, Front):
            return bool(self.queues.get((site, step.fifo)))
        if isinstance(step, Wait):
            return self.counters.get((site, step.counter), 0) >= step.n
        return True

    def _do(self, step, site, values) -> None:
        if isinstance(step, Reserve):
            fifo = self.fifos[step.fifo]
            assert (site, step.fifo) not in self.reserved
            self.reserved[site, step.fifo] = np.full((fifo.rows, fifo.cols), np.nan)
        elif isinstance(step, Load):
            self._load(step, site, values)
        elif isinstance(step, Store):
            self._store(step, site, values)
        elif isinstance(step, Push):
            slot = self.reserved.pop((site, step.fifo))
            for to in self._receivers(step.fifo, site):
                self.queues.setdefault((to, step.fifo), deque()).append(slot)
        elif isinstance(step, Front):
            assert (site, step.fifo) not in self.held
            self.held[site, step.fifo] = self.queues[site, step.fifo].popleft()
        elif isinstance(step, Pop):
            del self.held[site, step.fifo]
        elif isinstance(step, Init):
            carry = next(c for c in self.shape.carries if c.name == step.carry)
            self.carries[site, step.carry] = np.full((carry.rows, carry.cols), carry.initial)
        elif isinstance(step, Send):
            for to in self._sites(step.to, values):
                self.reserved[to, step.fifo][:] = self.reserved[site, step.fifo]
        elif isinstance(step, Post):
            for to in self._sites(step.to, values):
                self.counters[to, step.counter] = self.counters.get((to, step.counter), 0) + step.n
        elif isinstance(step, Wait):
            self.counters[site, step.counter] -= step.n
        elif isinstance(step, Compute):
            self._compute(step.op, site, values)
        else:
            assert isinstance(step, Fence)

    def _sites(self, rect: Rect, values: Values) -> list[tuple[int, int]]:
        x0, x1, y0, y1 = self._box(rect, values)
        return [(x, y) for y in range(y0, y1) for x in range(x0, x1)]

    def _receivers(self, name: str, site) -> list[tuple[int, int]]:
        kind = self.fifos[name].kind
        if (
            self.level < PHASES.index("PLACED")
            or self.level >= PHASES.index("SYNCHRONIZED")
            or not kind.startswith("MULTICAST")
        ):
            return [site]
        rects = [g.rect for g in self.shape.groups for s in g.stages if Front(name) in _flat(s.body)]
        x0, x1, y0, y1 = self._box(rects[0], {})
        return (
            [(x, site[1]) for x in range(x0, x1)] if kind == "MULTICAST_ROW" else [(site[0], y) for y in range(y0, y1)]
        )

    # --- memory -------------------------------------------------------------------------------------------------------

    def _region(self, step, site, values) -> tuple | None:
        extents, index = self.extents[step.tensor], []
        for start, size, extent in zip(step.window.start, step.window.size, extents, strict=True):
            if isinstance(start, Indirect):
                at = int(self.held[site, start.via][0, start.index[0].evaluate(values)])
            else:
                at = start.evaluate(values)
            assert at >= 0
            if at >= extent:
                return None
            index.append(slice(at, min(at + size, extent)))
        return tuple(index)

    def _load(self, step, site, values) -> None:
        region = self._region(step, site, values)
        if region is not None:
            part = self._matrix(self.bound[step.tensor][region], step.window.row)
            row = step.row.evaluate(values)
            self.reserved[site, step.fifo][row : row + part.shape[0], : part.shape[1]] = part

    def _store(self, step, site, values) -> None:
        region = self._region(step, site, values)
        if region is None:
            return
        part = self.bound[step.tensor][region]
        rows, cols = self._matrix(part, step.window.row).shape
        part[...] = self.held[site, step.fifo][:rows, :cols].reshape(part.shape)
        self.writes[step.tensor][region] += 1

    def _matrix(self, part: np.ndarray, row: int) -> np.ndarray:
        return part.reshape(1 if row < 0 else part.shape[row], part.shape[-1])

    def _buffer(self, name: str, site) -> np.ndarray:
        for place in (self.held, self.reserved, self.carries):
            if (site, name) in place:
                return place[site, name]
        carry = next(c for c in self.shape.carries if c.name == name)
        self.carries[site, name] = np.full((carry.rows, carry.cols), np.nan)
        return self.carries[site, name]

    # --- compute ------------------------------------------------------------------------------------------------------

    def _compute(self, op, site, values) -> None:
        if any(span_length(span, values) == 0 for span in op.guard):
            return
        rows, cols = span_length(op.rows, values), span_length(op.cols, values)
        if not rows or not cols:
            return
        r, c = op.dst.row.evaluate(values), op.dst.col.evaluate(values)
        target = self._buffer(op.dst.name, site)
        assert r + rows <= target.shape[0]
        assert c + cols <= target.shape[1]
        if isinstance(op, Generic):
            target[r : r + rows, c : c + cols] = self._generic(op, site, values, rows, cols)
        else:
            target[r : r + rows, c : c + cols] += self._product(op, site, values, rows, cols)

    def _generic(self, op: Generic, site, values, rows: int, cols: int) -> np.ndarray:
        points = {**values, "LV_GEN_ROW": np.arange(rows)[:, None, None], "LV_GEN_COL": np.arange(cols)[None, :, None]}
        return np.broadcast_to(self._value(op.expr, site, points), (rows, cols, 1))[:, :, 0]

    def _product(self, op: MatmulTiles, site, values, rows: int, cols: int) -> np.ndarray:
        k = span_length(op.k, values)
        a, b = self._at(op.a, site, values, rows, k), None
        b = self._at(op.b, site, values, cols, k).T if op.transposed else self._at(op.b, site, values, k, cols)
        return a @ b

    def _at(self, ref, site, values, rows: int, cols: int) -> np.ndarray:
        r, c = ref.row.evaluate(values), ref.col.evaluate(values)
        part = self._buffer(ref.name, site)[r : r + rows, c : c + cols]
        assert part.shape == (rows, cols)
        return part

    def _value(self, expr: Expr, site, points):
        if isinstance(expr, Const):
            return np.float64(expr.value)
        if isinstance(expr, Var):
            return np.asarray(expr.value.evaluate(points), float)
        if isinstance(expr, At):
            row, col = (np.asarray(i.evaluate(points)) for i in expr.index)
            assert row.min() >= 0
            assert col.min() >= 0
            return self._buffer(expr.name, site)[row, col]
        if isinstance(expr, Reduce):
            count = expr.extent.evaluate(points)
            inner = self._value(expr.body, site, {**points, expr.var: np.arange(count)[None, None, :]})
            return (np.sum if expr.kind == "SUM" else np.max)(np.asarray(inner), axis=2, keepdims=True)
        assert isinstance(expr, Fn)
        return _FUNCTIONS[expr.op](*(self._value(a, site, points) for a in expr.args))


def _flat(body) -> list:
    return [s for node in body for s in (_flat(node.body) if isinstance(node, Loop) else [node])]


def run(program: Program, tensors: dict[str, np.ndarray], symbols: Values | None = None) -> Machine:
    """Run the program once; outputs are written in `tensors`, every element of them exactly once."""
    machine = Machine(program, tensors, symbols or {})
    machine.run()
    assert not machine.reserved
    assert not machine.held
    assert not any(machine.queues.values())
    assert not any(machine.counters.values())
    for formal in machine.shape.formals:
        if formal.role == "OUT":
            assert (machine.writes[formal.name] == 1).all(), f"{formal.name} is not stored exactly once"
    return machine


__all__ = ["Machine", "Stuck", "run"]
