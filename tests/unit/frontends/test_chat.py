"""Chat templates: what they may do, and what a hostile one gets."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pavane.frontends.chat import ChatTemplate
from pavane.frontends.gguf import GgufModel, read_gguf
from pavane.frontends.tokenizer import Tokenizer, read_tokenizer
from pavane.reject import ModelReject
from tests.tiny_models import tiny_config, write_tiny_gguf

HERE = Path("model.gguf")
TALK = [{"role": "user", "content": "Hi\nthere"}, {"role": "assistant", "content": "Hello"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> GgufModel:
    return read_gguf(write_tiny_gguf(tmp_path_factory.mktemp("chat") / "m.gguf", tiny_config()))


@pytest.fixture(scope="module")
def tokenizer(model: GgufModel) -> Tokenizer:
    return read_tokenizer(model.path, model.metadata)


def render(source: str | None, tokenizer: Tokenizer) -> str:
    metadata = {} if source is None else {"tokenizer.chat_template": source}
    return ChatTemplate(HERE, metadata, tokenizer).render(TALK)


def test_the_models_own_template(model: GgufModel, tokenizer: Tokenizer) -> None:
    chat = ChatTemplate(model.path, model.metadata, tokenizer)
    said = "<|im_start|>user\nHi\nthere<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
    assert chat.present
    assert chat.render(TALK) == said + "<|im_start|>assistant\n"
    assert chat.render(TALK, add_generation_prompt=False) == said


def test_without_a_template_the_text_stands_as_it_is(tokenizer: Tokenizer) -> None:
    assert render(None, tokenizer) == "Hi\nthere\nHello"


GOOD = {
    "{{ bos_token }}|{{ eos_token }}": "<|im_start|>|<|im_end|>",
    "{{ {'a': 'é<'} | tojson }}": '{"a": "é<"}',
    "{% for m in messages %}{% if m.role != 'user' %}{% break %}{% endif %}x{% endfor %}": "x",
    "{% generation %}a{% endgeneration %}b": "ab",
    "{{ strftime_now('%Y') | length }}": "4",
    "{%- if tools %}t{% endif %}\n  {%- if true %}\nx\n{%- endif %}": "x",
}


@pytest.mark.parametrize("source", GOOD)
def test_what_templates_expect(source: str, tokenizer: Tokenizer) -> None:
    assert render(source, tokenizer) == GOOD[source]


BAD = {
    "{% if %}": "does not parse",
    "{% generation %}": "does not parse",
    "{{ raise_exception('only system roles') }}": "only system roles",
    "{{ 1 / 0 }}": "ZeroDivisionError",
    "{{ messages.append(1) }}": "SecurityError",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}": "SecurityError",
    "{% for i in range(10 ** 9) %}x{% endfor %}": "OverflowError",
    "{% for i in range(9999) %}{% for j in range(9999) %}{{ 'x' * 999 }}{% endfor %}{% endfor %}": "writes more than",
    "{% include 'other' %}": "fails",
    "{{ 9 ** (9 ** 9) }}": "too large",
    "{{ 'x' * 10 ** 12 }}": "too large",
    "{{ 'x' | center(10 ** 9) }}": "argument of a filter",
    "{{ 1.5 | round(10 ** 9, 'ceil') }}": "argument of a filter",
    "{{ lipsum(10 ** 9) }}": "undefined",
    "{{ 'x'.ljust(10 ** 12) }}": "MemoryError",
    "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}": "MemoryError",
}


@pytest.mark.parametrize("source", BAD)
def test_refuses(source: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(ModelReject, match=BAD[source]) as caught:
        render(source, tokenizer)
    assert "tokenizer.chat_template" in caught.value.where


ENDLESS = {
    "a loop in a loop": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "macros that call themselves": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "a name that hides the checkpoint": (
        "{% set checkpoint = 1 %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_refuses_to_run_without_end(name: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pavane.frontends.template_bounds.MOST_SECONDS", 0.2)
    with pytest.raises(ModelReject, match=r"runs for more than 0\.2 seconds"):
        render(ENDLESS[name], tokenizer)


def test_what_one_template_used_up_is_given_back(tokenizer: Tokenizer) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(ModelReject, match="MemoryError"):
        render("{{ 'x'.ljust(10 ** 12) }}", tokenizer)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert render("{{ 'x' * 3 }}", tokenizer) == "xxx"
