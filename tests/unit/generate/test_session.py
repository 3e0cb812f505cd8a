"""A session reads prompts in blocks and goes on token by token, over one set of caches."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pavane import api
from pavane.frontends.sampling import Sampler
from pavane.generate import Session, fitting_rows
from pavane.program_cache import compiler_digest, decoder_artefact
from pavane.reject import ArgumentReject
from pavane.targets.load import load_target
from pavane.targets.prompt_rows import prompt_rows
from tests.tiny_models import tiny_config, write_tiny_gguf

HOST = load_target("host", cores=2)
IDS = tuple(int(n) for n in np.random.default_rng(3).integers(3, 290, 45))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def model(cache):
    path = cache / "tiny.gguf"
    write_tiny_gguf(path, tiny_config(layers=1), 1)
    return api.gguf(path, "FLOAT", 64, cache_dir=cache)


@pytest.fixture
def session(model, cache):
    with Session(model, HOST, cache_dir=cache) as session:
        yield session


def test_blocks_and_single_tokens_give_the_same_logits(model, cache, session):
    whole = session.read(IDS)
    with Session(model, HOST, cache_dir=cache) as other:
        for token in IDS:
            single = other.step(token)
        assert other.position == session.position == len(IDS)
    assert np.abs(whole - single).max() <= 1e-4 * np.abs(whole).max()
    assert whole.argmax() == single.argmax()


def test_a_second_prompt_continues_the_first(session, model, cache):
    session.read(IDS[:20])
    continued = session.read(IDS[20:])
    with Session(model, HOST, cache_dir=cache) as other:
        assert np.abs(continued - other.read(IDS)).max() <= 1e-4 * np.abs(continued).max()


def test_any_blocks_give_the_same_bits(cache):
    """110 tokens: 64 and 46 on one core; 64, 32 and 14 on two, by programs that share rows and columns."""
    path = cache / "longer.gguf"
    write_tiny_gguf(path, tiny_config(layers=1), 2)
    model = api.gguf(path, "INT8_ACTIVATIONS", 128, cache_dir=cache)
    ids = np.random.default_rng(4).integers(3, 290, 110).tolist()
    found = []
    for cores in (1, 2):
        with Session(model, load_target("host", cores), cache_dir=cache) as session:
            found.append(session.read(ids))
            assert session.position == 110
    with Session(model, HOST, cache_dir=cache) as session:
        for start, stop in ((0, 1), (1, 34), (34, 98), (98, 110)):
            found.append(session.read(ids[start:stop]))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[-1])


def test_how_many_rows_a_block_has():
    assert prompt_rows(load_target("host", 1)) == (64,)
    assert prompt_rows(HOST) == (32, 64)
    assert prompt_rows(load_target("toy")) == prompt_rows(load_target("wormhole_n150")) == (32,)
    assert [fitting_rows(n, (32, 64)) for n in (1, 32, 33, 47, 48, 64, 500)] == [32, 32, 32, 32, 64, 64, 64]
    assert [fitting_rows(n, (64,)) for n in (1, 64, 65)] == [64, 64, 64]


def test_generation_ends_at_the_asked_number_and_at_the_context(session):
    assert len(list(session.generate(IDS[:5], Sampler(), 7))) == 7
    assert session.timing.prompt_tokens == 5
    assert session.timing.tokens == 6
    assert session.position == 11
    assert len(list(session.generate(IDS[:3], Sampler(), 1000))) == 64 - 11 - 3 + 1
    assert session.position == 64


def test_generation_ends_at_an_end_token_without_showing_it(model, cache, session):
    tokens = list(session.generate(IDS[:5], Sampler(), 4))
    with Session(model, HOST, cache_dir=cache) as other:
        shown = list(other.generate(IDS[:5], Sampler(), 4, end_ids=(tokens[2],)))
    assert shown == tokens[: tokens.index(tokens[2])]


@pytest.mark.parametrize(
    ("ids", "words"),
    [((), "empty"), (IDS + IDS, "longer than the context"), ((5, 300), "token 300"), ((-1,), "token -1")],
)
def test_prompts_that_cannot_be_read_are_refused(session, ids, words):
    with pytest.raises(ArgumentReject, match=words):
        session.read(ids)
    assert session.position == 0


def test_a_compiled_program_is_kept_and_a_damaged_one_made_again(model, cache):
    directory = cache / "programs"
    first = decoder_artefact(model, "decode", HOST, cache_dir=cache)
    times = {path: os.stat(path).st_mtime_ns for path in directory.iterdir()}
    assert decoder_artefact(model, "decode", HOST, cache_dir=cache) == first
    assert {path: os.stat(path).st_mtime_ns for path in directory.iterdir()} == times
    for path in directory.iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    assert decoder_artefact(model, "decode", HOST, cache_dir=cache) == first


def test_the_compiler_has_one_digest():
    assert len(compiler_digest()) == 64
