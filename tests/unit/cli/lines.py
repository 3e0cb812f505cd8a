"""A command line and how it ends, for the tests of commands: in this process (`done`, `refused`), or as the script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from typer.testing import CliRunner

from pavane.cli.main import app

SCRIPT = (sys.executable, "-c", "from pavane.cli.entry import main; main()")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}


def done(*arguments: str) -> str:
    """What it says on stdout; it must end well."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(code: int, *arguments: str) -> str:
    """What it says on stderr; it must end with that code, in words. Only `check` prints what it found all the same."""
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout if code != 7 else "") == (code, ""), result.output
    return result.stderr
