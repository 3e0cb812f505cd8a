"""The bound holds for right engines, stays small, and catches wrong ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pavane.ir.program import Program
from pavane.ir.types import Ints
from pavane.passes.from_tensor_op import from_tensor_op
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.bound import error_bound, gamma, quantisation_error, storing_error, worst_ratio
from pavane.tensor_graph.front import recognize_stages
from pavane.tensor_graph.graph import Graph, Value
from pavane.tensor_graph.operands import STORAGE
from pavane.tensor_graph.q8 import dequantise_q8, quantise_q8
from pavane.tensor_graph.reference import evaluate_spec

RNG = np.random.default_rng(0)


def compiled(graph: Graph, target: SpatialTarget) -> Program:
    (op,) = recognize_stages(graph)
    return from_tensor_op(op, target)


def product(target: SpatialTarget, k: int, fill: Ints | None = None) -> Program:
    g = Graph()
    g.output("c", g.matmul(g.input("a", (3, k), fill=fill), g.weight("b", (k, 4), fill=fill)))
    return compiled(g, target)


def test_a_sum_of_products_has_gamma(toy: SpatialTarget) -> None:
    a, b = RNG.normal(size=(3, 50)).astype(np.float32), RNG.normal(size=(50, 4)).astype(np.float32)
    (judged,) = error_bound(product(toy, 50), {"a": a, "b": b}, {})
    exact = a.astype(float) @ b.astype(float)
    np.testing.assert_allclose(judged.value, exact, atol=1e-13)
    by_hand = gamma(51) * (np.abs(a).astype(float) @ np.abs(b).astype(float))
    stored = (np.abs(exact) + by_hand) * 2.0**-24
    np.testing.assert_allclose(judged.bound, by_hand + stored, rtol=1e-6)
    assert gamma(1) == pytest.approx(2.0**-24, rel=1e-6)


def test_exact_sections_have_no_room(toy: SpatialTarget) -> None:
    program = product(toy, 50, Ints(-4, 4))
    a, b = RNG.integers(-4, 5, (3, 50)), RNG.integers(-4, 5, (50, 4))
    after = evaluate_spec(program, {"a": a, "b": b}, {})
    assert worst_ratio(program, {"a": a, "b": b}, after, {}) == 0.0
    after["c"][1, 2] += 1
    assert worst_ratio(program, {"a": a, "b": b}, after, {}) == math.inf


def chain(target: SpatialTarget, build) -> tuple[Program, dict[str, np.ndarray]]:
    g = Graph()
    x = g.input("x", (6, 40))
    g.output("y", build(g, x))
    return compiled(g, target), {"x": RNG.normal(size=(6, 40)).astype(np.float32)}


CHAINS = {
    "softmax": lambda g, x: g.softmax(x),
    "rmsnorm": lambda g, x: g.rmsnorm(x),
    "silu": lambda g, x: g.apply("div", x, g.apply("add", 1.0, g.apply("exp", g.apply("sub", 0.0, x)))),
    "tanh": lambda g, x: g.apply("tanh", x),
    "erf": lambda g, x: g.apply("erf", x),
    "sin": lambda g, x: g.apply("sin", g.apply("mul", x, 30.0)),
    "log": lambda g, x: g.apply("log", g.apply("add", g.apply("abs", x), 0.1)),
    "select": lambda g, x: g.apply("select", g.apply("le", x, 0.0), g.apply("sqrt", g.apply("abs", x)), x),
}


@pytest.mark.parametrize("name", sorted(CHAINS))
def test_f32_arithmetic_is_inside_and_the_bound_is_small(name: str, toy: SpatialTarget) -> None:
    program, tensors = chain(toy, CHAINS[name])
    single = evaluate_spec(program, tensors, {}, np.float32)
    assert worst_ratio(program, tensors, single, {}) <= 1.0
    (judged,) = error_bound(program, tensors, {})
    assert np.max(judged.bound / (np.abs(judged.value) + 1e-3)) < 1e-3
    wrong = {**single, "y": single["y"] * np.float32(1.0001) + np.float32(1e-6)}
    assert worst_ratio(program, tensors, wrong, {}) > 1.0


def test_rounding_is_uncertain_only_at_halves(toy: SpatialTarget) -> None:
    def build(g: Graph, x: Value) -> Value:
        return g.apply("round", g.apply("mul", x, 1.1))

    program, _ = chain(toy, build)
    x = np.full((6, 40), 5.0, np.float32)  # 5.5 up to rounding: 5 or 6
    x[0] = 5.1
    (judged,) = error_bound(program, {"x": x}, {})
    assert judged.bound[0].max() < 1e-6 * 6
    assert judged.bound[1].min() >= 1.0


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_storing(dtype: str) -> None:
    values = RNG.normal(size=1000) * 10.0 ** RNG.integers(-7, 4, 1000)
    rounded = values.astype(STORAGE[dtype]).astype(float)
    assert (np.abs(rounded - values) <= storing_error(dtype, values, np.zeros(1000))).all()
    assert (storing_error(dtype, rounded, np.zeros(1000)) == 0).all()


def test_quantisation() -> None:
    values = RNG.normal(size=(50, 64)) * 10.0 ** RNG.uniform(-9, 3, (50, 1))
    values[3] = 0.0
    error = np.abs(dequantise_q8(quantise_q8(values), np.float64) - values)
    bound = quantisation_error(values, np.zeros_like(values))
    assert (error <= bound).all()
    assert (bound[3] == 0).all()
    ordinary = np.abs(values).max(axis=1) > 1e-2
    assert (bound[ordinary] <= np.abs(values[ordinary]).max(axis=1, keepdims=True) * 0.005).all()


def test_int8_activations_pay_for_their_panel(toy: SpatialTarget) -> None:
    def section(contract: str) -> Program:
        g = Graph(contract=contract)
        w = g.weight("w", (8, 64), dtype="q8_0")
        g.output("y", g.matmul(g.rmsnorm(g.input("x", (4, 64))), w, transposed=True))
        return compiled(g, toy)

    tensors = {"x": RNG.normal(size=(4, 64)).astype(np.float32), "w": quantise_q8(RNG.normal(size=(8, 64)))}
    normed = tensors["x"] / np.sqrt((tensors["x"] ** 2).mean(1, keepdims=True) + 1e-5)
    quantised = {"y": (dequantise_q8(quantise_q8(normed)) @ dequantise_q8(tensors["w"]).T).astype(np.float32)}
    assert worst_ratio(section("INT8_ACTIVATIONS"), tensors, quantised, {}) <= 1.0
    assert worst_ratio(section("FLOAT"), tensors, quantised, {}) > 100.0


def test_narrow_operands_are_paid_for(toy: SpatialTarget) -> None:
    """On an engine that has bf16 only, f32 operands are rounded to bf16."""
    from msgspec.structs import replace

    engines = tuple(
        replace(e, matrix=tuple(m for m in e.matrix if m.a == "bf16")) if e.matrix else e for e in toy.engines
    )
    program = product(replace(toy, engines=engines), 50)
    assert program.shapes[0].numerics.operands == (("A", "bf16"), ("B", "bf16"))
    a, b = RNG.normal(size=(3, 50)).astype(np.float32), RNG.normal(size=(50, 4)).astype(np.float32)
    rounded = a.astype(STORAGE["bf16"]).astype(float) @ b.astype(STORAGE["bf16"]).astype(float)
    assert worst_ratio(program, {"a": a, "b": b}, {"c": rounded.astype(np.float32)}, {}) <= 1.0
    assert worst_ratio(product(toy, 50), {"a": a, "b": b}, {"c": rounded.astype(np.float32)}, {}) > 10.0
