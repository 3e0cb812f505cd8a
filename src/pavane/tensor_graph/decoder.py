"""A decoder-only transformer as data: what a frontend reads out of a file, and what `from_qwen_ops` makes sections of.

`DecoderConfig` has the figures, `DecoderWeights` the tensors by canonical name; nothing here knows a file format or a
chip.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Rope = Literal["interleaved", "halves", "none"]
Activation = Literal["silu", "gelu_tanh"]


class DecoderConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The figures of a decoder-only transformer (Llama, SmolLM, Mistral, Qwen2, Qwen3, Gemma kinds).

    Widths are in elements, `context` in positions. `rope` names the pairing that the *stored* weights expect:
    `interleaved` rotates (2i, 2i+1), `halves` rotates (i, i + head_width/2). `rope_inverse_frequencies` has
    head_width/2 entries (scaling variants are already applied). `norm_offset` is added to every norm's gain,
    `embedding_scale` multiplies the embedding, `attention_scale` q . k (0: 1 / sqrt(head_width)). `local_layers` see
    `attention_window` positions (0: all), with a rope of their own where `local_rope_inverse_frequencies` are given.
    """

    name: str
    architecture: str
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    context: int
    norm_epsilon: float
    rope: Rope
    rope_inverse_frequencies: tuple[float, ...]
    activation: Activation = "silu"
    tied_embeddings: bool = False
    qkv_biases: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    attention_scale: float = 0.0
    attention_window: int = 0
    local_layers: tuple[int, ...] = ()
    local_rope_inverse_frequencies: tuple[float, ...] = ()


class DecoderWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tensors of a decoder as deployed: (canonical name, shape, dtype), in canonical order.

    Weights are stored [out, in]; i is the layer, q_width = heads * head_width, kv_width = kv_heads * head_width:

        embedding, output                [vocabulary, width]       output: where embeddings are not tied
        output_norm                      [width]
        layers.i.attention_norm          [width]                   also ffn_norm, post_attention_norm, post_ffn_norm
        layers.i.q                       [q_width, width]          q_bias [q_width], q_norm [head_width]
        layers.i.k                       [kv_width, width]         k_bias [kv_width], k_norm [head_width]
        layers.i.v                       [kv_width, width]         v_bias [kv_width]
        layers.i.o                       [width, q_width]
        layers.i.gate, layers.i.up       [feed_forward, width]
        layers.i.down                    [width, feed_forward]
    """

    tensors: tuple[tuple[str, tuple[int, ...], str], ...]
