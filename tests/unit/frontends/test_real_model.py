"""The default model itself: fetched, read, deployed; known tokens and figures."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pavane.frontends.chat import ChatTemplate
from pavane.frontends.deploy import deployment
from pavane.frontends.gguf import GgufModel, read_gguf
from pavane.frontends.models import fetch
from pavane.frontends.tokenizer import read_tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model() -> GgufModel:
    return read_gguf(fetch())


def test_figures(model: GgufModel) -> None:
    config = model.config
    assert (config.layers, config.width, config.feed_forward) == (30, 576, 1536)
    assert (config.heads, config.kv_heads, config.head_width) == (9, 3, 64)
    assert (config.vocabulary, config.context, config.rope) == (49152, 8192, "interleaved")
    assert config.tied_embeddings
    assert config.rope_inverse_frequencies[1] == 100_000.0 ** (-2 / 64)


def test_tokens_are_those_of_llama_cpp(model: GgufModel) -> None:
    tokenizer = read_tokenizer(model.path, model.metadata)
    assert tokenizer.end_ids == {0, 2}
    assert tokenizer.encode("Hello world, it's 2024!") == [19556, 905, 28, 357, 506, 216, 34, 32, 34, 36, 17]
    assert tokenizer.encode("<|im_start|>user\nhi<|im_end|>") == [1, 4093, 198, 6004, 2]
    text = "   def f(x):\n\treturn 'é漢字🙂'\r\n\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_chat(model: GgufModel) -> None:
    chat = ChatTemplate(model.path, model.metadata, read_tokenizer(model.path, model.metadata))
    text = chat.render([{"role": "user", "content": "Hi"}])
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_deployment_opens_quickly_the_second_time(model: GgufModel, tmp_path: Path) -> None:
    first = deployment(model, tmp_path)
    assert {weight.dtype for name, weight in first.weights.items() if not name.endswith("norm")} == {"q8_0"}
    began = time.perf_counter()
    again = deployment(read_gguf(model.path), tmp_path)
    assert time.perf_counter() - began < 1.0
    assert again.path == first.path
