"""The deployment form: the right bits, written once, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

import pavane.frontends.deploy as deploy
from pavane.frontends.deploy import INDEX_NAME, deployment
from pavane.frontends.gguf import GgufModel, read_gguf
from pavane.reject import FileReject, ModelReject
from pavane.tensor_graph.decoder import DecoderConfig
from tests.tiny_models import Edit, tiny_config, tiny_gemma, write_tiny_gguf

Q4_1, Q8_0, F32 = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0, GGMLQuantizationType.F32


def model(
    tmp_path: Path,
    weight_type: GGMLQuantizationType = Q4_1,
    config: DecoderConfig | None = None,
    edit: Edit | None = None,
) -> GgufModel:
    path = write_tiny_gguf(tmp_path / "source.gguf", config or tiny_config(), weight_type=weight_type, edit=edit)
    return read_gguf(path)


def files_under(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def q8_0_by_the_rule(rows: np.ndarray) -> Iterator[bytes]:
    """ggml's rule, block by block: d = max|x| / 127, q = x * (1 / d) rounded half away from zero, d stored as f16."""
    for block in rows.reshape(-1, 32):
        d = np.float32(np.abs(block).max() / np.float32(127))
        scaled = block * (np.float32(1) / d if d else np.float32(0))
        yield np.float16(d).tobytes() + (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int8).tobytes()


