"""A file appears whole or not at all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pavane.atomic import PARTIAL_PREFIX, STALE_SECONDS, replacing, scratch_directory, sweep


def test_replaces_when_the_block_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.bin"
    with replacing(target) as temporary:
        temporary.write_bytes(b"whole")
        assert not target.exists()
    assert target.read_bytes() == b"whole"
    assert os.listdir(target.parent) == ["file.bin"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, OSError])
def test_leaves_everything_as_it_was_on_failure(failure: type[BaseException], tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    target.write_bytes(b"before")
    with pytest.raises(failure), replacing(target) as temporary:
        temporary.write_bytes(b"half")
        raise failure
    assert target.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file.bin"]


def test_a_scratch_directory_is_gone_after_an_interrupt(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), scratch_directory(tmp_path) as scratch:
        (scratch / "deep").mkdir()
        (scratch / "deep" / "file").write_bytes(b"x")
        raise KeyboardInterrupt
    assert not os.listdir(tmp_path)


def test_sweep_takes_only_old_leftovers(tmp_path: Path) -> None:
    old, young, other = tmp_path / f"{PARTIAL_PREFIX}old", tmp_path / f"{PARTIAL_PREFIX}young", tmp_path / "model.gguf"
    for path in (young, other):
        path.write_bytes(b"x")
    old.mkdir()
    long_ago = time.time() - 2 * STALE_SECONDS
    os.utime(old, (long_ago, long_ago))
    os.utime(other, (long_ago, long_ago))
    sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([young.name, other.name])
