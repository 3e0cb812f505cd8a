"""Packed weights: the bytes, who is packed, who is not, and that the tensor's own bytes stay."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.program import Compute, Load, MatmulTiles, Tree
from pavane.native.packing import packed_formals
from pavane.targets.load import load_target
from tests.building import shape_of, span, window
from tests.engines.native_programs import accepted, as_stored, product_program
from tests.engines.sim_programs import edited

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


@pytest.mark.parametrize(("rows", "columns"), [(2, 64), (30, 7), (64, 130)])
def test_the_packed_form_of_pairs(rows, columns):
    """Groups of 64 columns, the last one filled with 0: per pair of rows words of 32 bits, the earlier row on top."""
    host = load_target("host", 1)
    b = as_stored(np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32), "bf16")
    program = product_program(host, "bf16", "bf16", 8, columns, rows, TREE, False)
    with native.load(program, host, weights={"B": b}, accept=accepted) as ready:
        packed = ready.memory._packed["B"].view(np.uint16)
        assert np.array_equal(ready.tensor("B"), b)
    groups = -(-columns // 64)
    words = packed[: groups * 64 * rows].reshape(groups, rows // 2, 64, 2)
    found = words[..., ::-1].transpose(1, 3, 0, 2).reshape(rows, groups * 64)
    assert np.array_equal(found[:, :columns], b.view(np.uint16))
    assert not found[:, columns:].any()


@pytest.mark.parametrize(
    ("a", "b", "m", "k", "tree", "transposed"),
    [
        ("f32", "bf16", 8, 64, TREE, False),
        ("bf16", "f32", 8, 64, TREE, False),
        ("bf16", "bf16", 7, 64, TREE, False),
        ("bf16", "bf16", 8, 63, TREE, False),
        ("bf16", "bf16", 8, 64, Tree(0, 1, False), False),
        ("bf16", "bf16", 8, 64, Tree(0, 16, True), True),
    ],
)
def test_only_products_of_many_rows_of_bf16_in_pairs_are_packed(a, b, m, k, tree, transposed):
    program = product_program(load_target("host", 1), a, b, m, 64, k, tree, transposed)
    assert packed_formals(program, program.shapes[0]) == set()


@pytest.mark.parametrize(("start", "packed"), [((2, 64), {"B"}), ((1, 0), set()), ((0, 32), set())])
def test_windows_of_packed_pairs(start, packed):
    """A window from an even row and a multiple of 64 columns on; the numbers are those of what it covers."""
    host, (row, column) = load_target("host", 1), start
    program = product_program(host, "bf16", "bf16", 9, 192, 96, TREE, False)
    place = window((row, 96), (column, 192), row=0)
    moved = edited(program, "core", lambda s: (_moved(s, row, column, place),))
    assert packed_formals(moved, moved.shapes[0]) == packed
    rng = np.random.default_rng(7)
    a, b = (as_stored(rng.integers(-8, 9, shape).astype(np.float32), "bf16") for shape in ((9, 96), (96, 192)))
    with native.load(moved, host, weights={"B": b}, accept=accepted) as ready:
        ready.launch({}, {"A": a})
        found = ready.tensor("Y")[:, : 192 - column].copy()
    expected = a[:, : 96 - row].astype(np.float32) @ b[row:, column:].astype(np.float32)
    assert np.array_equal(found, expected)


def test_a_weight_of_which_a_formal_is_a_part_is_not_packed_in_columns():
    program = product_program(load_target("host", 1), "bf16", "bf16", 8, 64, 32, TREE, False)
    shape = program.shapes[0]
    assert packed_formals(program, shape) == {"B"}
    longer = tuple(replace(t, shape=shape_of(96, 64)) if t.name == "B" else t for t in program.tensors)
    assert packed_formals(replace(program, tensors=longer), shape) == set()


def _moved(node, row, column, place):
    if isinstance(node, Load) and node.tensor == "B":
        return replace(node, window=place)
    if isinstance(node, Compute) and isinstance(node.op, MatmulTiles):
        return Compute(replace(node.op, k=span(row, 96, 96), cols=span(column, 192, 192)))
    return node


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
