"""`pavane explain`: why the program is as it is."""

from __future__ import annotations

from typing import Annotated

import typer

from pavane.artefact import read_artefact
from pavane.cli.console import show_text
from pavane.cli.files import ProgramFile


def explain(
    file: ProgramFile,
    section: Annotated[str | None, typer.Argument(help="One section in full, by a name of the first column.")] = None,
) -> None:
    """Say why the program is as it is.

    Of all sections: their share of the time, what bounds them, joins taken and not, memory. Of one: its plan and the
    plan that it beat too, and every buffer.
    """
    from pavane.report import explain as report

    artefact = read_artefact(file)
    show_text(report.explain(artefact.program, artefact.target, section))
