"""Predicted cycles of sections small enough to add up by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.cost.model import Blocks, predict
from pavane.cost.spread import Spread
from pavane.cost.traffic import Dim, Event, event_channels, events, expected_values, generic_weights
from pavane.ir.expr import Reduce, at, fn
from pavane.ir.quasi import quasi
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from tests.unit.passes.templates import chain, matmul

ONE = Spread("GRID", 1, 1)


def blocks(**extents: tuple[int, int]) -> dict[str, Blocks]:
    return {f"LV_{name}": Blocks(*pair) for name, pair in extents.items()}


def test_one_tile_product_by_hand(toy: SpatialTarget) -> None:
    program = matmul(toy, 32, 32, 32).program
    found = predict(
        events(program.shapes[0], toy, expected_values(program)), blocks(ITEM_Y=(32, 32), ITEM_X=(32, 32)), ONE, toy
    )
    load = 8 + 2048 // 16 + 100  # request, bytes at the network's rate, the fence's latency
    store = 8 + 4096 // 16 + 100
    first, product, copy = 1024 // 32, 32, 1024 // 32
    compute = first + product + copy
    dram = (2048 + 2048 + 4096) // 32
    assert dict(found.busy) == {"reader_a": load, "reader_b": load, "matrix": compute, "writer": store, "dram": dram}
    assert found.bottleneck == "writer"
    assert found.cycles == load + 4 + product + copy + 4 + store  # both loads at once, zeros meanwhile; two handovers


def test_a_product_in_full_sync_by_hand(toy: SpatialTarget) -> None:
    """Zeros, sums and their copy, 4096 bytes each, leave the registers at 16 bytes a cycle before anything else is
    computed; readers and writers have no registers.
    """
    figures = {"full_register_tiles": 8, "pack_bytes_per_cycle": 16}
    target = replace(toy, engines=tuple(replace(e, **figures) if e.name == "matrix" else e for e in toy.engines))
    program = matmul(toy, 32, 32, 32).program
    (shape,) = program.shapes
    stages = tuple(replace(s, registers="FULL") if s.engine == "matrix" else s for s in shape.groups[0].stages)
    in_full_sync = replace(shape, groups=(replace(shape.groups[0], stages=stages),))
    where = blocks(ITEM_Y=(32, 32), ITEM_X=(32, 32))
    full, half = (
        predict(events(each, target, expected_values(program)), where, ONE, target) for each in (in_full_sync, shape)
    )
    assert dict(full.busy) == {**dict(half.busy), "matrix": dict(half.busy)["matrix"] + 3 * 256}
    assert full.cycles == half.cycles + 2 * 256 + (32 + 256) - (8 + 2048 // 16 + 100 + 4)  # zeros outlast the loads


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


def load_event(rows: int, cols: int, line: int, items: tuple[str, ...] = ()) -> Event:
    dims = (Dim(rows, "LV_ITEM_X") if items else Dim(rows), Dim(cols))
    return Event("load", "reader_a", (("LV_ITEM_X", 8),), dims, "fA", "LOCAL", "f32", line=line, items=items)


@pytest.mark.parametrize(
    ("rows", "cols", "line", "channels"),
    [
        (1, 64, 1024, 1),  # 256 bytes of one page
        (1, 1024, 1024, 2),  # 4096 bytes: two pages
        (32, 64, 1024, 6),  # rows two pages apart: every other channel of 12
        (32, 64, 4096, 3),  # rows eight pages apart: every fourth
        (32, 1024, 1024, 12),  # contiguous
        (32, 64, 1000, 12),  # rows of no whole pages drift over all
        (2, 64, 4096, 2),
    ],
)
def test_channels_that_a_window_lies_in(rows: int, cols: int, line: int, channels: int) -> None:
    assert event_channels(load_event(rows, cols, line), (rows, cols), load_target("wormhole_n150")) == channels


def test_what_all_workers_read_from_one_page_comes_from_one_channel() -> None:
    """8 workers read the same kilobyte: at the rate of its channel, not of twelve; windows of their own: of more."""
    wormhole, spread = load_target("wormhole_n150"), Spread("GRID", 8, 1)
    where = blocks(ITEM_X=(8, 1))
    same = predict([load_event(1, 256, 256)], where, spread, wormhole)
    own = predict([load_event(1, 256, 256, ("LV_ITEM_X",))], where, spread, wormhole)
    assert dict(same.busy)["dram"] == -(-8 * 1024 // 16)
    assert dict(own.busy)["dram"] == -(-8 * 1024 // (4 * 16))


def test_sends_to_every_site_follow_what_makes_them() -> None:
    wormhole, spread = load_target("wormhole_n150"), Spread("GRID", 8, 1)
    store = Event(
        "store", "brisc", (("LV_ITEM_X", 8),), (Dim(1), Dim(2800)), "fY", "LOCAL", "f32", items=("LV_ITEM_X",),
        home="sites",
    )  # fmt: skip
    found = predict([store], blocks(ITEM_X=(8, 1)), spread, wormhole)
    one = 27 + 400 + 40 + 14 * 9  # a request, 11,200 bytes at 28 a cycle, start, hops
    assert dict(found.busy) == {"brisc": one, "dram": 0, "noc": 8 * 400}
    assert (found.cycles, found.bottleneck) == (27 + 8 * 400 + 40 + 14 * 9, "noc")  # the last one follows seven
