"""`pavane show`: the program in a file, or what one pass changed in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pavane.artefact import Artefact, read_artefact
from pavane.cli.console import show_text
from pavane.ir import text
from pavane.reject import ArgumentReject


def show(
    file: Annotated[Path, typer.Argument(help="A .pavane file.")],
    section: Annotated[str | None, typer.Argument(help="Only this section.")] = None,
    pass_name: Annotated[str | None, typer.Option("--pass", help="What this pass changed, section by section.")] = None,
) -> None:
    """The program, one of its sections, or what one pass changed."""
    artefact = read_artefact(file)
    if pass_name is not None:
        show_text(_changes(artefact, pass_name, section))
    elif section is None:
        show_text(text.show(artefact.program))
    else:
        names = [shape.name for shape in artefact.program.shapes]
        if section not in names:
            raise ArgumentReject(
                f"no section is named {section!r}", where=str(file), remedy=f"one of {', '.join(names)}"
            )
        show_text(text.show_section(artefact.program, section))


def _changes(artefact: Artefact, pass_name: str, section: str | None) -> str:
    found = [r for r in artefact.passes if r.name == pass_name and section in (None, r.section)]
    if not found:
        known = tuple(dict.fromkeys(r.name for r in artefact.passes))
        raise ArgumentReject(
            f"the file has no pass {pass_name!r}" + (f" of section {section!r}" if section else ""),
            where=artefact.program.name,
            remedy=f"one of {', '.join(known)}" if known else "compile it again with `pavane compile`",
        )
    heads = (f"{r.section}, {r.name}: {r.digest[:16]}, {r.cycles:,} cycles predicted\n" for r in found)
    return "\n".join(head + (r.change or "nothing changed\n") for head, r in zip(heads, found, strict=True))
