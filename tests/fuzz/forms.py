"""The forms of an artefact that edits take: the file, the text of its content, the content's tree, the artefact.

A tree that describes an artefact becomes one with digests that fit, as one who forges a file would make them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from pavane.artefact import MAGIC, VERSION, Artefact, artefact_bytes
from pavane.ir.digest import graph_digest, program_digest
from pavane.ir.program import Certificate
from pavane.targets.descriptor import target_digest


def as_form(form: str, value: Any) -> Any:
    """An artefact, a tree, content or file as the form that an edit takes; what cannot go back stays a file."""
    if form == "artefact":
        return value if isinstance(value, Artefact) else forged(value)
    if form == "tree":
        return tree_of(value)
    if form == "content":
        return content_of(value)
    if isinstance(value, bytes):
        return value
    if isinstance(value, Artefact):
        return artefact_bytes(value)
    return file_of(content_of(value))


@dataclass(frozen=True)
class Content:
    """The text inside a file."""

    text: bytes


def content_of(value: Any) -> Content:
    if isinstance(value, Content):
        return value
    if isinstance(value, bytes):
        return Content(unpacked(value))
    if isinstance(value, Artefact):
        return Content(unpacked(artefact_bytes(value)))
    made = forged(value)
    return content_of(made) if isinstance(made, Artefact) else Content(_text_of(value))


def _text_of(tree: Any) -> bytes:
    try:
        return json.dumps(tree).encode()
    except RecursionError:
        return b"{}"


def unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompress(data.partition(b"\n")[2])
    except zlib.error:
        return data


def tree_of(value: Any) -> Any:
    if isinstance(value, dict | list):
        return value
    try:
        tree = json.loads(content_of(value).text)
    except (ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict | list) else {}


def forged(value: Any) -> Any:
    """The artefact that a tree describes, with digests that fit; the value itself where it describes none."""
    try:
        tree = value if isinstance(value, dict | list) else json.loads(content_of(value).text)
        made = msgspec.convert(tree, Artefact)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return value
    return signed(made)


def signed(made: Artefact) -> Artefact:
    program = replace(made.program, target=made.target.name, target_digest=target_digest(made.target))
    try:
        program = replace(program, graph_digest=graph_digest(program))
    except KeyError:
        return made
    if program.certificate is not None:
        schedules = program.certificate.schedules
        certificate = Certificate(program_digest(program), program.target_digest, schedules)
        program = replace(program, certificate=certificate)
    return replace(made, program=program)


def file_of(content: Content) -> bytes:
    line = MAGIC + f"{VERSION} {hashlib.sha256(content.text).hexdigest()}\n".encode()
    return line + zlib.compress(content.text, 1)
