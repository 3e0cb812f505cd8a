"""The option `--context`, the same wherever a model is named."""

from __future__ import annotations

from typing import Annotated

import typer

USUAL_POSITIONS = 2048  # pavane.api.DEFAULT_CONTEXT, which would bring numpy and the frontends along

ContextOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Positions that the caches hold.", show_default=f"{USUAL_POSITIONS}, or the model's own where fewer"
    ),
]
