"""A layer of real width of each model, simulated on a Wormhole with real numbers: sections on disjoint rectangles at
once, and results handed over on the sites.

The program as a whole is compared with the reference forward in float64; its operands are rounded to TF32 (11
significand bits), and each section by itself is within the bound that this gives it. (A layer of Llama-3.1-8B takes
minutes; that kind of model is in `test_sections_in_bounds`.)
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from bench.model_shapes import MODELS, rope_frequencies
from msgspec.structs import replace

from pavane.ir.program import Program
from pavane.targets.load import load_target
from pavane.tensor_graph.decoder import DecoderConfig
from pavane.tensor_graph.decoder_reference import decoder_reference
from pavane.tensor_graph.q8 import dequantise_q8, quantise_q8
from tests.chips.test_decoders_on_chips import centred_relative_rms
from tests.chips.test_sections_in_bounds import ratios
from tests.decoders import compile_decoder, random_weights, run_simulator, stored_dtype, stored_weights

LIMIT = 2.0**-9  # operands have 11 significand bits, and a value goes through some ten sections
CONTEXT = 24
ODD = {"width": 200, "feed_forward": 333, "heads": 7, "kv_heads": 1, "head_width": 42, "vocabulary": 101}


def one_layer(name: str, **figures: int) -> DecoderConfig:
    config = MODELS[name]
    local = tuple(n for n in config.local_layers if n < 1)
    frequencies = rope_frequencies(figures.get("head_width", config.head_width))
    return replace(
        config,
        **{"layers": 1, "vocabulary": 96, "local_layers": local, "rope_inverse_frequencies": frequencies, **figures},
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2-135m", "qwen3-0.6b", "gemma-3-270m", "llama-3.1-8b"])
def test_each_section_of_real_width_is_within_its_bound(name):
    found = dict(ratios(one_layer(name), "rows", CONTEXT))
    assert all(ratio <= 1 for ratio in found.values()), found
    assert sum(ratio > 0 for ratio in found.values()) >= 9


def is_joined(program: Program) -> bool:
    """Something lies on the sites, and some sections run at once."""
    waves = Counter(instance.wave for instance in program.instances if instance.wave >= 0)
    return any(t.home == "sites" for t in program.tensors) and max(waves.values(), default=0) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "rows", "block", "tokens"),
    [
        (one_layer("smollm2-135m"), 1, 1, 3),
        (one_layer("smollm2-135m"), "rows", 3, 5),
        (one_layer("qwen3-0.6b"), "rows", 2, 3),
        (one_layer("gemma-3-270m"), 1, 1, 3),
        (one_layer("gemma-3-270m"), "rows", 3, 5),
        (one_layer("llama-3.1-8b"), 1, 1, 2),
        (one_layer("smollm2-135m", **ODD), 1, 1, 4),
        (one_layer("smollm2-135m", **ODD), "rows", 3, 7),
    ],
    ids=["SmolLM2", "SmolLM2 prompt", "Qwen3 prompt", "Gemma", "Gemma prompt", "Llama", "odd", "odd prompt"],
)
def test_a_layer_says_what_the_reference_says(config, rows, block, tokens):
    target = load_target("wormhole_n150")
    program = compile_decoder(config, target, rows, quantised=True, contract="FLOAT", context=CONTEXT)
    assert is_joined(program)
    plain = random_weights(config, 11)
    arrays = stored_weights(config, plain, True)
    arrays["local_rope_inverse_frequencies"] = np.array(config.local_rope_inverse_frequencies, np.float32)
    arrays = {t.name: arrays[t.name] for t in program.tensors if t.role == "WEIGHT"}
    meant = {n: dequantise_q8(quantise_q8(a)) if stored_dtype(a.shape, True) == "q8_0" else a for n, a in plain.items()}
    ids = [int(t) for t in np.random.default_rng(11).integers(0, config.vocabulary, tokens)]
    expected = decoder_reference(config, meant, ids, np.float64)
    found = run_simulator(program, target, arrays, ids, block)
    assert centred_relative_rms(found, expected) < LIMIT
