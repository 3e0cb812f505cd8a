"""Where a command writes, asked before its work begins: nothing is computed in vain, and no folder appears by itself.

A file goes into a folder that is there; a folder that an option names is made, those above it are not. Refuses
(FileReject) what the work could only end in.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pavane.reject import FileReject


def require_place(file: Path) -> None:
    """A file can be put there: its folder is there and may be written, and no folder, device or FIFO has its name."""
    with _refusing(file):
        real = Path(os.path.realpath(file))
        _require_folder(real.parent, file)
        if real.is_dir():
            raise FileReject("a folder has that name", where=str(file), remedy="name a file in it")
        if real.exists() and not real.is_file():
            raise FileReject("what has that name is no regular file", where=str(file), remedy="name another file")


def make_folder(folder: Path) -> None:
    """The folder itself, where it is not there yet."""
    with _refusing(folder):
        real = Path(os.path.realpath(folder))
        if not real.is_dir():
            _require_folder(real.parent, folder)
        real.mkdir(exist_ok=True)
        _require_folder(real, folder)


def unwritable(path: Path, error: OSError) -> FileReject:
    """What the system said when it would not write."""
    return FileReject(f"cannot write there ({error.strerror or error})", where=str(path), remedy="give another place")


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def _require_folder(folder: Path, asked: Path) -> None:
    if not folder.exists():
        raise FileReject(
            f"there is no folder {folder}", where=str(asked), remedy=f"`mkdir -p {shlex.quote(str(folder))}` makes it"
        )
    if not folder.is_dir():
        raise FileReject(f"{folder} is no folder", where=str(asked), remedy="give another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileReject(f"the folder {folder} may not be written", where=str(asked), remedy="give another place")
