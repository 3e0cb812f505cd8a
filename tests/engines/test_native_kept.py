"""Packed weights on disk: made once, mapped afterwards, made again when they are not whole, and never needed."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from pavane import native
from pavane.ir.program import Tree
from pavane.native import kept, memory
from pavane.native.packed_forms import FORM
from pavane.targets.load import load_target
from tests.engines.native_programs import accepted, as_stored, product_program

HOST = load_target("host", 1)
ROWS, COLUMNS = 48, 96
PROGRAM = product_program(HOST, "q8_0", "q8_0", 1, ROWS, COLUMNS, Tree(0, 1, True), True)


def weight(seed: int = 0, dtype: str = "q8_0") -> np.ndarray:
    return as_stored(np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype(np.float32), dtype)


def packed(directory: Path | None, b: np.ndarray, contents: str = "one") -> np.ndarray:
    with native.load(
        PROGRAM, HOST, weights={"B": b}, weights_digest=contents, cache_dir=directory, accept=accepted
    ) as ready:
        return ready.memory._packed["B"].copy()


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.packed"))


@pytest.fixture
def count(monkeypatch) -> list[str]:
    """The dtypes of the tensors that have been packed."""
    made: list[str] = []
    real = memory.pack_weight
    monkeypatch.setattr(memory, "pack_weight", lambda *a: made.append(a[1]) or real(*a))
    return made


def test_a_second_load_maps_what_the_first_one_packed(tmp_path, count):
    first = packed(tmp_path, weight())
    assert np.array_equal(packed(tmp_path, weight()), first)
    assert np.array_equal(packed(None, weight()), first)
    assert len(count) == 2  # the first one, and the one that has no place
    assert len(files(tmp_path)) == 1


def test_other_contents_are_another_file(tmp_path, count):
    one, other = packed(tmp_path, weight(), "one"), packed(tmp_path, weight(1), "other")
    assert len(count) == len(files(tmp_path)) == 2
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b[:100],
        lambda b: b[:-1],
        lambda b: b + b"x",
        lambda b: b"x" + b[1:],
        lambda b: b[:-9] + bytes([b[-9] ^ 1]) + b[-8:],
    ],
    ids=["empty", "head cut", "cut", "longer", "another head", "a bit of a weight"],
)
def test_a_file_that_is_not_as_it_was_written_is_made_again(tmp_path, count, damage):
    first = packed(tmp_path, weight())
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert np.array_equal(packed(tmp_path, weight()), first)
    assert file.read_bytes()[4096:] == whole[4096:]
    assert len(count) == 2


def test_a_directory_in_its_place(tmp_path, count):
    first = packed(tmp_path, weight())
    (file,) = files(tmp_path)
    file.unlink()
    file.mkdir()
    assert np.array_equal(packed(tmp_path, weight()), first)
    assert len(count) == 2


def test_without_room_the_copy_is_made_in_memory(tmp_path, count, monkeypatch):
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    first = packed(None, weight())
    monkeypatch.setattr(kept.os, "posix_fallocate", full)
    assert np.array_equal(packed(tmp_path, weight()), first)
    assert [p.suffix for p in tmp_path.iterdir()] == [".o"]
    assert len(count) == 2


def test_a_limit_on_the_size_of_files(tmp_path, count):
    """The limit is hit before a page is touched: a mapped page without room would end the process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    place = kept.Place(tmp_path, "one")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        assert kept.kept_bytes(place, "key", 1 << 20, lambda out: out.fill(1)) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing(tmp_path):
    def fail(out: np.ndarray) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.kept_bytes(kept.Place(tmp_path, "one"), "key", 1 << 12, fail)
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_cannot_be_written(tmp_path):
    found = kept.kept_bytes(kept.Place(tmp_path, "one"), "key", 64, lambda out: out.fill(7))
    assert found is not None
    assert found.tolist() == [7] * 64
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.parametrize(
    ("dtype", "transposed", "rows", "form"),
    [("q8_0", True, 1, "30b51c3be2a97a88"), ("bf16", False, 8, "a54010f2f91ba27c")],
)
def test_the_form_that_files_hold(dtype, transposed, rows, form):
    """Other bytes for the same weights need another `FORM`: files of the old one must not be found."""
    columns, k = (ROWS, COLUMNS) if transposed else (COLUMNS, ROWS)
    program = product_program(HOST, dtype, dtype, rows, columns, k, Tree(0, 1, True), transposed)
    b = as_stored(np.linspace(-1, 1, ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS), dtype)
    with native.load(program, HOST, weights={"B": b}, accept=accepted) as ready:
        found = hashlib.sha256(ready.memory._packed["B"].tobytes()).hexdigest()[:16]
    assert (FORM, found) == (1, form)
