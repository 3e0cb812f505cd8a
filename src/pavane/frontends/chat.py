"""A conversation as the text that the model was trained to continue, by the template in its GGUF.

`ChatTemplate.render(messages)` runs the file's Jinja template in a sandbox (`template_bounds`) with the helpers that
such templates expect (`raise_exception`, `strftime_now`, `tojson`, the `generation` block). A model without a template
gets the messages' contents as plain text, one after the other. A template that does not parse, fails, writes or runs
without end or wants too much memory is refused with `ModelReject`.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from pavane.frontends.gguf_header import shown
from pavane.frontends.template_bounds import BoundedEnvironment, bounded_memory
from pavane.frontends.tokenizer import Tokenizer
from pavane.reject import ModelReject

TEMPLATE_KEY = "tokenizer.chat_template"
MAX_TEXT_CHARACTERS = 1 << 24
MAX_REASON_CHARACTERS = 200

Message = Mapping[str, str]


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; here its content simply stands."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """Renders a list of messages ({"role", "content"}); `present` says whether the model brought a template."""

    def __init__(self, path: Path, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> None:
        source = metadata.get(TEMPLATE_KEY)
        self.path = path
        self.present = isinstance(source, str)
        self._specials = {
            "bos_token": tokenizer.token_text(tokenizer.bos_id),
            "eos_token": tokenizer.token_text(tokenizer.eos_id),
        }
        self._environment = _environment()
        self._template = self._compile(source) if isinstance(source, str) else None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The prompt text of a conversation. Raises ModelReject when the template refuses or fails."""
        if self._template is None:
            return "\n".join(message["content"] for message in messages)
        values = {"messages": list(messages), "add_generation_prompt": add_generation_prompt, "tools": None}
        self._environment.start()
        try:
            with bounded_memory():
                return self._written(self._template.generate(values | self._specials))
        except ModelReject:
            raise
        except Exception as error:  # a template is a program from the file: it may fail in any way
            self._refuse(
                f"the chat template fails ({type(error).__name__}: {shown(str(error), MAX_REASON_CHARACTERS)})"
            )

    def _written(self, pieces: Iterator[str]) -> str:
        found, characters = [], 0
        for piece in pieces:
            self._environment.checkpoint()
            found.append(piece)
            characters += len(piece)
            if characters > MAX_TEXT_CHARACTERS:
                self._refuse(f"the chat template writes more than {MAX_TEXT_CHARACTERS} characters")
        return "".join(found)

    def _compile(self, source: str) -> jinja2.Template:
        try:
            with bounded_memory():
                return self._environment.template(source)
        except (jinja2.TemplateError, MemoryError, RecursionError, SyntaxError, ValueError) as error:
            self._refuse(f"the chat template does not parse ({shown(str(error), MAX_REASON_CHARACTERS)})")

    def _refuse(self, what: str) -> NoReturn:
        raise ModelReject(
            what,
            where=f"{self.path}, metadata {TEMPLATE_KEY}",
            remedy="give the prompt as it is, without a template (--raw)",
        )


def _environment() -> BoundedEnvironment:
    environment = BoundedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)
