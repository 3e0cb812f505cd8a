"""Element types and what is known of a tensor's values.

`q8_0` is ggml's block format: 32 elements along the last dimension share one f16 scale, stored as 34 bytes (scale, then
32 signed bytes); an element's value is scale * quant. Source: ggml `block_q8_0`.

`bfp8` and `bfp4` are Tenstorrent's block floats (their field calls them BFP8, or bfloat8_b): 16 elements along the last
dimension share one 8-bit exponent, an element has a sign and a magnitude of 7 (3) bits without a hidden one; 17 (9)
bytes a block, the exponent first. Source: tt-isa-documentation, FloatBitPatterns.md, "BFP".
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from pavane.ir.canonical import one_number

DType = Literal["f32", "f16", "bf16", "i8", "i32", "q8_0", "bfp8", "bfp4"]
DTYPES: tuple[str, ...] = get_args(DType)

# What a graph asks of accuracy; INT8_ACTIVATIONS rounds activations that meet q8_0 weights, in blocks of 32.
Contract = Literal["FLOAT", "INT8_ACTIVATIONS"]
CONTRACTS: tuple[str, ...] = get_args(Contract)

# Where an engine computes: in half of its registers, while the step before leaves the other half; or in all of them.
Registers = Literal["HALF", "FULL"]

# What a deployment stores a model's matrices as.
StoredWeights = Literal["q8_0", "bfp8", "bfp4"]
STORED_WEIGHTS: tuple[str, ...] = get_args(StoredWeights)

Q8_BLOCK, BFP_BLOCK = 32, 16
Q8_SCALE_BYTES = 2  # a block is an f16 scale, then a byte an element
Q8_BLOCK_BYTES = Q8_SCALE_BYTES + Q8_BLOCK
_BLOCK = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "i8": (1, 1), "i32": (1, 4),
    "q8_0": (Q8_BLOCK, Q8_BLOCK_BYTES), "bfp8": (BFP_BLOCK, 17), "bfp4": (BFP_BLOCK, 9),
}  # fmt: skip
INTEGER_RANGE = {"i8": (-(1 << 7), (1 << 7) - 1), "i32": (-(1 << 31), (1 << 31) - 1)}
INTEGER_DTYPES = tuple(INTEGER_RANGE)

# Significand bits, hidden bit included: every integer of magnitude <= 2**bits is held exactly (IEEE 754; bfloat16).
SIGNIFICAND_BITS = {"f32": 24, "f16": 11, "bf16": 8}

# Bits of a block float's magnitude: a block holds every integer of magnitude < 2**bits exactly.
MAGNITUDE_BITS = {"bfp8": 7, "bfp4": 3}


def block_elements(dtype: str) -> int:
    """How many consecutive elements of the last dimension are stored together."""
    return _BLOCK[dtype][0]


def row_bytes(dtype: str, elements: int) -> int:
    """Bytes of one row of `elements` elements; a started block counts whole."""
    per_block, size = _BLOCK[dtype]
    return -(-elements // per_block) * size


class Const(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="constant"):
    """Every element is `value` (finite)."""

    value: float

    def __post_init__(self) -> None:
        one_number(self, "value")


class Ints(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ints"):
    """Every element is an integer in [lo, hi]."""

    lo: int
    hi: int


class Floats(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="floats"):
    """Finite floats, nothing else known."""


Fill = Const | Ints | Floats
