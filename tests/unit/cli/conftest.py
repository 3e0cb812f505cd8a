"""What tests of commands share: a directory with a model, and a cache of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny_models import tiny_config, write_tiny_gguf


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """It holds `tiny.gguf`; commands of this process keep what they make in `cache` there."""
    directory = tmp_path_factory.mktemp("place")
    write_tiny_gguf(directory / "tiny.gguf", tiny_config(layers=1), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("platformdirs.user_cache_dir", lambda *_: str(directory / "cache"))
        yield directory
