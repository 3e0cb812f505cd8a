"""Block floats as what a deployment stores: encoded from the model file's own values, and no file beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from pavane import api
from pavane.frontends.deploy import INDEX_NAME, STORED_WEIGHTS, deployment
from pavane.frontends.gguf import read_gguf
from pavane.ir.types import row_bytes
from pavane.reject import ArgumentReject, ModelReject
from pavane.tensor_graph.blocks import decode_blocks, encode_blocks
from tests.tiny_models import tiny_config, write_tiny_gguf

Q4_1, Q8_0 = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0


def written(tmp_path: Path, **more) -> Path:
    return write_tiny_gguf(tmp_path / "source.gguf", more.pop("config", tiny_config()), **more)


@pytest.mark.parametrize("weights", ["bfp8", "bfp4"])
@pytest.mark.parametrize("stored_as", [Q4_1, Q8_0])
def test_matrices_are_encoded_from_the_source_and_the_rest_is_f32(tmp_path, weights, stored_as):
    source = read_gguf(written(tmp_path, weight_type=stored_as))
    deployed = deployment(source, tmp_path / "cache", weights=weights)
    assert deployed.path == source.path
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [INDEX_NAME]
    for name, weight in deployed.weights.items():
        values, array = source.tensor_f32(name), deployed.array(name)
        assert weight.shape == values.shape
        if values.ndim == 1:
            assert (weight.dtype, array.tolist()) == ("f32", values.tolist())
            continue
        assert weight.dtype == weights
        assert array.shape == (values.shape[0], row_bytes(weights, values.shape[1]))
        assert (array == encode_blocks(values, weights)).all()
        assert (deployed.tensor_f32(name) == decode_blocks(array, weights)).all()


def test_rows_that_are_no_whole_blocks_stay_float32(tmp_path):
    source = read_gguf(written(tmp_path, config=tiny_config(feed_forward=100), weight_type=GGMLQuantizationType.F32))
    deployed = deployment(source, tmp_path / "cache", weights="bfp8")
    assert (deployed.weights["layers.0.down"].dtype, deployed.weights["layers.0.up"].dtype) == ("f32", "bfp8")
    assert (deployed.array("layers.0.down") == source.tensor_f32("layers.0.down")).all()


def test_the_programs_declare_what_is_stored(tmp_path):
    path = written(tmp_path)
    for weights in STORED_WEIGHTS:
        model = api.gguf(path, context=32, cache_dir=tmp_path / "cache", weights=weights)
        program = api.compile(model.decode(), "wormhole_n150")
        declared = {t.name: t.dtype for t in program.tensors if t.role == "WEIGHT"}
        assert sorted(declared) == sorted(model.weights()) == sorted(model.weight_names())
        assert declared["layers.0.q"] == declared["embedding"] == weights


def test_a_number_that_is_none_is_refused(tmp_path):
    def edit(name, values):
        return np.where(values == values.max(), np.float32(np.inf), values) if name == "blk.0.attn_q.weight" else values

    model = read_gguf(written(tmp_path, weight_type=GGMLQuantizationType.F32, edit=edit))
    with pytest.raises(ModelReject, match=r"blk.0.attn_q.weight holds values that are not finite"):
        deployment(model, tmp_path / "cache", weights="bfp4").array("layers.0.q")


def test_another_kind_is_refused(tmp_path):
    with pytest.raises(ArgumentReject, match="q8_0, bfp8, bfp4"):
        api.gguf(written(tmp_path), weights="bfp16")  # type: ignore[arg-type]
