"""Where exceptions end: a worded paragraph on stderr and an exit code, never a traceback for what a user can cause.

0 done, 2 a wrong option, 3 to 8 a refusal (docs/refusals.md), 130 interrupted, 141 the reader of the output went away.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from pavane.cli.console import say, silence_stdout
from pavane.reject import SpatialReject

INTERRUPTED = 130
READER_GONE = 141
MOST_TERMS = 12


class Guarded(TyperGroup):
    """The group of all commands; everything a command raises passes here."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SpatialReject as reject:
            say(f"pavane: {paragraph(reject)}")
            raise typer.Exit(reject.exit_code) from None
        except KeyboardInterrupt:
            say("pavane: interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            silence_stdout()
            raise typer.Exit(READER_GONE) from None


def paragraph(reject: SpatialReject) -> str:
    """The message, its terms cut where they are too many to be read."""
    if len(reject.terms) <= MOST_TERMS:
        return str(reject)
    kept = (*reject.terms[:MOST_TERMS], f"and {len(reject.terms) - MOST_TERMS} more")
    return str(
        SpatialReject(
            reject.what,
            where=reject.where,
            needed=reject.needed,
            available=reject.available,
            terms=kept,
            remedy=reject.remedy,
        )
    )
