"""FIFOs of two shapes that may be on a site at once are no more than the chip has; those of one after the other are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.program import Program
from pavane.reject import CapacityRefused
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.targets.load import load_target
from tests.checker import editing as e
from tests.checker.between_sections import compute_without_start
from tests.checker.two_sections import twice_on_toy

TOY = load_target("toy")


def on_few(program: Program, per_site: int) -> tuple[Program, SpatialTarget]:
    few = replace(TOY, fifos=replace(TOY.fifos, per_site=per_site))
    return e.signed(replace(program, target_digest=target_digest(few)), few), few


def overlapping() -> Program:
    """Compute goes on to the second section while its site may not be done with the first; no byte is common."""
    return compute_without_start(True, 256, 6656)[0]


def test_as_many_as_both_have():
    made = overlapping()
    assert [len(shape.fifos) for shape in made.shapes] == [2, 2]
    e.accepted(*on_few(made, 4))


def test_one_less():
    with pytest.raises(CapacityRefused, match="too many FIFOs may still be in use") as refused:
        e.accepted(*on_few(overlapping(), 3))
    assert (refused.value.needed, refused.value.available) == ("4 on a site", "3")


@pytest.mark.parametrize("per_site", [2, 3])
def test_one_shape_after_the_other(per_site):
    e.accepted(*on_few(twice_on_toy(TOY), per_site))
