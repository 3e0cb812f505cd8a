"""`pavane`: the commands, each in a file of its own, behind one boundary for errors."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from pavane.cli import check, compile, explain, models, run, show, simulate, targets
from pavane.cli.boundary import Guarded

EXIT_CODES = (
    "Exit codes: 0 done, 2 a wrong option, 3 bad input, 4 a chip's description or a missing extra, 5 a program is not "
    "well formed, 6 it does not fit the chip, 7 it is not proven, 8 a simulation failed, 130 interrupted."
)

app = typer.Typer(
    name="pavane",
    cls=Guarded,
    help="A spatial compiler: a model and a chip in, one proven spatial program out.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"pavane {metadata.version('pavane')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and exit.")
    ] = False,
) -> None:
    pass


app.command("run")(run.run)
app.command("compile")(compile.compile_)
app.command("check")(check.check)
app.command("show")(show.show)
app.command("explain")(explain.explain)
app.command("simulate")(simulate.simulate)
app.command("targets")(targets.targets)
app.command("models")(models.models)


if __name__ == "__main__":
    app()
