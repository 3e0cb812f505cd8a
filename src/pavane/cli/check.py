"""`pavane check`: the independent checker on a file."""

from __future__ import annotations

from pavane.cli.console import show_text
from pavane.cli.files import ProgramFile


def check(file: ProgramFile) -> None:
    """Have the checker judge a program.

    Says for which chip, and what each obligation established; exit code 7 where one is broken.
    """
    from pavane.artefact import read_artefact
    from pavane.report.certificate import certificate_lines, chip_lines, report_lines
    from pavane.verify.check import accepted, examine

    artefact = read_artefact(file)
    report = examine(artefact.program, artefact.target)
    head = () if report.refusals else certificate_lines(artefact.program)
    show_text("\n".join((*head, *chip_lines(artefact.target), *report_lines(report))) + "\n")
    accepted(report)
