"""Tokenizers: cuts, merges, special tokens, streams of bytes; and metadata that contradicts itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pavane.frontends.gguf import read_gguf
from pavane.frontends.pretokenizers import PRE_TOKENIZERS
from pavane.frontends.tokenizer import StreamDecoder, Tokenizer, read_tokenizer
from pavane.reject import ModelReject
from tests.tiny_models import tiny_config, write_tiny_gguf

HERE = Path("model.gguf")


def byte_level(**changes: Any) -> dict[str, Any]:
    """Metadata of a byte-level BPE with digits and letters of its own, as a GGUF would give it."""
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(chr(code) for code in range(33, 127)), "Ġ", "Ċ"]
    tokens += ["he", "ll", "hell", "hello", "12", "123", "Ġhello", "<tool>"]
    kinds = [3, 3, 3] + [1] * (len(tokens) - 4) + [4]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.merges": ["h e", "l l", "he ll", "hell o", "1 2", "12 3", "Ġ hello"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
    }
    return changed(metadata, changes)


def sentencepiece(**changes: Any) -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary: `▁he` scores better than `el`, bytes as a fallback."""
    pieces = {"▁": -9.0, "h": -9.0, "e": -9.0, "l": -9.0, "o": -9.0, "▁h": -2.0, "▁he": -1.0, "el": -3.0, "lo": -1.5}
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, "[tag]"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([2, 3, 3] + [6] * 256 + [1] * len(pieces) + [4], np.int32),
        "tokenizer.ggml.scores": np.array([0.0] * 259 + list(pieces.values()) + [0.0], np.float32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return changed(metadata, changes)


def changed(metadata: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}


def pieces(tokenizer: Tokenizer, text: str, **options: Any) -> list[str]:
    return [tokenizer.token_text(token) for token in tokenizer.encode(text, **options)]


def test_merges_join_words_but_not_digits() -> None:
    tokenizer = read_tokenizer(HERE, byte_level())
    assert pieces(tokenizer, "hello hello 123") == ["hello", "Ġhello", "Ġ", "1", "2", "3"]


def test_the_cut_decides_what_may_merge() -> None:
    assert pieces(read_tokenizer(HERE, byte_level(pre="gpt-2")), "123") == ["123"]
    assert pieces(read_tokenizer(HERE, byte_level(pre="llama-bpe")), "1231", bos=False) == ["123", "1"]
    assert pieces(read_tokenizer(HERE, byte_level(pre="qwen2")), "123") == ["1", "2", "3"]
    assert pieces(read_tokenizer(HERE, byte_level(pre=None)), "hello") == ["hello"]


def test_special_tokens_count_as_such_only_when_asked() -> None:
    tokenizer = read_tokenizer(HERE, byte_level())
    assert tokenizer.encode("<|im_start|>hello<|im_end|>")[::2] == [1, 2]
    assert "".join(pieces(tokenizer, "<|im_end|>", special=False)) == "<|im_end|>"
    assert 2 not in tokenizer.encode("<|im_end|>", special=False)
    assert pieces(tokenizer, "he<tool>he", special=False) == ["he", "<tool>", "he"]


def test_a_beginning_token_comes_once() -> None:
    tokenizer = read_tokenizer(HERE, byte_level(add_bos_token=True))
    assert tokenizer.encode("he")[0] == 1
    assert tokenizer.encode("<|im_start|>he") == tokenizer.encode("he")
    assert tokenizer.encode("he", bos=False)[0] != 1
    assert read_tokenizer(HERE, byte_level(pre="llama-bpe")).add_bos
    assert not read_tokenizer(HERE, byte_level()).add_bos


def test_end_tokens_are_named_or_known_by_their_text() -> None:
    assert read_tokenizer(HERE, byte_level()).end_ids == {0, 2}
    assert read_tokenizer(HERE, byte_level(eos_token_id=None, eot_token_id=5)).end_ids == {0, 2, 5}


def test_sentencepiece_merges_by_score_and_falls_back_to_bytes() -> None:
    tokenizer = read_tokenizer(HERE, sentencepiece())
    assert pieces(tokenizer, "hello") == ["<s>", "▁he", "l", "lo"]
    assert pieces(tokenizer, "hé", bos=False) == ["▁h", "<0xC3>", "<0xA9>"]
    assert pieces(tokenizer, "he[tag]he", bos=False) == ["▁he", "[tag]", "▁he"]
    assert tokenizer.decode(tokenizer.encode("hello hé")) == "hello hé"
    plain = read_tokenizer(HERE, sentencepiece(add_space_prefix=False))
    assert pieces(plain, "he lo", bos=False) == ["h", "e", "▁", "lo"]
    assert plain.decode(plain.encode(" he")) == " he"


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=40))
def test_any_text_comes_back(text: str, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(text, special=False)
    assert tokenizer.decode(ids) == text
    stream = StreamDecoder(tokenizer)
    said = [stream.push(token) for token in ids]
    assert "".join(said) == text
    assert "\ufffd" not in "".join(said) or "\ufffd" in text
    assert stream.finish() == ""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    model = read_gguf(write_tiny_gguf(tmp_path_factory.mktemp("tokenizer") / "m.gguf", tiny_config()))
    return read_tokenizer(model.path, model.metadata)


def test_a_stream_holds_back_unfinished_characters(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("é🙂")
    assert len(ids) == 6
    stream = StreamDecoder(tokenizer)
    assert [stream.push(token) for token in ids] == ["", "é", "", "", "", "🙂"]
    assert stream.push(ids[0]) == ""
    assert stream.finish() == "\ufffd"


def test_control_tokens_show_only_when_asked(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>hello<|im_end|>")
    assert tokenizer.decode(ids) == "hello"
    assert tokenizer.decode(ids, special=True) == "<|im_start|>hello<|im_end|>"


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_every_cut_keeps_every_character(name: str) -> None:
    tokenizer = read_tokenizer(HERE, byte_level(pre=name))
    text = "hello  HELLO's 12345 +=<> \n\n don't_(x)"
    assert tokenizer.decode(tokenizer.encode(text, bos=False)) == text


REFUSED = {
    "no tokenizer": (byte_level(model=None), "no tokenizer"),
    "another kind": (byte_level(model="bert"), "kind 'bert'"),
    "kind is a number": (byte_level(model=7), "kind 7"),
    "unknown cut": (byte_level(pre="chameleon-9"), "unknown pre-tokenizer 'chameleon-9'"),
    "no tokens": (byte_level(tokens=None), "tokens is missing"),
    "tokens are numbers": (byte_level(tokens=np.zeros(3)), "tokens is missing"),
    "too few kinds": (byte_level(token_type=np.ones(3, np.int32)), "token_type does not go"),
    "no merges": (byte_level(merges=None), "merges is missing"),
    "merge of one": (byte_level(merges=["he"]), "not two tokens"),
    "merge of strangers": (byte_level(merges=["é è"]), "contradicts itself"),
    "bos out of range": (byte_level(bos_token_id=999), "bos_token_id is 999"),
    "eos negative": (byte_level(eos_token_id=-1), "eos_token_id is -1"),
    "no scores": (sentencepiece(scores=None), "scores does not go"),
    "scores not finite": (sentencepiece(scores=np.full(269, np.nan, np.float32)), "scores does not go"),
    "byte token misspelled": (sentencepiece(token_type=np.full(269, 6, np.int32)), "byte token 0"),
    "a flag is an array": (byte_level(add_bos_token=np.zeros(2, np.int32)), "add_bos_token is array"),
    "a flag is a text": (sentencepiece(add_space_prefix="no"), "add_space_prefix is 'no'"),
    "bos is a long list": (byte_level(bos_token_id=["x" * 99] * 99), r"bos_token_id is \['x"),
    "a piece without end": (
        sentencepiece(tokens=["x" * 600] * 269, token_type=np.ones(269, np.int32)),
        "is too long",
    ),
    "a control character": (byte_level(merges=["\x1b[31m e"]), r"contradicts itself \('.*x1b"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str) -> None:
    metadata, words = REFUSED[name]
    with pytest.raises(ModelReject, match=words) as caught:
        read_tokenizer(HERE, metadata)
    assert str(HERE) in caught.value.where
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600
