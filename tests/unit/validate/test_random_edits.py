"""Whatever can be decoded as a program is judged without an exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pavane.targets.load import load_target
from pavane.validate import Violation, violations
from tests import examples
from tests.strategies import edited

TOY, HOST = load_target("toy"), load_target("host", cores=2)
PROGRAMS = {
    "matmul": (examples.matmul_multicast(TOY), TOY),
    "norm": (examples.norm_product_host(HOST, contract="INT8_ACTIVATIONS"), HOST),
    "attention": (examples.attention_host(HOST), HOST),
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@given(data=st.data())
def test_an_edited_program_is_judged(name, data):
    original, target = PROGRAMS[name]
    program = data.draw(edited(original))
    if program is not None:
        assert all(isinstance(found, Violation) for found in violations(program, target))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_originals_are_valid(name):
    program, target = PROGRAMS[name]
    assert violations(program, target) == ()
