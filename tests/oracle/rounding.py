"""Numbers as types hold them (docs/ir.md, Slots and carries): floats one by one, blocks along the last axis.

This rounds numbers, where a claim of exactness is judged, sums too, and what a launcher puts into memory. Terms are not
rounded: storing changes no meaning.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from pavane.ir.program import MatmulTiles, Program
from pavane.ir.types import block_elements
from tests.oracle.cells import Cells, cells
from tests.oracle.spaces import Fault

_FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
_MAGNITUDE_BITS = {"bfp8": 7, "bfp4": 3}
_SIGNIFICAND_BITS, _LEAST_NORMAL = 24, 2.0**-126


def rounded(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """The nearest that the type holds, whole blocks of them where it is one of blocks."""
    with np.errstate(all="ignore"):
        if dtype in _FLOATS:
            return numbers.astype(_FLOATS[dtype]).astype(float)
        if block_elements(dtype) == 1:
            return numbers
        if numbers.shape[-1] % block_elements(dtype):
            raise Fault(f"misuse: a part of a block of {dtype} is stored")
        blocks = numbers.astype(np.float32).astype(float).reshape(-1, block_elements(dtype))
        found = _scaled(blocks) if dtype == "q8_0" else _block_float(blocks, _MAGNITUDE_BITS[dtype])
        return found.reshape(numbers.shape)


def shortened(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """A little smaller in magnitude, as the type holds it."""
    step = float(ml_dtypes.finfo(_FLOATS[dtype]).eps) if dtype in _FLOATS else 0.0
    return rounded(numbers * (1 - step), dtype)


def held(values: Cells, dtype: str) -> Cells:
    """As a type holds them: numbers are rounded, terms are what they are."""
    return cells(rounded(values["number"], dtype), values["term"])


def claims_exactness(program: Program) -> bool:
    """Does a section? Then all sections leave numbers that their tensors hold."""
    return any(shape.numerics.exact for shape in program.shapes)


def summed(op: MatmulTiles, sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums and a product in f32 as the op's tree adds it (docs/ir.md, Sums), each addition rounded."""
    b = b if op.transposed else b.T
    lanes = np.zeros((op.tree.lanes, *sums.shape)) if op.tree.lanes > 1 else sums[None].copy()
    with np.errstate(all="ignore"):
        for k in range(a.shape[1]):
            term = a[:, k, None] * b[None, :, k]
            term = term if op.tree.fused else rounded(term, "f32")
            lanes[k % op.tree.lanes] = rounded(lanes[k % op.tree.lanes] + term, "f32")
        while len(lanes) > 1:
            lanes = rounded(lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :], "f32")
        return lanes[0] if op.tree.lanes == 1 else rounded(sums + lanes[0], "f32")


def _scaled(blocks: np.ndarray) -> np.ndarray:
    """q8_0: whole multiples of a scale of f16, halves away from zero."""
    step = np.abs(blocks).max(1, keepdims=True).astype(np.float32) / np.float32(127)
    inverse = np.where(step == 0, np.float32(0), np.float32(1) / step)
    quotients = (blocks.astype(np.float32) * inverse).astype(float)
    return step.astype(np.float16).astype(float) * np.copysign(np.floor(np.abs(quotients) + 0.5), quotients)


def _block_float(blocks: np.ndarray, bits: int) -> np.ndarray:
    """Multiples of one power of two: significands shifted to the greatest exponent (what falls out is dropped), then
    rounded to nearest, halves to even, at most all ones.
    """
    _, exponents = np.frexp(blocks)
    greatest = np.where(blocks == 0, -126, exponents).max(1, keepdims=True)  # blocks are below 2 ** greatest
    unit, finer = np.ldexp(1.0, greatest - bits), 2.0 ** (_SIGNIFICAND_BITS - bits)
    shifted = np.floor(np.abs(blocks) / unit * finer) / finer
    found = np.minimum(np.rint(shifted), 2**bits - 1) * unit
    return np.copysign(np.where(found < _LEAST_NORMAL, 0.0, found), blocks)
