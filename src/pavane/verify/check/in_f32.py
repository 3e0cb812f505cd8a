"""Numbers: what a Generic computes with is held exactly by f32, in which it computes. Part of `numerics`.

Types of buffers round what they are given, which is stated, and each but i32 holds no more than f32 does. Whole numbers
could be rounded besides: an index expression that stands as a number (a position in a mask), an element of i32 (or a
copy of one) that is not just copied, and what is added, subtracted and multiplied of them. So all are at most 2**24, by
the ranges of the variables and by the fill of the formal: else two positions, or two indices, that differ could be
compared as equal. A constant is rounded as any other number, but becomes neither infinite nor a whole number (0 too) or
a half that it is not: a comparison, a cast or a round would come out otherwise.
"""

from __future__ import annotations

from ctypes import c_float

from pavane.ir.expr import At, Const, Expr, Fn, Reduce, Var, children, walk
from pavane.ir.program import LV_GEN_COL, LV_GEN_ROW, Generic
from pavane.ir.quasi import Domain, lower, upper
from pavane.ir.types import INTEGER_RANGE, SIGNIFICAND_BITS
from pavane.reject import NumericsRefused
from pavane.targets.fidelity import largest_magnitude
from pavane.verify.check.scope import LARGEST_F32
from pavane.verify.check.section import Section
from pavane.verify.check.values import Computed

_MOST, _MOST_I8 = 1 << SIGNIFICAND_BITS["f32"], -INTEGER_RANGE["i8"][0]


def numbers(section: Section, computed: Computed) -> None:
    """Refuse a Generic that computes with what f32 may not hold."""
    op, place = computed.op, computed.place
    if not isinstance(op, Generic):
        return
    domain = place.domain.with_loop(LV_GEN_ROW, op.rows.size).with_loop(LV_GEN_COL, op.cols.size)
    for node in walk(op.expr):
        if isinstance(node, Reduce):
            domain = domain.with_loop(node.var, node.extent)
        elif isinstance(node, Const):
            _constant(node.value, place.where)
    if not isinstance(op.expr, At):
        _whole(section, computed, op.expr, domain)


def _whole(section: Section, computed: Computed, node: Expr, domain: Domain) -> int | None:
    """The greatest magnitude of a whole number, which f32 holds; None of what is none, or a constant of many bits."""
    where = computed.place.where
    parts = [_whole(section, computed, child, domain) for child in children(node)]
    if isinstance(node, Var):
        return _held(max(upper(node.value, domain), -lower(node.value, domain)), str(node.value), where)
    if isinstance(node, At):
        return _element(section, computed, node)
    if isinstance(node, Const):
        return abs(int(node.value)) if node.value.is_integer() and abs(node.value) <= _MOST else None
    if isinstance(node, Reduce):
        turns = upper(node.extent, domain) if node.kind == "SUM" else 1
        return None if parts[0] is None else _held(max(turns, 0) * parts[0], "a sum of whole numbers", where)
    return _result(node, parts, where)


def _element(section: Section, computed: Computed, node: At) -> int | None:
    dtype, term = section.buffer(node.name).dtype, computed.operands[node.name]
    copied = isinstance(term, At) and section.formals[term.name].dtype == "i32"
    if dtype != "i32" and not copied:
        return _MOST_I8 if dtype == "i8" else None
    most = largest_magnitude(section.formals[term.name].fill) if isinstance(term, At) else None
    return _held(most, f"an element of {node.name}", computed.place.where)


def _result(node: Fn, parts: list[int | None], where: str) -> int | None:
    """What an operator makes of whole numbers and others."""
    known = [part for part in parts if part is not None]
    if node.op in ("eq", "lt", "le"):
        return 1
    if node.op in ("min", "max", "select"):  # one of the two; beside a float a constant is one
        both = list(zip(node.args, parts, strict=True))[-2:]
        floats = any(part is None for _, part in both)
        return max(
            (part for arg, part in both if part is not None and not (floats and isinstance(arg, Const))), default=None
        )
    if node.op == "cast" and node.dtype == "i8":
        return min((*known, _MOST_I8))
    if len(known) < len(parts):
        return None
    if node.op in ("add", "sub", "mul"):
        return _held(known[0] * known[1] if node.op == "mul" else sum(known), "a whole number", where)
    return known[0] if node.op in ("abs", "round", "cast") else None


def _constant(value: float, where: str) -> None:
    """Refuse one that f32 takes as infinite, as a whole number that it is not (0 too), or as a half that it is not."""
    if abs(value) > LARGEST_F32:
        raise NumericsRefused(f"the constant {value:g} is infinite in f32", where=where)
    taken = c_float(value).value
    if taken != value and (2 * taken).is_integer() and abs(taken) <= _MOST:
        raise NumericsRefused(f"the constant {value!r} is {taken:g} in f32", where=where)


def _held(greatest: int | None, what: str, where: str) -> int:
    if greatest is None or greatest > _MOST:
        what = f"{what} is taken as f32, which may not hold every value exactly"
        needed = "magnitudes that are not known" if greatest is None else f"magnitudes up to {greatest}"
        raise NumericsRefused(what, where=where, needed=needed, available=f"{_MOST}")
    return greatest
