"""Compiled objects on disk: found again, never trusted when damaged, never written before the program was accepted."""

from __future__ import annotations

import numpy as np
import pytest

from pavane import native
from pavane.native import runtime
from pavane.native.cache import object_key
from pavane.native.cpu import host_cpu
from pavane.reject import MeaningRefused
from pavane.targets.load import load_target
from tests.engines.native_programs import accepted, as_stored
from tests.examples import norm_product_host

HOST = load_target("host", 1)


def result(cache_dir, accept=accepted) -> np.ndarray:
    weights = {"w": as_stored(np.random.default_rng(0).standard_normal((96, 64)), "q8_0"), "g": np.ones(64, np.float32)}
    with native.load(norm_product_host(HOST), HOST, weights=weights, cache_dir=cache_dir, accept=accept) as ready:
        ready.launch({"rows": 3}, {"x": np.linspace(-1, 1, 192, dtype=np.float32).reshape(3, 64)})
        return ready.tensor("y").copy()


@pytest.fixture
def compiled(monkeypatch):
    """How many programs have been compiled."""
    count = []
    real = runtime.compile_program
    monkeypatch.setattr(runtime, "compile_program", lambda *a: count.append(1) or real(*a))
    return count


def refuse(program, target):
    raise MeaningRefused("a term differs")


def test_a_second_load_is_from_the_cache(tmp_path, compiled):
    first = result(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [f"{object_key(norm_product_host(HOST), host_cpu())}.o"]
    assert np.array_equal(result(tmp_path, accept=refuse), first)
    assert len(compiled) == 1


@pytest.mark.parametrize(
    "damage", [lambda b: b[:100], lambda b: b"", lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b"x" + b[1:]]
)
def test_a_damaged_object_is_made_again(tmp_path, compiled, damage):
    first = result(tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert np.array_equal(result(tmp_path), first)
    assert len(compiled) == 2
    assert file.read_bytes() == whole


def test_a_refused_program_leaves_nothing(tmp_path):
    with pytest.raises(MeaningRefused):
        result(tmp_path, accept=refuse)
    assert list(tmp_path.iterdir()) == []


def test_without_a_place_to_write(tmp_path, compiled):
    file = tmp_path / "a file"
    file.write_text("not a directory")
    assert np.array_equal(result(file), result(file / "below"))
    assert len(compiled) == 2


def test_the_key_is_of_program_and_processor():
    keys = {object_key(norm_product_host(HOST, width=w), host_cpu()) for w in (64, 96)}
    assert len(keys) == 2
