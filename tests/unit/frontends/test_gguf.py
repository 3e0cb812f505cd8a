"""From a model file to a decoder: the four kinds, their figures, and everything that is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from pavane.frontends.gguf import decoder_roles, read_gguf
from pavane.reject import ModelReject
from pavane.tensor_graph.decoder import DecoderConfig
from tests.tiny_models import rope_frequencies, same_figures, tiny_config, tiny_gemma, write_tiny_gguf

KINDS = {
    "llama": tiny_config(),
    "llama untied": tiny_config(tied_embeddings=False),
    "llama odd": tiny_config(width=50, heads=5, kv_heads=1, head_width=10, feed_forward=33),
    "llama with biases": tiny_config(qkv_biases=True),
    "qwen2": tiny_config(architecture="qwen2", rope="halves", qkv_biases=True),
    "qwen3": tiny_config(architecture="qwen3", rope="halves", qk_norm=True, heads=4, head_width=32),
    "gemma3": tiny_gemma(),
}


@pytest.mark.parametrize("name", KINDS)
def test_figures_come_back(name: str, tmp_path: Path) -> None:
    config = KINDS[name]
    model = read_gguf(write_tiny_gguf(tmp_path / "m.gguf", config))
    assert same_figures(model.config, config)
    assert list(model.tensors) == [role.name for role in decoder_roles(config)]
    assert model.tensor_f32("embedding").shape == (config.vocabulary, config.width)


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.F16])
def test_weights_are_dequantised(kind: GGMLQuantizationType, tmp_path: Path) -> None:
    seen: dict[str, np.ndarray] = {}

    def keep(name: str, values: np.ndarray) -> np.ndarray:
        seen[name] = values
        return values

    model = read_gguf(write_tiny_gguf(tmp_path / "m.gguf", tiny_config(), weight_type=kind, edit=keep))
    expected = dequantize(quantize(seen["blk.1.ffn_down.weight"], kind), kind)
    assert np.array_equal(model.tensor_f32("layers.1.down"), expected)
    assert np.array_equal(model.tensor_f32("output_norm"), seen["output_norm.weight"])
    assert model.tensor_f32("output_norm").dtype == np.float32


def read_with(tmp_path: Path, config: DecoderConfig | None = None, **metadata: Any) -> DecoderConfig:
    chosen = config or tiny_config()
    keys = {name.replace("__", "."): value for name, value in metadata.items()}
    return read_gguf(write_tiny_gguf(tmp_path / "m.gguf", chosen, metadata=keys)).config


def test_linear_scaling_divides_the_frequencies(tmp_path: Path) -> None:
    config = read_with(tmp_path, llama__rope__scaling__type="linear", llama__rope__scaling__factor=4.0)
    assert config.rope_inverse_frequencies == tuple(f / 4 for f in rope_frequencies(10_000.0, 16))


def test_gemma_scales_only_its_global_layers(tmp_path: Path) -> None:
    keys = {"gemma3__rope__scaling__type": "linear", "gemma3__rope__scaling__factor": 8.0}
    config = read_with(tmp_path, tiny_gemma(), **keys)
    assert config.rope_inverse_frequencies == tuple(f / 8 for f in rope_frequencies(10_000.0, 32))
    assert config.local_rope_inverse_frequencies == rope_frequencies(10_000.0, 32)
    assert config.embedding_scale == 8.0
    assert (config.attention_window, config.local_layers) == (8, (0, 1, 2, 3, 4))


def test_a_window_on_llama_counts_for_all_layers_unless_it_covers_the_context(tmp_path: Path) -> None:
    config = read_with(tmp_path, llama__attention__sliding_window=16)
    assert (config.attention_window, config.local_layers) == (16, (0, 1))
    assert read_with(tmp_path, llama__attention__sliding_window=128).attention_window == 0


def test_an_own_attention_scale_wins(tmp_path: Path) -> None:
    assert read_with(tmp_path, llama__attention__scale=0.5).attention_scale == 0.5
    assert read_with(tmp_path).attention_scale == 1 / math.sqrt(16)


FIGURES = {
    "general.architecture": ["mamba"],
    "general.type": ["adapter", 3],
    "split.count": [2],
    "llama.block_count": [None, 0, -1, 3, 100_000, 2**31, "two", 2.0, [2, 3]],
    "llama.embedding_length": [None, 0, 63, 65, -64, 2**40],
    "llama.feed_forward_length": [0, 95, [96, 95]],
    "llama.attention.head_count": [0, 3, 5, -4, True],
    "llama.attention.head_count_kv": [0, 3, 8, [2, 1], [0.5]],
    "llama.attention.key_length": [0, 15, 8],
    "llama.attention.value_length": [8],
    "llama.rope.dimension_count": [8, 0],
    "llama.attention.layer_norm_rms_epsilon": [None, 0.0, -1.0, float("nan"), float("inf"), "small"],
    "llama.context_length": [None, 0, -5],
    "llama.vocab_size": [299, 0],
    "llama.rope.freq_base": [0.0, -1.0, float("nan"), float("inf"), [1.0]],
    "llama.rope.scaling.type": ["yarn", "longrope", 7],
    "llama.rope.scale_linear": [0.0],
    "llama.expert_count": [8],
    "llama.final_logit_softcapping": [30.0],
    "llama.attention.scale": [-1.0, [1.0, 2.0]],
    "llama.attention.sliding_window": [-1, [1, 2]],
    "llama.residual_scale": [0.5],
}  # fmt: skip


@pytest.mark.parametrize("key", FIGURES)
def test_refuses_absurd_figures(key: str, tmp_path: Path) -> None:
    for value in FIGURES[key]:
        path = write_tiny_gguf(tmp_path / "m.gguf", tiny_config(), metadata={key: value})
        with pytest.raises(ModelReject) as caught:
            read_gguf(path)
        assert str(path) in caught.value.where, (key, value)
        assert caught.value.remedy


def test_all_features_that_are_not_supported_are_named_at_once(tmp_path: Path) -> None:
    keys = {"llama.expert_count": 8, "llama.final_logit_softcapping": 30.0, "llama.residual_scale": 1.0}
    path = write_tiny_gguf(tmp_path / "m.gguf", tiny_config(), metadata=keys)
    with pytest.raises(ModelReject) as caught:
        read_gguf(path)
    assert [term.split(",")[0] for term in caught.value.terms] == [
        "llama.expert_count is 8",
        "llama.final_logit_softcapping is 30.0",
    ]


TENSORS = {
    "missing": (lambda name, x: None if name == "blk.1.attn_k.weight" else x, r"missing tensor blk\.1\.attn_k"),
    "missing embedding": (lambda name, x: None if name == "token_embd.weight" else x, "missing tensor token_embd"),
    "misshapen": (
        lambda name, x: x[:, :-1] if name == "blk.0.ffn_up.weight" else x,
        r"ffn_up\.weight .* shape \[96, 63\]",
    ),
    "transposed": (lambda name, x: x.T.copy() if name == "blk.0.ffn_up.weight" else x, r"shape \[64, 96\]"),
    "one dimension more": (lambda name, x: x[None] if name == "output_norm.weight" else x, r"shape \[1, 64\]"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_refuses_tensors(name: str, tmp_path: Path) -> None:
    edit, words = TENSORS[name]
    path = write_tiny_gguf(tmp_path / "m.gguf", tiny_config(), edit=edit)
    with pytest.raises(ModelReject, match=words):
        read_gguf(path)


def test_refuses_tensors_that_it_would_have_to_ignore(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", tiny_config(qk_norm=True))
    with pytest.raises(ModelReject, match=r"no role in this decoder: 'blk\.0\.attn_q_norm"):
        read_gguf(path)


def test_refuses_a_vocabulary_of_another_size(tmp_path: Path) -> None:
    path = write_tiny_gguf(
        tmp_path / "m.gguf", tiny_config(), metadata={"tokenizer.ggml.tokens": ["a"]}, tokenizer=False
    )
    with pytest.raises(ModelReject, match="tokenizer has 1 tokens"):
        read_gguf(path)
