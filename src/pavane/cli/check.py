"""`pavane check`: the independent checker on a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pavane.cli.console import show_text


def check(file: Annotated[Path, typer.Argument(help="A .pavane file.")]) -> None:
    """Does the checker accept the program? Says what it established, or refuses with a witness (exit code 7)."""
    from pavane.artefact import read_artefact
    from pavane.report.certificate import certificate_lines, fact_lines
    from pavane.verify.check import check as accept

    artefact = read_artefact(file)
    report = accept(artefact.program, artefact.target)
    show_text("\n".join((*certificate_lines(artefact.program), *fact_lines(report))) + "\n")
