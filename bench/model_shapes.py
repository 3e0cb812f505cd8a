"""Figures of four public decoders, without weights: enough to compile for a chip and to predict and simulate its time.

Sources: the `config.json` of SmolLM2-135M, Qwen3-0.6B, Llama-3.1-8B and gemma-3-270m. Rope frequencies matter to no
shape and are those of base 10,000.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

from pavane.frontends.deploy import deployed_dtype
from pavane.ir.types import StoredWeights, row_bytes
from pavane.passes.decoder_tensors import expected_weights
from pavane.tensor_graph.decoder import DecoderConfig, DecoderWeights


def decoder_config(**figures: Any) -> DecoderConfig:
    """Figures with the usual rest."""
    usual = {"architecture": "llama", "norm_epsilon": 1e-5, "rope": "halves", "context": 2048}
    frequencies = rope_frequencies(figures["head_width"])
    return DecoderConfig(**({**usual, "rope_inverse_frequencies": frequencies} | figures))


def rope_frequencies(head_width: int) -> tuple[float, ...]:
    return tuple(10_000.0 ** (-2.0 * i / head_width) for i in range(head_width // 2))


_GEMMA_LAYERS = 18
MODELS = {
    config.name: config
    for config in (
        decoder_config(
            name="smollm2-135m", layers=30, width=576, feed_forward=1536, heads=9, kv_heads=3, head_width=64,
            vocabulary=49152, rope="interleaved", tied_embeddings=True,
        ),
        decoder_config(
            name="qwen3-0.6b", architecture="qwen3", layers=28, width=1024, feed_forward=3072, heads=16, kv_heads=8,
            head_width=128, vocabulary=151936, qk_norm=True, tied_embeddings=True,
        ),
        decoder_config(
            name="llama-3.1-8b", layers=32, width=4096, feed_forward=14336, heads=32, kv_heads=8, head_width=128,
            vocabulary=128256, rope="interleaved",
        ),
        decoder_config(
            name="gemma-3-270m", architecture="gemma3", layers=_GEMMA_LAYERS, width=640, feed_forward=2048, heads=4,
            kv_heads=1, head_width=256, vocabulary=262144, qk_norm=True, post_norms=True, tied_embeddings=True,
            activation="gelu_tanh", embedding_scale=sqrt(640.0), attention_window=512,
            local_layers=tuple(layer for layer in range(_GEMMA_LAYERS) if layer % 6 < 5),
            local_rope_inverse_frequencies=rope_frequencies(256),
        ),
    )
}  # fmt: skip


def stored_weights(config: DecoderConfig, weights: StoredWeights = "q8_0") -> DecoderWeights:
    """The weights' table in deployment form: matrices of whole blocks as `weights`, the rest f32."""
    return DecoderWeights(tuple((n, s, deployed_dtype(s, weights)) for n, s in expected_weights(config)))


def weight_bytes_a_token(config: DecoderConfig, weights: StoredWeights = "q8_0") -> int:
    """Bytes of the weights that a decode step reads: all, but of the embedding one row where the output has its own."""
    sizes = {n: prod(s[:-1]) * row_bytes(deployed_dtype(s, weights), s[-1]) for n, s in expected_weights(config)}
    if not config.tied_embeddings:
        sizes["embedding"] //= config.vocabulary
    return sum(sizes.values())
