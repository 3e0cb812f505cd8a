"""Element types as numpy holds them, and rounding into them.

`q8_0` is a structured type of 34 bytes: `d` the f16 scale, `q` 32 signed bytes; an array of it has a last dimension
32 times shorter. `values` gives what an array means (f32 for float types, int64 for integers); `stored` rounds
values into a type: to nearest even for floats; q8_0 by ggml's rule (docs/ir.md).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from pavane.ir.types import Q8_BLOCK, SIGNIFICAND_BITS
from pavane.tensor_graph.q8 import quantise_q8

FLOAT_BITS = SIGNIFICAND_BITS["f32"]
Q8 = np.dtype([("d", "<f2"), ("q", "i1", (Q8_BLOCK,))])

NUMPY: dict[str, np.dtype] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
    "q8_0": Q8,
}


def values(array: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that a stored array means; q8_0 unfolds its last dimension."""
    if dtype == "q8_0":
        return unfolded(array["d"].astype(np.float32)[..., None] * array["q"].astype(np.float32))
    return array.astype(np.int64 if dtype in ("i8", "i32") else np.float32)


def unfolded(blocks: np.ndarray) -> np.ndarray:
    """Merge the last two dimensions."""
    return blocks.reshape(*blocks.shape[:-2], blocks.shape[-2] * blocks.shape[-1])


def stored(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers rounded into a storage type (integers truncate a fraction and saturate)."""
    if dtype == "q8_0":
        return quantised(numbers)
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
    """q8_0 blocks of f32 numbers; the last dimension is a multiple of 32."""
    with np.errstate(over="ignore", invalid="ignore"):
        return quantise_q8(numbers.astype(np.float32)).view(Q8)
