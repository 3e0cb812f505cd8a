"""The verbs of the public door: what they answer, and what they refuse of whatever is put in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pavane as pv

PROGRAM = pv.compile(pv.op("matmul:5,6,7"), "toy")
NONSENSE = (None, 3, "x", b"y", [], {}, object(), 1.5, np.zeros(3))

VERBS: dict[str, Callable[[Any], object]] = {
    "compile": lambda given: pv.compile(given, "toy"),
    "compile for": lambda given: pv.compile(pv.op("matmul:5,6,7"), given),
    "check": lambda given: pv.check(given, "toy"),
    "check on": lambda given: pv.check(PROGRAM, given),
    "simulate": lambda given: pv.simulate(given, "toy"),
    "simulate on": lambda given: pv.simulate(PROGRAM, given),
    "show": pv.show,
    "graph": pv.graph,
    "op": pv.op,
    "gguf": pv.gguf,
    "as_target": pv.as_target,
}


@pytest.mark.parametrize("verb", VERBS)
def test_nonsense_is_refused_in_words(verb: str) -> None:
    for given in NONSENSE:
        with pytest.raises(pv.SpatialReject) as caught:
            VERBS[verb](given)
        assert caught.value.what


def test_a_program_goes_through_all_verbs_by_the_name_of_its_target() -> None:
    assert pv.check(PROGRAM, "toy").facts
    assert pv.show(PROGRAM).startswith(f"program {PROGRAM.name} at VERIFIED for toy")
    tensors = {"a": np.ones((5, 6), np.float32), "b": np.full((6, 7), 0.5, np.float32)}
    result = pv.simulate(PROGRAM, "toy", tensors=tensors)
    assert np.array_equal(result.outputs["c"], np.full((5, 7), 3.0))
    assert result.cycles > 0
