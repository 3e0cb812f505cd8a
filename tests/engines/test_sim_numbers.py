"""The simulator against numpy: exact for integers, on shapes that divide nothing; within rounding for floats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pavane.sim import Simulator, simulate
from pavane.sim.memory import Memory, Piece, alias_buffer, bound_region, region
from pavane.sim.numbers import quantised, values
from tests.building import rect
from tests.engines.sim_programs import gather, growing_cache, local_matmul, product_chain, softmax_host
from tests.examples import attention_host, matmul_multicast, norm_product_host

SHAPES = ((1, 1, 1), (33, 65, 31), (7, 576, 64), (100, 70, 150))


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: type, most: int = 4) -> np.ndarray:
    return rng.integers(-most, most + 1, shape).astype(dtype)


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize("timing", [True, False])
def test_multicast_product_is_exact(toy, m, k, n, timing):
    rng = np.random.default_rng(m * k * n)
    a, b = integers(rng, (m, k), ml_dtypes.bfloat16), integers(rng, (k, n), ml_dtypes.bfloat16)
    found = simulate(matmul_multicast(toy, m, k, n), toy, tensors={"a": a, "b": b}, timing=timing).outputs["c"]
    assert found.dtype == np.float32
    assert np.array_equal(found, a.astype(np.int64) @ b.astype(np.int64))


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 140), st.integers(0, 1 << 30))
def test_random_products_are_exact(toy, m, k, n, seed):
    rng = np.random.default_rng(seed)
    a, b = integers(rng, (m, k), ml_dtypes.bfloat16), integers(rng, (k, n), ml_dtypes.bfloat16)
    found = simulate(matmul_multicast(toy, m, k, n), toy, tensors={"a": a, "b": b}, timing=bool(seed % 2)).outputs["c"]
    assert np.array_equal(found, a.astype(np.int64) @ b.astype(np.int64))


def test_float_product_sums_in_ascending_k(toy):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((3, 45)).astype(np.float32), rng.standard_normal((45, 40)).astype(np.float32)
    found = simulate(local_matmul(toy, 3, 45, 40), toy, tensors={"a": a, "b": b}).outputs["c"]
    expected = np.zeros((3, 40), np.float32)
    for k in range(45):
        expected += a[:, k, None] * b[None, k]
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("rows", [1, 5, 32])
@pytest.mark.parametrize("contract", ["FLOAT", "INT8_ACTIVATIONS"])
def test_norm_and_q8_product(host, rows, contract):
    rng = np.random.default_rng(rows)
    x, g = rng.standard_normal((rows, 64)).astype(np.float32), rng.standard_normal(64).astype(np.float32)
    w = quantised(rng.standard_normal((100, 64)).astype(np.float32))
    program = norm_product_host(host, outputs=100, contract=contract)
    found = simulate(program, host, tensors={"x": x, "g": g, "w": w}, symbols={"rows": rows}).outputs["y"]
    normed = x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-5) * g
    if contract == "INT8_ACTIVATIONS":
        normed = values(quantised(normed.astype(np.float32)), "q8_0").astype(np.float64)
    expected = normed @ values(w, "q8_0").astype(np.float64).T
    tolerance = 2e-5 if contract == "FLOAT" else 2e-2  # one quant of the panel may round the other way
    assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()


def test_q8_weights_may_come_as_bytes(host):
    rng = np.random.default_rng(2)
    w = quantised(rng.standard_normal((96, 64)).astype(np.float32))
    given_as = {"x": rng.standard_normal((2, 64)).astype(np.float32), "g": np.ones(64, np.float32)}
    program = norm_product_host(host)
    blocks = simulate(program, host, tensors={**given_as, "w": w}, symbols={"rows": 2})
    raw = simulate(program, host, tensors={**given_as, "w": w.view(np.uint8).reshape(96, 68)}, symbols={"rows": 2})
    assert np.array_equal(blocks.outputs["y"], raw.outputs["y"])


def test_attention_over_a_growing_position(host):
    rng = np.random.default_rng(3)
    keys, cached = (rng.standard_normal((64, 1, 16)).astype(np.float16) for _ in range(2))
    resident = Simulator(attention_host(host), host, {"kc": keys, "vc": cached})
    for pos, rows in ((0, 1), (1, 1), (2, 7), (9, 23), (32, 32), (17, 3)):
        q = rng.standard_normal((rows, 3, 16)).astype(np.float32)
        found = resident.launch({"pos": pos, "rows": rows}, {"q": q}).outputs["o"]
        assert np.abs(found - attended(q, keys[: pos + rows, 0], cached[: pos + rows, 0], pos)).max() < 1e-5


def attended(q: np.ndarray, keys: np.ndarray, cached: np.ndarray, pos: int) -> np.ndarray:
    scores = np.einsum("rhd,jd->rhj", q.astype(np.float64), keys.astype(np.float64)) / np.sqrt(q.shape[2])
    for r in range(len(q)):
        scores[r, :, pos + r + 1 :] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("rhj,jd->rhd", weights / weights.sum(axis=-1, keepdims=True), cached.astype(np.float64))


def test_softmax(host):
    x = np.random.default_rng(4).standard_normal((7, 33)).astype(np.float32)
    found = simulate(softmax_host(host, 7, 33), host, tensors={"x": x}).outputs["y"]
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert np.abs(found - e / e.sum(axis=1, keepdims=True)).max() < 1e-6


def test_sites_are_counted_inside_the_process_whatever_the_worker(toy):
    """One worker a column of sites instead of one for all four."""
    tensors, expected = permutations(100, 3)
    program = product_chain(toy, 100, 3)
    columns = [(f"{w.name}.{x}", rect(x, x + 1, 0, 2), w) for w in program.workers for x in (0, 1)]
    split = replace(program, workers=tuple(replace(w, name=name, rect=r) for name, r, w in columns))
    assert np.array_equal(simulate(split, toy, tensors=tensors).outputs["y"], expected)


def test_credit_counters_count_down(toy):
    program = matmul_multicast(toy, 40, 70, 150)
    shape = program.shapes[0]
    credits = replace(shape, counters=tuple(replace(c, kind="CREDIT") for c in shape.counters))
    a, b = np.ones((40, 70), ml_dtypes.bfloat16), np.ones((70, 150), ml_dtypes.bfloat16)
    found = simulate(replace(program, shapes=(credits,)), toy, tensors={"a": a, "b": b}, epochs=4)
    assert np.array_equal(found.outputs["c"], np.full((40, 150), 70))


def test_a_slot_in_place_may_have_rows_from_anywhere():
    table = Memory(10 * 4 * 4, tracked=False)
    table.data[:] = np.arange(40, dtype=np.float32).view(np.uint8)
    whole = region(table, 0, (10, 4), "f32", table.new_owner())
    slot = alias_buffer("f32")
    slot.pieces = [Piece(i, whole.part(slice(row, row + 1), slice(0, 4))) for i, row in enumerate((7, 2))]
    shown = bound_region(slot)
    assert shown.array.tolist() == [[28, 29, 30, 31], [8, 9, 10, 11]]
    assert shown.whole()


@pytest.mark.parametrize("rows", [1, 7, 32])
@pytest.mark.parametrize("timing", [True, False])
def test_gather_reads_the_rows_that_the_ids_name(toy, rows, timing):
    rng = np.random.default_rng(rows)
    table, ids = rng.standard_normal((50, 40)).astype(np.float16), rng.integers(0, 50, rows).astype(np.int32)
    found = simulate(
        gather(toy), toy, tensors={"table": table, "ids": ids}, symbols={"rows": rows}, timing=timing
    ).outputs["e"]
    assert np.array_equal(found, table[ids].astype(np.float32))


@pytest.mark.parametrize("timing", [True, False])
def test_state_grows_from_launch_to_launch(toy, timing):
    rng = np.random.default_rng(5)
    resident, seen, pos = Simulator(growing_cache(toy), toy, timing=timing), [], 0
    for rows in (1, 1, 3, 32, 1, 20):
        new = integers(rng, (rows, 24), np.float32, 8)
        seen.append(new)
        result = resident.launch({"pos": pos, "rows": rows}, {"new": new})
        pos += rows
        assert np.array_equal(result.outputs["y"][0], np.concatenate(seen).sum(axis=0))
        assert np.array_equal(result.state["cache"][:pos], np.concatenate(seen))


def permutations(width: int, sections: int, rows: int = 5) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Tensors of a product chain whose weights only move columns about, and what comes out: exact at any length."""
    rng = np.random.default_rng(width + sections)
    x = rng.standard_normal((rows, width)).astype(np.float32)
    orders = [rng.permutation(width) for _ in range(sections)]
    weights = {f"w{i}": np.eye(width, dtype=np.float32)[order] for i, order in enumerate(orders)}
    y = x
    for i in range(sections):
        y = y @ weights[f"w{i}"]
    return {"x": x, **weights}, y


@pytest.mark.parametrize(("width", "sections"), [(100, 2), (64, 24)])
@pytest.mark.parametrize("timing", [True, False])
def test_sections_one_after_the_other(toy, width, sections, timing):
    """24 sections turn the 4-bit boundary counters (4 posts a round) round six times; three epochs, eighteen times."""
    tensors, expected = permutations(width, sections)
    result = simulate(product_chain(toy, width, sections), toy, tensors=tensors, epochs=3, timing=timing)
    assert np.array_equal(result.outputs["y"], expected)
    assert len(set(result.epoch_cycles)) == 1
