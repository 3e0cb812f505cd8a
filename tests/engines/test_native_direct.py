"""Which results go straight to their tensor, and which must not."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.expr import at, fn
from pavane.ir.program import Compute, Generic, Program, Ref, Store
from pavane.native.direct import direct_stores
from pavane.targets.load import load_target
from tests.building import COL, ROW, span, whole, window
from tests.engines.native_programs import accepted, generic_program
from tests.engines.sim_programs import edited
from tests.examples import norm_product_host

HOST = load_target("host", 1)
X = {"x": ("f32", 4, 40)}


def direct(program: Program) -> set[str]:
    shape = program.shapes[0]
    return set(direct_stores(program, shape, shape.processes[0]))


def test_a_result_that_is_stored_at_once_goes_to_its_tensor():
    program = generic_program(HOST, fn("add", at("x", ROW, COL), 1.0), X, 4, 40)
    assert direct(program) == {"fY"}
    x = np.arange(160, dtype=np.float32).reshape(4, 40)
    with native.load(program, HOST, weights={}, accept=accepted) as ready:
        ready.launch({}, {"x": x})
        assert np.array_equal(ready.tensor("Y"), x + 1)


def test_rows_that_a_symbol_limits():
    assert direct(norm_product_host(HOST)) == {"fC"}


@pytest.mark.parametrize("stored", [window((0, 4), (0, 32), row=0), window((0, 3), (0, 40), row=0)])
def test_a_window_of_other_elements(stored):
    program = generic_program(HOST, at("x", ROW, COL), X, 4, 40)
    changed = edited(program, "core", lambda s: (replace(s, window=stored),) if isinstance(s, Store) else (s,))
    assert direct(changed) == set()


def test_a_result_of_two_ops():
    program = generic_program(HOST, at("x", ROW, COL), X, 4, 40)
    twice = Compute(Generic(Ref("fY"), at("x", ROW, COL), span(0, 4, 4), whole(40)))
    changed = edited(program, "core", lambda s: (s, twice) if isinstance(s, Compute) else (s,))
    assert direct(changed) == set()


def test_a_result_that_is_read_again():
    program = generic_program(HOST, at("x", ROW, COL), X, 4, 40)
    reading = Compute(Generic(Ref("fY"), fn("add", at("fY", ROW, COL), 1.0), whole(4), whole(40)))
    changed = edited(program, "core", lambda s: (reading,) if isinstance(s, Compute) else (s,))
    assert direct(changed) == set()


def test_a_tensor_that_is_read_in_place():
    """Column c of the result is the neighbour's: written in place, later columns would see it."""
    program = generic_program(HOST, at("x", ROW, COL), X, 4, 40)
    instance = program.instances[0]
    one = tuple(replace(b, tensor="Y") for b in instance.bindings)
    assert direct(replace(program, instances=(replace(instance, bindings=one),))) == set()


def test_quants_are_stored_by_blocks():
    assert direct(generic_program(HOST, at("x", ROW, COL), {"x": ("f32", 4, 64)}, 4, 64, "q8_0")) == set()
