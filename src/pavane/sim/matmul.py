"""MatmulTiles in the order that its Tree states, vectorised over rows and columns.

Operands arrive as the values that the engine takes: f32 arrays, or q8_0 blocks on both sides. One lane adds terms in
ascending k; several lanes add their own terms, and each atom's lanes are folded pairwise. A fused multiply-add is a
float64 product and sum rounded to f32: the product is exact, so this is the fused result up to a double rounding.

Products of q8_0 blocks on both sides: in each block lane l of L is the integer sum (exact) of the 32 / L products
from (32 / L) * l on, met with the product of the two scales (exact in f32) by one multiply-add a block and lane.

Integers whose every partial sum fits f32's 24 bits give one answer in any order, so they take one float64 product.
"""

from __future__ import annotations

import numpy as np

from pavane.ir.program import Tree
from pavane.ir.types import Q8_BLOCK

_EXACT_BITS = 24


def accumulated(acc: np.ndarray, a: np.ndarray, b: np.ndarray, tree: Tree) -> np.ndarray:
    """acc[r, c] + SUM_k a[r, k] * b[c, k] in f32; acc is not changed. a, b: f32 [rows, k], [cols, k]."""
    if _is_small_integers(acc, a, b):
        return (acc + a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
    if tree.lanes == 1:
        return _ascending(acc, a, b, tree.fused)
    for start in range(0, a.shape[1], tree.atom or a.shape[1]):
        stop = start + (tree.atom or a.shape[1])
        acc = acc + folded(_lanes(a[:, start:stop], b[:, start:stop], tree))
    return acc


def accumulated_q8(acc: np.ndarray, a: np.ndarray, b: np.ndarray, tree: Tree) -> np.ndarray:
    """The same for q8_0 blocks on both sides: [rows, k / 32], [cols, k / 32]."""
    blocks = a.shape[1]
    scales = a["d"].astype(np.float32)[:, None, :] * b["d"].astype(np.float32)[None, :, :]
    left, right = (x["q"].astype(np.int32).reshape(len(x), blocks, tree.lanes, -1) for x in (a, b))
    sums = np.einsum("rblj,cblj->rcbl", left, right).astype(np.float32)
    if tree.lanes == 1:
        for block in range(blocks):
            acc = _multiply_add(acc, scales[:, :, block], sums[:, :, block, 0], tree.fused)
        return acc
    atom = (tree.atom or blocks * Q8_BLOCK) // Q8_BLOCK
    for start in range(0, blocks, atom):
        lanes = np.zeros((*acc.shape, tree.lanes), np.float32)
        for block in range(start, min(start + atom, blocks)):
            lanes = _multiply_add(lanes, scales[:, :, block, None], sums[:, :, block], tree.fused)
        acc = acc + folded(lanes)
    return acc


def accumulated_integers(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same over integers, exactly; the caller rounds into the accumulator's type."""
    return acc + a.astype(np.int64) @ b.astype(np.int64).T


def _is_small_integers(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    if not a.size or not all(np.array_equal(x, np.trunc(x)) for x in (acc, a, b)):
        return False
    most = float(np.abs(acc).max()) + a.shape[1] * float(np.abs(a).max()) * float(np.abs(b).max())
    return most <= 1 << _EXACT_BITS


def _ascending(acc: np.ndarray, a: np.ndarray, b: np.ndarray, fused: bool) -> np.ndarray:
    for k in range(a.shape[1]):
        acc = _multiply_add(acc, a[:, k, None], b[None, :, k], fused)
    return acc


def _lanes(a: np.ndarray, b: np.ndarray, tree: Tree) -> np.ndarray:
    """[rows, cols, lanes]: what each lane has added up of one atom."""
    lanes = np.zeros((len(a), len(b), tree.lanes), np.float32)
    for start in range(0, a.shape[1], tree.lanes):
        left, right = a[:, None, start : start + tree.lanes], b[None, :, start : start + tree.lanes]
        live = left.shape[2]
        lanes[:, :, :live] = _multiply_add(lanes[:, :, :live], left, right, tree.fused)
    return lanes


def folded(lanes: np.ndarray) -> np.ndarray:
    """Add lane l and l + half until one is left."""
    while lanes.shape[2] > 1:
        half = lanes.shape[2] // 2
        lanes = lanes[:, :, :half] + lanes[:, :, half:]
    return lanes[:, :, 0]


def _multiply_add(acc: np.ndarray, a: np.ndarray, b: np.ndarray, fused: bool) -> np.ndarray:
    if fused:
        return (a.astype(np.float64) * b + acc).astype(np.float32)
    return acc + a * b
