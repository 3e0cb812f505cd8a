"""`pavane simulate`: how long the program takes on its chip, and who waits for whom. Moves no data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pavane.artefact import read_artefact
from pavane.cli.console import say, show_text
from pavane.cli.files import ProgramFile
from pavane.cli.outputs import require_place, unwritable
from pavane.ir.program import Program
from pavane.reject import ArgumentReject

MOST_DIGITS = 20


def simulate(
    file: ProgramFile,
    trace: Annotated[Path | None, typer.Option(help="Write a Perfetto trace there.", readable=False)] = None,
    symbols: Annotated[
        list[str] | None, typer.Option("--symbol", "-s", help="name=value; else the expected value.")
    ] = None,
    sites: Annotated[
        bool, typer.Option("--sites", help="A line for every engine of every site, and every wait.")
    ] = False,
) -> None:
    """Time, utilisation and waits of one launch."""
    from pavane.atomic import replacing
    from pavane.report.simulation import simulation_lines
    from pavane.sim import perfetto_json
    from pavane.sim import simulate as launch
    from pavane.verify.check import check as accept

    if trace is not None:
        require_place(trace)
    artefact = read_artefact(file)
    program, target = artefact.program, artefact.target
    values = symbol_values(program, symbols or [])
    accept(program, target)
    result = launch(program, target, symbols=values, functional=False, trace=trace is not None)
    show_text("\n".join(simulation_lines(result, target, values, per_site=sites)) + "\n")
    if trace is not None:
        try:
            with replacing(trace) as temporary:
                temporary.write_text(perfetto_json(result.events), encoding="utf-8")
        except OSError as error:
            raise unwritable(trace, error) from error
        say(f"{trace}: load it in ui.perfetto.dev")


def symbol_values(program: Program, given: list[str]) -> dict[str, int]:
    """Every symbol's value: as given (`name=value`), else the expected one. Raises ArgumentReject."""
    symbols = {symbol.name: symbol for symbol in program.symbols}
    values = {symbol.name: symbol.expected for symbol in program.symbols}
    for text in given:
        name, _, digits = text.partition("=")
        value = _integer(digits)
        if name not in symbols or value is None or not symbols[name].lo <= value <= symbols[name].hi:
            raise ArgumentReject(
                f"--symbol {text!r} sets no symbol of the program",
                needed="name=value with an integer in the symbol's range",
                available=", ".join(f"{s.name} {s.lo}..{s.hi}" for s in program.symbols) or "no symbols",
            )
        values[name] = value
    return values


def _integer(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS else None
