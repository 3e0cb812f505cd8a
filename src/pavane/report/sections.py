"""A section by its name, the same for every command: the name of a shape, or of a place where a program has it."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from pavane.ir.program import Instance, Program, Shape
from pavane.reject import ArgumentReject

_MOST_LISTED = 16
_NEAR = 0.6  # of 1, which equal names have


def named_section(program: Program, name: str) -> tuple[Shape, Instance | None]:
    """The shape `q`, with its first place; or the place `layers.3.q`, with its shape. Raises ArgumentReject."""
    shapes = {shape.name: shape for shape in program.shapes}
    for instance in program.instances:
        if name in ((instance.shape,) if name in shapes else (instance.name,)) and instance.shape in shapes:
            return shapes[instance.shape], instance
    if name in shapes:
        return shapes[name], None
    places = [instance.name for instance in program.instances if instance.name not in shapes]
    raise unknown_section(name, f"program {program.name}", tuple(shapes), places)


def unknown_section(name: str, where: str, names: Sequence[str], more: Sequence[str] = ()) -> ArgumentReject:
    """The refusal of a name: what comes close to it among all, and those that are listed."""
    close = _close(name, (*names, *more))
    rest = f", and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ArgumentReject(
        f"no section is named {name!r}",
        where=where,
        needed="the name of a section",
        available=", ".join(names[:_MOST_LISTED]) + rest or "none",
        remedy=f"try {' or '.join(close)}" if close else "name one of these",
    )


def _close(name: str, names: Sequence[str]) -> list[str]:
    """Up to three names that are nearly the same, whatever the case of their letters; the nearest first."""
    matcher = SequenceMatcher(b=name.lower())
    likeness = {}
    for each in names:
        matcher.set_seq1(each.lower())
        likeness[each] = matcher.ratio()
    near = [each for each in likeness if likeness[each] >= _NEAR]
    return sorted(near, key=lambda each: -likeness[each])[:3]
