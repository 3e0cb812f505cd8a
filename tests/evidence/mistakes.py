"""What a class of mistakes is: a function from a right program to wrong ones, and which refusals would name it.

What changes the meaning on purpose signs the graph anew; everything else keeps the original's graph digest, and with it
what must come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pavane.ir.program import Program
from pavane.targets.descriptor import SpatialTarget


@dataclass(frozen=True)
class Mutant:
    """The changed program, its chip, and whether the mistake stands inside a loop."""

    program: Program
    target: SpatialTarget
    nested: bool


Make = Callable[[Program, SpatialTarget], Iterator[Mutant]]


@dataclass(frozen=True)
class MistakeClass:
    """`expected`: codes of the refusals that name the mistake."""

    name: str
    expected: tuple[str, ...]
    make: Make


CLASSES: dict[str, MistakeClass] = {}


def mistake(name: str, *expected: str) -> Callable[[Make], Make]:
    """Register a function as a class of that name."""

    def register(make: Make) -> Make:
        CLASSES[name] = MistakeClass(name, expected, make)
        return make

    return register
