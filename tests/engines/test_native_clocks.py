"""Cycles by section, counted where that was asked for; and what part of their time workers wait, always."""

from __future__ import annotations

import numpy as np
import pytest

import pavane as pv
from pavane import native
from pavane.ir.program import Tree
from pavane.targets.load import load_target
from tests.engines.native_programs import accepted, as_stored, product_program


@pytest.mark.parametrize("clocks", [False, True])
def test_cycles_grow_with_launches_where_they_are_counted(clocks):
    host, a = load_target("host", 1), np.ones((4, 64), np.float32)
    program = product_program(host, "f32", "f32", 4, 64, 64, Tree(0, 1, True), False)
    b = as_stored(np.ones((64, 64), np.float32), "f32")
    with native.load(program, host, weights={"B": b}, accept=accepted, clocks=clocks) as ready:
        seen = [ready.cycles()]
        for _ in range(2):
            ready.launch({}, {"A": a})
            seen.append(ready.cycles())
        assert np.array_equal(ready.tensor("Y"), a @ b)
    assert seen[0].shape == (1, len(program.instances) + 1)
    assert not seen[0].any()
    assert (seen[2][0, 0] > seen[1][0, 0] > 0) == clocks


def test_waits_are_measured_where_workers_wait():
    """Three workers, however many cores there are."""
    graph = pv.Graph("two products")
    x, first, second = graph.input("x", (1, 64)), graph.weight("a", (32, 64)), graph.weight("b", (64, 32))
    graph.output("y", graph.matmul(graph.matmul(x, first, transposed=True), second, transposed=True))
    host = load_target("host", 3)
    arrays = {"a": np.ones((32, 64), np.float32), "b": np.ones((64, 32), np.float32)}
    with native.load(pv.compile(pv.graph(graph), host), host, weights=arrays) as ready:
        assert not ready.waited().any()
        for _ in range(20):
            ready.launch({}, {"x": np.ones((1, 64), np.float32)})
        assert np.array_equal(ready.tensor("y"), np.full((1, 64), 2048, np.float32))
        waited = ready.waited()
    assert waited.shape == (3,)
    assert waited.min() >= 0
    assert 0 < waited.max() <= 1
