"""Compiled objects on disk: one file a (program, version of Pavane, compiler, processor), written whole or not at all.

A file is a magic, the SHA-256 of what follows, and the object. One that does not match is as if it were not there. A
directory that cannot be written is not an error: the object is compiled again the next time.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from pavane.atomic import replacing, sweep
from pavane.ir.digest import digest, program_digest
from pavane.ir.program import Program
from pavane.native.cpu import Cpu, compiler_key
from pavane.user_cache import user_cache

_MAGIC = b"pavane-object-1\n"
_SOURCES = ("ir", "native", "targets", "verify")  # what decides whether a program is accepted and what it becomes


def default_directory() -> Path:
    """Where objects are kept for this user."""
    return user_cache(part="objects")


def object_key(program: Program, cpu: Cpu) -> str:
    """The name of the program's object; the program's digest covers its target's."""
    return digest([_code_digest(), program_digest(program), compiler_key(cpu)])


@lru_cache(maxsize=1)
def _code_digest() -> str:
    """Of Pavane's own modules: an object of another version of them is not found."""
    root = resources.files("pavane")
    found = hashlib.sha256()
    for package in _SOURCES:
        for file in sorted(_modules(root / package), key=lambda f: str(f)):
            found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _modules(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _modules(entry)
        elif entry.name.endswith(".py"):
            yield entry


def read_object(directory: Path, key: str) -> bytes | None:
    """The object of that key, or None when there is no whole one."""
    try:
        data = (directory / f"{key}.o").read_bytes()
    except OSError:
        return None
    head = len(_MAGIC)
    body = data[head + 32 :]
    if data[:head] != _MAGIC or hashlib.sha256(body).digest() != data[head : head + 32]:
        return None
    return body


def write_object(directory: Path, key: str, body: bytes) -> None:
    """Put the object there, as far as the system lets it."""
    with contextlib.suppress(OSError):
        sweep(directory)
        with replacing(directory / f"{key}.o") as temporary:
            temporary.write_bytes(_MAGIC + hashlib.sha256(body).digest() + body)
