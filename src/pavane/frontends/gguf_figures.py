"""From a GGUF's metadata to a `DecoderConfig`: which figures a model has, which are absurd, which Pavane cannot honour.

`decoder_config(file)` refuses (`ModelReject`) an architecture it does not know, a figure that is missing, of the wrong
type or out of its range, figures that contradict each other, and every feature that would change the numbers if it were
ignored (experts, partial rotary embeddings, YaRN, soft-capped logits, multipliers). How llama.cpp's converter stores
them:

    llama    q and k rows permuted, so that rope rotates neighbours (2i, 2i+1)          rope `interleaved`
    qwen2    biases on q, k, v                                                          rope `halves`
    qwen3    norms on the heads of q and k                                              rope `halves`
    gemma3   as qwen3, and post norms, GELU, embedding times sqrt(width), five layers of  rope `halves`
             six with a sliding window and a rope base of their own; the norms' +1 is folded into the weights
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import msgspec
import numpy as np

from pavane.frontends.gguf_file import GgufFile
from pavane.frontends.gguf_header import shown
from pavane.reject import ModelReject
from pavane.tensor_graph.decoder import Activation, DecoderConfig, Rope

MAX_EXTENT = 1 << 24
MAX_LAYERS = 4096
MAX_NAME = 200
ROPE_FACTORS = "rope_freqs.weight"
GEMMA_27B_LAYERS = 62
NEUTRAL_ONLY = {
    "expert_count": 0,
    "attn_logit_softcapping": 0,
    "final_logit_softcapping": 0,
    "attention.clamp_kqv": 0,
    "attention.max_alibi_bias": 0,
    "embedding_scale": 1,
    "residual_scale": 1,
    "logit_scale": 1,
    "rope.scaling.attn_factor": 1,
}


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What the name of an architecture says of its models, and their figures do not."""

    rope: Rope
    activation: Activation = "silu"
    qk_norm: bool = False
    qkv_biases: bool = False
    post_norms: bool = False
    scaled_embedding: bool = False
    local_period: int = 1
    local_rope_base: float = 0.0


TRAITS = {
    "llama": Traits(rope="interleaved"),
    "qwen2": Traits(rope="halves", qkv_biases=True),
    "qwen3": Traits(rope="halves", qk_norm=True),
    "gemma3": Traits(
        rope="halves",
        activation="gelu_tanh",
        qk_norm=True,
        post_norms=True,
        scaled_embedding=True,
        local_period=6,
        local_rope_base=10_000.0,
    ),
}


class Figures:
    """Typed, bounded reading of `<architecture>.<key>` figures; every refusal names the key and the file."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file = file
        self.architecture = architecture

    def get(self, key: str) -> Any:
        return self.file.metadata.get(f"{self.architecture}.{key}")

    def count(self, key: str, default: int | None = None, high: int = MAX_EXTENT) -> int:
        """An integer in [1, high]; an array of equal integers (a figure per layer) counts as one."""
        value = self.get(key)
        if value is None:
            return self._default(key, default)
        if isinstance(value, np.ndarray) and value.size and np.issubdtype(value.dtype, np.integer):
            if (value != value[0]).any():
                self.refuse(key, f"differs from layer to layer: {value.tolist()[:8]}", "one figure for all layers")
            value = int(value[0])
        if type(value) is not int or not 1 <= value <= high:
            self.refuse(key, f"is {shown(value)}", f"an integer from 1 to {high}")
        return value

    def real(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A number strictly between `low` and `high`."""
        value = self.get(key)
        if value is None:
            return self._default(key, default)
        if type(value) not in (int, float) or not low < value < high:
            self.refuse(key, f"is {shown(value)}", f"a number above {low:g} and below {high:g}")
        return float(value)

    def scalar(self, key: str) -> Any:
        """A number or a text, or None when the file has none; an array is refused."""
        value = self.get(key)
        if isinstance(value, (np.ndarray, list)):
            self.refuse(key, "is an array", "a single value")
        return value

    def _default(self, key: str, default: Any) -> Any:
        if default is None:
            self.refuse(key, "is missing", "this figure")
        return default

    def refuse(self, key: str, found: str, needed: str, remedy: str = "convert the model again") -> NoReturn:
        raise ModelReject(
            f"metadata {self.architecture}.{key} {found}", where=str(self.file.path), needed=needed, remedy=remedy
        )


