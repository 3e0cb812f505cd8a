"""Packed weights on disk: made once, afterwards mapped, so that a start neither packs nor allocates them, and processes
share their pages.

A file is one page of `_head` and the bytes. Its name and head are a digest over the form, what the weights hold (a
digest of the caller's) and which tensors lie there in which order; it appears whole or not at all. The head says when
the file was last changed: one that somebody has changed since, or that does not match, is made again. Where none can
be written (no rights, no room, a system without `posix_fallocate`, which alone makes sure that a mapped page has its
place on the disk) the bytes are made in memory, each time.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pavane.atomic import replacing, sweep

_HEAD_BYTES = 4096
_MAGIC = b"pavane-packed-1\n"
_TIME_STEP_NS = 2_000_000_000  # every file system keeps an even second

Fill = Callable[[np.ndarray], None]


class Place(NamedTuple):
    """Where packed weights are kept, and a digest of what the weights hold."""

    directory: Path
    contents: str


def kept_bytes(place: Place, key: str, size_bytes: int, fill: Fill) -> np.ndarray | None:
    """So many bytes, read-only, as `fill` writes them, from the file of that key; None where none can be kept."""
    path = place.directory / f"{key}.packed"
    found = _mapped(path, key, size_bytes)
    if found is not None or not hasattr(os, "posix_fallocate"):
        return found
    try:
        sweep(place.directory)
        with replacing(path) as temporary:
            _write(temporary, key, size_bytes, fill)
    except OSError:
        return None
    return _mapped(path, key, size_bytes)


def _mapped(path: Path, key: str, size_bytes: int) -> np.ndarray | None:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            head = _head(key, status.st_mtime_ns)
            if status.st_size != _HEAD_BYTES + size_bytes or file.read(_HEAD_BYTES) != head:
                return None
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError:
        return None
    return np.frombuffer(view, np.uint8, offset=_HEAD_BYTES)


def _head(key: str, changed_ns: int) -> bytes:
    return (_MAGIC + f"{key} {changed_ns}".encode()).ljust(_HEAD_BYTES, b"\0")


def _write(path: Path, key: str, size_bytes: int, fill: Fill) -> None:
    now = time.time_ns() // _TIME_STEP_NS * _TIME_STEP_NS
    with open(path, "rb+") as file:
        os.posix_fallocate(file.fileno(), 0, _HEAD_BYTES + size_bytes)
        mapped = mmap.mmap(file.fileno(), 0)
    whole = np.frombuffer(mapped, np.uint8)
    whole[:_HEAD_BYTES] = np.frombuffer(_head(key, now), np.uint8)
    fill(whole[_HEAD_BYTES:])
    mapped.flush()
    os.utime(path, ns=(now, now))