def test_matrices_become_q8_0_bit_for_bit_and_the_rest_f32(tmp_path: Path) -> None:
    source = model(tmp_path)
    deployed = deployment(source, tmp_path / "cache")
    assert {name for name, weight in deployed.weights.items() if weight.dtype == "f32"} == {
        name for name in source.tensors if name.endswith("norm")
    }
    for name, weight in deployed.weights.items():
        values, array = source.tensor_f32(name), deployed.array(name)
        assert weight.shape == values.shape
        assert weight.offset % 64 == 0
        assert not array.flags.writeable
        with open(deployed.path, "rb") as file:
            file.seek(weight.offset)
            assert file.read(weight.nbytes) == array.tobytes()
        if weight.dtype == "f32":
            assert np.array_equal(array, values)
        else:
            assert array.shape == (values.shape[0], values.shape[1] // 32 * 34)
            assert array.tobytes() == b"".join(q8_0_by_the_rule(values))
            assert np.array_equal(deployed.tensor_f32(name), dequantize(array, Q8_0))


def test_widths_that_are_no_multiple_of_32_stay_float32(tmp_path: Path) -> None:
    deployed = deployment(model(tmp_path, config=tiny_config(feed_forward=33)), tmp_path / "cache")
    assert deployed.weights["layers.0.down"].dtype == "f32"
    assert deployed.weights["layers.0.up"].dtype == "q8_0"
    assert deployed.array("layers.0.down").shape == (64, 33)


@pytest.mark.parametrize("config", [tiny_config(), tiny_gemma()], ids=["llama", "gemma3"])
def test_the_file_is_a_gguf_that_says_the_same_model(config: DecoderConfig, tmp_path: Path) -> None:
    source = model(tmp_path, config=config)
    deployed = deployment(source, tmp_path / "cache")
    assert deployed.config == source.config
    for key in source.metadata:
        if key != "general.file_type":
            assert deployed.metadata.entry(key).kind == source.metadata.entry(key).kind
            assert np.array_equal(deployed.metadata[key], source.metadata[key])
    reader = GGUFReader(deployed.path)
    assert [tensor.name for tensor in reader.tensors] == [entry.name for entry in source.file.tensors.values()]
    assert reader.tensors[0].data.tobytes() == deployed.array("embedding").tobytes()


def test_the_second_run_neither_writes_nor_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, cache, seen = model(tmp_path), tmp_path / "cache", []
    first = deployment(source, cache, lambda *state: seen.append(state))
    assert seen[0][0] == "reading"
    assert seen[-1][0] == "converting"
    assert seen[-1][1] == seen[-1][2] > 0
    monkeypatch.setattr(deploy, "_hash", None)
    monkeypatch.setattr(deploy, "_write", None)
    second = deployment(read_gguf(source.path), cache)
    assert (second.path, second.digest, second.weights) == (first.path, first.digest, first.weights)


def test_a_changed_source_is_deployed_anew(tmp_path: Path) -> None:
    first = deployment(model(tmp_path), tmp_path / "cache")
    write_tiny_gguf(tmp_path / "source.gguf", tiny_config(), seed=1, weight_type=Q4_1)
    os.utime(tmp_path / "source.gguf", ns=(1, 1))
    assert deployment(read_gguf(tmp_path / "source.gguf"), tmp_path / "cache").digest != first.digest


def test_a_source_in_deployment_form_is_used_as_it_is(tmp_path: Path) -> None:
    source = model(tmp_path, weight_type=Q8_0)
    assert deployment(source, tmp_path / "cache").path == source.path
    assert files_under(tmp_path / "cache") == [INDEX_NAME]


def test_a_damaged_deployment_or_index_is_made_again(tmp_path: Path) -> None:
    source, cache = model(tmp_path), tmp_path / "cache"
    path = deployment(source, cache).path
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    (cache / INDEX_NAME).write_bytes(b"{ not json")
    assert deployment(source, cache).path.read_bytes() == whole


@pytest.mark.parametrize("place", [0.3, 0.6, 0.99])
def test_a_deployment_that_was_changed_is_made_again(place: float, tmp_path: Path) -> None:
    """One bit of a weight: the header says nothing of it."""
    source, cache = model(tmp_path), tmp_path / "cache"
    path = deployment(source, cache).path
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[int(place * len(whole))] ^= 1
    path.write_bytes(changed)
    assert deployment(read_gguf(source.path), cache).path.read_bytes() == whole


def test_a_cache_may_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = model(tmp_path)
    deployment(source, tmp_path / "cache")
    (tmp_path / "cache").rename(tmp_path / "moved")
    monkeypatch.setattr(deploy, "_write", None)
    assert deployment(source, tmp_path / "moved").path.is_relative_to(tmp_path / "moved")


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device"), MemoryError])
def test_a_failed_deployment_leaves_nothing(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, cache = model(tmp_path), tmp_path / "cache"

    def fail(what: str, done: int, total: int) -> None:
        if what == "converting" and done > total // 2:
            raise failure

    expected = FileReject if isinstance(failure, OSError) else failure
    with pytest.raises(expected):
        deployment(source, cache, fail)
    assert files_under(cache) == [INDEX_NAME]
    assert deployment(source, cache).path.exists()


def test_refuses_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(FileReject, match="cannot write the deployment form") as caught:
        deployment(model(tmp_path), blocked)
    assert "bytes" in caught.value.needed


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9])
@pytest.mark.parametrize("place", ["blk.1.attn_q.weight", "blk.0.ffn_norm.weight"])
def test_refuses_numbers_that_q8_0_cannot_hold(value: float, place: str, tmp_path: Path) -> None:
    def spoil(name: str, values: np.ndarray) -> np.ndarray:
        if name == place:
            values.flat[-1] = value
        return values

    source = model(tmp_path, F32, edit=spoil)
    if value == 1e9 and place.endswith("norm.weight"):
        assert deployment(source, tmp_path / "cache").array("layers.0.ffn_norm")[-1] == np.float32(1e9)
        return
    with pytest.raises(ModelReject, match=place):
        deployment(source, tmp_path / "cache")
    assert files_under(tmp_path / "cache") == [INDEX_NAME]


def test_refuses_infinite_scales_in_a_source_that_is_q8_0_already(tmp_path: Path) -> None:
    source = model(tmp_path, Q8_0)
    content, entry = bytearray(source.path.read_bytes()), source.tensors["layers.0.up"]
    content[entry.offset : entry.offset + 2] = np.float16(np.inf).tobytes()
    source.path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(ModelReject, match="ffn_up"):
            deployment(read_gguf(source.path), tmp_path / "cache")
