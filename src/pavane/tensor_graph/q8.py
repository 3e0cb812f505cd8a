"""ggml's q8_0: 32 elements along the last dimension share one f16 scale; 34 bytes a block (scale, 32 signed bytes).

Source: ggml `quantize_row_q8_0_ref`, `dequantize_row_q8_0`. `gguf.quants` gives the same bits.
"""

from __future__ import annotations

import numpy as np

from pavane.ir.types import Q8_BLOCK, Q8_BLOCK_BYTES
from pavane.reject import ArgumentReject


def quantise_q8(values: np.ndarray) -> np.ndarray:
    """float [..., n] -> uint8 [..., n / 32 * 34]; n is a multiple of 32."""
    if values.shape[-1] % Q8_BLOCK:
        raise ArgumentReject(
            "q8_0 holds whole blocks",
            needed=f"rows of a multiple of {Q8_BLOCK} elements",
            available=str(values.shape[-1]),
            remedy="pad or cut the rows",
        )
    blocks = np.ascontiguousarray(values, np.float32).reshape(-1, Q8_BLOCK)
    scale: np.ndarray = np.abs(blocks).max(axis=1, keepdims=True, initial=0.0) / np.float32(127.0)
    inverse = np.divide(np.float32(1.0), scale, out=np.zeros_like(scale), where=scale != 0)
    quants = round_half_away(blocks * inverse).astype(np.int8)
    data = np.concatenate((scale.astype(np.float16).view(np.uint8).reshape(-1, 2), quants.view(np.uint8)), axis=1)
    return data.reshape(*values.shape[:-1], values.shape[-1] // Q8_BLOCK * Q8_BLOCK_BYTES)


def dequantise_q8(data: np.ndarray, dtype: type = np.float32) -> np.ndarray:
    """uint8 [..., n / 32 * 34] -> float [..., n]; exact in float32."""
    blocks = np.ascontiguousarray(data).reshape(-1, Q8_BLOCK_BYTES)
    scale: np.ndarray = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(dtype)
    values = scale * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(dtype)
    return values.reshape(*data.shape[:-1], data.shape[-1] // Q8_BLOCK_BYTES * Q8_BLOCK)


def round_half_away(values: np.ndarray) -> np.ndarray:
    """To the nearest integer, halves away from zero."""
    whole = np.trunc(values)
    return whole + np.sign(values) * (np.abs(values - whole) >= 0.5)
