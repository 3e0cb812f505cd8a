"""Packed weights: the bytes, who is packed, who is not, and that the tensor's own bytes stay."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.program import Tree
from pavane.native.packing import packed_formals
from pavane.targets.load import load_target
from tests.engines.native_programs import accepted, as_stored, product_program

TREE = Tree(0, 1, True)


def weight(rows: int, columns: int) -> np.ndarray:
    return as_stored(np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32), "q8_0")


@pytest.mark.parametrize(("rows", "columns", "cores"), [(16, 32, 1), (33, 96, 1), (2100, 64, 1)])
def test_the_packed_form(rows, columns, cores):
    """Groups of 16 rows: per block eight registers of 16 x 4 bytes, quant + 128; behind them the scales."""
    host = load_target("host", cores)
    program, b = product_program(host, "q8_0", "q8_0", 1, rows, columns, TREE, True), weight(rows, columns)
    with native.load(program, host, weights={"B": b}, accept=accepted) as ready:
        packed = ready.memory._packed["B"]
        assert np.array_equal(ready.tensor("B"), b)
    blocks, groups = columns // 32, -(-rows // 16)
    used = packed[: groups * 16 * blocks * 34].reshape(groups, -1)
    quants = used[:, : blocks * 512].reshape(groups, blocks, 8, 16, 4)
    scales = used[:, blocks * 512 :].reshape(groups, blocks, 16, 2)
    stored = b.reshape(rows, blocks, 34)
    for row in (0, 1, 7, 8, 15, rows // 2, rows - 1):
        group, lane = divmod(row, 16)
        assert np.array_equal(quants[group, :, :, lane].reshape(blocks, 32) ^ 0x80, stored[row, :, 2:])
        assert np.array_equal(scales[group, :, lane], stored[row, :, :2])


def test_only_weights_are_packed():
    host = load_target("host", 1)
    program = product_program(host, "q8_0", "q8_0", 1, 16, 32, TREE, True)
    shape = program.shapes[0]
    assert packed_formals(program, shape) == {"B"}
    tensors = tuple(replace(t, role="INPUT") if t.name == "B" else t for t in program.tensors)
    assert packed_formals(replace(program, tensors=tensors), shape) == set()


@pytest.mark.parametrize(("a", "tree"), [("f32", TREE), ("q8_0", Tree(0, 8, True)), ("q8_0", Tree(0, 1, False))])
def test_only_products_of_blocks_in_one_fused_lane_are_packed(a, tree):
    program = product_program(load_target("host", 1), a, "q8_0", 1, 16, 32, tree, True)
    assert packed_formals(program, program.shapes[0]) == set()


def test_programs_that_share_weights_share_packed_ones():
    host = load_target("host", 1)
    one, many = (product_program(host, "q8_0", "q8_0", m, 16, 64, TREE, True) for m in (1, 5))
    b = weight(16, 64)
    with (
        native.load(one, host, weights={"B": b}, accept=accepted) as first,
        native.load(many, host, weights={}, share=first, accept=accepted) as second,
    ):
        assert first.memory.address("B", packed=True) == second.memory.address("B", packed=True)
