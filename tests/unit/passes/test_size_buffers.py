"""Depths and the layout of local memory."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from pavane.ir.types import row_bytes
from pavane.passes.size_buffers import size_buffers
from pavane.reject import MemoryExceeded, TooManyFifos
from pavane.targets.descriptor import SpatialTarget
from tests.unit.passes.chains import after
from tests.unit.passes.templates import CASES, attention, matmul, norm_product


def intervals(program) -> list[tuple[int, int]]:
    shape = program.shapes[0]
    fifos = [(f.address, f.depth * f.rows * row_bytes(f.dtype, f.cols)) for f in shape.fifos if f.kind != "ALIAS"]
    carries = [(c.address, c.rows * row_bytes(c.dtype, c.cols)) for c in shape.carries]
    return sorted((start, start + size) for start, size in fifos + carries)


@pytest.mark.parametrize("target_name", ["toy", "host"])
@pytest.mark.parametrize("case_name", CASES)
def test_buffers_are_aligned_disjoint_and_inside(
    case_name: str, target_name: str, request: pytest.FixtureRequest
) -> None:
    target = request.getfixturevalue(target_name)
    target = replace(target, memory=replace(target.memory, reserved_bytes=100))
    placed = intervals(after("size_buffers", CASES[case_name](target).program, target))
    assert placed[0][0] >= 100
    assert placed[-1][1] <= target.memory.bytes
    assert all(start % target.memory.alignment_bytes == 0 for start, _ in placed)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(placed))


def test_depths(toy: SpatialTarget, host: SpatialTarget) -> None:
    sized = after("size_buffers", attention(toy).program, toy).shapes[0]
    depths = {f.name: f.depth for f in sized.fifos}
    assert depths["fQ"] == 1  # three heads on four sites: one turn
    assert depths["fK"] >= 2
    one_engine = after("size_buffers", matmul(host).program, host).shapes[0]
    assert {f.depth for f in one_engine.fifos} == {1}
    assert [f.address for f in one_engine.fifos if f.kind == "ALIAS"] == [-1, -1]


def test_a_panel_is_brought_once(toy: SpatialTarget) -> None:
    shape = after("size_buffers", norm_product(toy, 64, 500).program, toy).shapes[0]
    depths = {f.name: f.depth for f in shape.fifos}
    assert (depths["fX"], depths["fG"]) == (1, 1)
    assert min(depths["fW"], depths["fC"]) >= 2


def test_spare_memory_deepens_a_slow_reader_and_scarce_memory_does_not(toy: SpatialTarget) -> None:
    placed = after("place", attention(toy).program, toy)
    rich = {f.name: f.depth for f in size_buffers(placed, toy).shapes[0].fifos}
    assert rich["fK"] == 3
    need = intervals(size_buffers(placed, toy))[-1][1]
    slot = 32 * 16 * 2
    poor = replace(toy, memory=replace(toy.memory, bytes=need - slot))
    scarce = {f.name: f.depth for f in size_buffers(placed, poor).shapes[0].fifos}
    assert (scarce["fK"], scarce["fV"]) == (3, 2)


def test_memory_exceeded_names_every_term(toy: SpatialTarget) -> None:
    placed = after("place", matmul(toy).program, toy)
    with pytest.raises(MemoryExceeded) as caught:
        size_buffers(placed, replace(toy, memory=replace(toy.memory, bytes=4096)))
    refusal = caught.value
    assert refusal.terms == (
        "fA (1 slot) 4096 bytes",
        "fB (1 slot) 4096 bytes",
        "fC (1 slot) 16384 bytes",
        "acc 16384 bytes",
    )
    assert (refusal.needed, refusal.available) == ("40960 bytes", "4096 bytes on a site of toy")
    assert "fC (1 slot)" in refusal.remedy


def test_too_many_fifos(toy: SpatialTarget) -> None:
    placed = after("place", matmul(toy).program, toy)
    with pytest.raises(TooManyFifos) as caught:
        size_buffers(placed, replace(toy, fifos=replace(toy.fifos, per_site=2)))
    assert (caught.value.needed, caught.value.available) == ("3 FIFOs", "2 on a site of toy")
    assert len(caught.value.terms) == 3
