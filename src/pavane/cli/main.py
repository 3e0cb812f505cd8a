"""`pavane`: the commands, each in a file of its own, behind one boundary for errors."""

from __future__ import annotations

from typing import Annotated

import typer

from pavane.cli import check, compile, explain, models, run, show, simulate, targets
from pavane.cli.boundary import Guarded
from pavane.reject import EXIT_CODES

_EXIT_CODES = f"Exit codes: {'; '.join(f'{code} {when}' for code, when in EXIT_CODES)}."

app = typer.Typer(
    name="pavane",
    cls=Guarded,
    help="A spatial compiler: a model and a chip in, one proven spatial program out.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        from importlib import metadata

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
