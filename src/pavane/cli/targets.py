"""`pavane targets`: the chips that are known, or one of them figure by figure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from pavane.cli.console import show_text
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.targets.load import load_target, target_names


def targets(
    name: Annotated[str | None, typer.Argument(help="A chip by name, or its TOML file.")] = None,
    cores: Annotated[int | None, typer.Option(help="Cores of the target `host`.")] = None,
) -> None:
    """List the chips, or show one descriptor."""
    if name is not None:
        show_text("\n".join(_figures(load_target(name, cores))) + "\n")
        return
    show_text("\n".join(_listed([load_target(known) for known in target_names()])) + "\n")


def _listed(chips: list[SpatialTarget]) -> Iterator[str]:
    """A line a chip, in columns."""
    name = max(len(chip.name) for chip in chips)
    width, height = (max(len(str(getattr(chip.grid, side))) for chip in chips) for side in ("width", "height"))
    for chip in chips:
        sites = f"{chip.grid.width:>{width}} x {chip.grid.height:<{height}} site{' ' if chip.sites == 1 else 's'}"
        yield f"{chip.name:<{name}}  {sites}  {chip.description}"


def _figures(target: SpatialTarget) -> Iterator[str]:
    """Every figure, in the order and the words of the TOML file, under its digest."""
    yield f"# {target.name}, {target_digest(target)}"
    tree = msgspec.to_builtins(target)
    yield from (
        f"{key} = {_value(value)}" for key, value in tree.items() if not isinstance(value, dict) and key != "engines"
    )
    for engine in tree["engines"]:
        yield "\n[[engines]]"
        yield from (f"{key} = {_value(value)}" for key, value in engine.items())
    for key, value in tree.items():
        if isinstance(value, dict):
            yield f"\n[{key}]"
            yield from (f"{inner} = {_value(figure)}" for inner, figure in value.items())


def _value(value: object) -> str:
    """As TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return msgspec.json.encode(value).decode()
