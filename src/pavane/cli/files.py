"""The file that a command reads, declared in one way.

Whether a path can be read or written is said by who does it, with the exit code of files: typer, which would ask first
(`readable`), blames the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ProgramFile = Annotated[Path, typer.Argument(help="A .pavane file.", readable=False)]
