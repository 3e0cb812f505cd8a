"""The model's own tokenizer, from the metadata of its GGUF.

Two kinds: byte-level BPE (`gpt2`, cut into words as `pretokenizers` says) and SentencePiece BPE with scores (`llama`).
Encoding runs in the `tokenizers` library; decoding is a table of bytes per token, so a stream of tokens gives
each character as soon as its last byte is there. Text is taken as it is, without Unicode normalisation, as
llama.cpp does.

Refusals (`ModelReject`): no tokenizer in the file, another kind of vocabulary, an unknown cut, merges or ids that do
not belong to the vocabulary.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from pavane.frontends.gguf_header import shown
from pavane.frontends.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from pavane.reject import ModelReject

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE_MARK = "\u2581"
MOST_PIECE_CHARACTERS = 256  # every cut of a piece is tried
SPM_PRE = PreTokenizer((), add_bos=True)
BYTE_TEXT = re.compile("<0x[0-9A-Fa-f]{2}>")
END_IDS = ("eos_token_id", "eot_token_id", "eom_token_id")
END_TEXTS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
)


class Vocabulary(msgspec.Struct, frozen=True):
    """The tokens of the file: their texts, kinds, and scores (zeros unless SentencePiece)."""

    path: Path
    tokens: list[str]
    kinds: np.ndarray
    scores: np.ndarray


class Tokenizer:
    """Text to token ids and back. `end_ids` end a generation; `bos_id` may be absent."""

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, Any], pre: PreTokenizer | None) -> None:
        self._vocabulary = vocabulary
        self._byte_level = pre is not None
        self.bos_id = _token_id(vocabulary, metadata, "bos_token_id")
        self.eos_id = _token_id(vocabulary, metadata, "eos_token_id")
        self.add_bos = _flag(vocabulary, metadata, "add_bos_token", (pre or SPM_PRE).add_bos)
        self.space_prefix = pre is None and _flag(vocabulary, metadata, "add_space_prefix", True)
        self.end_ids = _end_ids(vocabulary, metadata)
        try:
            self._encoder = _bpe(vocabulary, metadata, pre) if pre else _sentencepiece(vocabulary, self.space_prefix)
            self._encoder.add_tokens(_added_tokens(vocabulary))
        except ModelReject:
            raise
        except Exception as error:  # the library raises plain Exception for merges outside the vocabulary
            _refuse(
                vocabulary.path,
                f"the tokenizer contradicts itself ({shown(str(error), 200)})",
                "merges within the vocabulary",
            )

    @property
    def size(self) -> int:
        return len(self._vocabulary.tokens)

    def encode(self, text: str, special: bool = True, bos: bool | None = None) -> list[int]:
        """Token ids of a text. With `special`, control tokens spelled out in it count as such, else as plain text.

        `bos` None puts the beginning-of-sequence token in front where the model wants one and the text has none.
        """
        self._encoder.encode_special_tokens = not special
        ids = self._encoder.encode(text, add_special_tokens=False).ids
        wanted = self.add_bos if bos is None else bos
        if wanted and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of token ids from the start of a sequence; control tokens show only with `special`."""
        stream = StreamDecoder(self, special=special, at_start=True)
        return "".join([stream.push(token) for token in ids] + [stream.finish()])

    def token_text(self, token: int | None) -> str:
        """The token as the vocabulary spells it ("" for None)."""
        return "" if token is None else self._vocabulary.tokens[token]

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """What a token adds to the text, as UTF-8 bytes (possibly a part of a character)."""
        text, kind = self._vocabulary.tokens[token], int(self._vocabulary.kinds[token])
        if kind in (CONTROL, UNKNOWN, UNUSED):
            return text.encode() if special else b""
        if kind == BYTE:
            return bytes([int(text[3:5], 16)])
        if kind == USER_DEFINED:
            return text.encode()
        return _bytes_of_marks(text) if self._byte_level else text.replace(SPACE_MARK, " ").encode()


class StreamDecoder:
    """Turns a stream of tokens into text, holding back the bytes of a character until it is complete."""

    def __init__(self, tokenizer: Tokenizer, special: bool = False, at_start: bool = False) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._strip_space = at_start and tokenizer.space_prefix
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that is complete once `token` has come; "" while a character is still in parts."""
        data = self._tokenizer.token_bytes(token, self._special)
        if self._strip_space and data:
            data, self._strip_space = data.removeprefix(b" "), False
        return self._utf8.decode(data)

    def finish(self) -> str:
        """What is left at the end: a replacement character for an unfinished one, else ""."""
        return self._utf8.decode(b"", final=True)


def read_tokenizer(path: Path, metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer of a GGUF's metadata. Raises ModelReject."""
    model = metadata.get("tokenizer.ggml.model")
    if not isinstance(model, str) or model not in ("gpt2", "llama"):
        what = "the file has no tokenizer" if model is None else f"the vocabulary is of kind {shown(model)}"
        _refuse(path, what, "gpt2 (byte-level BPE) or llama (SentencePiece BPE)")
    if model == "llama":
        return Tokenizer(_vocabulary(path, metadata, scored=True), metadata, None)
    name = metadata.get("tokenizer.ggml.pre", "default")
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        _refuse(path, f"unknown pre-tokenizer {shown(name)}", "one of " + ", ".join(sorted(PRE_TOKENIZERS)))
    return Tokenizer(_vocabulary(path, metadata, scored=False), metadata, PRE_TOKENIZERS[name])


