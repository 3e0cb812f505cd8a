"""Element types as numpy holds them, and rounding into them.

`q8_0` is a structured type of 34 bytes: `d` the f16 scale, `q` 32 signed bytes; an array of it has a last dimension
32 times shorter. `values` gives what an array means (f32 for float types, int64 for integers); `stored` rounds
values into a type: to nearest even for floats; q8_0 as docs/ir.md says: scale = f16(max|x| / 127), quant = round(x /
scale), half away from zero, at most 127.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from pavane.ir.types import Q8_BLOCK

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


def quantised(numbers: np.ndarray) -> np.ndarray:
    """q8_0 blocks of f32 numbers; the last dimension is a multiple of 32."""
    blocks = numbers.astype(np.float32).reshape(*numbers.shape[:-1], numbers.shape[-1] // Q8_BLOCK, Q8_BLOCK)
    out = np.zeros(blocks.shape[:-1], Q8)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        out["d"] = (np.abs(blocks).max(axis=-1) / np.float32(127)).astype(np.float16)
        scale = out["d"].astype(np.float32)[..., None]
        quants = np.where(scale == 0, np.float32(0), half_away(blocks / scale))
    out["q"] = np.clip(np.nan_to_num(quants), -127, 127).astype(np.int8)
    return out


def half_away(numbers: np.ndarray) -> np.ndarray:
    """Round to the nearest integer, halves away from zero."""
    whole = np.trunc(numbers)
    return whole + np.where(np.abs(numbers - whole) >= 0.5, np.sign(numbers), 0).astype(numbers.dtype)
