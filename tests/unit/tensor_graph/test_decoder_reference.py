"""The numpy decoder against numbers that Hugging Face transformers 5 gave for the same weights (float32, eager
attention).
"""

from __future__ import annotations

import numpy as np
import pytest

from pavane.passes.decoder_tensors import expected_weights
from pavane.tensor_graph.decoder import DecoderConfig
from pavane.tensor_graph.decoder_reference import decoder_reference

TOKENS = (3, 17, 5, 36, 0, 9, 9, 21, 2, 30, 11, 4)

# Logits 0 .. 7 of the last position.
TRANSFORMERS = {
    "llama": (0.68031, -0.23765, 0.31361, -2.17209, 1.00374, 2.58784, 0.51361, 1.05625),
    "qwen2": (-1.7429, -0.20437, 1.40002, 1.04663, -0.34077, -0.68727, 0.69607, 1.75531),
    "qwen3": (-1.16023, 2.15976, 0.66104, -1.4305, -1.8221, 0.61077, -0.23065, 0.94336),
    "mistral": (-1.90667, -1.37672, -1.76943, 1.4355, 2.16785, 1.25007, -1.07353, -0.02744),
    "gemma3": (3.61281, 1.10743, 0.83762, 0.37031, 4.52559, 3.61853, -0.6821, -1.5112),
}
KINDS = {
    "llama": {},
    "qwen2": {"qkv_biases": True, "tied_embeddings": True},
    "qwen3": {"qk_norm": True, "tied_embeddings": True},
    "mistral": {"attention_window": 4, "local_layers": (0, 1, 2)},
    "gemma3": {
        "qk_norm": True,
        "post_norms": True,
        "norm_offset": 1.0,
        "activation": "gelu_tanh",
        "tied_embeddings": True,
        "embedding_scale": 24**0.5,
        "attention_scale": 8**-0.5,
        "attention_window": 4,
        "local_layers": (0, 2),
        "local_rope_inverse_frequencies": tuple(1000.0 ** (-2 * i / 6) for i in range(3)),
    },
}


def kind_config(kind: str) -> DecoderConfig:
    return DecoderConfig(
        name=kind, architecture=kind, layers=3, width=24, feed_forward=40, heads=4, kv_heads=2, head_width=6,
        vocabulary=37, context=64, norm_epsilon=1e-5, rope="halves",
        rope_inverse_frequencies=tuple(10000.0 ** (-2 * i / 6) for i in range(3)), **KINDS[kind],
    )  # fmt: skip


def kind_weights(config: DecoderConfig) -> dict[str, np.ndarray]:
    """The weights that were put into the other implementation too."""
    rng, out = np.random.default_rng(7), {}
    for name, shape in expected_weights(config):
        centre = 1.0 if name.endswith("norm") and config.norm_offset == 0 else 0.0
        spread = 0.3 if len(shape) == 2 else 0.2
        out[name] = (rng.normal(size=shape) * spread + centre).astype(np.float32)
    return out


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_logits_are_those_of_transformers(kind: str) -> None:
    config = kind_config(kind)
    logits = decoder_reference(config, kind_weights(config), TOKENS)
    assert logits.shape == (12, 37)
    np.testing.assert_allclose(logits[-1, :8], TRANSFORMERS[kind], atol=3e-5)


def test_interleaved_rope_on_permuted_rows_is_halves() -> None:
    """Llama's GGUF permutes the rows of q and k within a head: [first halves, second halves] -> pairs."""
    config = kind_config("llama")
    weights = kind_weights(config)
    permuted = dict(weights)
    order = np.arange(6).reshape(2, 3).T.reshape(-1)
    for layer in range(3):
        for which, heads in (("q", 4), ("k", 2)):
            name = f"layers.{layer}.{which}"
            permuted[name] = weights[name].reshape(heads, 6, 24)[:, order].reshape(heads * 6, 24)
    pairs = kind_config("llama")
    pairs = DecoderConfig(**{f: getattr(pairs, f) for f in pairs.__struct_fields__} | {"rope": "interleaved"})
    ours, theirs = decoder_reference(pairs, permuted, TOKENS), decoder_reference(config, weights, TOKENS)
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_a_prefix_does_not_see_what_follows() -> None:
    config = kind_config("gemma3")
    weights = kind_weights(config)
    np.testing.assert_allclose(
        decoder_reference(config, weights, TOKENS[:5]), decoder_reference(config, weights, TOKENS)[:5], atol=1e-5
    )