def _vocabulary(path: Path, metadata: Mapping[str, Any], scored: bool) -> Vocabulary:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        _refuse(path, "tokenizer.ggml.tokens is missing or no list of texts", "the list of tokens")
    all_normal = np.full(len(tokens), NORMAL, np.int32)
    kinds = _numbers(path, "token_type", metadata.get("tokenizer.ggml.token_type", all_normal), len(tokens), "iu")
    scores = np.zeros(len(tokens), np.float32)
    if scored:
        scores = _numbers(path, "scores", metadata.get("tokenizer.ggml.scores"), len(tokens), "f")
    for index in np.flatnonzero(kinds == BYTE):
        if not BYTE_TEXT.fullmatch(tokens[index]):
            _refuse(path, f"byte token {index} is {shown(tokens[index])}", "a text like <0x0A>")
    return Vocabulary(path, tokens, kinds, scores)


def _numbers(path: Path, name: str, values: Any, count: int, letters: str) -> np.ndarray:
    sound = isinstance(values, np.ndarray) and len(values) == count and values.dtype.kind in letters
    if not sound or not np.isfinite(values).all():
        _refuse(path, f"tokenizer.ggml.{name} does not go with the tokens", f"{count} numbers, one a token")
    return values


def _bpe(vocabulary: Vocabulary, metadata: Mapping[str, Any], pre: PreTokenizer) -> tokenizers.Tokenizer:
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        _refuse(vocabulary.path, "tokenizer.ggml.merges is missing or no list of texts", "the list of merges")
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        _refuse(vocabulary.path, "a merge is not two tokens with a space between", "texts like 'Ġ t'")
    encoder = tokenizers.Tokenizer(models.BPE(_ids(vocabulary), pairs, ignore_merges=pre.ignore_merges))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    encoder.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    return encoder


def _sentencepiece(vocabulary: Vocabulary, space_prefix: bool) -> tokenizers.Tokenizer:
    unknown = np.flatnonzero(vocabulary.kinds == UNKNOWN)
    unknown_text = vocabulary.tokens[unknown[0]] if len(unknown) else None
    has_bytes = bool((vocabulary.kinds == BYTE).any())
    model = models.BPE(
        _ids(vocabulary), _merges_by_score(vocabulary), unk_token=unknown_text, fuse_unk=True, byte_fallback=has_bytes
    )
    encoder = tokenizers.Tokenizer(model)
    marks = normalizers.Replace(" ", SPACE_MARK)
    encoder.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), marks] if space_prefix else [marks])
    return encoder


def _merges_by_score(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """SentencePiece joins the two neighbours whose union scores best: as ranked merges, best score first."""
    rows = zip(vocabulary.tokens, vocabulary.scores.tolist(), vocabulary.kinds.tolist(), strict=True)
    score = {text: value for text, value, kind in rows if kind == NORMAL}
    longest = max(score, key=len, default="")
    if len(longest) > MOST_PIECE_CHARACTERS:
        _refuse(
            vocabulary.path, f"the piece {shown(longest)} is too long", f"at most {MOST_PIECE_CHARACTERS} characters"
        )
    ranked = []
    for text, value in score.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in score and right in score:
                ranked.append((-value, -cut, left, right))
    ranked.sort()
    return [(left, right) for _, _, left, right in ranked]


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Text to id; of two tokens with the same text the first counts."""
    ids: dict[str, int] = {}
    for index, text in enumerate(vocabulary.tokens):
        ids.setdefault(text, index)
    return ids


def _added_tokens(vocabulary: Vocabulary) -> list[AddedToken]:
    """Tokens that are found in the raw text before anything else: control tokens, and the model's own."""
    kinds = vocabulary.kinds
    chosen = np.flatnonzero((kinds == CONTROL) | (kinds == USER_DEFINED))
    return [
        AddedToken(vocabulary.tokens[index], special=bool(kinds[index] == CONTROL), normalized=False)
        for index in chosen
        if vocabulary.tokens[index]
    ]


def _token_id(vocabulary: Vocabulary, metadata: Mapping[str, Any], key: str) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{key}")
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < len(vocabulary.tokens):
        _refuse(vocabulary.path, f"tokenizer.ggml.{key} is {shown(value)}", f"an id below {len(vocabulary.tokens)}")
    return value


def _flag(vocabulary: Vocabulary, metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    value = metadata.get(f"tokenizer.ggml.{key}", default)
    if not isinstance(value, bool):
        _refuse(vocabulary.path, f"tokenizer.ggml.{key} is {shown(value)}", "true or false")
    return value


def _end_ids(vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> frozenset[int]:
    named = [_token_id(vocabulary, metadata, key) for key in END_IDS]
    marked = np.flatnonzero((vocabulary.kinds == CONTROL) | (vocabulary.kinds == USER_DEFINED))
    spelled = [int(index) for index in marked if vocabulary.tokens[index] in END_TEXTS]
    return frozenset([token for token in named if token is not None] + spelled)


def _mark_table() -> dict[str, int]:
    """GPT-2's spelling of bytes as visible characters, from character back to byte."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + rank): byte for rank, byte in enumerate(hidden)}


_BYTE_OF_MARK = _mark_table()


def _bytes_of_marks(text: str) -> bytes:
    if all(mark in _BYTE_OF_MARK for mark in text):
        return bytes(_BYTE_OF_MARK[mark] for mark in text)
    return text.encode()


def _refuse(path: Path, what: str, needed: str) -> NoReturn:
    raise ModelReject(what, where=f"{path}, metadata", needed=needed, remedy="use a model with such a tokenizer")
