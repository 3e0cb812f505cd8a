"""A Generic as code: a loop over its rows, and its columns 16 f32 at a time.

Each operator rounds once to f32, those on integers too: integer results are exact up to 2**24 in magnitude (a plain
copy always is). A SUM has one fixed tree: lane l of 16 adds the terms k = l (mod 16) in ascending k from 0, then the
lanes are added pairwise (l and l + 8, then halving); a MAX is free of order. `round` takes halves away from zero,
`cast` goes towards zero. Parts that do not depend on the column (or, inside a reduction, on k) are computed once before
the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pavane.ir.expr import At, Const, Expr, Fn, Reduce, Var, children, walk
from pavane.ir.program import LV_GEN_COL, LV_GEN_K, LV_GEN_ROW, Generic
from pavane.ir.quasi import Quasi
from pavane.ir.types import INTEGER_RANGE, MAGNITUDE_BITS, Q8_BLOCK, block_elements
from pavane.native.block_floats import store_block_float
from pavane.native.elements import byte_offset, gather_lanes, load_element, load_lanes, store_block, store_lanes
from pavane.native.functions import FUNCTIONS, apply_function, f32_text
from pavane.native.index import Scope, emit_guards, emit_index, emit_lanes, emit_length, lane_offsets, moves_by_one
from pavane.native.outside import outside
from pavane.native.panels import store_panel_block
from pavane.native.text import F32, I64, IOTA, LANES, MASK, Code, halving_sums, shuffle

_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARISON = {"eq": "oeq", "lt": "olt", "le": "ole"}
_ALL = "<" + ", ".join(["i1 true"] * LANES) + ">"


class Operand(NamedTuple):
    """A slot or a carry in memory: its first byte, and the bytes from row to row.

    `packed`: the bytes are a packed weight's (`packing`). `panel`: a panel whose rows have so many columns (`panels`).
    """

    dtype: str
    base: str
    row_bytes: int
    packed: bool = False
    panel: int = 0


Resolve = Callable[[str], Operand]


class _Point(NamedTuple):
    """Where an expression is evaluated: 16 values of `variable` from `start` on (None: one point), `mask` of them
    wanted.
    """

    scope: Scope
    variable: str | None = None
    start: str = "0"
    mask: str | None = None


def emit_generic(code: Code, op: Generic, resolve: Resolve, destination: Operand, scope: Scope) -> None:
    """The op at the point of the loops around it that `scope` gives."""
    rows, columns = emit_length(code, op.rows, scope), emit_length(code, op.cols, scope)
    condition = code.value(f"icmp sgt i64 {columns}, 0")
    guards = emit_guards(code, op.guard, scope)
    if guards is not None:
        condition = code.value(f"and i1 {condition}, {guards}")
    if destination.dtype == "i32" and isinstance(op.expr, At) and resolve(op.expr.name).dtype == "i32":
        resolve, destination = _as_words(resolve), destination._replace(dtype="f32")
    writer = _Writer(code, op, resolve, destination, scope)
    with code.when(condition), code.loop(rows) as row:
        writer.row(row, columns)


def _as_words(resolve: Resolve) -> Resolve:
    """Operands as 32 bits each, whatever they mean: a copy of integers keeps those that no f32 holds."""
    return lambda name: resolve(name)._replace(dtype="f32")


class _Writer:
    """The body of a Generic's loop over rows."""

    def __init__(self, code: Code, op: Generic, resolve: Resolve, destination: Operand, scope: Scope) -> None:
        self.code, self.op, self.resolve, self.destination, self.scope = code, op, resolve, destination, scope

    def row(self, row: str, columns: str) -> None:
        """Row `row` of the op's rows, over its `columns`."""
        code, op = self.code, self.op
        scope = {**self.scope, LV_GEN_ROW: row}
        target = code.add(emit_index(code, op.dst.row, scope), row)
        pointer = code.at(self.destination.base, code.mul(target, self.destination.row_bytes))
        known: dict[Expr, str] = {}
        self._hoist(op.expr, LV_GEN_COL, _Point(scope), known)
        with code.loop(columns, step=Q8_BLOCK if self.destination.dtype == "q8_0" else LANES) as column:
            place = code.add(emit_index(code, op.dst.col, scope), column)
            self._store(pointer, place, column, columns, partial(self._columns, scope, columns, known))

    def _store(self, row: str, place: str, column: str, columns: str, value: Callable[[str, str | None], str]) -> None:
        """What is at a column and the next 15 (31) goes to that place of the row; `value` takes a column and a mask."""
        code, dtype, panel = self.code, self.destination.dtype, self.destination.panel
        if dtype == "q8_0":
            halves = [value(code.add(column, str(half)), None) for half in (0, LANES)]
            if panel:
                store_panel_block(code, row, place, panel, *halves)
            else:
                store_block(code, row, place, *halves)
        elif dtype in MAGNITUDE_BITS:
            target = code.at(row, byte_offset(code, dtype, place))
            store_block_float(code, dtype, target, value(column, None))
        else:
            mask = code.mask(code.sub(columns, column))
            store_lanes(code, dtype, row, place, value(column, mask), mask)

    def _columns(self, scope: Scope, columns: str, known: dict[Expr, str], start: str, mask: str | None) -> str:
        """The expression at 16 columns from `start` on; there are `columns`."""
        point = _Point(scope, LV_GEN_COL, start, mask)
        reduction = next((e for e in walk(self.op.expr) if isinstance(e, Reduce)), None)
        if reduction is not None and mentions(reduction, LV_GEN_COL):
            known = {**known, reduction: self._reduce_each(reduction, scope, start, columns)}
        return self._value(self.op.expr, point, known)

    def _reduce_each(self, reduction: Reduce, scope: Scope, start: str, columns: str) -> str:
        """A reduction that depends on the column: one column after the other."""
        code = self.code
        values = code.slot(F32)
        code.store(F32, "zeroinitializer", values, 64)
        with code.loop(code.least(code.sub(columns, start), str(LANES))) as lane:
            point = _Point({**scope, LV_GEN_COL: code.add(start, lane)})
            total = code.value(f"extractelement {F32} {self._reduce(reduction, point, {})}, i64 0")
            code.store("float", total, code.at(values, code.mul(lane, 4)))
        return code.load(F32, values, 64)

    def _reduce(self, reduction: Reduce, point: _Point, known: dict[Expr, str]) -> str:
        code, summing = self.code, reduction.kind == "SUM"
        identity = code.splat("float", LANES, "0.0" if summing else f32_text(float("-inf")))
        lanes = code.slot(F32)
        code.store(F32, identity, lanes, 64)
        extent = emit_index(code, reduction.extent, point.scope)
        with code.when(code.value(f"icmp sgt i64 {extent}, 0")):
            inside = dict(known)
            self._hoist(reduction.body, LV_GEN_K, point, inside)
            with code.loop(extent, step=LANES) as k:
                mask = code.mask(code.sub(extent, k))
                term = self._value(reduction.body, _Point(point.scope, LV_GEN_K, k, mask), inside)
                term = code.value(f"select {MASK} {mask}, {F32} {term}, {F32} {identity}")
                before = code.load(F32, lanes, 64)
                after = self._add(before, term) if summing else self._larger(term, before)
                code.store(F32, after, lanes, 64)
        total = code.load(F32, lanes, 64)
        if summing:
            return code.splat(
                "float", LANES, code.value(f"extractelement <1 x float> {halving_sums(code, [total], LANES)}, i64 0")
            )
        for half in (8, 4, 2, 1):  # every lane meets the one so far away: all have the greatest
            picks = [lane ^ half for lane in range(LANES)]
            total = self._larger(shuffle(code, "float", LANES, total, "poison", picks), total)
        return total

    def _add(self, a: str, b: str) -> str:
        return self.code.value(f"fadd {F32} {a}, {b}")

    def _larger(self, a: str, b: str) -> str:
        return self.code.value(f"select {MASK} {self.code.value(f'fcmp ogt {F32} {a}, {b}')}, {F32} {a}, {F32} {b}")

    def _hoist(self, expr: Expr, variable: str, point: _Point, known: dict[Expr, str]) -> None:
        """Compute the largest parts that do not depend on `variable`."""
        if isinstance(expr, Const) or expr in known:
            return
        if not mentions(expr, variable):
            known[expr] = self._value(expr, point, known)
            return
        if not isinstance(expr, Reduce):
            for child in children(expr):
                self._hoist(child, variable, point, known)

    def _value(self, expr: Expr, point: _Point, known: dict[Expr, str]) -> str:
        if expr in known:
            return known[expr]
        if isinstance(expr, Const):
            return self.code.splat("float", LANES, f32_text(expr.value))
        if isinstance(expr, Var):
            return self._variable(expr.value, point)
        if isinstance(expr, At):
            return self._operand(expr, point)
        if isinstance(expr, Reduce):
            return self._reduce(expr, point, known)
        return self._function(expr, point, known)

    def _variable(self, value: Quasi, point: _Point) -> str:
        code = self.code
        if point.variable is None or point.variable not in value.variables():
            number = code.value(f"sitofp i64 {emit_index(code, value, point.scope)} to float")
            return code.splat("float", LANES, number)
        return code.value(
            f"sitofp {I64} {emit_lanes(code, value, point.scope, point.variable, self._lanes(point))} to {F32}"
        )

    def _lanes(self, point: _Point) -> str:
        return self.code.value(f"add {I64} {self.code.splat('i64', LANES, point.start)}, {IOTA}")

    def _operand(self, expr: At, point: _Point) -> str:
        code, operand = self.code, self.resolve(expr.name)
        row, column = (_plain(i, expr.name) for i in expr.index)
        variable = point.variable
        if variable is None or variable not in (*row.variables(), *column.variables()):
            pointer = self._row(operand, row, point.scope)
            element = load_element(code, operand.dtype, pointer, emit_index(code, column, point.scope))
            return code.splat("float", LANES, element)
        if variable not in row.variables() and _consecutive(operand, column, variable):
            first = emit_index(code, column, {**point.scope, variable: point.start})
            return load_lanes(code, operand.dtype, self._row(operand, row, point.scope), first, point.mask)
        offsets = lane_offsets(column, variable)
        if variable not in row.variables() and offsets and block_elements(operand.dtype) == 1 and _near(offsets):
            first = emit_index(code, column, {**point.scope, variable: point.start})
            return self._nearby(operand.dtype, self._row(operand, row, point.scope), first, offsets, point.mask)
        lanes = self._lanes(point)
        rows, columns = (emit_lanes(code, q, point.scope, variable, lanes) for q in (row, column))
        mask = _ALL if point.mask is None else point.mask
        return gather_lanes(code, operand.dtype, operand.base, operand.row_bytes, rows, columns, mask)

    def _nearby(self, dtype: str, row: str, first: str, offsets: tuple[int, ...], mask: str | None) -> str:
        """Elements of one register's width, brought to their lanes; none is read that no wanted lane needs."""
        code, least = self.code, min(offsets)
        places = [offset - least for offset in offsets]
        needed_by = [places.index(place) if place in places else LANES for place in range(LANES)]
        touched = shuffle(code, "i1", LANES, _ALL if mask is None else mask, "zeroinitializer", needed_by)
        found = load_lanes(code, dtype, row, code.add(first, str(least)), touched)
        return shuffle(code, "float", LANES, found, "poison", places)

    def _row(self, operand: Operand, row: Quasi, scope: Scope) -> str:
        return self.code.at(operand.base, self.code.mul(emit_index(self.code, row, scope), operand.row_bytes))

    def _function(self, expr: Fn, point: _Point, known: dict[Expr, str]) -> str:
        code = self.code
        if expr.op == "select":
            mask = self._condition(expr.args[0], point, known)
            yes, no = (self._value(a, point, known) for a in expr.args[1:])
            return code.value(f"select {MASK} {mask}, {F32} {yes}, {F32} {no}")
        if expr.op in _COMPARISON:
            ones = code.splat("float", LANES, "1.0")
            return code.value(
                f"select {MASK} {self._condition(expr, point, known)}, {F32} {ones}, {F32} zeroinitializer"
            )
        values = [self._value(a, point, known) for a in expr.args]
        if expr.op in _ARITHMETIC:
            return code.value(f"{_ARITHMETIC[expr.op]} {F32} {values[0]}, {values[1]}")
        if expr.op in ("min", "max"):
            first = code.value(f"fcmp {'olt' if expr.op == 'min' else 'ogt'} {F32} {values[0]}, {values[1]}")
            return code.value(f"select {MASK} {first}, {F32} {values[0]}, {F32} {values[1]}")
        if expr.op in FUNCTIONS:
            return apply_function(code, expr.op, values[0])
        return self._rounding(expr, values[0])

    def _condition(self, expr: Expr, point: _Point, known: dict[Expr, str]) -> str:
        if isinstance(expr, Fn) and expr.op in _COMPARISON and expr not in known:
            left, right = (self._value(a, point, known) for a in expr.args)
            return self.code.value(f"fcmp {_COMPARISON[expr.op]} {F32} {left}, {right}")
        return self.code.value(f"fcmp une {F32} {self._value(expr, point, known)}, zeroinitializer")

    def _rounding(self, expr: Fn, value: str) -> str:
        intrinsic = {"abs": "fabs", "sqrt": "sqrt", "round": "round", "cast": "trunc"}[expr.op]
        result = self.code.call(f"llvm.{intrinsic}.v{LANES}f32", F32, f"{F32} {value}", F32)
        if expr.op != "cast":
            return result
        for how, bound in zip(("olt", "ogt"), INTEGER_RANGE[expr.dtype], strict=True):
            limit = self.code.splat("float", LANES, f32_text(bound))
            outside = self.code.value(f"fcmp {how} {F32} {result}, {limit}")
            result = self.code.value(f"select {MASK} {outside}, {F32} {limit}, {F32} {result}")
        return result


def mentions(expr: Expr, variable: str) -> bool:
    """Whether a variable occurs free."""
    if isinstance(expr, Var):
        return variable in expr.value.variables()
    if isinstance(expr, At):
        return any(variable in _plain(i, expr.name).variables() for i in expr.index)
    if isinstance(expr, Reduce):
        return variable in expr.extent.variables() or (variable != expr.var and mentions(expr.body, variable))
    return any(mentions(child, variable) for child in children(expr))


def _plain(index: object, name: str) -> Quasi:
    if not isinstance(index, Quasi):
        raise outside("a Generic reads an operand at an index read at run time", name)
    return index


def _near(offsets: tuple[int, ...]) -> bool:
    return max(offsets) - min(offsets) < LANES


def _consecutive(operand: Operand, column: Quasi, variable: str) -> bool:
    """16 neighbours in memory; of a type in blocks, 16 that begin at a multiple of 16."""
    if not moves_by_one(column, variable):
        return False
    rest = column - Quasi(0, ((1, variable),))
    return block_elements(operand.dtype) == 1 or all(n % LANES == 0 for n in (rest.const, *(c for c, _ in rest.terms)))
