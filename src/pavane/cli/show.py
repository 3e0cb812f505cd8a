"""`pavane show`: the program in a file, or what one pass changed in it."""

from __future__ import annotations

from typing import Annotated

import typer

from pavane.artefact import Artefact, read_artefact
from pavane.cli.console import show_text
from pavane.cli.files import ProgramFile
from pavane.ir import text
from pavane.ir.program import Program
from pavane.reject import ArgumentReject
from pavane.report.sections import named_section, unknown_section


def show(
    file: ProgramFile,
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
        shape, _ = named_section(artefact.program, section)
        show_text(text.show_section(artefact.program, shape.name))


def _changes(artefact: Artefact, pass_name: str, section: str | None) -> str:
    """Of all sections, or of one by the name under which the passes saw it."""
    records = [record for record in artefact.passes if record.name == pass_name]
    if not records:
        known = tuple(dict.fromkeys(record.name for record in artefact.passes))
        raise ArgumentReject(
            f"no pass is named {pass_name!r}",
            where=f"program {artefact.program.name}",
            needed="the name of a pass",
            available=", ".join(known) or "none",
            remedy="name one of these" if known else "compile it again with `pavane compile`",
        )
    names = None if section is None else _seen_as(artefact.program, section)
    found = [record for record in records if names is None or record.section in names]
    if section is not None and not found:
        raise unknown_section(section, f"pass {pass_name}", [record.section for record in records])
    heads = (f"{r.section}, {r.name}: {r.digest[:16]}, {r.cycles:,} cycles predicted\n" for r in found)
    return "\n".join(head + (r.change or "nothing changed\n") for head, r in zip(heads, found, strict=True))


def _seen_as(program: Program, section: str) -> frozenset[str]:
    """The names under which passes may have seen a section: its shape is compiled once, at one of its places, and a
    section that is the whole program has the program's name.
    """
    shapes = {instance.shape for instance in program.instances if section in (instance.name, instance.shape)}
    places = [instance.name for instance in program.instances if instance.shape in shapes]
    whole = [program.name] if shapes and len(program.instances) == 1 else []
    return frozenset([section, *places, *whole])
