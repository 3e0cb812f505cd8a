"""Which of an engine's products a contraction rides on, and the tree of its sum.

The order is total; each rule decides among what those before it leave:

    1. types that hold every operand value exactly; where an engine has none, a float may enter as a narrower float
       (the section's bound pays for it)
    2. types as the operands are stored; for integers of a known range this rule says nothing
    3. a mode that multiplies both operands in full (`fidelity.significant_bits`)
    4. the cheapest; of a pair of types the fidelities are compared by `Engine.product_mode`, as every reader of the
       program does, so no fidelity is taken that rounds more than the fullest one
    5. fewer conversions, fewer significand bits, the types' names; of engines that are alike the first

Block floats enter as what they are widened to (`Engine.block_floats`), with the few bits that they have: rules 1 to 4
as for any type.

Refuses with `NoEngine` when no engine of the target multiplies these types.
"""

from __future__ import annotations

from fractions import Fraction
from typing import cast

import msgspec

from pavane.ir.program import Tensor, Tree
from pavane.ir.types import MAGNITUDE_BITS, DType, Fill, block_elements
from pavane.reject import NoEngine
from pavane.targets.descriptor import Engine, MatrixMode, SpatialTarget
from pavane.targets.fidelity import largest_magnitude, significant_bits

# Which operand types hold every value of a stored type. Source: significand and exponent widths (IEEE 754, bfloat16);
# a q8_0 value is an f16 scale times a signed byte, at most 18 bits; a block float has bf16's exponents and fewer bits.
LOSSLESS: dict[str, tuple[str, ...]] = {
    "f32": ("f32",),
    "f16": ("f16", "f32"),
    "bf16": ("bf16", "f32"),
    "q8_0": ("q8_0", "f32"),
    "bfp8": ("bf16", "f32"),
    "bfp4": ("bf16", "f32"),
    "i8": ("i8", "bf16", "f16", "f32"),
    "i32": ("i32",),
}
ROUNDED: dict[str, tuple[str, ...]] = {
    "f32": ("bf16", "f16"),
    "f16": ("bf16",),
    "q8_0": ("bf16",),
    "bf16": (),
    "bfp8": (),
    "bfp4": (),
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
    bits = significant_bits(a, fill_a), significant_bits(b, fill_b)
    candidates = [
        Ride(engine, mode) for engine in target.engines if _takes(engine, a, b) for mode in _fidelities(engine, bits)
    ]
    for lossy in (False, True):
        legal = [r for r in candidates if _holds(r.mode.a, a, fill_a, lossy) and _holds(r.mode.b, b, fill_b, lossy)]
        if legal:
            integers = largest_magnitude(fill_a) is not None and largest_magnitude(fill_b) is not None
            return min(legal, key=lambda r: _preference(r.mode, (a, b), bits, integers))
    raise NoEngine(
        f"no engine of {target.name} multiplies {a} by {b}",
        needed=f"a matrix mode for {a} x {b}",
        available=", ".join(f"{r.engine.name}: {r.mode.a} x {r.mode.b}" for r in candidates) or "no matrix mode at all",
        remedy="store the operands in a type that the target multiplies, or use another target",
    )


def tree_of(mode: MatrixMode, transposed: bool) -> Tree:
    """Both operands along K: the mode's lanes over the whole contraction; else one lane in ascending k."""
    return Tree(0, mode.lanes if transposed else 1, mode.fused)


def is_exact(mode: MatrixMode, k: int, first: Tensor, second: Tensor, output: DType) -> bool:
    """Integers that the operands hold, multiplied in full, whose every partial sum the accumulator holds.

    Only of tensors from outside, whose fills are checked or stated there; what another section made is not claimed. Nor
    is q8_0: its blocks are scales times quants, of which a fill says nothing.
    """
    if {first.role, second.role} - {"INPUT", "WEIGHT"} or "q8_0" in (first.dtype, second.dtype):
        return False
    a, b = largest_magnitude(first.fill), largest_magnitude(second.fill)
    if a is None or b is None or mode.accumulator != "f32" or output != "f32":
        return False
    bits_a, bits_b = mode.bits
    held = a <= min(_INTEGERS_HELD[mode.a], 1 << bits_a) and b <= min(_INTEGERS_HELD[mode.b], 1 << bits_b)
    return held and k * a * b <= 1 << mode.accumulator_bits


def _takes(engine: Engine, *stored: DType) -> bool:
    """Does the engine read block floats out of its buffers, where operands are?"""
    return all(dtype not in MAGNITUDE_BITS or dtype in engine.block_floats for dtype in stored)


def _fidelities(engine: Engine, bits: tuple[int, int]) -> list[MatrixMode]:
    """For each pair of types that the engine multiplies, in the order of description, the mode of operands so wide."""
    pairs = dict.fromkeys((m.a, m.b) for m in engine.matrix) if "compute" in engine.roles else {}
    return [mode for a, b in pairs if (mode := engine.product_mode(a, b, bits)) is not None]


def _holds(operand: str, stored: DType, fill: Fill | None, lossy: bool) -> bool:
    magnitude = largest_magnitude(fill)
    if magnitude is not None and block_elements(stored) == 1 and magnitude <= _INTEGERS_HELD[operand]:
        return operand in ("f32", "f16", "bf16") or operand == stored
    if operand in LOSSLESS[stored]:
        return True
    return lossy and operand in ROUNDED[stored]


def _preference(
    mode: MatrixMode, stored: tuple[DType, DType], bits: tuple[int, int], integers: bool
) -> tuple[int, bool, Fraction, int, tuple[int, int], str, str]:
    converted = (mode.a != stored[0]) + (mode.b != stored[1])
    rounds = mode.bits[0] < bits[0] or mode.bits[1] < bits[1]
    return 0 if integers else converted, rounds, mode.cost, converted, mode.bits, mode.a, mode.b
