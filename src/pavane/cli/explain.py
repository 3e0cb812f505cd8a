"""`pavane explain`: why the program is as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pavane.artefact import read_artefact
from pavane.cli.console import show_text
from pavane.report import explain as report


def explain(
    file: Annotated[Path, typer.Argument(help="A .pavane file.")],
    section: Annotated[str | None, typer.Argument(help="One section in full.")] = None,
) -> None:
    """The plan and the one that it beat, what bounds it, joins taken and not, memory."""
    artefact = read_artefact(file)
    show_text(report.explain(artefact.program, artefact.target, section))
