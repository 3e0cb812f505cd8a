"""`pavane models`: the models that can be fetched by name."""

from __future__ import annotations

from typing import Annotated

import typer

from pavane.cli.console import show_text, watching
from pavane.frontends.models import DEFAULT_MODEL, MODELS, cached
from pavane.frontends.models import fetch as fetch_model


def models(
    fetch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Fetch this model now and say where it lies.")
    ] = None,
) -> None:
    """List the models, or fetch one."""
    if fetch is not None:
        with watching() as watch:
            path = fetch_model(fetch, progress=watch.bytes)
        show_text(f"{path}\n")
        return
    for name in sorted(MODELS):
        known = MODELS[name]
        state = f"at {cached(name)}" if cached(name) else "not fetched yet"
        mark = " (default)" if name == DEFAULT_MODEL else ""
        show_text(f"{name}{mark}: {known.about}, {known.size_bytes / 1e6:.0f} MB, {known.licence}; {state}\n")
