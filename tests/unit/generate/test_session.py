"""A session reads prompts in blocks and goes on token by token, over one set of caches."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pavane import api
from pavane.frontends.sampling import Sampler
from pavane.generate import Session
from pavane.program_cache import compiler_digest, decoder_artefact
from pavane.reject import ArgumentReject
from pavane.targets.load import load_target
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
