"""From what a user names to what can be compiled: a model by name or path, an op by its text, a chip."""

from __future__ import annotations

import os
from pathlib import Path

from pavane.api import Gguf, gguf
from pavane.cli.console import Watch
from pavane.frontends.models import DEFAULT_MODEL, MODELS, fetch
from pavane.ir.types import Contract, StoredWeights
from pavane.reject import ArgumentReject
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target


def model_path(name: str | None, watch: Watch) -> Path:
    """The GGUF file: the one at a path, or a model fetched by name (the default one when none is named)."""
    chosen = DEFAULT_MODEL if name is None else name
    if chosen in MODELS:
        return fetch(chosen, progress=watch.bytes)
    if not chosen or (not chosen.endswith(".gguf") and not os.path.exists(chosen)):
        raise ArgumentReject(
            f"no model and no file is named {chosen!r}",
            needed="the path of a GGUF file, or one of " + ", ".join(sorted(MODELS)),
            remedy="`pavane models` lists what can be fetched",
        )
    return Path(chosen)


def model(
    name: str | None, contract: Contract, context: int | None, watch: Watch, weights: StoredWeights = "q8_0"
) -> Gguf:
    """The model in its deployment form, as asked for."""
    return gguf(model_path(name, watch), contract, context, progress=watch.bytes, weights=weights)


def chip(name: str, cores: int | None) -> SpatialTarget:
    """A descriptor by name or TOML file; `cores` is for `host`."""
    return load_target(name, cores)
