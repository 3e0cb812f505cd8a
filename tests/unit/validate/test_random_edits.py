"""Whatever can be decoded as a program is judged without an exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pavane.frontends.deploy import deployed_dtype
from pavane.ir.program import Program
from pavane.passes.decoder_tensors import expected_weights
from pavane.passes.from_qwen_ops import decoder_sections
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.tensor_graph.decoder import DecoderWeights
from pavane.validate import Violation, violations
from tests import examples
from tests.strategies import edited
from tests.tiny_models import tiny_config

TOY, HOST = load_target("toy"), load_target("host", cores=2)


def decoder_templates() -> dict[str, tuple[Program, SpatialTarget]]:
    """Sections with what the hand-written programs lack: an indirect load, a cache that grows, groups of stages."""
    config = tiny_config(layers=1)
    weights = DecoderWeights(tuple((n, s, deployed_dtype(s)) for n, s in expected_weights(config)))
    forward = decoder_sections(config, weights, TOY, rows="rows", contract="INT8_ACTIVATIONS", context=64)
    chosen = {section.shapes[0].name: (section, TOY) for section in forward.sections}
    return {name: chosen[name] for name in ("embedding", "k", "attention")}


PROGRAMS = decoder_templates() | {
    "matmul": (examples.matmul_multicast(TOY), TOY),
    "norm": (examples.norm_product_host(HOST, contract="INT8_ACTIVATIONS"), HOST),
    "attention_host": (examples.attention_host(HOST), HOST),
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
