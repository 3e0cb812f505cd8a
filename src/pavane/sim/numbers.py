"""Element types as numpy holds them, and rounding into them.

Types in blocks are structured: `q8_0` of `d` the f16 scale and `q` 32 signed bytes; `bfp8` and `bfp4` of `e` the
exponent and `m` the bytes of 16 elements. An array of them has a last dimension 32 (16) times shorter. `values` gives
what an array means (f32 for float types, int64 for integers); `stored` rounds values into a type: to nearest even for
floats; blocks by their rules (docs/ir.md).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from pavane.ir.types import Q8_BLOCK, SIGNIFICAND_BITS, block_elements
from pavane.tensor_graph.block_float import block_float_values
from pavane.tensor_graph.blocks import decode_blocks, encode_blocks

FLOAT_BITS = SIGNIFICAND_BITS["f32"]
Q8 = np.dtype([("d", "<f2"), ("q", "i1", (Q8_BLOCK,))])

NUMPY: dict[str, np.dtype] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
    "q8_0": Q8,
    "bfp8": np.dtype([("e", "u1"), ("m", "u1", (16,))]),
    "bfp4": np.dtype([("e", "u1"), ("m", "u1", (8,))]),
}


def values(array: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that a stored array means; blocks unfold the last dimension."""
    if block_elements(dtype) > 1:
        return decode_blocks(np.ascontiguousarray(array).view(np.uint8), dtype)
    return array.astype(np.int64 if dtype in ("i8", "i32") else np.float32)


def picked(blocks: np.ndarray, places: np.ndarray, dtype: str) -> np.ndarray:
    """Of each block the element at its place, f32; `places` broadcasts to the blocks."""
    lane = np.broadcast_to(places, blocks.shape)[..., None]
    if dtype == "q8_0":
        quants = np.take_along_axis(blocks["q"], lane, -1)[..., 0]
        return blocks["d"].astype(np.float32) * quants.astype(np.float32)
    if dtype == "bfp8":
        return block_float_values(blocks["e"], np.take_along_axis(blocks["m"], lane, -1)[..., 0], dtype)
    pairs = np.take_along_axis(blocks["m"], lane // 2, -1)
    return block_float_values(blocks["e"], (pairs >> (lane % 2 * 4) & 0xF)[..., 0], dtype)


def stored(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers rounded into a storage type (integers truncate a fraction and saturate)."""
    if block_elements(dtype) > 1:
        return blocked(numbers, dtype)
    if dtype in ("i8", "i32"):
        limits = np.iinfo(NUMPY[dtype])
        return np.clip(np.trunc(numbers), limits.min, limits.max).astype(NUMPY[dtype])
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32).astype(NUMPY[dtype])


def shortened(numbers: np.ndarray, bits: int) -> np.ndarray:
    """f32 numbers rounded to nearest even at so many significand bits, hidden bit included."""
    spare = FLOAT_BITS - bits
    words = numbers.astype(np.float32).view(np.uint32).astype(np.uint64)
    odd = (words >> np.uint64(spare)) & np.uint64(1)
    words = (words + odd + np.uint64((1 << (spare - 1)) - 1)) >> np.uint64(spare) << np.uint64(spare)
    rounded = words.astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(numbers), rounded, numbers).astype(np.float32)


def quantised(numbers: np.ndarray) -> np.ndarray:
    """q8_0 blocks of f32 numbers: activations as the int8 contract rounds them."""
    return blocked(numbers, "q8_0")


def blocked(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Blocks of f32 numbers; the last dimension is a multiple of the block."""
    with np.errstate(over="ignore", invalid="ignore"):
        return encode_blocks(numbers.astype(np.float32), dtype).view(NUMPY[dtype])
