"""The programs written by hand, run natively: right values, the same bits for every number of workers, and no end of
epochs.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.program import Binding, Program
from pavane.targets.load import load_target
from tests.engines.native_programs import accepted, as_numbers, as_stored
from tests.engines.sim_programs import gather, growing_cache, local_matmul, product_chain, softmax_host
from tests.examples import attention_host, matmul_multicast, norm_product_host


def norm_product(workers: int, contract: str, rows: int, outputs: int = 96) -> tuple[np.ndarray, np.ndarray]:
    """(what native gives, what float64 gives) for weights and inputs that do not depend on `workers`."""
    target = load_target("host", workers)
    rng = np.random.default_rng(7)
    gain, weight = rng.standard_normal(64).astype(np.float32), as_stored(rng.standard_normal((outputs, 64)), "q8_0")
    x = rng.standard_normal((rows, 64)).astype(np.float32)
    program = norm_product_host(target, outputs=outputs, contract=contract)
    with native.load(program, target, weights={"w": weight, "g": gain}, accept=accepted) as ready:
        ready.launch({"rows": rows}, {"x": x})
        found = ready.tensor("y").copy()
    wide = x.astype(np.float64)
    normed = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * gain
    return found, normed @ as_numbers(weight, "q8_0").T.astype(np.float64)


@pytest.mark.parametrize("rows", [1, 2, 7, 32])
@pytest.mark.parametrize(("contract", "error"), [("FLOAT", 1e-6), ("INT8_ACTIVATIONS", 2e-2)])
def test_norm_and_product(contract, error, rows):
    found, expected = norm_product(1, contract, rows)
    assert np.abs(found - expected).max() <= error * np.abs(expected).max()
    for workers in (2, 3):
        assert np.array_equal(norm_product(workers, contract, rows)[0], found)


@pytest.mark.parametrize("outputs", [1, 31, 33, 130])
def test_ragged_outputs_and_ghost_items(outputs):
    found, expected = norm_product(3, "FLOAT", 3, outputs)
    assert found.shape == (3, outputs)
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_a_row_does_not_depend_on_the_rows_beside_it():
    """Blocking over rows changes no bit: a row alone, and the same row among 32."""
    for contract in ("FLOAT", "INT8_ACTIVATIONS"):
        alone, among = norm_product(1, contract, 1)[0], norm_product(1, contract, 32)[0]
        assert np.array_equal(alone[0], among[0])


def attention(workers: int, pos: int, rows: int, heads: int = 3, kv_heads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    target = load_target("host", workers)
    rng = np.random.default_rng(8)
    keys, values = (rng.standard_normal((64, kv_heads, 16)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((rows, heads, 16)).astype(np.float32)
    program = attention_host(target, heads=heads, kv_heads=kv_heads)
    with native.load(program, target, weights={"kc": keys, "vc": values}, accept=accepted) as ready:
        ready.launch({"pos": pos, "rows": rows}, {"q": q})
        found = ready.tensor("o").copy()
    live = pos + rows
    group = np.arange(heads) // (heads // kv_heads)
    k, v = keys[:live, group].astype(np.float64), values[:live, group].astype(np.float64)
    scores = np.einsum("rhd,jhd->rhj", q, k) * 0.25
    seen = np.arange(live)[None, None, :] <= pos + np.arange(rows)[:, None, None]
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return found, np.einsum("rhj,jhd->rhd", weights / weights.sum(axis=-1, keepdims=True), v)


@pytest.mark.parametrize(("pos", "rows"), [(0, 1), (17, 1), (31, 32), (5, 9)])
def test_attention(pos, rows):
    found, expected = attention(1, pos, rows)
    assert np.abs(found - expected).max() <= 1e-6
    for workers in (2, 3):
        assert np.array_equal(attention(workers, pos, rows)[0], found)


def test_attention_with_groups_of_heads():
    found, expected = attention(2, 20, 4, heads=4, kv_heads=2)
    assert np.abs(found - expected).max() <= 1e-6


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (33, 65, 31), (100, 70, 150)])
def test_multicast_matmul_on_toy(toy, m, k, n):
    """Four engines a site, real queues between them, 4-bit credits."""
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    with native.load(matmul_multicast(toy, m, k, n), toy, weights={"b": b}, accept=accepted) as ready:
        for _ in range(3):
            ready.launch({}, {"a": a})
        assert np.array_equal(ready.tensor("c"), a.astype(np.float32) @ b.astype(np.float32))


def test_local_queues_of_depth_three(toy):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((20, 70), (70, 150)))
    program = local_matmul(toy, 20, 70, 150, depth=3, a="bf16", b="bf16")
    with native.load(program, toy, weights={"b": b}, accept=accepted) as ready:
        for _ in range(5):
            ready.launch({}, {"a": a})
        assert np.array_equal(ready.tensor("c"), a.astype(np.float32) @ b.astype(np.float32))


def test_a_chain_waits_at_its_boundaries(toy):
    rng = np.random.default_rng(2)
    weights = {f"w{i}": rng.integers(-1, 2, (40, 40)).astype(np.float32) for i in range(4)}
    x = rng.integers(-3, 4, (5, 40)).astype(np.float32)
    with native.load(product_chain(toy, 40, 4), toy, weights=weights, accept=accepted) as ready:
        for _ in range(10):
            ready.launch({}, {"x": x})
            assert np.array_equal(ready.tensor("y"), x @ weights["w0"] @ weights["w1"] @ weights["w2"] @ weights["w3"])


def test_gather(toy):
    rng = np.random.default_rng(3)
    table, ids = rng.standard_normal((50, 40)).astype(np.float16), rng.integers(0, 50, 7).astype(np.int32)
    with native.load(gather(toy), toy, weights={"table": table}, accept=accepted) as ready:
        ready.launch({"rows": 7}, {"ids": ids})
        assert np.array_equal(ready.tensor("e"), table[ids].astype(np.float32))


def test_softmax(host):
    x = np.random.default_rng(4).standard_normal((5, 77)).astype(np.float32) * 5
    with native.load(softmax_host(host, 5, 77), host, weights={}, accept=accepted) as ready:
        ready.launch({}, {"x": x})
        wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        # x - max is rounded to f32 before exp: up to 2**-20 at these magnitudes.
        assert np.allclose(ready.tensor("y"), wide / wide.sum(axis=1, keepdims=True), rtol=3e-6, atol=0)


def test_a_cache_grows_over_epochs(toy):
    rng = np.random.default_rng(5)
    rows_in = [rng.integers(-8, 9, (rows, 24)).astype(np.float32) for rows in (3, 1, 1, 32, 2)]
    written = np.zeros((0, 24), np.float32)
    with native.load(growing_cache(toy), toy, weights={}, accept=accepted) as ready:
        for new in rows_in:
            ready.launch({"pos": len(written), "rows": len(new)}, {"new": new})
            written = np.concatenate([written, new])
            assert np.array_equal(ready.tensor("y")[0], written.sum(axis=0))


def test_a_thousand_epochs(toy):
    """Counters of 4 bits go round many times; two launches a wait would hang, one too few would end early."""
    a = np.ones((33, 33), ml_dtypes.bfloat16)
    with native.load(matmul_multicast(toy, 33, 33, 33), toy, weights={"b": a}, accept=accepted) as ready:
        for _ in range(1000):
            ready.launch({}, {"a": a})
        assert (ready.tensor("c") == 33).all()


def renamed(program: Program) -> Program:
    """Every tensor, section and shape with another name."""
    names = {t.name: f"t{i}_{t.name[::-1]}" for i, t in enumerate(reversed(program.tensors))}
    shapes = {s.name: f"s{i}" for i, s in enumerate(program.shapes)}
    return replace(
        program,
        name="another",
        tensors=tuple(replace(t, name=names[t.name]) for t in program.tensors),
        shapes=tuple(replace(s, name=shapes[s.name]) for s in program.shapes),
        instances=tuple(
            replace(
                i,
                name="",
                shape=shapes[i.shape],
                bindings=tuple(Binding(b.formal, names[b.tensor]) for b in i.bindings),
            )
            for i in program.instances
        ),
    )


def test_names_change_no_bit():
    target = load_target("host", 2)
    program = norm_product_host(target)
    other = renamed(program)
    rng = np.random.default_rng(9)
    arrays = {"w": as_stored(rng.standard_normal((96, 64)), "q8_0"), "g": rng.standard_normal(64).astype(np.float32)}
    arrays["x"] = rng.standard_normal((4, 64)).astype(np.float32)
    names = {t.name: o.name for t, o in zip(program.tensors, other.tensors, strict=True)}
    found = []
    for chosen, name in ((program, lambda n: n), (other, names.__getitem__)):
        weights = {name(n): arrays[n] for n in ("w", "g")}
        with native.load(chosen, target, weights=weights, accept=accepted) as ready:
            ready.launch({"rows": 4}, {name("x"): arrays["x"]})
            found.append(ready.tensor(name("y")).copy())
    assert np.array_equal(*found)