def decoder_config(file: GgufFile) -> DecoderConfig:
    """Read the decoder's figures. Raises ModelReject."""
    architecture = _architecture(file)
    traits, figures = TRAITS[architecture], Figures(file, architecture)
    _refuse_unsupported(figures)
    width = figures.count("embedding_length")
    heads, kv_heads, head_width = _heads(figures, width)
    layers = figures.count("block_count", high=MAX_LAYERS)
    context = figures.count("context_length", high=1 << 31)
    window, local_layers = _window(figures, traits, layers, context)
    name = file.metadata.get("general.name")
    return DecoderConfig(
        name=_readable((name.strip() if isinstance(name, str) else "") or file.path.stem),
        architecture=architecture,
        layers=layers,
        width=width,
        feed_forward=figures.count("feed_forward_length"),
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_width,
        vocabulary=_vocabulary(figures),
        context=context,
        norm_epsilon=figures.real("attention.layer_norm_rms_epsilon", 0.0, 1.0),
        rope=traits.rope,
        rope_inverse_frequencies=_inverse_frequencies(figures, head_width),
        activation=traits.activation,
        tied_embeddings="output.weight" not in file.tensors,
        qkv_biases=traits.qkv_biases or "blk.0.attn_q.bias" in file.tensors,
        qk_norm=traits.qk_norm,
        post_norms=traits.post_norms,
        embedding_scale=math.sqrt(width) if traits.scaled_embedding else 1.0,
        attention_scale=_attention_scale(figures, layers, width, heads, head_width),
        attention_window=window,
        local_layers=local_layers,
        local_rope_inverse_frequencies=_local_inverse_frequencies(figures, traits, head_width) if local_layers else (),
    )


def _readable(name: str) -> str:
    """The name as a program may bear it: printable, and not too long for a part to be added."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:MAX_NAME])


def _architecture(file: GgufFile) -> str:
    architecture = file.metadata.get("general.architecture")
    kind = file.metadata.get("general.type", "model")
    parts = file.metadata.get("split.count", 1)
    if not isinstance(kind, str) or kind != "model":
        raise ModelReject(
            f"the GGUF holds a {shown(kind)}, not a model", where=str(file.path), remedy="give the base model"
        )
    if not isinstance(parts, int) or parts > 1:
        raise ModelReject(
            "the model is split over several files",
            where=str(file.path),
            needed="one file",
            available=f"part of {shown(parts)}",
            remedy="join them first, for instance with llama-gguf-split --merge",
        )
    if not isinstance(architecture, str) or architecture not in TRAITS:
        raise ModelReject(
            f"unknown architecture {shown(architecture)}",
            where=f"{file.path}, metadata general.architecture",
            needed="one of " + ", ".join(sorted(TRAITS)),
            remedy="use a model of one of these kinds, or author its forward (docs/new_frontend.md)",
        )
    return architecture


def _refuse_unsupported(figures: Figures) -> None:
    """Every feature that would change the numbers if it were ignored, at once."""
    found = {key: figures.scalar(key) for key in NEUTRAL_ONLY}
    terms = [
        f"{figures.architecture}.{key} is {shown(value)}, only {NEUTRAL_ONLY[key]} is supported"
        for key, value in found.items()
        if value is not None and value != NEUTRAL_ONLY[key]
    ]
    if terms:
        raise ModelReject(
            "the model has features that Pavane does not support",
            where=f"{figures.file.path}, metadata",
            terms=terms,
            remedy="use another model",
        )


def _heads(figures: Figures, width: int) -> tuple[int, int, int]:
    heads = figures.count("attention.head_count")
    kv_heads = figures.count("attention.head_count_kv", default=heads)
    if heads % kv_heads:
        figures.refuse("attention.head_count_kv", f"is {kv_heads}", f"a divisor of the {heads} heads")
    if figures.get("attention.key_length") is None and width % heads:
        figures.refuse("attention.head_count", f"is {heads}", f"a divisor of the width {width}")
    head_width = figures.count("attention.key_length", default=max(width // heads, 1))
    if head_width % 2:
        figures.refuse("attention.key_length", f"is {head_width}", "an even head width (rope rotates pairs)")
    for key in ("attention.value_length", "rope.dimension_count"):
        if (value := figures.count(key, default=head_width)) != head_width:
            figures.refuse(key, f"is {value}", f"the head width {head_width}", "use another model")
    return heads, kv_heads, head_width


def _vocabulary(figures: Figures) -> int:
    """Rows of the embedding, which the tokenizer and `vocab_size` must agree with."""
    file = figures.file
    if "token_embd.weight" not in file.tensors:
        raise ModelReject("missing tensor token_embd.weight", where=str(file.path), remedy="convert the model again")
    rows = file.tensors["token_embd.weight"].rows
    vocabulary = figures.count("vocab_size", default=rows)
    if vocabulary != rows:
        figures.refuse("vocab_size", f"is {vocabulary}", f"the {rows} rows of token_embd.weight")
    if "tokenizer.ggml.tokens" in file.metadata:
        tokens = file.metadata.entry("tokenizer.ggml.tokens").count
        if tokens != rows:
            raise ModelReject(
                f"the tokenizer has {tokens} tokens",
                where=f"{file.path}, metadata tokenizer.ggml.tokens",
                needed=f"the {rows} rows of token_embd.weight",
                remedy="convert the model again",
            )
    return rows


def _window(figures: Figures, traits: Traits, layers: int, context: int) -> tuple[int, tuple[int, ...]]:
    """The sliding window in positions (0 = none) and the layers that have it."""
    if figures.scalar("attention.sliding_window") in (None, 0):
        return 0, ()
    window = figures.count("attention.sliding_window", high=1 << 31)
    if window >= context and not traits.local_rope_base:
        return 0, ()
    pattern = figures.get("attention.sliding_window_pattern")
    if isinstance(pattern, np.ndarray):
        if pattern.size != layers:
            figures.refuse("attention.sliding_window_pattern", f"has {pattern.size} entries", f"{layers}, one a layer")
        return window, tuple(layer for layer in range(layers) if pattern[layer])
    period = figures.count("attention.sliding_window_pattern", default=traits.local_period, high=MAX_LAYERS)
    return window, tuple(layer for layer in range(layers) if period == 1 or layer % period < period - 1)


def _inverse_frequencies(figures: Figures, head_width: int) -> tuple[float, ...]:
    """base ** (-2i / head_width), divided by the linear factor and by the file's own factors (Llama 3)."""
    base = figures.real("rope.freq_base", 1e-3, 1e12, default=10_000.0)
    frequencies = _powers(base, head_width) / _linear_factor(figures)
    if ROPE_FACTORS in figures.file.tensors:
        frequencies = frequencies / _rope_factors(figures.file, head_width)
    return tuple(frequencies.tolist())


