"""The `pavane` script: nothing but this file is imported before an interrupt is caught."""

from __future__ import annotations

import contextlib
import gc
import sys

INTERRUPTED = 130
OBJECTS_BETWEEN_COLLECTIONS = 200_000


def main() -> None:
    """Run the commands; an interrupt while they are still being imported ends quietly too.

    Modules and programs live as long as the command: to look for garbage among them after every 700 new objects, as
    Python does by itself, takes a sixth of a start and of a compilation.
    """
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    try:
        from pavane.cli.main import app

        app()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError, AttributeError):  # full, or closed and None
            sys.stderr.write("pavane: interrupted\n")
        sys.exit(INTERRUPTED)
