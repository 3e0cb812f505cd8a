"""Predicted cycles of sections small enough to add up by hand."""

from __future__ import annotations

from msgspec.structs import replace

from pavane.cost.model import Blocks, predict
from pavane.cost.spread import Spread
from pavane.cost.traffic import events, expected_values, generic_weights
from pavane.ir.expr import Reduce, at, fn
from pavane.ir.quasi import quasi
from pavane.targets.descriptor import SpatialTarget
from tests.unit.passes.templates import chain, matmul

ONE = Spread("GRID", 1, 1)


def blocks(**extents: tuple[int, int]) -> dict[str, Blocks]:
    return {f"LV_{name}": Blocks(*pair) for name, pair in extents.items()}


def test_one_tile_product_by_hand(toy: SpatialTarget) -> None:
    program = matmul(toy, 32, 32, 32).program
    found = predict(
        events(program.shapes[0], toy, expected_values(program)), blocks(ITEM_Y=(32, 32), ITEM_X=(32, 32)), ONE, toy
    )
    load = 8 + 2048 // 16 + 100 + 4  # request, bytes at the network's rate, the fence's latency, the handover
    store = 8 + 4096 // 16 + 100
    compute = 32 + 1024 // 32 + 4  # the product, the copy to the slot, the handover
    dram = (2048 + 2048 + 4096) // 32
    assert dict(found.busy) == {"reader_a": load, "reader_b": load, "matrix": compute, "writer": store, "dram": dram}
    assert found.bottleneck == "writer"
    assert found.cycles == store + load + load + compute + dram


def test_multicast_saves_dram_bytes_and_costs_sends(toy: SpatialTarget) -> None:
    program = matmul(toy, 64, 32, 64).program
    work = events(program.shapes[0], toy, expected_values(program))
    where, spread = blocks(ITEM_Y=(64, 32), ITEM_X=(64, 32)), Spread("GRID", 2, 2)
    alone = dict(predict(work, where, spread, toy).busy)
    shared = dict(predict(work, where, spread, toy, {"fA": "MULTICAST_ROW", "fB": "MULTICAST_COLUMN"}).busy)
    assert alone["dram"] - shared["dram"] == (2 * 2048 + 2 * 2048) // 32
    assert shared["reader_a"] - alone["reader_a"] == 16 + 2 + 2048 // 16 + 2 * 8


def test_the_slowest_worker_counts(toy: SpatialTarget) -> None:
    program = chain(toy, 32, 96).program
    work = events(program.shapes[0], toy, expected_values(program))
    where = blocks(ITEM_Y=(32, 32), ITEM_X=(96, 32))
    by_sites = [dict(predict(work, where, Spread("GRID", w, 1), toy).busy)["matrix"] for w in (1, 2, 3)]
    assert by_sites == [3 * by_sites[2], 2 * by_sites[2], by_sites[2]]


def test_dram_is_shared_by_all_sites(toy: SpatialTarget) -> None:
    program = chain(toy, 32, 96).program
    work = events(program.shapes[0], toy, expected_values(program))
    where = blocks(ITEM_Y=(32, 32), ITEM_X=(96, 32))
    assert len({dict(predict(work, where, Spread("GRID", w, 1), toy).busy)["dram"] for w in (1, 2, 3)}) == 1
    assert dict(predict(work, where, ONE, toy).busy)["dram"] == 3 * 32 * 96 * 4 // 32


def test_weights_of_a_generic(toy: SpatialTarget) -> None:
    engine = replace(toy.engine_for("compute"), function_cycles=5)
    assert generic_weights(at("a", "LV_GEN_ROW", "LV_GEN_COL"), engine) == (1, 0)
    assert generic_weights(fn("exp", fn("add", at("a", 0, 0), 1.0)), engine) == (6, 0)
    total = Reduce("SUM", "LV_GEN_K", quasi(7), fn("mul", at("a", 0, "LV_GEN_K"), 2.0))
    assert generic_weights(fn("rsqrt", total), engine) == (5, 2)
