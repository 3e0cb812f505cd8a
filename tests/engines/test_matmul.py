"""Single products from an authored graph: `toy` on the simulator, `host` natively, both against exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pavane as pv
from pavane import native
from pavane.ir.program import Program
from pavane.sim import Simulator
from pavane.sim.numbers import NUMPY
from pavane.targets.load import load_target
from pavane.tensor_graph.bound import worst_ratio
from pavane.tensor_graph.q8 import quantise_q8

SHAPES = [(1, 1, 1), (33, 65, 31), (7, 64, 100), (2, 576, 33), (64, 32, 96)]


def product(m: int, k: int, n: int, fill=None, dtype: str = "f32") -> pv.Source:
    graph = pv.Graph("product")
    a = graph.input("a", (m, k), dtype, fill)
    b = graph.weight("b", (k, n), dtype, fill)
    graph.output("c", graph.matmul(a, b))
    return pv.graph(graph)


def operands(program: Program, m: int, k: int, n: int, fill, seed: int) -> dict[str, np.ndarray]:
    """Random operands in the types in which the program takes them."""
    rng = np.random.default_rng(seed)

    def draw(shape):
        return rng.integers(fill.lo, fill.hi + 1, shape) if fill else rng.standard_normal(shape)

    kinds = {t.name: NUMPY[t.dtype] for t in program.tensors}
    return {
        "a": draw((m, k)).astype(np.float32).astype(kinds["a"]),
        "b": draw((k, n)).astype(np.float32).astype(kinds["b"]),
    }


def on_toy(program: Program, arrays: dict[str, np.ndarray]) -> np.ndarray:
    return Simulator(program, load_target("toy"), {"b": arrays["b"]}).launch({}, {"a": arrays["a"]}).outputs["c"]


def on_host(program: Program, arrays: dict[str, np.ndarray], cores: int = 2) -> np.ndarray:
    with native.load(program, load_target("host", cores), weights={"b": arrays["b"]}) as engine:
        engine.launch({}, {"a": arrays["a"]})
        return engine.tensor("c").copy()


def is_exact(program: Program) -> bool:
    return program.shapes[0].numerics.exact


def exact_product(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return arrays["a"].astype(np.int64) @ arrays["b"].astype(np.int64)


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_integers_are_exact_where_claimed(m, k, n):
    fill = pv.Ints(-8, 8)
    for target, run in (("toy", on_toy), (load_target("host", 2), on_host)):
        program = pv.compile(product(m, k, n, fill), target)
        assert is_exact(program)
        arrays = operands(program, m, k, n, fill, seed=m)
        assert np.array_equal(run(program, arrays).astype(np.int64), exact_product(arrays))


@pytest.mark.slow
def test_a_wide_product_is_exact():
    m, k, n, fill = 7, 576, 49152, pv.Ints(-15, 15)
    for target, run in (("toy", on_toy), (load_target("host", 2), on_host)):
        program = pv.compile(product(m, k, n, fill), target)
        assert is_exact(program)
        arrays = operands(program, m, k, n, fill, seed=1)
        assert np.array_equal(run(program, arrays).astype(np.int64), exact_product(arrays))


@pytest.mark.parametrize("target", ["toy", "host"])
def test_exactness_is_claimed_up_to_the_limit_and_not_past_it(target):
    """K * max|a| * max|b| <= 2**24: 64 * 512 * 512 is the limit, one more in K or in a value is past it."""
    at_limit = pv.compile(product(2, 64, 3, pv.Ints(-512, 512)), target)
    assert is_exact(at_limit)
    assert not is_exact(pv.compile(product(2, 65, 3, pv.Ints(-512, 512)), target))
    assert not is_exact(pv.compile(product(2, 64, 3, pv.Ints(-513, 513)), target))


@pytest.mark.parametrize(("target", "run"), [("toy", on_toy), ("host", on_host)])
def test_the_worst_case_at_the_limit_is_exact(target, run):
    chip = load_target(target, 2 if target == "host" else None)
    program = pv.compile(product(2, 64, 3, pv.Ints(-512, 512)), chip)
    arrays = operands(program, 2, 64, 3, pv.Ints(512, 512), seed=0)
    assert run(program, arrays).tolist() == [[2.0**24] * 3] * 2


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (33, 65, 31), (7, 576, 49)])
def test_floats_are_within_the_stated_bound(m, k, n, dtype):
    for target, run in (("toy", on_toy), (load_target("host", 2), on_host)):
        program = pv.compile(product(m, k, n, dtype=dtype), target)
        arrays = operands(program, m, k, n, None, seed=k)
        found = run(program, arrays)
        assert worst_ratio(program, arrays, arrays | {"c": found}, {}) <= 1
        wide = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64)
        assert np.abs(found - wide).max() <= 1e-5 * max(1.0, np.abs(wide).max()) * np.sqrt(k)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**31))
def test_any_small_product_is_exact_on_both(m, k, n, seed):
    fill = pv.Ints(-7, 9)
    for target, run in (("toy", on_toy), (load_target("host", 2), on_host)):
        program = pv.compile(product(m, k, n, fill), target)
        arrays = operands(program, m, k, n, fill, seed)
        assert np.array_equal(run(program, arrays).astype(np.int64), exact_product(arrays))


@pytest.mark.parametrize("wrong", [9.0, -9.0, 0.5, np.nan, np.inf])
def test_values_that_break_the_fill_are_refused_by_both_engines(wrong):
    """What an exactness claim rests on is checked: weights at load, inputs at launch."""
    fill = pv.Ints(-8, 8)
    for target, run in (("toy", on_toy), (load_target("host", 2), on_host)):
        program = pv.compile(product(3, 4, 2, fill), target)
        arrays = operands(program, 3, 4, 2, fill, seed=0)
        for name in ("a", "b"):
            broken = arrays[name].copy()
            broken[0, 0] = wrong
            with pytest.raises(pv.SpatialReject, match=r"declared integers from -8 to 8") as caught:
                run(program, arrays | {name: broken})
            assert caught.value.code == "launch"


def test_what_a_fill_says_of_blocks_is_checked_and_nothing_is_claimed_of_it():
    fill, target = pv.Ints(-8, 8), load_target("host", 1)
    graph = pv.Graph("blocks")
    a, b = graph.input("a", (3, 64), fill=fill), graph.weight("b", (5, 64), "q8_0", fill)
    graph.output("c", graph.matmul(a, b, transposed=True))
    program = pv.compile(pv.graph(graph), target)
    assert not is_exact(program)
    given = np.ones((3, 64), np.float32)
    fractions, integers = (quantise_q8(np.full((5, 64), value, np.float32)) for value in (0.3, 0.0))
    for run in (
        lambda weights: native.load(program, target, weights={"b": weights}).close(),
        lambda weights: pv.simulate(program, target, tensors={"a": given, "b": weights}),
    ):
        run(integers)
        with pytest.raises(pv.SpatialReject, match=r"declared integers from -8 to 8"):
            run(fractions)


def test_a_launch_takes_arrays_and_whole_symbols_only():
    program = pv.compile(product(3, 4, 2), load_target("host", 1))
    arrays = operands(program, 3, 4, 2, None, seed=0)
    with native.load(program, load_target("host", 1), weights={"b": arrays["b"]}) as engine:
        for given in (arrays["a"].tolist(), arrays["a"].astype(">f4"), arrays["a"][:2]):
            with pytest.raises(pv.SpatialReject, match="inputs of a launch are not right"):
                engine.launch({}, {"a": given})
