"""What a model is called: as its file says (general.name), else as its file is called; deployed or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pavane import api
from pavane.frontends.gguf import read_gguf
from tests.tiny_models import tiny_config, write_tiny_gguf


def written(path: Path, name: object) -> Path:
    return write_tiny_gguf(path, tiny_config(layers=1), 1, metadata={"general.name": name})


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Tiny One", "Tiny One"),
        ("  Tiny One\n", "Tiny One"),
        ("tiny\tone", "tiny?one"),
        ("", "my-model"),
        ("   ", "my-model"),
        (None, "my-model"),
        (7, "my-model"),
    ],
)
def test_the_name_is_what_the_file_says_or_the_files_own(tmp_path, said, name):
    path = written(tmp_path / "my-model.gguf", said)
    assert read_gguf(path).config.name == name
    model = api.gguf(path, cache_dir=tmp_path / "cache")
    assert model.deployed.path.parent == tmp_path / "cache" / "deployed"
    assert (model.config.name, model.decode().name, model.prompt().name) == (name, f"{name}.decode", f"{name}.prompt")


def test_copies_of_a_nameless_file_share_a_deployment_and_keep_their_names(tmp_path):
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    second.write_bytes(written(first, None).read_bytes())
    models = [api.gguf(path, cache_dir=tmp_path / "cache") for path in (first, second, first)]
    assert [model.config.name for model in models] == ["first", "second", "first"]
    assert len({model.deployed.path for model in models}) == 1


def test_a_program_of_a_renamed_file_has_the_same_shapes(tmp_path):
    """The name is part of a program, and of its digest; nothing that is compiled, lowered or cached rests on it."""
    one, two = (
        api.compile(api.gguf(written(tmp_path / "a.gguf", name), cache_dir=tmp_path, context=64).decode(), "host", 1)
        for name in ("One", "Two")
    )
    assert (one.name, two.name) == ("One.decode", "Two.decode")
    assert (one.shapes, one.instances, one.tensors, one.workers) == (
        two.shapes,
        two.instances,
        two.tensors,
        two.workers,
    )
    assert one.graph_digest == two.graph_digest
