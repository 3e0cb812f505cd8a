"""Element types that are stored in blocks, as bytes: the one place that knows how each is encoded and decoded.

q8_0 by ggml's rule (`q8`), bfp8 and bfp4 by Tenstorrent's (`block_float`). Rows are whole blocks; a row of n elements
is `row_bytes(dtype, n)` bytes.
"""

from __future__ import annotations

import numpy as np

from pavane.tensor_graph.block_float import decode_block_float, encode_block_float
from pavane.tensor_graph.q8 import dequantise_q8, quantise_q8


def encode_blocks(values: np.ndarray, dtype: str) -> np.ndarray:
    """float [..., n] -> uint8 [..., row bytes]; n is a multiple of the block."""
    return quantise_q8(values) if dtype == "q8_0" else encode_block_float(values, dtype)


def decode_blocks(data: np.ndarray, dtype: str, precision: type = np.float32) -> np.ndarray:
    """uint8 [..., row bytes] -> float [..., n]; exact in float32."""
    return dequantise_q8(data, precision) if dtype == "q8_0" else decode_block_float(data, dtype, precision)
