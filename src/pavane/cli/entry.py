"""The `pavane` script: nothing but this file is imported before an interrupt is caught."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the commands; an interrupt while they are still being imported ends quietly too."""
    try:
        from pavane.cli.main import app

        app()
    except KeyboardInterrupt:
        sys.stderr.write("pavane: interrupted\n")
        sys.exit(INTERRUPTED)
