"""Two ways out: results go to stdout as plain text, everything about them (progress, figures, refusals) to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pavane.reject import FileReject

if TYPE_CHECKING:
    from pavane.pipeline import PassEvent


def say(text: str) -> None:
    """A line about the work, on stderr; letters that a terminal would obey are spelled out. Lost where it is closed."""
    if sys.stderr is None:
        return
    shown = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    with contextlib.suppress(OSError):
        sys.stderr.write(shown + "\n")
        sys.stderr.flush()


def show_text(text: str) -> None:
    """A result, on stdout, byte for byte; what its encoding lacks is spelled out. Raises FileReject."""
    if sys.stdout is None:
        raise closed()
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritten(error) from error


def closed() -> FileReject:
    """There is no standard output."""
    return FileReject("the standard output is closed", remedy="send it to a file or a terminal")


def unwritten(error: OSError) -> FileReject:
    """The standard output takes no more; nothing more is sent there."""
    silence_stdout()
    return FileReject(
        f"cannot write the result ({error.strerror or error})",
        where="the standard output",
        remedy="free space there",
    )


def silence_stdout() -> None:
    """What is still buffered goes nowhere, so that the interpreter's last flush does not fail too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Watch:
    """A progress bar that both kinds of long work report to: bytes of a file, and passes of a compilation."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def bytes(self, what: str, done: int, total: int) -> None:
        """For fetching and converting: `done` of `total` bytes."""
        self._update(what, done, total)

    def passes(self, event: PassEvent) -> None:
        """For compiling: a pass ended."""
        self._update("compiling", event.done + (event.name == "verify"), event.total)

    def _update(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)


@contextmanager
def watching() -> Iterator[Watch]:
    """Progress bars on stderr while the block runs; they vanish when it ends, and never show on a file or a pipe."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Watch(progress)
