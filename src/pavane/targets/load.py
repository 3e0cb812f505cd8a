"""Read a descriptor: by name (the TOML files that travel with Pavane, or `host`), or from a user's TOML file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import msgspec

from pavane.reject import ArgumentReject, TargetReject
from pavane.targets.check import check_target
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.host import host_target


def target_names() -> tuple[str, ...]:
    """Names that `load_target` knows, sorted."""
    files = resources.files("pavane.targets").joinpath("data").iterdir()
    return tuple(sorted(["host", *(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))]))


def load_target(name: str | Path, cores: int | None = None) -> SpatialTarget:
    """The descriptor of that name, or in that TOML file. `cores` is for `host`.

    Raises ArgumentReject for a name or a number that cannot be, TargetReject for a descriptor that is wrong.
    """
    text = str(name)
    if text == "host":
        return check_target(host_target(cores))
    if cores is not None:
        raise ArgumentReject(
            "the number of cores is a figure of `host` only", where=text, remedy="edit the grid of the TOML file"
        )
    if text.endswith(".toml"):
        return _parse(Path(text))
    if text not in target_names():
        raise ArgumentReject(
            f"no target is named {text!r}", remedy=f"one of {', '.join(target_names())}, or a path ending in .toml"
        )
    return _decode(resources.files("pavane.targets").joinpath("data", f"{text}.toml").read_bytes(), text)


def _parse(path: Path) -> SpatialTarget:
    try:
        if not path.is_file():
            what = "there is no such file: the descriptor cannot be read"
            raise TargetReject(what, where=str(path), remedy="give the path of a TOML file")
        data = path.read_bytes()
    except OSError as error:
        what = f"the descriptor cannot be read ({error.strerror or error})"
        raise TargetReject(what, where=str(path), remedy="give the path of a TOML file that you may read") from error
    return _decode(data, str(path))


def _decode(data: bytes, where: str) -> SpatialTarget:
    try:
        target = msgspec.toml.decode(data, type=SpatialTarget)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise TargetReject(
            f"the descriptor is not valid: {error}", where=where, remedy="compare it with data/toy.toml"
        ) from error
    return check_target(target)
