"""Which blocks may be cut, which are chosen, and what is refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.program import LV_ITEM_X, LV_ITEM_Y, LV_KBLOCK, Compute, MatmulTiles
from pavane.ir.quasi import Domain, quasi
from pavane.ir.walk import bodies, leaves, symbol_domain
from pavane.passes.blocks import stepping
from pavane.passes.buffers import least_depths, single_depths
from pavane.passes.plans import lattice_of, memory_bytes, rewritten
from pavane.passes.pricing import NEAR, Prices
from pavane.passes.tile import tile
from pavane.reject import NoPlan
from pavane.targets.descriptor import SpatialTarget
from tests.unit.passes.chains import each_pass, require_right_answer
from tests.unit.passes.templates import CASES, attention, chain, gather, matmul, norm_product, softmax


def small(target: SpatialTarget, size: int) -> SpatialTarget:
    return replace(target, memory=replace(target.memory, bytes=size))


def test_steps_of_a_product(toy: SpatialTarget) -> None:
    shape = matmul(toy).program.shapes[0]
    rows, cols, k = (stepping(shape, var) for var in (LV_ITEM_Y, LV_ITEM_X, LV_KBLOCK))
    assert rows.grows == (("acc", 0), ("fA", 0), ("fC", 0))
    assert cols.grows == (("acc", 1), ("fB", 1), ("fC", 1))
    assert k.grows == (("fA", 1), ("fB", 0))
    assert (rows.tile, rows.turns, rows.extent, rows.fine) == (32, quasi(4), quasi(100), True)


def test_what_stays_whole(toy: SpatialTarget) -> None:
    assert stepping(attention(toy).program.shapes[0], LV_ITEM_X) is None  # a head is neither row nor column
    keys = stepping(attention(toy).program.shapes[0], LV_KBLOCK)
    assert keys.grows == (("fK", 0), ("fV", 0))  # S and P hold whole rows
    assert stepping(gather(toy).program.shapes[0], LV_ITEM_X).grows == (("fC", 1), ("fE", 1))
    assert stepping(softmax(toy).program.shapes[0], LV_ITEM_Y).grows == tuple(
        (n, 0) for n in ("e", "fA", "fC", "l", "mx")
    )
    assert stepping(norm_product(toy).program.shapes[0], LV_ITEM_Y) is None


def test_a_panel_read_at_absolute_columns_does_not_grow(toy: SpatialTarget) -> None:
    case = chain(toy)
    step = stepping(case.program.shapes[0], LV_ITEM_X)
    assert step.grows == tuple((n, 1) for n in ("fA", "fB", "fC", "t"))
    assert step.fine


@pytest.mark.parametrize("case_name", CASES)
def test_every_plan_of_the_lattice_means_the_same(case_name: str, toy: SpatialTarget) -> None:
    case = CASES[case_name](toy)
    lattice = lattice_of(case.program.shapes[0], symbol_domain(case.program))
    assert 1 <= len(lattice.plans) <= 180
    for plan in lattice.plans:
        require_right_answer(replace(case.program, shapes=(rewritten(lattice, plan),)), case)


def test_a_tree_of_lanes_keeps_k_whole(toy: SpatialTarget) -> None:
    case = matmul(toy, 64, 200, 64, lanes=16)
    lattice = lattice_of(case.program.shapes[0], Domain())
    for plan in lattice.plans:
        shape = rewritten(lattice, plan)
        steps = [step for _, body in bodies(shape) for _, step in leaves(body)]
        ops = [step.op for step in steps if isinstance(step, Compute) and isinstance(step.op, MatmulTiles)]
        assert [op.k.size for op in ops] == [200]


def test_stored_blocks_stay_whole(toy: SpatialTarget) -> None:
    case = matmul(toy, 32, 160, 32)
    shape = case.program.shapes[0]
    stored = replace(shape, fifos=tuple(replace(f, dtype="q8_0") if f.name == "fA" else f for f in shape.fifos))
    step = stepping(stored, LV_KBLOCK)
    assert step.whole_blocks == 32
    sizes = {plan[-1].block for plan in lattice_of(stored, Domain()).plans}
    assert sizes == {32, 64, 128, 160}


def test_the_plan_is_among_the_quickest_and_another_than_its_runner_up(toy: SpatialTarget) -> None:
    program = matmul(toy).program
    plan = tile(program, toy).shapes[0].plan
    least = min(priced.prediction.cycles for priced in Prices(program, toy).ranked(toy))
    assert least <= plan.cycles <= least * (NEAR + 1) / NEAR
    assert plan.runner_up != (plan.rows, plan.cols, plan.k)
    assert plan.bottleneck in ("dram", "reader_a", "reader_b", "matrix", "writer")
    assert plan.considered == 60


def test_more_memory_never_costs_cycles(toy: SpatialTarget) -> None:
    cycles = [
        tile(matmul(toy).program, small(toy, size)).shapes[0].plan.cycles for size in (16384, 32768, 65536, 1 << 20)
    ]
    assert cycles == sorted(cycles, reverse=True)


def test_host_decode_has_balanced_items_of_long_rows(host: SpatialTarget) -> None:
    shape = tile(norm_product(host, 576, 1536, 1, 1).program, host).shapes[0]
    assert shape.plan.k == 576
    assert 16 <= shape.plan.cols <= 256
    assert shape.items.x.const % 2 == 0


def test_no_plan_names_every_buffer(toy: SpatialTarget) -> None:
    with pytest.raises(NoPlan) as caught:
        tile(matmul(toy).program, small(toy, 1024))
    refusal = caught.value
    lattice = lattice_of(matmul(toy).program.shapes[0], Domain())
    depths = single_depths(lattice.shape)
    least = min(memory_bytes(lattice, plan, toy, depths) for plan in lattice.plans)
    assert refusal.needed.startswith(f"{least} bytes")
    assert refusal.available == "1024 bytes a site"
    assert [term.split()[0] for term in refusal.terms] == ["fA", "fB", "fC", "acc"]
    assert sum(int(term.split()[1]) for term in refusal.terms) == least
    assert refusal.remedy


def test_memory_that_just_fits_and_one_step_less(toy: SpatialTarget) -> None:
    program = softmax(toy).program
    lattice = lattice_of(program.shapes[0], Domain())
    depths = single_depths(lattice.shape)
    least = min(memory_bytes(lattice, plan, toy, depths) for plan in lattice.plans)
    assert tile(program, small(toy, least)).phase == "TILED"
    with pytest.raises(NoPlan):
        tile(program, small(toy, least - 1))


def test_two_slots_where_they_fit_and_one_where_they_do_not(toy: SpatialTarget) -> None:
    """With less than two slots of everything take, the plan is made with one; a Join says which, and what it costs."""
    program = softmax(toy).program
    lattice = lattice_of(program.shapes[0], Domain())
    double = min(memory_bytes(lattice, plan, toy, least_depths(lattice.shape)) for plan in lattice.plans)
    for bytes_, given_up in ((double, False), (double - 1, True)):
        scarce = small(toy, bytes_)
        sized = next(p for name, p in each_pass(program, scarce) if name == "size_buffers").shapes[0]
        joins = [join for join in sized.joins if join.what.startswith("slots of")]
        assert bool(joins) == given_up
        assert all(join.taken == "one" and join.cycles > join.other_cycles for join in joins)
        assert all(fifo.depth == 1 for fifo in sized.fifos if f"slots of {fifo.name}" in {j.what for j in joins})
