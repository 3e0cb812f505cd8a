"""A GGUF file as a decoder: its figures, its tensors under canonical names, its weights as float32.

`read_gguf(path)` returns a `GgufModel` once every tensor of the decoder is there in the shape that the metadata says,
and no tensor is left over that would change the numbers if it were ignored. Weights are dequantised when asked for.

Refusals: `FileReject` (not a sound GGUF) and `ModelReject` (unknown architecture, absurd or contradictory figures, a
missing, misshapen or unknown tensor, a ggml type without a dequantiser). Each names the file and the place in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from pavane.frontends.gguf_figures import ROPE_FACTORS, decoder_config
from pavane.frontends.gguf_file import GgufFile, Metadata
from pavane.frontends.gguf_header import TensorEntry, shown
from pavane.reject import ModelReject
from pavane.tensor_graph.decoder import DecoderConfig

WITHOUT_ROLE = (ROPE_FACTORS,)


class Role(msgspec.Struct, frozen=True):
    """One tensor of a decoder: canonical name, name in a GGUF, row-major shape (weights [out, in])."""

    name: str
    gguf_name: str
    shape: tuple[int, ...]


class GgufModel:
    """A checked model file: `config`, `tensors` (canonical name -> file tensor) and float32 access."""

    def __init__(self, file: GgufFile, config: DecoderConfig, tensors: dict[str, TensorEntry]) -> None:
        self.file = file
        self.config = config
        self.tensors = tensors

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def metadata(self) -> Metadata:
        return self.file.metadata

    def tensor_f32(self, name: str) -> np.ndarray:
        """The tensor of a canonical name, dequantised to float32 in its canonical shape. KeyError for another name."""
        return self.file.tensor_f32(self.tensors[name].name)


def read_gguf(path: Path | str) -> GgufModel:
    """Open a model file and check it against its own metadata. Raises FileReject or ModelReject."""
    file = GgufFile.open(path)
    config = decoder_config(file)
    roles = tuple(decoder_roles(config)) if config.layers <= len(file.tensors) else ()
    if not roles:
        raise ModelReject(
            f"metadata counts {config.layers} layers, more than there are tensors",
            where=str(file.path),
            available=f"{len(file.tensors)} tensors",
            remedy="convert the model again",
        )
    tensors = {role.name: _entry(file, role) for role in roles}
    _refuse_leftovers(file, roles)
    return GgufModel(file, config, tensors)


def decoder_roles(config: DecoderConfig) -> Iterator[Role]:
    """Every tensor of the decoder, in canonical order."""
    width, heads_width = config.width, config.heads * config.head_width
    yield Role("embedding", "token_embd.weight", (config.vocabulary, width))
    if not config.tied_embeddings:
        yield Role("output", "output.weight", (config.vocabulary, width))
    yield Role("output_norm", "output_norm.weight", (width,))
    for layer in range(config.layers):
        for name, stem, shape in _layer_roles(config, width, heads_width):
            yield Role(f"layers.{layer}.{name}", f"blk.{layer}.{stem}", shape)


def _layer_roles(config: DecoderConfig, width: int, q_width: int) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    kv_width = config.kv_heads * config.head_width
    yield "attention_norm", "attn_norm.weight", (width,)
    yield "q", "attn_q.weight", (q_width, width)
    yield "k", "attn_k.weight", (kv_width, width)
    yield "v", "attn_v.weight", (kv_width, width)
    if config.qkv_biases:
        yield "q_bias", "attn_q.bias", (q_width,)
        yield "k_bias", "attn_k.bias", (kv_width,)
        yield "v_bias", "attn_v.bias", (kv_width,)
    if config.qk_norm:
        yield "q_norm", "attn_q_norm.weight", (config.head_width,)
        yield "k_norm", "attn_k_norm.weight", (config.head_width,)
    yield "o", "attn_output.weight", (width, q_width)
    if config.post_norms:
        yield "post_attention_norm", "post_attention_norm.weight", (width,)
    yield "ffn_norm", "ffn_norm.weight", (width,)
    yield "gate", "ffn_gate.weight", (config.feed_forward, width)
    yield "up", "ffn_up.weight", (config.feed_forward, width)
    yield "down", "ffn_down.weight", (width, config.feed_forward)
    if config.post_norms:
        yield "post_ffn_norm", "post_ffw_norm.weight", (width,)


def _entry(file: GgufFile, role: Role) -> TensorEntry:
    entry = file.tensors.get(role.gguf_name)
    if entry is None:
        raise ModelReject(
            f"missing tensor {role.gguf_name} ({role.name})",
            where=str(file.path),
            needed=f"shape {list(role.shape)}",
            remedy="download or convert the model again",
        )
    if entry.shape != role.shape:
        raise ModelReject(
            f"tensor {role.gguf_name} ({role.name}) has shape {list(entry.shape)}",
            where=str(file.path),
            needed=f"{list(role.shape)} by the metadata",
            remedy="download or convert the model again",
        )
    return entry


def _refuse_leftovers(file: GgufFile, roles: tuple[Role, ...]) -> None:
    known = {role.gguf_name for role in roles} | set(WITHOUT_ROLE)
    unknown = [name for name in file.tensors if name not in known]
    if unknown:
        raise ModelReject(
            f"{len(unknown)} tensors have no role in this decoder: {', '.join(map(shown, unknown[:4]))}",
            where=str(file.path),
            needed="none, since leaving one out would change the model's answers",
            remedy="use a model without them",
        )
