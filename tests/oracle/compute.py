"""What steps do to bytes: transfers between slots and tensors, ops on slots and carries.

What is stored is compared with the specs at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from pavane.ir.expr import At, Indirect, names, walk
from pavane.ir.program import (
    Compute,
    Formal,
    Generic,
    Init,
    Load,
    Program,
    Ref,
    Send,
    Shape,
    Span,
    Store,
    Window,
)
from pavane.ir.types import block_elements, row_bytes
from tests.oracle import sums
from tests.oracle.cells import CELL, Cells, constants
from tests.oracle.chip import taken_as
from tests.oracle.comparison import require_same, rounding_scale
from tests.oracle.expand import Action, Context, sites_of
from tests.oracle.expressions import RANGE, Scope, over, value_of
from tests.oracle.figures import require_finite, require_in_f32
from tests.oracle.laws import Laws
from tests.oracle.meaning import Expected, extents
from tests.oracle.rounding import claims_exactness, held, summed
from tests.oracle.spaces import Box, Fault, Space

if TYPE_CHECKING:
    from tests.oracle.machine import Machine, Slot


class Effects:
    """Tensors of one run and what the current epoch must store."""

    def __init__(
        self, program: Program, tensors: dict[str, tuple[Space | None, int]], symbols: dict[str, int], laws: Laws
    ) -> None:
        self.program, self.tensors, self.symbols, self.laws = program, tensors, symbols, laws
        self.rounds = claims_exactness(program)
        self.expected: list[dict[str, Expected]] = []
        self.stored: dict[tuple[int, str], np.ndarray] = {}
        self.summed: dict[tuple, list[sums.Part]] = {}

    def spaces(self) -> Iterable[Space]:
        return {id(space): space for space, _ in self.tensors.values() if space is not None}.values()

    def expect(self, symbols: dict[str, int], expected: list[dict[str, Expected]]) -> None:
        self.symbols, self.expected, self.stored = symbols, expected, {}

    def require_all_stored(self) -> None:
        for index, outputs in enumerate(self.expected):
            for formal, want in outputs.items():
                counts = self.stored.get((index, formal), np.zeros(want.mask.shape, int))
                if (counts != want.mask).any():
                    wrong = int((counts != want.mask).sum())
                    raise Fault(f"lost or double write: {wrong} elements of {formal} of instance {index}")

    def run(self, machine: Machine, i: int, action: Action) -> list:
        step = action.step
        if isinstance(step, Load):
            return self._load(machine, i, action)
        if isinstance(step, Store):
            return self._store(machine, i, action)
        if isinstance(step, Send):
            return self._send(machine, i, action)
        if isinstance(step, Init):
            return self._init(machine, i, action)
        return self._compute(machine, i, action)

    def forget_carries(self, machine: Machine, i: int, action: Action) -> None:
        names = _names(action.context.process.body)
        for carry in action.context.shape.carries:
            if carry.name in names:
                for space, address in machine.carry(action.context, machine.tasks[i].site, carry.name).rows:
                    space.owner[address : address + row_bytes(carry.dtype, carry.cols)] = -1

    # --- transfers ---

    def _load(self, machine: Machine, i: int, action: Action) -> list:
        step, site = action.step, machine.tasks[i].site
        queue = machine.queue(action.context, site, step.fifo)
        if not queue.reserved:
            raise Fault(f"misuse: a load into {step.fifo} without a slot")
        slot, formal = queue.filling, _formal(action.context, step.tensor)
        if slot.dtype != formal.dtype or formal.role == "OUT":
            raise Fault(f"misuse: {step.tensor} is loaded into {step.fifo}")
        touches: list = []
        starts, through = self._starts(machine, i, action, step.window, touches)
        space, bases, col, cols = self._window(action, formal, step.window, starts)
        row = step.row.evaluate(action.env)
        slot.origin = slot.origin or (tuple(starts), step.window.row)
        slot.formal = step.tensor
        if not bases or not cols:
            return touches
        if row < 0 or row + len(bases) > len(slot.rows) or cols > slot.width:
            raise Fault(f"out of bounds: a load of {len(bases)} x {cols} at row {row} of {step.fifo}")
        space = space or machine.memory(site)
        source = Box(space, tuple(bases), col, cols, formal.dtype)
        if slot.alias:
            if row or any(slot.rows):
                raise Fault(f"misuse: the alias {step.fifo} is bound to more than one window")
            for r, base in enumerate(bases):
                slot.rows[row + r] = (space, base + _offset(formal.dtype, col))
                slot.shown[row + r] = cols
            slot.through = through
            return [*touches, (space, source.covered, False, queue.alias_thread)]
        thread = machine.task_count + i
        target = _box(slot, row, len(bases), 0, cols)
        target.write(self._through(through, source.read(f"a load of {step.tensor}")))
        return [*touches, (space, source.covered, False, thread), (target.space, target.covered, True, thread)]

    def _store(self, machine: Machine, i: int, action: Action) -> list:
        step, site = action.step, machine.tasks[i].site
        queue = machine.queue(action.context, site, step.fifo)
        if not queue.held:
            raise Fault(f"misuse: a store from {step.fifo} without a slot")
        slot, formal = queue.front, _formal(action.context, step.tensor)
        if slot.dtype != formal.dtype or formal.role == "IN":
            raise Fault(f"misuse: {step.fifo} is stored to {step.tensor}")
        touches: list = []
        starts, _ = self._starts(machine, i, action, step.window, touches)
        space, bases, col, cols = self._window(action, formal, step.window, starts)
        if not bases or not cols:
            return touches
        if len(bases) > len(slot.rows) or cols > slot.width:
            raise Fault(f"out of bounds: a store of {len(bases)} x {cols} from {step.fifo}")
        thread = machine.task_count + i
        source = _box(slot, 0, len(bases), 0, cols)
        values = self._through(slot.through, source.read(f"a store to {step.tensor}"))
        touches.append((source.space, source.covered, False, thread))
        meant = self._compare(action.context, formal, step.window, starts, values)
        values = held(meant, formal.dtype) if self.rounds else values  # equal terms: the same number to the last bit
        for place in [space] if space is not None else machine.all_memories():
            target = Box(place, tuple(bases), col, cols, formal.dtype)
            target.write(values)
            touches.append((place, target.covered, True, thread))
        return touches

    def _compare(self, context: Context, formal: Formal, window: Window, starts: list[int], values: Cells) -> Cells:
        """With what the spec says, which is returned."""
        want = self.expected[context.index].get(formal.name)
        if want is None:
            raise Fault(
                f"wrong place: {formal.name} of instance {context.index} is stored, its spec says nothing of it"
            )
        part: list = [slice(s, s + 1) for s in starts]
        part[-1] = slice(starts[-1], starts[-1] + values.shape[1])
        if window.row >= 0:
            part[window.row] = slice(starts[window.row], starts[window.row] + values.shape[0])
        counts = self.stored.setdefault((context.index, formal.name), np.zeros(want.mask.shape, int))
        counts[tuple(part)] += 1
        wanted = want.values[tuple(part)].reshape(values.shape)
        where = f"{formal.name} of instance {context.index}"
        if not want.mask[tuple(part)].all():
            raise Fault(f"wrong place: {where} is stored at {starts}, of which its spec says nothing")
        scale = rounding_scale(want.values, context.shape.numerics.exact)
        require_same(values, wanted, scale, self.laws.record, f"{where}, stored at {starts}")
        return wanted

    def _send(self, machine: Machine, i: int, action: Action) -> list:
        step, site, thread = action.step, machine.tasks[i].site, machine.task_count + i
        queue = machine.queue(action.context, site, step.fifo)
        if not queue.reserved or queue.fifo.kind == "ALIAS":
            raise Fault(f"misuse: a send of {step.fifo} without a slot")
        source = queue.filling
        touches = [(*_whole(source), False, thread)]
        grid = machine.target.grid
        for place in sites_of(step.to, action.env):
            if not (0 <= place[0] < grid.width and 0 <= place[1] < grid.height) or place == site:
                raise Fault(f"multicast: a send to {place}")
            other = machine.queue(action.context, place, step.fifo)
            if not other.reserved:
                raise Fault(f"multicast: a send of {step.fifo} into a slot of {place} that nobody has reserved")
            sink = other.filling
            _copy(source, sink)
            touches.append((*_whole(sink), True, thread))
        return touches

    # --- windows ---

    def _starts(
        self, machine: Machine, i: int, action: Action, window: Window, touches: list
    ) -> tuple[list[int], list[Cells]]:
        """Where a window begins, and the elements that are indices of it."""
        starts, through = [], []
        for start in window.start:
            if not isinstance(start, Indirect):
                starts.append(start.evaluate(action.env))
                continue
            queue = machine.queue(action.context, machine.tasks[i].site, start.via)
            if not queue.held:
                raise Fault(f"misuse: an index through {start.via}, which is not held")
            slot = queue.front
            element = [q.evaluate(action.env) for q in start.index]
            first, row_dimension = slot.origin or ((0,) * len(element), -1)
            row = element[row_dimension] - first[row_dimension] if row_dimension >= 0 and len(element) > 1 else 0
            box = _box(slot, row, 1, element[-1] - first[-1], 1)
            cell = self._through(slot.through, box.read("an index"))[0, 0]
            value = int(cell["number"])
            touches.append((box.space, box.covered, False, -1))
            if slot.formal != start.tensor or not start.lo <= value < start.hi:
                raise Fault(f"out of bounds: an index {value} of {slot.formal}, which is said to be {start.tensor}")
            starts.append(value)
            through.append(cell)
        return starts, through

    def _through(self, indices: list[Cells], values: Cells) -> Cells:
        for index in indices:
            values = self.laws.through(index, values)
        return values

    def _window(
        self, action: Action, formal: Formal, window: Window, starts: list[int]
    ) -> tuple[Space | None, list[int], int, int]:
        """(space, addresses of the rows at column 0, first column, columns), clipped; no rows where it is empty. No
        space: the tensor lies on every site.
        """
        shape = extents(formal.shape, self.symbols)
        if (
            len(shape) != len(starts)
            or len(window.size) != len(starts)
            or window.row >= len(shape) - 1
            or window.row < -1
        ):
            raise Fault(f"misuse: a window of {formal.name} has the wrong dimensions")
        sizes = [max(0, min(n, e - s)) for s, n, e in zip(starts, window.size, shape, strict=True)]
        if any(n != 1 for d, n in enumerate(window.size) if d not in (window.row, len(shape) - 1)):
            raise Fault(f"misuse: a window of {formal.name} is thick in a dimension beside rows and columns")
        binding = next((b for b in action.context.instance.bindings if b.formal == formal.name), None)
        if binding is None:
            raise Fault(f"misuse: {formal.name} is bound to nothing")
        space, base = self.tensors[binding.tensor]
        if any(n % block_elements(formal.dtype) for n in (starts[-1], window.size[-1], sizes[-1])):
            raise Fault(f"misuse: a window of {formal.name} cuts a block")
        if not all(sizes):
            return space, [], 0, 0
        if min(starts) < 0:
            raise Fault(f"out of bounds: a window of {formal.name} starts at {starts}")
        pitch = row_bytes(formal.dtype, shape[-1])
        lines = []
        for r in range(sizes[window.row] if window.row >= 0 else 1):
            line = 0
            for d in range(len(shape) - 1):
                line = line * shape[d] + starts[d] + (r if d == window.row else 0)
            lines.append(base + line * pitch)
        return space, lines, starts[-1], sizes[-1]

    # --- ops ---

    def _buffer(self, machine: Machine, i: int, context: Context, name: str, written: bool = False) -> Slot:
        if any(c.name == name for c in context.shape.carries):
            return machine.carry(context, machine.tasks[i].site, name)
        queue = machine.queue(context, machine.tasks[i].site, name)
        mine = machine.tasks[i].name
        filling, held = queue.reserved and mine in queue.pushers, queue.held and mine in queue.poppers
        if filling == held:
            raise Fault(f"misuse: {mine} {'holds two slots' if held else 'holds no slot'} of {name}")
        slot = queue.filling if filling else queue.front
        if written and slot.alias:
            raise Fault(f"misuse: {mine} writes the alias {name}")
        return slot

    def _init(self, machine: Machine, i: int, action: Action) -> list:
        slot = self._buffer(machine, i, action.context, action.step.carry, written=True)
        carry = next((c for c in action.context.shape.carries if c.name == action.step.carry), None)
        if carry is None:
            raise Fault(f"misuse: {action.step.carry} is no carry")
        box = _box(slot, 0, len(slot.rows), 0, slot.width)
        exact = action.context.shape.numerics.exact
        initial = np.broadcast_to(constants(carry.initial), (len(slot.rows), slot.width))
        _require_integers(initial["number"], slot.dtype, carry.name)
        require_finite(carry.initial, slot.dtype, f"what {carry.name} begins with")
        box.write(held(initial, slot.dtype) if exact else initial)
        self.summed.pop((machine.tasks[i].site, action.context.shape.name, carry.name), None)
        return [(box.space, box.covered, True, -1)]

    def _compute(self, machine: Machine, i: int, action: Action) -> list:
        op, env = action.step.op, action.env
        rows, cols = _length(op.rows, env), _length(op.cols, env)
        if isinstance(op, Generic):
            _require_whole_blocks(action.context.shape, op.dst, op.cols, cols, env)
        if any(_length(g, env) == 0 for g in op.guard):
            self._forget(machine, i, action, rows, cols)
            return []
        if not rows or not cols:
            return []
        touches: list = []
        exact = action.context.shape.numerics.exact
        slot = self._buffer(machine, i, action.context, op.dst.name, written=True)
        if isinstance(op, Generic):
            values = self._generic(machine, i, action, rows, cols, touches)
            self.summed.pop((machine.tasks[i].site, action.context.shape.name, op.dst.name), None)
        else:
            k = _length(op.k, env)
            b_rows, b_cols = (cols, k) if op.transposed else (k, cols)
            b_span = op.k if op.transposed else op.cols
            for ref, columns, count in ((op.a, op.k, k), (op.b, b_span, b_cols)):
                _require_whole_blocks(action.context.shape, ref, columns, count, env)
            self._require_order(machine, i, action, (rows, cols, k))
            a = self._operand(machine, i, action, op.a, rows, k, touches)
            b = self._operand(machine, i, action, op.b, b_rows, b_cols, touches)
            if op.dst.name in (op.a.name, op.b.name):
                raise Fault("misuse: a product reads its own destination")
            old = self._operand(machine, i, action, op.dst, rows, cols, touches)
            _, added = self.laws.product(("r", "k"), a, ("c", "k") if op.transposed else ("k", "c"), b, "k")
            total = summed(op, old["number"], a["number"], b["number"]) if exact else old["number"] + added["number"]
            values = self.laws.function("add", [old, added], total)
        box = _box(slot, op.dst.row.evaluate(env), rows, op.dst.col.evaluate(env), cols)
        _require_integers(values["number"], slot.dtype, op.dst.name)
        box.write(held(values, slot.dtype) if exact else values)
        return [*touches, (box.space, box.covered, True, -1)]

    def _require_order(self, machine: Machine, i: int, action: Action, lengths: tuple[int, int, int]) -> None:
        op, context = action.step.op, action.context
        a, b = (self._buffer(machine, i, context, ref.name) for ref in (op.a, op.b))
        new = sums.part_of(op, a, b, lengths, action.env)
        if new is not None:
            before = self.summed.setdefault((machine.tasks[i].site, context.shape.name, op.dst.name), [])
            sums.add(before, new, op, context.shape.numerics.exact)

    def _forget(self, machine: Machine, i: int, action: Action, rows: int, cols: int) -> None:
        """What an op would have assigned, had its guard not been empty, is not there for those without that guard."""
        op, env = action.step.op, action.env
        if not (isinstance(op, Generic) and rows and cols) or op.dst.name in names(op.expr):
            return
        slot = self._buffer(machine, i, action.context, op.dst.name, written=True)
        row, col = op.dst.row.evaluate(env), op.dst.col.evaluate(env)
        if min(row, col) >= 0 and row + rows <= len(slot.rows) and col + cols <= slot.width:
            _box(slot, row, rows, col, cols).forget()

    def _operand(
        self, machine: Machine, i: int, action: Action, ref: Ref, rows: int, cols: int, touches: list
    ) -> Cells:
        slot = self._buffer(machine, i, action.context, ref.name)
        if not rows or not cols:
            return np.zeros((rows, cols), CELL)
        row, col = ref.row.evaluate(action.env), ref.col.evaluate(action.env)
        box = _box(slot, row, rows, col, cols)
        touches.append((box.space, box.covered, False, -1))
        out = self._through(slot.through, box.read(ref.name))
        if not action.context.shape.numerics.exact:
            return out
        taken = taken_as(action.context.shape, ref.name, slot.dtype)
        return held(out, taken) if block_elements(taken) == 1 else out

    def _generic(self, machine: Machine, i: int, action: Action, rows: int, cols: int, touches: list) -> Cells:
        op, env = action.step.op, action.env
        own = {op.dst.name: (op.dst.row.evaluate(env), op.dst.col.evaluate(env))}

        def read(at: At, indices: tuple[np.ndarray, ...]) -> Cells:
            slot = self._buffer(machine, i, action.context, at.name)
            if len(indices) != 2:
                raise Fault(f"misuse: {at.name} is read with {len(indices)} indices")
            r, c = indices
            if not r.size:
                return np.zeros(r.shape, CELL)
            r0, c0 = int(r.min()), int(c.min())
            box = _box(slot, r0, int(r.max()) - r0 + 1, c0, int(c.max()) - c0 + 1)
            touches.append((box.space, box.covered, False, -1))
            if not box.present()[r - r0, c - c0].all():
                raise Fault(f"unwritten or garbled bytes: an op reads {at.name}")
            found = self._through(slot.through, box.space.value[box.cells[r - r0, c - c0]])
            if slot.dtype == "i32" and at is not op.expr:
                require_in_f32(found["number"], f"an element of {at.name}")
            return found

        for node in walk(op.expr):
            if isinstance(node, At) and node.name in own:
                _require_same_place(node, op, env, own[op.dst.name], rows, cols)
        scope = Scope(self.laws, {"LV_GEN_ROW": rows, "LV_GEN_COL": cols}, env, read, single=True)
        return over(value_of(op.expr, scope), ("LV_GEN_ROW", "LV_GEN_COL"), (rows, cols))


def _require_integers(values: np.ndarray, dtype: str, name: str) -> None:
    """An integer type holds the integers of its range and nothing else."""
    if dtype in RANGE:
        low, high = RANGE[dtype]
        if not ((values == np.trunc(values)) & (values >= low) & (values <= high)).all():
            raise Fault(f"wrong value: {name} of {dtype} does not hold what is assigned to it")


def _require_whole_blocks(shape: Shape, ref: Ref, columns: Span, count: int, env: dict[str, int]) -> None:
    """Columns that are written or multiplied in blocks begin and end at whole ones, whether they are clipped, or any
    are left.
    """
    dtype = next(b.dtype for b in (*shape.fifos, *shape.carries) if b.name == ref.name)
    if any(edge % block_elements(dtype) for edge in (ref.col.evaluate(env), columns.size, count)):
        raise Fault(f"misuse: {count} of {columns.size} columns at {ref.col.evaluate(env)} of {ref.name} cut a block")


def _require_same_place(
    at: At, op: Generic, env: dict[str, int], origin: tuple[int, int], rows: int, cols: int
) -> None:
    for r in {0, rows - 1}:
        for c in {0, cols - 1}:
            point = {**env, "LV_GEN_ROW": r, "LV_GEN_COL": c, "LV_GEN_K": 0}
            if tuple(q.evaluate(point) for q in at.index) != (origin[0] + r, origin[1] + c) or "LV_GEN_K" in {
                v for q in at.index for v in q.variables()
            }:
                raise Fault("misuse: a Generic reads its own destination elsewhere")


# --- slots ---


def _box(slot: Slot, row: int, rows: int, col: int, cols: int) -> Box:
    """A part of a slot that lies in one space."""
    if row < 0 or col < 0 or row + rows > len(slot.rows) or col + cols > slot.width:
        raise Fault(f"out of bounds: {rows} x {cols} at ({row}, {col}) of a slot of {len(slot.rows)} x {slot.width}")
    part = slot.rows[row : row + rows]
    if any(p is None or (slot.alias and slot.shown[row + r] < col + cols) for r, p in enumerate(part)):
        raise Fault("unwritten or garbled bytes: an alias is read where it shows nothing")
    return Box(part[0][0], tuple(address for _, address in part), col, cols, slot.dtype)


def _whole(slot: Slot) -> tuple[Space, np.ndarray]:
    space, address = slot.rows[0]
    return space, np.arange(address, address + len(slot.rows) * row_bytes(slot.dtype, slot.width))


def _copy(source: Slot, sink: Slot) -> None:
    (one, bytes_one), (other, bytes_other) = _whole(source), _whole(sink)
    other.value[_cells(bytes_other)] = one.value[_cells(bytes_one)]
    shift = bytes_other[0] - bytes_one[0]
    owner = one.owner[bytes_one]
    other.owner[bytes_other] = np.where(owner >= 0, owner + shift, -1)
    other.kind[bytes_other] = one.kind[bytes_one]
    sink.origin, sink.formal = source.origin, source.formal


def _cells(covered: np.ndarray) -> slice:
    return slice(2 * int(covered[0]), 2 * int(covered[-1]) + 2)


def _offset(dtype: str, col: int) -> int:
    return row_bytes(dtype, col)


def _length(span: Span, env: dict[str, int]) -> int:
    start, limit = span.start.evaluate(env), span.limit.evaluate(env)
    return max(0, min(span.size, limit - start))


def _formal(context: Context, name: str) -> Formal:
    formal = next((f for f in context.shape.formals if f.name == name), None)
    if formal is None:
        raise Fault(f"misuse: no formal {name}")
    return formal


def _names(body: tuple) -> set[str]:
    out: set[str] = set()
    for node in body:
        if hasattr(node, "body"):
            out |= _names(node.body)
        elif isinstance(node, Init):
            out.add(node.carry)
        elif isinstance(node, Compute):
            out.add(node.op.dst.name)
    return out
