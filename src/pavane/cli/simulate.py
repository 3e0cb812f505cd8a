"""`pavane simulate`: how long the program takes on its chip, and who waits for whom. Moves no data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pavane.artefact import read_artefact
from pavane.cli.console import say, show_text
from pavane.ir.program import Program
from pavane.reject import ArgumentReject, FileReject

MOST_WAITS = 10
MOST_DIGITS = 20


def simulate(
    file: Annotated[Path, typer.Argument(help="A .pavane file.")],
    trace: Annotated[Path | None, typer.Option(help="Write a Perfetto trace there.")] = None,
    symbols: Annotated[
        list[str] | None, typer.Option("--symbol", "-s", help="name=value; else the expected value.")
    ] = None,
) -> None:
    """Time, utilisation and waits of one launch."""
    from pavane.frontends.atomic import replacing
    from pavane.sim import perfetto_json
    from pavane.sim import simulate as launch
    from pavane.verify.check import check as accept

    artefact = read_artefact(file)
    values = symbol_values(artefact.program, symbols or [])
    accept(artefact.program, artefact.target)
    result = launch(artefact.program, artefact.target, symbols=values, functional=False, trace=trace is not None)
    given = ", ".join(f"{name}={value}" for name, value in values.items())
    seconds = result.cycles / artefact.target.clock_hz
    show_text(
        f"{result.cycles:,} cycles, {1e3 * seconds:.3f} ms on {artefact.target.name}{f' at {given}' if given else ''}\n"
    )
    for (x, y, engine), spent in result.engines.items():
        busy = 100 * spent.busy_cycles / max(1, result.cycles)
        show_text(f"  site ({x}, {y}) {engine}: {busy:.1f} % busy, {spent.blocked_cycles:,} cycles waiting\n")
    for number, channel in enumerate(result.channels):
        show_text(f"  channel {number}: {channel.read_bytes:,} bytes read, {channel.written_bytes:,} written\n")
    for wait in result.waits[:MOST_WAITS]:
        show_text(
            f"  {wait.worker} on ({wait.site[0]}, {wait.site[1]}) waited {wait.cycles:,} cycles for {wait.what}\n"
        )
    if trace is not None:
        try:
            with replacing(trace) as temporary:
                temporary.write_text(perfetto_json(result.events), encoding="utf-8")
        except OSError as error:
            raise FileReject(f"cannot write the trace ({error.strerror or error})", where=str(trace)) from error
        say(f"{trace}: load it in ui.perfetto.dev")


def symbol_values(program: Program, given: list[str]) -> dict[str, int]:
    """Every symbol's value: as given (`name=value`), else the expected one. Raises ArgumentReject."""
    values = {symbol.name: symbol.expected for symbol in program.symbols}
    for text in given:
        name, _, value = text.partition("=")
        digits = value.removeprefix("-")
        if name not in values or not (digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS):
            raise ArgumentReject(
                f"--symbol {text!r} sets no symbol of the program",
                needed="name=value with an integer",
                available=", ".join(f"{s.name} {s.lo}..{s.hi}" for s in program.symbols) or "no symbols",
            )
        values[name] = int(value)
    return values
