"""Cycles by section: counted where that was asked for, and only there."""

from __future__ import annotations

import numpy as np
import pytest

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
