"""What a decoder-only transformer is, as data: the meeting place of the model frontends and `from_qwen_ops`.

A frontend fills a `DecoderConfig` from a file's metadata and says which file tensor plays which role; nothing here
knows a file format or a chip.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Rope = Literal["interleaved", "halves", "none"]
Activation = Literal["silu", "gelu_tanh"]


class DecoderConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The figures of a decoder-only transformer (Llama, SmolLM, Mistral, Qwen2, Qwen3, Gemma kinds).

    Widths are in elements. `rope` names the pairing that the *stored* weights expect: `interleaved` rotates (2i, 2i+1),
    `halves` rotates (i, i + head_width/2). `rope_inverse_frequencies` has head_width/2 entries (scaling variants are
    already applied). A window of 0 means full causal attention.
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


# Canonical tensor names of a decoder. {i} is the layer. Shapes as (rows, columns), weights stored [out, in].
#   embedding [vocabulary, width]            output [vocabulary, width] (absent when tied)      output_norm [width]
#   layers.{i}.attention_norm [width]        layers.{i}.q [heads*head_width, width]   .k .v [kv_heads*head_width, width]
#   layers.{i}.q_bias .k_bias .v_bias        layers.{i}.q_norm .k_norm [head_width]
#   layers.{i}.o [width, heads*head_width]   layers.{i}.ffn_norm [width]
#   layers.{i}.gate .up [feed_forward, width]    layers.{i}.down [width, feed_forward]
#   layers.{i}.post_attention_norm .post_ffn_norm [width]


class DecoderWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dtype each canonical tensor is stored in for deployment: (name, shape, dtype), in canonical order."""

    tensors: tuple[tuple[str, tuple[int, ...], str], ...]
