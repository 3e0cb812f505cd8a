"""Which of an engine's products a contraction rides on, and the tree of its sum.

A mode is legal when it holds every operand value exactly; where none is, a float operand may be rounded to a narrower
float (the section's bound pays for it). Integers ride on the narrowest legal mode; other values on the one that takes
them as they are stored, and where there is none on the cheapest. Refuses with `NoEngine` when no engine of the target
multiplies these types.
"""

from __future__ import annotations

from fractions import Fraction
from typing import cast

import msgspec

from pavane.ir.program import Tensor, Tree
from pavane.ir.types import Const, DType, Fill, Ints
from pavane.reject import NoEngine
from pavane.targets.descriptor import Engine, MatrixMode, SpatialTarget

# Which operand types hold every value of a stored type. Source: significand and exponent widths (IEEE 754, bfloat16);
# a q8_0 value is an f16 scale times a signed byte, at most 19 bits.
LOSSLESS: dict[str, tuple[str, ...]] = {
    "f32": ("f32",),
    "f16": ("f16", "f32"),
    "bf16": ("bf16", "f32"),
    "q8_0": ("q8_0", "f32"),
    "i8": ("i8", "bf16", "f16", "f32"),
    "i32": ("i32",),
}
ROUNDED: dict[str, tuple[str, ...]] = {
    "f32": ("bf16", "f16"),
    "f16": ("bf16",),
    "q8_0": ("bf16",),
    "bf16": (),
    "i8": (),
    "i32": (),
}
_INTEGERS_HELD = {"f32": 1 << 24, "f16": 1 << 11, "bf16": 1 << 8, "i8": 127, "i32": 1 << 30, "q8_0": 0}


class Ride(msgspec.Struct, frozen=True):
    """The engine and the mode of a product."""

    engine: Engine
    mode: MatrixMode

    @property
    def a(self) -> DType:
        return cast(DType, self.mode.a)

    @property
    def b(self) -> DType:
        return cast(DType, self.mode.b)

    @property
    def accumulator(self) -> DType:
        return cast(DType, self.mode.accumulator)


def choose_mode(
    target: SpatialTarget, a: DType, b: DType, fill_a: Fill | None = None, fill_b: Fill | None = None
) -> Ride:
    """The product for operands stored as `a` and `b`, with what is known of their values."""
    candidates = [Ride(e, m) for e in target.engines if "compute" in e.roles for m in e.matrix]
    for lossy in (False, True):
        legal = [r for r in candidates if _holds(r.mode.a, a, fill_a, lossy) and _holds(r.mode.b, b, fill_b, lossy)]
        if legal:
            integers = largest_magnitude(fill_a) is not None and largest_magnitude(fill_b) is not None
            return min(legal, key=lambda r: _preference(r.mode, a, b, integers))
    raise NoEngine(
        f"no engine of {target.name} multiplies {a} by {b}",
        needed=f"a matrix mode for {a} x {b}",
        available=", ".join(f"{r.engine.name}: {r.mode.a} x {r.mode.b}" for r in candidates) or "no matrix mode at all",
        remedy="store the operands in a type that the target multiplies, or use another target",
    )


def tree_of(mode: MatrixMode, transposed: bool) -> Tree:
    """Both operands along K: the mode's lanes over the whole contraction; else one lane in ascending k."""
    return Tree(0, mode.lanes if transposed else 1, mode.fused)


def largest_magnitude(fill: Fill | None) -> int | None:
    """The greatest |v| of a tensor that holds integers only, or None."""
    if isinstance(fill, Ints):
        return max(abs(fill.lo), abs(fill.hi))
    if isinstance(fill, Const) and float(fill.value).is_integer():
        return abs(int(fill.value))
    return None


def is_exact(mode: MatrixMode, k: int, first: Tensor, second: Tensor, output: DType) -> bool:
    """Integers that the operands hold, multiplied in full, whose every partial sum the accumulator holds.

    Only of tensors from outside, whose fills are checked or stated there; what another section made is not claimed.
    """
    if {first.role, second.role} - {"INPUT", "WEIGHT"}:
        return False
    a, b = largest_magnitude(first.fill), largest_magnitude(second.fill)
    if a is None or b is None or mode.accumulator != "f32" or output != "f32":
        return False
    held = a <= min(_INTEGERS_HELD[mode.a], 1 << mode.operand_bits) and b <= min(
        _INTEGERS_HELD[mode.b], 1 << mode.operand_bits
    )
    return held and k * a * b <= 1 << mode.accumulator_bits


def _holds(operand: str, stored: DType, fill: Fill | None, lossy: bool) -> bool:
    magnitude = largest_magnitude(fill)
    if magnitude is not None and stored != "q8_0" and magnitude <= _INTEGERS_HELD[operand]:
        return operand in ("f32", "f16", "bf16") or operand == stored
    if operand in LOSSLESS[stored]:
        return True
    return lossy and operand in ROUNDED[stored]


def _preference(mode: MatrixMode, a: DType, b: DType, integers: bool) -> tuple[int, int, Fraction]:
    m, k, n = mode.tile
    widened = 0 if integers else (mode.a != a) + (mode.b != b)
    return widened, mode.operand_bits, Fraction(mode.cycles, m * k * n)
