"""How many significand bits the operands of a section's products have: what a fidelity must multiply in full.

With the operands' types this fixes each product's mode (`Engine.product_mode`), so a program need not name it, and
passes, checker, cost and simulator cannot differ. What is known of a tensor's values (its fill) counts; of a buffer
that a stage writes only the type is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from pavane.ir.program import Compute, Load, Shape
from pavane.ir.types import MAGNITUDE_BITS, SIGNIFICAND_BITS, Const, DType, Fill, Ints
from pavane.ir.walk import bodies, leaves

# q8_0: an f16 scale (11 bits) times a signed byte (7 bits hold every magnitude up to 128). A block float has the bits
# of its magnitude, whatever the exponent.
_BITS = {**SIGNIFICAND_BITS, **MAGNITUDE_BITS, "i8": 7, "i32": 31, "q8_0": 18}


def significant_bits(dtype: str, fill: Fill | None = None) -> int:
    """Bits that hold every value of a type, or every integer up to the greatest that a fill allows. (Blocks of q8_0
    are multiplied as quants, which the values' size says nothing of.)
    """
    magnitude = None if dtype == "q8_0" else largest_magnitude(fill)
    return _BITS[dtype] if magnitude is None else min(_BITS[dtype], max(1, (magnitude - 1).bit_length()))


def largest_magnitude(fill: Fill | None) -> int | None:
    """The greatest |v| of a tensor that holds integers only, or None."""
    if isinstance(fill, Ints):
        return max(abs(fill.lo), abs(fill.hi))
    if isinstance(fill, Const) and float(fill.value).is_integer():
        return abs(int(fill.value))
    return None


def buffer_bits(shape: Shape) -> Mapping[str, int]:
    """Significand bits of what each FIFO and carry holds: of the tensors that are loaded into it where nothing else is
    put there, else of its type.
    """
    formals = {formal.name: significant_bits(formal.dtype, formal.fill) for formal in shape.formals}
    loaded: dict[str, int] = {}
    computed = set()
    for _, body in bodies(shape):
        for _, step in leaves(body):
            if isinstance(step, Load):
                loaded[step.fifo] = max(loaded.get(step.fifo, 0), formals[step.tensor])
            elif isinstance(step, Compute):
                computed.add(step.op.dst.name)
    types: dict[str, DType] = {f.name: f.dtype for f in shape.fifos} | {c.name: c.dtype for c in shape.carries}
    return {name: _BITS[dtype] for name, dtype in types.items()} | {
        name: bits for name, bits in loaded.items() if name not in computed
    }
