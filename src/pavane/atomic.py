"""Files that appear whole or not at all.

`replacing(path)` gives a temporary path in the same directory; when the block ends well, the file is flushed to the
disk and renamed onto `path`; on any failure, KeyboardInterrupt included, it is removed and `path` is as it was. Two
processes that write the same path at once both succeed and the later one stays. A process that is killed outright may
leave its temporary file behind: `sweep` removes such files once they are a day old.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL_PREFIX = ".partial-"
STALE_SECONDS = 24 * 3600


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and move it there when the block succeeds. Raises OSError as it comes.

    A link is followed. What is there and is no regular file (a device, a FIFO) is an OSError, never replaced.
    """
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=PARTIAL_PREFIX, suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        temporary.chmod(0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """Yield a new directory inside `parent` that is gone after the block, however it ends."""
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=PARTIAL_PREFIX, dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sweep(directory: Path) -> None:
    """Remove what killed processes left in `directory` more than a day ago."""
    for leftover in directory.glob(PARTIAL_PREFIX + "*"):
        try:
            if time.time() - leftover.stat().st_mtime < STALE_SECONDS:
                continue
        except FileNotFoundError:
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
