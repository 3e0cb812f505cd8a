"""Numbers: what a Generic computes with is held exactly by f32, in which it computes. Part of `numerics`.

Types of buffers round what they are given, which is stated, and each but i32 holds no more than f32 does. Two things
could be rounded besides, on the way in: an index expression that stands as a number (a position in a mask), and an
element of i32 that is not just copied. So both are at most 2**24, by the ranges of the variables and by the fill of
the formal. Else two positions, or two indices, that differ could be compared as equal. A constant is rounded as any
other number, and is none that would become infinite.
"""

from __future__ import annotations

from pavane.ir.expr import At, Const, Reduce, Var, walk
from pavane.ir.program import LV_GEN_COL, LV_GEN_ROW, Generic
from pavane.ir.quasi import lower, upper
from pavane.ir.types import SIGNIFICAND_BITS
from pavane.reject import NumericsRefused
from pavane.targets.fidelity import largest_magnitude
from pavane.verify.check.scope import LARGEST_F32
from pavane.verify.check.section import Section
from pavane.verify.check.values import Computed

_MOST = 1 << SIGNIFICAND_BITS["f32"]


def numbers(section: Section, computed: Computed) -> None:
    """Refuse a Generic that computes with what f32 may not hold."""
    op, place = computed.op, computed.place
    if not isinstance(op, Generic):
        return
    domain = place.domain.with_loop(LV_GEN_ROW, op.rows.size).with_loop(LV_GEN_COL, op.cols.size)
    for node in walk(op.expr):
        if isinstance(node, Reduce):
            domain = domain.with_loop(node.var, node.extent)
        elif isinstance(node, Const) and abs(node.value) > LARGEST_F32:
            raise NumericsRefused(f"the constant {node.value:g} is infinite in f32", where=place.where)
        elif isinstance(node, Var):
            _held(max(upper(node.value, domain), -lower(node.value, domain)), str(node.value), place.where)
        elif isinstance(node, At) and node is not op.expr and section.buffer(node.name).dtype == "i32":
            _held(_greatest(section, computed, node.name), f"an element of {node.name}", place.where)


def _greatest(section: Section, computed: Computed, name: str) -> int | None:
    """The greatest magnitude in a buffer that holds a formal's elements."""
    term = computed.operands[name]
    return largest_magnitude(section.formals[term.name].fill) if isinstance(term, At) else None


def _held(greatest: int | None, what: str, where: str) -> None:
    if greatest is None or greatest > _MOST:
        raise NumericsRefused(
            f"{what} is taken as f32, which may not hold every value exactly",
            where=where,
            needed="magnitudes that are not known" if greatest is None else f"magnitudes up to {greatest}",
            available=f"{_MOST}",
        )