def _local_inverse_frequencies(figures: Figures, traits: Traits, head_width: int) -> tuple[float, ...]:
    """The sliding-window layers' own rope, which no scaling touches; without one, they share the global rope."""
    if not traits.local_rope_base:
        return _inverse_frequencies(figures, head_width)
    base = figures.real("rope.freq_base_swa", 1e-3, 1e12, default=traits.local_rope_base)
    return tuple(_powers(base, head_width).tolist())


def _powers(base: float, head_width: int) -> np.ndarray:
    return np.array([base ** (-2.0 * i / head_width) for i in range(head_width // 2)], np.float64)


def _linear_factor(figures: Figures) -> float:
    scaling = figures.scalar("rope.scaling.type")
    legacy = figures.real("rope.scale_linear", 1e-6, 1e6, default=1.0)
    if scaling in (None, "none"):
        return legacy
    if scaling != "linear":
        figures.refuse("rope.scaling.type", f"is {shown(scaling)}", "none or linear", "use another model")
    return figures.real("rope.scaling.factor", 1e-6, 1e6, default=legacy)


def _rope_factors(file: GgufFile, head_width: int) -> np.ndarray:
    entry = file.tensors[ROPE_FACTORS]
    if entry.shape != (head_width // 2,):
        raise ModelReject(
            f"tensor {ROPE_FACTORS} has shape {list(entry.shape)}",
            where=str(file.path),
            needed=f"[{head_width // 2}], half the head width",
            remedy="convert the model again",
        )
    factors = file.tensor_f32(ROPE_FACTORS).astype(np.float64)
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ModelReject(
            f"tensor {ROPE_FACTORS} has factors that are not positive numbers",
            where=str(file.path),
            remedy="convert the model again",
        )
    return factors


def _attention_scale(figures: Figures, layers: int, width: int, heads: int, head_width: int) -> float:
    """What multiplies q . k: the file's own figure, else 1 / sqrt(head width); Gemma 3 27B alone uses width / heads."""
    gemma_27b = figures.architecture == "gemma3" and layers == GEMMA_27B_LAYERS
    usual = 1.0 / math.sqrt(width / heads if gemma_27b else head_width)
    scale = figures.scalar("attention.scale")
    return usual if scale in (None, 0) else figures.real("attention.scale", 0.0, 1e6)
