"""Compiled objects on disk: one file a (program, target, compiler, processor), written whole or not at all.

A file is a magic, the SHA-256 of what follows, and the object. One that does not match is as if it were not there. A directory that cannot be
written is not an error: the object is compiled again the next time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

import platformdirs

from pavane.ir.digest import digest, program_digest
from pavane.ir.program import Program
from pavane.native.cpu import Cpu, compiler_key

_MAGIC = b"pavane-object-1\n"
_REVISION = 1  # of the lowering: a change of what it writes changes this


def default_directory() -> Path:
    """Where objects are kept for this user."""
    return Path(platformdirs.user_cache_dir("pavane")) / "objects"


def object_key(program: Program, cpu: Cpu) -> str:
    """The name of the program's object; the program's digest covers its target's."""
    return digest([_REVISION, program_digest(program), compiler_key(cpu)])


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
    """Put the object there, atomically."""
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=directory, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
            os.replace(name, directory / f"{key}.o")
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
