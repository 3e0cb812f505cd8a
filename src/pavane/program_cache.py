"""Compiled programs of models, kept in the user's cache directory, so that a second run starts at once.

A program is a function of the model file, what was asked of it, the chip, and the compiler; a digest over all four
names its file. What lies there is read like any other `.pavane` file, and is compiled again when it cannot be read.
It is never trusted: whoever runs a program has it checked.
"""

from __future__ import annotations

import contextlib
import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pavane.api import Gguf, Source, compile
from pavane.artefact import Artefact, ModelInfo, read_artefact, weight_reference, write_artefact
from pavane.ir.digest import digest
from pavane.reject import FileReject
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.user_cache import user_cache

if TYPE_CHECKING:
    from pavane.pipeline import Observer

_NOT_COMPILER = ("cli", "report", "native", "sim")


def decoder_artefact(
    model: Gguf,
    part: Literal["decode", "prompt"],
    target: SpatialTarget,
    observer: Observer | None = None,
    cache_dir: Path | None = None,
    most_rows: int | None = None,
) -> Artefact:
    """The model's `decode` or `prompt` program (of at most so many rows, see `Gguf.prompt`) for that chip, compiled on
    the first call. Raises SpatialReject.
    """
    path = user_cache(cache_dir, "programs") / f"{_key(model, part, target, most_rows)}.pavane"
    found = _read(path)
    info = ModelInfo(model.config.name, part, model.contract, model.context, model.deployed.stored)
    weights = weight_reference(model.deployed.path, model.deployed.digest, model.weight_names())
    if found is not None and _asked(found) == (target, info, weights.sha256):
        return found
    source: Source = model.decode() if part == "decode" else model.prompt(most_rows=most_rows)
    artefact = Artefact(
        program=compile(source, target, observer=observer),
        target=target,
        weights=weights,
        model=info,
    )
    with contextlib.suppress(FileReject):  # no room, no rights: it is compiled again the next time
        write_artefact(path, artefact)
    return artefact


def _asked(found: Artefact) -> tuple[SpatialTarget, ModelInfo | None, str | None]:
    """What the artefact says it is: a file that was put in another's place is not taken."""
    return found.target, found.model, found.weights.sha256 if found.weights else None


def _key(model: Gguf, part: str, target: SpatialTarget, most_rows: int | None) -> str:
    asked = (model.deployed.digest, part, most_rows, model.contract, model.context, model.deployed.stored)
    return digest([asked, target_digest(target), compiler_digest()])


def _read(path: Path) -> Artefact | None:
    """The file's artefact; None when there is none or it is damaged (it only saves work)."""
    if not path.exists():
        return None
    try:
        return read_artefact(path)
    except FileReject:
        return None


@lru_cache(maxsize=1)
def compiler_digest() -> str:
    """SHA-256 over the source of everything that decides what a program is."""
    root = Path(__file__).parent
    state = hashlib.sha256()
    for path in sorted(p for kind in ("*.py", "*.toml") for p in root.rglob(kind)):
        relative = path.relative_to(root)
        if relative.parts[0] not in _NOT_COMPILER:
            state.update(f"{relative.as_posix()}\n".encode() + path.read_bytes())
    return state.hexdigest()
