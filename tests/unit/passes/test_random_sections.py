"""Random shapes on random targets: every result is valid, right in numbers, and covers its output exactly once."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pavane.ir.program import Program
from pavane.reject import DoesNotFit
from pavane.targets.check import check_target
from pavane.targets.descriptor import Engine, SpatialTarget
from pavane.targets.load import load_target
from pavane.validate import violations
from pavane.verify.schedule import find_schedule
from tests.unit.passes.chains import each_pass, require_right_answer
from tests.unit.passes.templates import Case, attention, chain, gather, matmul, norm_product, softmax

TOY = load_target("toy")
EXTENT = st.integers(1, 140)


def engines(layout: str) -> tuple[Engine, ...]:
    """The toy's engines; or one for both readers; or one for everything."""
    matrix = next(e for e in TOY.engines if e.name == "matrix")
    if layout == "four":
        return TOY.engines
    if layout == "one reader":
        return tuple(e for e in TOY.engines if e.name != "reader_b")
    return (replace(matrix, name="core", roles=("reader", "compute", "writer")),)


@st.composite
def targets(draw: st.DrawFn) -> SpatialTarget:
    layout = draw(st.sampled_from(("four", "one reader", "one")))
    grid = replace(TOY.grid, width=draw(st.integers(1, 4)), height=draw(st.integers(1, 4)))
    return check_target(
        replace(
            TOY,
            grid=grid,
            memory=replace(TOY.memory, bytes=draw(st.sampled_from((8, 16, 64, 256))) * 1024),
            engines=engines(layout),
            alias=layout == "one" and draw(st.booleans()),
            noc=replace(TOY.noc, multicast=draw(st.booleans())),
            dram=replace(TOY.dram, bytes_per_cycle=draw(st.sampled_from((1, 16, 64)))),
        )
    )


@st.composite
def cases(draw: st.DrawFn, target: SpatialTarget) -> Case:
    kind = draw(st.sampled_from(("matmul", "norm_product", "softmax", "chain", "gather", "attention")))
    if kind == "matmul":
        return matmul(target, draw(EXTENT), draw(EXTENT), draw(EXTENT), draw(st.sampled_from((1, 16))))
    if kind == "norm_product":
        return norm_product(target, 32 * draw(st.integers(1, 4)), draw(EXTENT), draw(st.integers(1, 32)))
    if kind == "softmax":
        return softmax(target, draw(EXTENT), draw(EXTENT))
    if kind == "chain":
        return chain(target, draw(EXTENT), draw(EXTENT))
    if kind == "gather":
        return gather(target, draw(st.integers(1, 32)), draw(EXTENT))
    context = 32 * draw(st.integers(2, 4))
    return attention(
        target, draw(st.integers(1, 5)), 16, context, draw(st.integers(0, context - 32)), draw(st.integers(1, 32))
    )


def taken(case: Case, target: SpatialTarget) -> list[tuple[str, Program]]:
    """What every pass gives; nothing where the section does not fit the target, which is a refusal with its terms."""
    with contextlib.suppress(DoesNotFit):
        return list(each_pass(case.program, target))
    return []


@given(data=st.data())
def test_every_result_is_valid_right_and_covers_its_output_once(data: st.DataObject) -> None:
    target = data.draw(targets())
    case = data.draw(cases(target))
    steps = taken(case, target)
    for name, program in steps:
        assert violations(program, target) == (), name
        require_right_answer(program, case)
    if steps:
        assert find_schedule(steps[-1][1].shapes[0])


@pytest.mark.parametrize("layout", ["four", "one reader", "one"])
@pytest.mark.parametrize("size", [(2, 2), (3, 2), (4, 1), (1, 4)])
def test_multicasts_on_every_layout_of_engines(size: tuple[int, int], layout: str) -> None:
    grid = replace(TOY.grid, width=size[0], height=size[1])
    slow = replace(TOY, grid=grid, engines=engines(layout), dram=replace(TOY.dram, bytes_per_cycle=1))
    case = matmul(slow, 200, 64, 200)
    steps = taken(case, slow)
    shared = any(fifo.kind.startswith("MULTICAST") for fifo in steps[-1][1].shapes[0].fifos)
    assert shared == (layout != "one")  # an engine that stores too would be cut into leaders and members
    for name, program in steps:
        assert violations(program, slow) == (), name
        require_right_answer(program, case)
    assert find_schedule(steps[-1][1].shapes[0])


@pytest.mark.parametrize("extents", [(1, 1, 1), (33, 65, 31), (7, 96, 500), (32, 32, 32), (128, 128, 128)])
@pytest.mark.parametrize("lanes", [1, 16])
def test_matmuls_that_divide_nothing(extents: tuple[int, int, int], lanes: int) -> None:
    case = matmul(TOY, *extents, lanes)
    for _, program in each_pass(case.program, TOY):
        require_right_answer(program, case)
