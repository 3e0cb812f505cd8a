"""Block floats, bfp8 and bfp4: 16 elements along the last dimension share one exponent; 17 (9) bytes a block.

A block is its exponent E (a byte), then the elements, each a sign bit over a magnitude m of 7 (3) bits: a byte each, or
a half byte, the even element in the lower half. With e = E - 127 an element is worth +-m * 2**(e - 6), of bfp4
+-m * 2**(e - 2); a sign without magnitude is -infinity. Decoding is exact in float32.

Encoding: E is the greatest exponent of the block's numbers as float32; each significand (24 bits) is shifted right by
what its own exponent is less, what falls out is dropped; then it is rounded to the magnitude's bits, to nearest, halves
to even, at most to all ones. So the error is at most one step 2**(e - 6) (2**(e - 2)), where the greatest magnitude of
the block is at least 2**e; but for numbers that would round up to 2**(e + 1) it is at most half a step and 2**-16 of
one. Numbers below 2**-126 are encoded as 0: the chip's unpacker makes normal numbers only.

Sources: tt-isa-documentation, FloatBitPatterns.md (what bits mean); tt-metal, blockfloat_common.cpp (the rounding). A
tile of the chip has its 64 exponents in front, here each block has its own: the same bytes in another order.
"""

from __future__ import annotations

import numpy as np

from pavane.ir.types import BFP_BLOCK, MAGNITUDE_BITS, block_elements, row_bytes
from pavane.reject import ArgumentReject

_FRACTION_BITS, _HIDDEN, _BIAS = 23, 1 << 23, 127
_MOST_SHIFT = 31


def encode_block_float(values: np.ndarray, dtype: str) -> np.ndarray:
    """float [..., n] -> uint8 [..., n / 16 * 17 (or 9)]; n is a multiple of 16."""
    if values.shape[-1] % BFP_BLOCK:
        raise ArgumentReject(
            f"{dtype} holds whole blocks",
            needed=f"rows of a multiple of {BFP_BLOCK} elements",
            available=str(values.shape[-1]),
            remedy="pad or cut the rows",
        )
    words = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(-1, BFP_BLOCK)
    exponents = (words >> _FRACTION_BITS) & 0xFF
    shared = exponents.max(axis=1, keepdims=True, initial=0)
    bits = MAGNITUDE_BITS[dtype]
    magnitudes = _rounded(_significands(words, exponents), shared - exponents, bits)
    magnitudes[_below_normal(magnitudes, shared, bits)] = 0
    elements = (magnitudes | (words >> 31 << bits) * (magnitudes > 0)).astype(np.uint8)
    data = np.concatenate((shared.astype(np.uint8), _packed(elements, dtype)), axis=1)
    return data.reshape(*values.shape[:-1], row_bytes(dtype, values.shape[-1]))


def decode_block_float(data: np.ndarray, dtype: str, precision: type = np.float32) -> np.ndarray:
    """uint8 [..., n / 16 * 17 (or 9)] -> float [..., n]; exact in float32."""
    blocks = np.ascontiguousarray(data).reshape(-1, row_bytes(dtype, BFP_BLOCK))
    found = block_float_values(blocks[:, :1], _unpacked(blocks[:, 1:], dtype), dtype)
    columns = data.shape[-1] // blocks.shape[1] * block_elements(dtype)
    return found.reshape(*data.shape[:-1], columns).astype(precision, copy=False)


def block_float_values(exponents: np.ndarray, elements: np.ndarray, dtype: str) -> np.ndarray:
    """float32 values of elements (sign and magnitude in a byte) under their blocks' exponents; they broadcast."""
    bits = MAGNITUDE_BITS[dtype]
    magnitudes = (elements & ((1 << bits) - 1)).astype(np.float32)
    is_negative = elements >> bits != 0
    with np.errstate(over="ignore"):
        sizes = np.ldexp(magnitudes, exponents.astype(np.int32) - (_BIAS + bits - 1))
    return np.where(is_negative, np.where(magnitudes == 0, -np.float32(np.inf), -sizes), sizes).astype(np.float32)


def _significands(words: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """24 bits, the hidden one included; 0 of what is below the normal numbers."""
    return np.where(exponents > 0, words & (_HIDDEN - 1) | _HIDDEN, 0).astype(np.uint32)


def _rounded(significands: np.ndarray, shifts: np.ndarray, bits: int) -> np.ndarray:
    """To nearest, halves to even, at most all ones."""
    aligned = significands >> np.minimum(shifts, _MOST_SHIFT)
    spare = _FRACTION_BITS + 1 - bits
    odd = (aligned >> spare) & 1
    return np.minimum((aligned + odd + ((1 << (spare - 1)) - 1)) >> spare, (1 << bits) - 1)


def _below_normal(magnitudes: np.ndarray, shared: np.ndarray, bits: int) -> np.ndarray:
    """Is m * 2**(E - 127 - bits + 1) below 2**-126?"""
    return magnitudes.astype(np.uint64) << np.minimum(shared, _MOST_SHIFT).astype(np.uint64) < np.uint64(1 << bits)


def _packed(elements: np.ndarray, dtype: str) -> np.ndarray:
    return elements if dtype == "bfp8" else elements[:, 0::2] | elements[:, 1::2] << 4


def _unpacked(data: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfp8":
        return data
    return np.stack((data & 0xF, data >> 4), axis=-1).reshape(len(data), BFP_BLOCK)
