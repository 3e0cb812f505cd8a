"""Values that are outputs and operands at once: whichever of a chain's values come out, all are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pavane as pv
from pavane import native
from pavane.sim import Simulator
from pavane.targets.load import load_target


def chain(chosen: tuple[bool, ...]) -> pv.Source:
    """x, 2x, (2x)(2x)^T, its maximum with 1: those chosen are outputs `v0`, `v1`, `v2` beside the last, `v3`."""
    graph = pv.Graph("chain")
    x = graph.input("x", (20, 40))
    doubled = graph.apply("mul", x, 2.0)
    square = graph.matmul(doubled, doubled, transposed=True)
    values = (doubled, square, graph.apply("max", square, 1.0))
    for number, (value, is_output) in enumerate(zip(values, (*chosen, True), strict=True)):
        if is_output:
            graph.output(f"v{number}", value)
    return pv.graph(graph)


def right(x: np.ndarray) -> tuple[np.ndarray, ...]:
    doubled = 2 * x
    square = doubled @ doubled.T
    return doubled, square, np.maximum(square, 1)


X = np.random.default_rng(3).integers(-3, 4, (20, 40)).astype(np.float32)


@pytest.mark.parametrize("target", ["toy", "wormhole_n150"])
@given(chosen=st.tuples(st.booleans(), st.booleans()))
@settings(max_examples=4, deadline=None)
def test_on_simulated_chips(target, chosen):
    chip = load_target(target)
    found = Simulator(pv.compile(chain(chosen), chip), chip).launch({}, {"x": X}).outputs
    assert sorted(found) == [f"v{i}" for i, out in enumerate((*chosen, True)) if out]
    for name, array in found.items():
        np.testing.assert_array_equal(array, right(X)[int(name[1:])])


@pytest.mark.parametrize("chosen", [(True, True), (False, True), (True, False)])
def test_natively(chosen):
    host = load_target("host", 2)
    with native.load(pv.compile(chain(chosen), host), host, weights={}) as engine:
        engine.launch({}, {"x": X})
        for number, out in enumerate((*chosen, True)):
            if out:
                np.testing.assert_array_equal(engine.tensor(f"v{number}"), right(X)[number])
