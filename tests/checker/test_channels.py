"""How weights go round the DRAM channels: what is accepted, and what must not be."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane import api
from pavane.ir.program import Program
from pavane.reject import CapacityRefused, ComposeReject
from pavane.targets.descriptor import target_digest
from pavane.tensor_graph.graph import Graph
from pavane.validate import violations
from tests.adjacent import chip
from tests.checker.editing import accepted, refusal

CHIP = chip()
ROWS, DEPTH = 2000, 256
UNIT = 64 * DEPTH * 4


def compiled() -> Program:
    """y = x . w^T, with w in units of its own."""
    graph = Graph("product")
    x, w = graph.input("x", (1, DEPTH)), graph.weight("w", (ROWS, DEPTH))
    graph.output("y", graph.matmul(x, w, transposed=True))
    return api.compile(api.graph(graph), CHIP)


PROGRAM = compiled()


def lying(program: Program, tensor: int, formal: int | None = None) -> Program:
    """The weight, and its formal, in other units."""
    tensors = tuple(replace(t, interleave_bytes=tensor) if t.role == "WEIGHT" else t for t in program.tensors)
    (shape,) = program.shapes
    other = tensor if formal is None else formal
    formals = tuple(replace(f, interleave_bytes=other) if f.interleave_bytes else f for f in shape.formals)
    return replace(program, tensors=tensors, shapes=(replace(shape, formals=formals),))


@pytest.mark.parametrize("unit", [UNIT, 32, 0, 2 * UNIT, ROWS * DEPTH * 4 * 8])
def test_any_unit_is_accepted_where_the_section_knows_it(unit):
    """Where bytes lie changes nothing of what they are."""
    assert accepted(lying(PROGRAM, unit), CHIP)


def test_what_is_established_is_said():
    facts = [fact.what for fact in api.check(PROGRAM, CHIP).facts]
    assert "1 weights in units of their own over 4 channels" in facts


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lying(PROGRAM, UNIT, 2 * UNIT), "takes B to lie 131072 B a channel"),
        (lying(PROGRAM, UNIT + 1), "goes round the channels by 65537 bytes"),
        (lying(PROGRAM, -32), "goes round the channels by -32 bytes"),
    ],
)
def test_units_that_are_not_known_or_cannot_be_are_refused(bad, why):
    found = refusal(PROGRAM, CHIP, lambda _: bad)
    assert isinstance(found, CapacityRefused)
    assert why in str(found)


def test_only_a_weight_has_units_of_its_own():
    (shape,) = PROGRAM.shapes
    formals = tuple(replace(f, interleave_bytes=UNIT) for f in shape.formals)
    everything = tuple(replace(t, interleave_bytes=UNIT) for t in PROGRAM.tensors)
    bad = replace(PROGRAM, tensors=everything, shapes=(replace(shape, formals=formals),))
    found = refusal(PROGRAM, CHIP, lambda _: bad)
    assert isinstance(found, CapacityRefused)
    assert "role INPUT says how it goes round" in str(found)
    assert any(v.rule == "tensor.role" for v in violations(bad, CHIP))


def test_the_fullest_channel_holds_its_part_or_the_program_is_refused():
    """2,000 rows in units of 64 are 31 and a quarter: channel 0 has 8 units of 65,536 B; of x and y, by pages of 512 B,
    512 B and 2,048 B.
    """
    most = 8 * UNIT + 512 + 2048
    roomy, small = (replace(CHIP, dram=replace(CHIP.dram, bytes=4 * room)) for room in (most, most - 32))
    program = lying(PROGRAM, UNIT)
    assert accepted(replace(program, target_digest=target_digest(roomy)), roomy)
    with pytest.raises(CapacityRefused, match="the first channel of the memory beside the chip is too full") as caught:
        accepted(replace(program, target_digest=target_digest(small)), small)
    assert (caught.value.needed, caught.value.available) == (f"{most} bytes", f"{most - 32} bytes a channel")


def test_weights_lie_page_by_page_where_units_would_not_fit():
    """Room for the weight, but not for a whole round of units in every channel."""
    graph = Graph("product")
    x, w = graph.input("x", (1, DEPTH)), graph.weight("w", (ROWS, DEPTH))
    graph.output("y", graph.matmul(x, w, transposed=True))
    small = replace(CHIP, dram=replace(CHIP.dram, bytes=ROWS * DEPTH * 4 + 16384))
    program = api.compile(api.graph(graph), small)
    assert all(t.interleave_bytes == 0 for t in program.tensors)
    with pytest.raises(ComposeReject):
        api.compile(api.graph(graph), replace(small, dram=replace(small.dram, bytes=ROWS * DEPTH * 4)))
