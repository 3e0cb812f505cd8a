"""Hostile GGUF files: whatever the bytes, only a typed refusal that names the place, quickly and in little memory."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pavane.frontends.chat import ChatTemplate
from pavane.frontends.gguf import read_gguf
from pavane.frontends.gguf_file import GgufFile
from pavane.frontends.gguf_header import DEQUANTISED
from pavane.frontends.tokenizer import read_tokenizer
from pavane.reject import FileReject, ModelReject, SpatialReject
from tests.tiny_models import tiny_config, write_tiny_gguf

UINT32, STRING, ARRAY = 4, 8, 9
SMALL = {"layers": 1, "width": 32, "feed_forward": 32, "heads": 2, "kv_heads": 1, "vocabulary": 260}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "small.gguf", tiny_config(**SMALL)).read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "model.gguf"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def header(
    keys: bytes = b"", key_count: int = 0, tensors: bytes = b"", tensor_count: int = 0, version: int = 3
) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensor_count, key_count) + keys + tensors


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, offset)


def refused(path: Path, content: bytes, words: str, kind: type[SpatialReject] = FileReject) -> None:
    path.write_bytes(content)
    with pytest.raises(kind, match=words) as caught:
        GgufFile.open(path)
    assert str(path) in caught.value.where
    assert caught.value.remedy


CASES = {
    "empty": (b"", "too short"),
    "three bytes": (b"GGU", "too short"),
    "magic": (b"GGML" + bytes(60), "wrong magic"),
    "version 1": (header(version=1), "version 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "no counts": (b"GGUF\x03\0\0\0", "truncated inside the tensor count"),
    "2**63 keys": (header(key_count=2**63), "more than the file can hold"),
    "2**63 tensors": (header(tensor_count=2**63), "more than the file can hold"),
    "a key too many": (header(key_count=1) + bytes(3), "more than the file can hold"),
    "huge key": (header(struct.pack("<Q", 2**62) + bytes(20), 1), "bytes long"),
    "key not UTF-8": (header(struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<II", UINT32, 1), 1), "not UTF-8"),
    "unknown value type": (header(text("a") + struct.pack("<II", 77, 1), 1), "unknown value type 77"),
    "huge string": (header(text("a") + struct.pack("<IQ", STRING, 2**60), 1), "truncated"),
    "huge array": (header(text("a") + struct.pack("<IIQ", ARRAY, UINT32, 2**61), 1), "than the file can hold"),
    "huge string array": (header(text("a") + struct.pack("<IIQ", ARRAY, STRING, 2**40), 1), "than the file can hold"),
    "huge string in array": (header(text("a") + struct.pack("<IIQQ", ARRAY, STRING, 1, 2**60), 1), "truncated"),
    "nested array": (header(text("a") + struct.pack("<IIQ", ARRAY, ARRAY, 0), 1), "array of arrays"),
    "key twice": (header((text("a") + struct.pack("<II", UINT32, 1)) * 2, 2), "stands twice"),
    "alignment 0": (header(text("general.alignment") + struct.pack("<II", UINT32, 0), 1), "general.alignment is 0"),
    "alignment 12": (header(text("general.alignment") + struct.pack("<II", UINT32, 12), 1), "general.alignment is 12"),
    "alignment text": (header(text("general.alignment") + struct.pack("<I", STRING) + text("32"), 1), "is STRING"),
    "no dimensions": (header(tensors=tensor("t", ()) + bytes(16), tensor_count=1), "0 dimensions"),
    "2**31 dimensions": (header(tensors=text("t") + struct.pack("<I", 2**31) + bytes(64), tensor_count=1), "has 2147"),
    "zero extent": (header(tensors=tensor("t", (0, 4)), tensor_count=1), "shape"),
    "huge extents": (header(tensors=tensor("t", (2**60, 2**60)), tensor_count=1), "truncated inside the data"),
    "half a block": (header(tensors=tensor("t", (2, 33), kind=8), tensor_count=1), "multiple of 32"),
    "offset askew": (header(tensors=tensor("t", (1,), offset=7), tensor_count=1) + bytes(64), "offset 7"),
    "offset far off": (header(tensors=tensor("t", (1,), offset=2**62), tensor_count=1) + bytes(64), "truncated"),
    "tensor twice": (header(tensors=tensor("t", (1,)) * 2, tensor_count=2) + bytes(64), "stands twice"),
    "overlap": (header(tensors=tensor("t", (9,)) + tensor("u", (9,), 0, 32), tensor_count=2) + bytes(99), "lies over"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refuses(name: str, scratch: Path) -> None:
    refused(scratch, *CASES[name])


@pytest.mark.parametrize("kind", list(GGML_QUANT_SIZES), ids=lambda kind: kind.name)
def test_every_type_that_is_taken_has_a_dequantiser_and_no_other(kind: GGMLQuantizationType) -> None:
    elements, size_bytes = GGML_QUANT_SIZES[kind]
    try:
        values = dequantize(np.zeros((2, 3 * size_bytes), np.uint8), kind)
    except NotImplementedError:
        values = None
    floats = values is not None and values.dtype == np.float32
    assert floats == (kind.name in DEQUANTISED)
    assert values is None or values.shape == (2, 3 * elements)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", DEQUANTISED)
def test_any_bytes_are_dequantised_in_silence(name: str, scratch: Path) -> None:
    elements, size_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    table = tensor("t", (8, elements), kind=GGMLQuantizationType[name].value)
    start = -(-len(header(tensors=table)) // 32) * 32
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, 8 * size_bytes, dtype=np.uint8).tobytes()
    scratch.write_bytes(header(tensors=table, tensor_count=1).ljust(start, b"\0") + data)
    assert GgufFile.open(scratch).tensor_f32("t").shape == (8, elements)


@pytest.mark.parametrize("kind", [15, 26, 4, 41, 9999])
def test_refuses_a_ggml_type_without_dequantiser(kind: int, scratch: Path) -> None:
    content = header(tensors=tensor("t", (256,), kind=kind), tensor_count=1) + bytes(2048)
    refused(scratch, content, "no dequantiser", ModelReject)


def test_refuses_what_is_no_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, tmp_path / "absent.gguf", fifo):
        with pytest.raises(FileReject, match=r"not a regular file|cannot read"):
            GgufFile.open(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_truncation_is_refused(data: st.DataObject, small: bytes, scratch: Path) -> None:
    cut = data.draw(st.one_of(st.integers(0, 9000), st.integers(0, len(small) - 64)))
    scratch.write_bytes(small[:cut])
    with pytest.raises(FileReject):
        read_gguf(scratch)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_header_bytes_give_a_model_or_a_typed_refusal(data: st.DataObject, small: bytes, scratch: Path) -> None:
    content = bytearray(small)
    for place in data.draw(st.lists(st.integers(0, 9500), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    scratch.write_bytes(content)
    try:
        model = read_gguf(scratch)
        tokenizer = read_tokenizer(model.path, model.metadata)
        ChatTemplate(model.path, model.metadata, tokenizer).render([{"role": "user", "content": "hi"}])
    except SpatialReject as reject:
        assert str(scratch) in reject.where  # noqa: PT017 (a sound model is an answer too)


def test_a_hostile_count_costs_no_memory(scratch: Path) -> None:
    scratch.write_bytes(header(text("a") + struct.pack("<IIQ", ARRAY, STRING, 2**50) + bytes(1000), 1))
    tracemalloc.start()
    with pytest.raises(FileReject):
        GgufFile.open(scratch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_metadata_comes_back_as_written(tmp_path: Path) -> None:
    keys = text("n") + struct.pack("<IIQ3h", ARRAY, 3, 3, -1, 0, 7)
    keys += text("s") + struct.pack("<IIQ", ARRAY, STRING, 2) + text("é") + text("")
    keys += text("b") + struct.pack("<I?", 7, True) + text("d") + struct.pack("<Id", 12, 0.1)
    path = tmp_path / "m.gguf"
    path.write_bytes(header(keys, 4))
    metadata = GgufFile.open(path).metadata
    assert list(metadata) == ["n", "s", "b", "d"]
    assert metadata["n"].tolist() == [-1, 0, 7]
    assert (metadata["s"], metadata["b"], metadata["d"]) == (["é", ""], True, 0.1)
    assert (metadata.entry("s").count, metadata.get("absent")) == (2, None)
