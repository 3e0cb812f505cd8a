"""A decoder-only transformer forward in plain numpy, float32: the answer that whole models are judged by.

Written from the models' own definitions (Llama, Qwen2, Qwen3, Gemma 3), sharing nothing with the passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pavane.tensor_graph.decoder import DecoderConfig

Weights = Mapping[str, np.ndarray]


def decoder_reference(
    config: DecoderConfig,
    weights: Weights,
    tokens: Sequence[int],
    precision: type = np.float32,
    cache_precision: type | None = None,
) -> np.ndarray:
    """Logits [T, vocabulary] of all positions 0 .. T-1. `weights` are float arrays by canonical name, [out, in].

    `cache_precision` rounds keys and values as a cache of that type would (None: no rounding).
    """
    w: dict[str, np.ndarray] = {name: np.asarray(array, precision) for name, array in weights.items()}
    hidden = w["embedding"][np.asarray(tokens)] * precision(config.embedding_scale)
    for layer in range(config.layers):
        own = {name.split(".", 2)[2]: array for name, array in w.items() if name.startswith(f"layers.{layer}.")}
        attended = _attention(config, own, layer, rms_norm(hidden, own["attention_norm"], config), cache_precision)
        hidden = hidden + _post(attended, own, "post_attention_norm", config)
        fed = _feed_forward(config, own, rms_norm(hidden, own["ffn_norm"], config))
        hidden = hidden + _post(fed, own, "post_ffn_norm", config)
    output = w["embedding"] if config.tied_embeddings else w["output"]
    return rms_norm(hidden, w["output_norm"], config) @ output.T


def rms_norm(x: np.ndarray, gain: np.ndarray, config: DecoderConfig) -> np.ndarray:
    """x / sqrt(mean(x^2) + epsilon) * (gain + offset), over the last axis."""
    mean = np.mean(x * x, axis=-1, keepdims=True)
    return x / np.sqrt(mean + x.dtype.type(config.norm_epsilon)) * (gain + x.dtype.type(config.norm_offset))


def _post(x: np.ndarray, own: Weights, name: str, config: DecoderConfig) -> np.ndarray:
    return rms_norm(x, own[name], config) if config.post_norms else x


def _attention(
    config: DecoderConfig, own: Weights, layer: int, x: np.ndarray, cache_precision: type | None
) -> np.ndarray:
    positions = len(x)
    local = layer in config.local_layers
    q = _heads(config, own, "q", x, config.heads)
    k = _heads(config, own, "k", x, config.kv_heads)
    v = _heads(config, own, "v", x, config.kv_heads)
    if config.rope != "none":
        own_rope = local and config.local_rope_inverse_frequencies
        frequencies = config.local_rope_inverse_frequencies if own_rope else config.rope_inverse_frequencies
        q, k = (_rope(y, np.asarray(frequencies), config.rope) for y in (q, k))
    if cache_precision is not None:
        k, v = (y.astype(cache_precision).astype(x.dtype) for y in (k, v))
    groups = config.heads // config.kv_heads
    k, v = np.repeat(k, groups, axis=1), np.repeat(v, groups, axis=1)
    scale = config.attention_scale or 1.0 / math.sqrt(config.head_width)
    scores = np.einsum("thd,shd->hts", q, k, optimize=True) * x.dtype.type(scale)
    scores = np.where(_visible(positions, config.attention_window if local else 0), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.einsum("hts,shd->thd", weights, v, optimize=True).reshape(positions, -1) @ own["o"].T


def _heads(config: DecoderConfig, own: Weights, which: str, x: np.ndarray, heads: int) -> np.ndarray:
    """[T, heads, head_width] after bias and head norm."""
    y = x @ own[which].T
    if config.qkv_biases:
        y = y + own[f"{which}_bias"]
    y = y.reshape(len(x), heads, config.head_width)
    return rms_norm(y, own[f"{which}_norm"], config) if config.qk_norm and which != "v" else y


def _rope(x: np.ndarray, inverse_frequencies: np.ndarray, pairing: str) -> np.ndarray:
    """Rotate each pair of a head by position * frequency."""
    angle = np.arange(len(x))[:, None] * inverse_frequencies
    cos, sin = (f(angle)[:, None, :].astype(x.dtype) for f in (np.cos, np.sin))
    if pairing == "interleaved":
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = np.split(x, 2, axis=-1)
    turned = (first * cos - second * sin, first * sin + second * cos)
    if pairing == "interleaved":
        return np.stack(turned, axis=-1).reshape(x.shape)
    return np.concatenate(turned, axis=-1)


def _visible(positions: int, window: int) -> np.ndarray:
    """[query, key]: not in the future, and inside the window where there is one."""
    ahead = np.arange(positions)[None, :] - np.arange(positions)[:, None]
    return (ahead <= 0) & (ahead > -window if window else True)


def _feed_forward(config: DecoderConfig, own: Weights, x: np.ndarray) -> np.ndarray:
    gate, up = x @ own["gate"].T, x @ own["up"].T
    return (_activation(config.activation, gate) * up) @ own["down"].T


def _activation(kind: str, x: np.ndarray) -> np.ndarray:
    if kind == "silu":
        with np.errstate(over="ignore"):
            return x / (1 + np.exp(-x))
    cubic = x + x.dtype.type(0.044715) * x**3
    return x.dtype.type(0.5) * x * (1 + np.tanh(x.dtype.type(math.sqrt(2 / math.pi)) * cubic))
