"""Where exceptions end: a worded paragraph on stderr and an exit code, never a traceback for what a user can cause.

The exit codes are `reject.EXIT_CODES`: 2 whatever the command line itself is to blame for, whoever finds it; 3 to 8 by
the kind of refusal.
"""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from pavane.cli.console import closed, say, silence_stdout, unwritten
from pavane.reject import SpatialReject

INTERRUPTED = 130
READER_GONE = 141
MOST_TERMS = 12
MOST_CHARACTERS = 1000  # of a part of a message
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
UsageError: Any = typer.BadParameter.__base__  # a line that cannot be: typer's own name for this kind is not public


class Guarded(TyperGroup):
    """The group of all commands; everything that reading a line or a command raises passes here."""

    def make_context(self, *arguments: Any, **keywords: Any) -> Any:
        with _worded():
            return super().make_context(*arguments, **keywords)

    def invoke(self, ctx: Any) -> Any:
        with _worded():
            return super().invoke(ctx)


@contextmanager
def _worded() -> Iterator[None]:
    try:
        yield
    except SpatialReject as reject:
        raise _ended(reject) from None
    except UsageError as error:
        said = io.StringIO()
        error.show(said)
        say(said.getvalue().removesuffix("\n"))
        raise typer.Exit(error.exit_code) from None
    except typer.Exit as done:
        if done.exit_code == 0 and sys.stdout is None:  # typer itself says help and the version, or nothing
            raise _ended(closed()) from None
        raise
    except KeyboardInterrupt:
        say("pavane: interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        silence_stdout()
        raise typer.Exit(READER_GONE) from None
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise _ended(unwritten(error)) from None  # what typer itself prints: help, the version


def _ended(reject: SpatialReject) -> typer.Exit:
    say(f"pavane: {paragraph(reject)}")
    return typer.Exit(reject.exit_code)


def paragraph(reject: SpatialReject) -> str:
    """The message, cut where its terms are too many, or what it quotes of a file too long, to be read."""
    kept = reject.terms[:MOST_TERMS]
    more = len(reject.terms) - len(kept)
    return str(
        SpatialReject(
            _cut(reject.what),
            where=_cut(reject.where),
            needed=_cut(reject.needed),
            available=_cut(reject.available),
            terms=(*map(_cut, kept), *([f"and {more} more"] if more else [])),
            remedy=_cut(reject.remedy),
        )
    )


def _cut(text: str) -> str:
    more = len(text) - MOST_CHARACTERS
    return f"{text[:MOST_CHARACTERS]}... (and {more:,} characters more)" if more > 0 else text
