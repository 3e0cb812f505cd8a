"""Tensors as numpy arrays: how each element type lies in memory, as numbers, and through a formal's view.

f32, f16, i8, i32 are numpy's own, bf16 is ml_dtypes', types in blocks (q8_0, bfp8, bfp4) are uint8 rows of blocks as
stored (a float array given for such a tensor counts as its values).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import ml_dtypes
import numpy as np

from pavane.ir.program import Formal, Tensor
from pavane.ir.quasi import Quasi
from pavane.ir.types import INTEGER_DTYPES, INTEGER_RANGE, block_elements
from pavane.reject import LaunchReject
from pavane.tensor_graph.blocks import decode_blocks, encode_blocks

# What a numpy array of a tensor has as its elements.
STORAGE = {
    "f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "i8": np.dtype(np.int8), "i32": np.dtype(np.int32),
    **dict.fromkeys(("q8_0", "bfp8", "bfp4"), np.dtype(np.uint8)),
}  # fmt: skip


def extents_at(shape: tuple[Quasi, ...], symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The extents for given values of the symbols."""
    return tuple(extent.evaluate(symbols) for extent in shape)


def numbers(tensor: Tensor, array: np.ndarray, symbols: Mapping[str, int], precision: type) -> np.ndarray:
    """The tensor's values in its own shape, as floats."""
    shape = extents_at(tensor.shape, symbols)
    stored = np.asarray(array)
    if block_elements(tensor.dtype) > 1 and stored.dtype == np.uint8:
        stored = decode_blocks(stored, tensor.dtype, precision)
    if stored.size < prod(shape):
        raise LaunchReject(
            "an array is too small",
            where=f"tensor {tensor.name}",
            needed=f"{prod(shape)} elements",
            available=f"{stored.size}",
            remedy="give an array of the tensor's shape",
        )
    return stored.reshape(-1)[: prod(shape)].reshape(shape).astype(precision)


def stored(tensor_dtype: str, values: np.ndarray) -> np.ndarray:
    """Values rounded to what a tensor of that type holds, in its storage."""
    if block_elements(tensor_dtype) > 1:
        return encode_blocks(values, tensor_dtype)
    if tensor_dtype in INTEGER_DTYPES:
        return np.clip(values, *INTEGER_RANGE[tensor_dtype]).astype(STORAGE[tensor_dtype])
    return values.astype(STORAGE[tensor_dtype])


def viewed(values: np.ndarray, formal: Formal, symbols: Mapping[str, int]) -> np.ndarray:
    """The formal's view of a tensor: its first elements, row-major, in the formal's shape. A numpy view."""
    shape = extents_at(formal.shape, symbols)
    return values.reshape(-1)[: prod(shape)].reshape(shape)
