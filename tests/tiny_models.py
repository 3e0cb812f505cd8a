"""Small random decoders as real GGUF files, for tests of everything downstream of a model file.

`tiny_config(**figures)` gives a `DecoderConfig`; `write_tiny_gguf(path, config, seed)` writes a file that
`read_gguf` reads back to an equal config, with a byte-level BPE tokenizer where the vocabulary has room for it
(3 control tokens + 256 bytes = 259) and filler tokens beyond. Weights are normal with a spread of 1 / sqrt(columns).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from pavane.frontends.gguf import decoder_roles
from pavane.tensor_graph.decoder import DecoderConfig

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOKENIZER_ROOM = len(CONTROL_TOKENS) + 256
MERGES = (("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "t"), ("Ġt", "he"))
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NORMAL, CONTROL, UNUSED = 1, 3, 5

Edit = Callable[[str, np.ndarray], np.ndarray | None]


def tiny_config(**figures: Any) -> DecoderConfig:
    """A small Llama-kind decoder; any field of `DecoderConfig` may be given."""
    chosen = {
        "name": "tiny",
        "architecture": "llama",
        "layers": 2,
        "width": 64,
        "feed_forward": 96,
        "heads": 4,
        "kv_heads": 2,
        "head_width": 16,
        "vocabulary": 300,
        "context": 128,
        "norm_epsilon": 2.0**-17,
        "rope": "interleaved",
        "tied_embeddings": True,
    } | figures
    head_width = chosen["head_width"]
    chosen.setdefault("rope_inverse_frequencies", rope_frequencies(10_000.0, head_width))
    chosen.setdefault("attention_scale", 1.0 / math.sqrt(head_width))
    return DecoderConfig(**chosen)


def tiny_gemma(**figures: Any) -> DecoderConfig:
    """A small Gemma 3: post norms, QK norms, local layers with their own rope, scaled embedding."""
    layers, width = figures.get("layers", 6), figures.get("width", 64)
    head_width = figures.get("head_width", 32)
    chosen = {
        "architecture": "gemma3",
        "layers": layers,
        "width": width,
        "head_width": head_width,
        "rope": "halves",
        "activation": "gelu_tanh",
        "qk_norm": True,
        "post_norms": True,
        "embedding_scale": math.sqrt(width),
        "attention_window": 8,
        "local_layers": tuple(layer for layer in range(layers) if layer % 6 < 5),
        "local_rope_inverse_frequencies": rope_frequencies(10_000.0, head_width),
    }
    return tiny_config(**(chosen | figures))


def rope_frequencies(base: float, head_width: int) -> tuple[float, ...]:
    return tuple(base ** (-2.0 * i / head_width) for i in range(head_width // 2))


def write_tiny_gguf(
    path: Path,
    config: DecoderConfig,
    seed: int = 0,
    weight_type: GGMLQuantizationType = GGMLQuantizationType.F32,
    metadata: dict[str, Any] | None = None,
    edit: Edit | None = None,
    tokenizer: bool = True,
) -> Path:
    """Write the decoder to `path`. `metadata` overrides figures (None leaves one out); `edit(gguf name, float32
    values)` may change a tensor, or drop it by returning None. Matrices whose width allows it get `weight_type`.
    """
    writer = GGUFWriter(path, config.architecture)
    for key, value in (_figures(config) | (metadata or {})).items():
        if value is not None:
            _add(writer, key, value)
    if tokenizer and config.vocabulary >= TOKENIZER_ROOM:
        _add_tokenizer(writer, config.vocabulary)
    random = np.random.default_rng(seed)
    for role in decoder_roles(config):
        values = _values(random, role.shape)
        kept = edit(role.gguf_name, values) if edit else values
        if kept is not None:
            _add_tensor(writer, role.gguf_name, kept, weight_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _figures(config: DecoderConfig) -> dict[str, Any]:
    figures = {
        "block_count": config.layers,
        "context_length": config.context,
        "embedding_length": config.width,
        "feed_forward_length": config.feed_forward,
        "attention.head_count": config.heads,
        "attention.head_count_kv": config.kv_heads,
        "attention.key_length": config.head_width,
        "attention.value_length": config.head_width,
        "attention.layer_norm_rms_epsilon": config.norm_epsilon,
        "rope.freq_base": 10_000.0,
    }
    if config.attention_window:
        figures["attention.sliding_window"] = config.attention_window
    return {"general.name": config.name} | {f"{config.architecture}.{key}": value for key, value in figures.items()}


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value) if 0 <= value < 2**32 else writer.add_int64(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _add_tensor(writer: GGUFWriter, name: str, values: np.ndarray, weight_type: GGMLQuantizationType) -> None:
    if values.ndim == 2 and values.shape[1] % 32 == 0 and weight_type != GGMLQuantizationType.F32:
        writer.add_tensor(name, quantize(values, weight_type), raw_dtype=weight_type)
    else:
        writer.add_tensor(name, values)


def _values(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) == 1:
        return (1.0 + 0.1 * random.standard_normal(shape)).astype(np.float32)
    return (random.standard_normal(shape) / math.sqrt(shape[-1])).astype(np.float32)


def _add_tokenizer(writer: GGUFWriter, vocabulary: int) -> None:
    tokens = [*CONTROL_TOKENS, *_byte_marks()]
    kinds = [CONTROL] * len(CONTROL_TOKENS) + [NORMAL] * 256
    merges = MERGES[: vocabulary - len(tokens)]
    tokens += [left + right for left, right in merges]
    kinds += [NORMAL] * len(merges)
    fillers = vocabulary - len(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens + [f"<|filler_{number}|>" for number in range(fillers)])
    writer.add_token_types(kinds + [UNUSED] * fillers)
    writer.add_token_merges([f"{left} {right}" for left, right in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _byte_marks() -> list[str]:
    """GPT-2's visible character for each byte, in byte order."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(hidden)) for byte in range(256)]


def same_figures(left: DecoderConfig, right: DecoderConfig) -> bool:
    """Equality of two configs, floats compared as the file stores them (float32)."""
    return _rounded(left) == _rounded(right)


def _rounded(config: DecoderConfig) -> dict[str, Any]:
    return {
        key: float(np.float32(value)) if isinstance(value, float) else value
        for key, value in msgspec.structs.asdict(config).items()
    }
