"""What is known of a value from what is known of its operands: ranges of integers, by interval arithmetic.

A range is stated only where every engine keeps to it: integers up to 2**24, which f32 holds, and products of operands
up to 2**8, which every float mode multiplies in full. Anything else counts as unknown floats.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from pavane.ir.program import Tensor
from pavane.ir.types import INTEGER_DTYPES, INTEGER_RANGE, SIGNIFICAND_BITS, Const, Fill, Floats, Ints

LIMIT = 1 << 24
OPERAND_LIMIT = 1 << 8
_CORNERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
}


def held(fill: Fill, dtype: str) -> Fill:
    """What is still known after storing as `dtype`."""
    found, bits = integer_range(fill), SIGNIFICAND_BITS.get(dtype)
    if found is None or (dtype not in INTEGER_DTYPES and (bits is None or max(map(abs, found)) > 1 << bits)):
        return Floats()
    return fill


def integer_range(fill: Fill) -> tuple[int, int] | None:
    """[lo, hi] when every value is an integer."""
    if isinstance(fill, Ints):
        return fill.lo, fill.hi
    if isinstance(fill, Const) and float(fill.value).is_integer():
        return int(fill.value), int(fill.value)
    return None


def product_fill(a: Fill, b: Fill, k: int) -> Fill:
    """A sum of k products."""
    ranges = integer_range(a), integer_range(b)
    if any(r is None or max(abs(r[0]), abs(r[1])) > OPERAND_LIMIT for r in ranges):
        return Floats()
    return reduced_fill("SUM", applied_fill("mul", (a, b), ""), k)


def reduced_fill(kind: str, fill: Fill, extent: int) -> Fill:
    """SUM or MAX of `extent` values."""
    found = integer_range(fill)
    if found is None or kind == "MAX":
        return fill
    return _ints(found[0] * extent, found[1] * extent)


def applied_fill(op: str, fills: tuple[Fill, ...], dtype: str) -> Fill:
    """An element-wise operator."""
    if op in ("eq", "lt", "le"):
        return Ints(0, 1)
    ranges = [integer_range(f) for f in (fills[1:] if op == "select" else fills)]
    if op == "cast":
        lo, hi = INTEGER_RANGE[dtype]
        return Ints(lo, hi) if ranges[0] is None else Ints(_clamp(ranges[0][0], lo, hi), _clamp(ranges[0][1], lo, hi))
    if any(r is None for r in ranges):
        return Floats()
    known = [r for r in ranges if r is not None]
    if op == "select":
        return _ints(min(lo for lo, _ in known), max(hi for _, hi in known))
    if op == "round":
        return _ints(*known[0])
    if op == "abs":
        lo, hi = known[0]
        return _ints(0 if lo <= 0 <= hi else min(abs(lo), abs(hi)), max(abs(lo), abs(hi)))
    if op not in _CORNERS:
        return Floats()
    corners = [_CORNERS[op](a, b) for a, b in product(*known)]
    return _ints(min(corners), max(corners))


def _clamp(value: int, lo: int, hi: int) -> int:
    return max(lo, min(hi, value))


def _ints(lo: int, hi: int) -> Fill:
    return Ints(lo, hi) if max(abs(lo), abs(hi)) <= LIMIT else Floats()


def known_fill(tensor: Tensor) -> Fill:
    """What a section may rely on: values of INPUT and WEIGHT are checked at launch, others are not proven."""
    return tensor.fill if tensor.role in ("INPUT", "WEIGHT") else Floats()


def broken_promise(fill: Fill, values: np.ndarray) -> str:
    """How values are not what a fill says of them, in words; empty where they are. NaN breaks every promise."""
    if isinstance(fill, Floats) or not values.size:
        return ""
    low, high = (fill.lo, fill.hi) if isinstance(fill, Ints) else (fill.value, fill.value)
    numbers = values.astype(np.float64)
    least, greatest = float(numbers.min()), float(numbers.max())
    whole = not isinstance(fill, Ints) or bool((numbers == np.trunc(numbers)).all())
    if low <= least and greatest <= high and whole:
        return ""
    promised = f"integers from {low} to {high}" if isinstance(fill, Ints) else f"{low:g} throughout"
    return f"holds {'values' if whole else 'fractions'} from {least:g} to {greatest:g}, declared {promised}"
