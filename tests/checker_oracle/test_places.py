"""Where tensors may lie, by the oracle: units of the channels, blocks of shares, room on the sites."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from pavane.ir.program import Program, Tensor
from pavane.targets.descriptor import SpatialTarget
from tests.checker_oracle.mutants import put
from tests.evidence.hand import Case, Hand
from tests.evidence.places import beside_channels, on_the_sites
from tests.oracle.homes import require_homes
from tests.oracle.spaces import Fault


def channelled() -> Case:
    return beside_channels(Hand(random.Random(1), 0.0))


def tensor(program: Program, role: str) -> int:
    return next(n for n, t in enumerate(program.tensors) if t.role == role)


def with_units(program: Program, value: int) -> Program:
    """The weight in other units, which its section knows."""
    number = tensor(program, "WEIGHT")
    formals = tuple(replace(f, interleave_bytes=value) if f.interleave_bytes else f for f in program.shapes[1].formals)
    return put(put(program, ("tensors", number, "interleave_bytes"), value), ("shapes", 1, "formals"), formals)


def test_any_units_that_the_sections_know_are_right() -> None:
    program, target = channelled()
    for unit in (program.tensors[1].interleave_bytes, 32, 96, 0):
        require_homes(with_units(program, unit), target)


@pytest.mark.parametrize("unit", [4, -32, 33])
def test_units_that_cannot_be_are_a_fault(unit: int) -> None:
    program, target = channelled()
    with pytest.raises(Fault, match="cannot go round the channels"):
        require_homes(with_units(program, unit), target)


def test_units_that_a_section_does_not_know_are_a_fault() -> None:
    program, target = channelled()
    number = tensor(program, "WEIGHT")
    with pytest.raises(Fault, match="said to lie otherwise"):
        require_homes(put(program, ("tensors", number, "interleave_bytes"), 640), target)


def one_weight(unit: int, rows: int, target: SpatialTarget) -> Program:
    """Nothing but a weight of so many rows of 64 bytes."""
    program, _ = channelled()
    weight = program.tensors[tensor(program, "WEIGHT")]
    shape = (weight.shape[0] * 0 + rows, weight.shape[1] * 0 + 16)
    alone = Tensor("w", shape, "f32", "WEIGHT", interleave_bytes=unit)
    return replace(program, tensors=(alone,), instances=(), shapes=())


@pytest.mark.parametrize(("rows", "fullest"), [(1, 64), (4, 256), (5, 256), (9, 320), (12, 512)])
def test_the_fullest_channel_holds_its_part(rows: int, fullest: int) -> None:
    """Two channels in units of 256 bytes, four rows each: the third unit is the first channel's again."""
    _, target = channelled()
    full = lambda room: replace(target, dram=replace(target.dram, channels=2, bytes=2 * room))  # noqa: E731
    program = one_weight(256, rows, target)
    require_homes(program, full(max(fullest, 32 * rows)))
    if fullest > 32 * rows:
        with pytest.raises(Fault, match=f"channel 0 is to hold {fullest} bytes"):
            require_homes(program, full(fullest - 32))


def test_nothing_stands_over_what_lies_on_the_sites() -> None:
    for number in range(40):
        program, target = on_the_sites(Hand(random.Random(number), 0.0))
        here = [n for n, t in enumerate(program.tensors) if t.home != "dram"]
        address = min(f.address for s in program.shapes for f in s.fifos)
        if here:
            require_homes(program, target)
            with pytest.raises(Fault, match="stands over"):
                require_homes(put(program, ("tensors", here[0], "offset"), address), target)
            return
    raise LookupError("no such draw")
