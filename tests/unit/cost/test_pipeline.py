"""When engines are done that hand each other slots, against adding up by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pavane.cost.pipeline import Timed, least_slots, pipeline_cycles, useful_slots
from pavane.cost.traffic import Dim, Event, Lengths

ITEMS, BLOCKS, HANDOVER = ("LV_ITEM_X", 0), ("LV_KBLOCK", 1), 4
Nest = tuple[tuple[str, int], ...]


def reader(nest: Nest, loops: tuple[int, ...], fifo: str = "fA", engine: str = "reader") -> list[Event]:
    kinds = ("reserve", "load", "fence", "push")
    return [Event(kind, engine, nest, fifo=fifo, loops=loops) for kind in kinds]


def compute(nest: Nest, loops: tuple[int, ...], fifo: str = "fA") -> list[Event]:
    return [Event(kind, "core", nest, fifo=fifo, loops=loops) for kind in ("front", "matmul", "pop")]


def cost(load: int, product: int, shared: int = 0) -> Callable[[Event, Lengths], Timed]:
    def timed(event: Event, lengths: Lengths) -> Timed:
        return Timed(3, load, shared, 100, apart_cycles=shared) if event.kind == "load" else Timed(product)

    return timed


def stream(turns: int) -> list[Event]:
    nest = ((BLOCKS[0], turns),)
    return [*reader(nest, (1,)), *compute(nest, (2,))]


@pytest.mark.parametrize("turns", [1, 2, 7, 8, 300])
def test_a_slow_reader_sets_the_pace(turns: int) -> None:
    found = pipeline_cycles(stream(turns), {}, {}, HANDOVER, cost(50, 20))
    assert found == turns * (3 + 50 + 100) + HANDOVER + 20


@pytest.mark.parametrize("turns", [1, 2, 7, 8, 300])
def test_a_slow_consumer_sets_the_pace(turns: int) -> None:
    found = pipeline_cycles(stream(turns), {}, {}, HANDOVER, cost(50, 400))
    assert found == 3 + 50 + 100 + HANDOVER + turns * 400


@pytest.mark.parametrize("turns", [1, 5, 300])
def test_with_one_slot_they_take_turns(turns: int) -> None:
    found = pipeline_cycles(stream(turns), {}, {"fA": 1}, HANDOVER, cost(50, 400))
    assert found == turns * (3 + 50 + 100 + HANDOVER + 400)


@pytest.mark.parametrize("turns", [1, 6, 300])
def test_channels_have_moved_the_bytes_of_all_workers(turns: int) -> None:
    found = pipeline_cycles(stream(turns), {}, {}, HANDOVER, cost(50, 20, shared=1000))
    assert found == 3 + turns * 1000 + 100 + HANDOVER + 20


def test_what_is_outside_a_loop_comes_while_readers_run_ahead() -> None:
    """Four turns of 153; the panel takes 400 and is done before the third slot is free, then 20 each."""
    nest = ((BLOCKS[0], 4),)
    events = [*reader(nest, (1,)), Event("generic", "core", ()), *compute(nest, (2,))]

    def timed(event: Event, lengths: Lengths) -> Timed:
        return Timed(400) if event.kind == "generic" else cost(50, 20)(event, lengths)

    third = 400 + 20 + 153
    assert pipeline_cycles(events, {}, {}, HANDOVER, timed) == third + 153 + HANDOVER + 20
    assert pipeline_cycles(events, {}, {"fA": 4}, HANDOVER, timed) == 4 * 153 + HANDOVER + 20


def test_the_last_turn_of_a_loop_may_be_shorter() -> None:
    """A row a cycle."""
    rows = (Dim(64, "LV_KBLOCK"),)
    events = [replace(event, dims=rows) if event.kind == "load" else event for event in stream(100)]

    def timed(event: Event, lengths: Lengths) -> Timed:
        return Timed(3, lengths[0], 0, 100) if event.kind == "load" else Timed(20)

    found = pipeline_cycles(events, {"LV_KBLOCK": ((64, 99), (16, 1))}, {}, HANDOVER, timed)
    assert found == 99 * (3 + 64 + 100) + (3 + 16 + 100) + HANDOVER + 20


def test_stages_of_one_engine_go_through_the_items_together() -> None:
    """A data mover that reads and writes: item by item, it waits for the core in between."""
    nest = ((ITEMS[0], 3),)
    into = [*reader(nest, (1,))]
    core = [*compute(nest, (2,)), Event("reserve", "core", nest, fifo="fC", loops=(2,))]
    core.append(Event("push", "core", nest, fifo="fC", loops=(2,)))
    out = [Event(kind, "reader", nest, fifo="fC", loops=(3,)) for kind in ("front", "store", "fence", "pop")]

    def timed(event: Event, lengths: Lengths) -> Timed:
        return Timed(5, 30, 0, 100) if event.kind == "store" else cost(50, 20)(event, lengths)

    one = 153 + HANDOVER + 20 + HANDOVER + 135
    assert pipeline_cycles([*into, *core, *out], {}, {}, HANDOVER, timed) == 3 * one


def test_loops_in_loops_go_on_at_the_pace_of_the_last_turn() -> None:
    nest = ((ITEMS[0], 50), (BLOCKS[0], 60))
    events = [*reader(nest, (1, 2)), *compute(nest, (3, 4))]
    assert pipeline_cycles(events, {}, {}, HANDOVER, cost(50, 20)) == 3000 * 153 + HANDOVER + 20


def test_engines_that_wait_for_each_other_have_no_end() -> None:
    ahead = [Event("front", "core", (), fifo="fA"), Event("push", "core", (), fifo="fB")]
    back = [Event("front", "reader", (), fifo="fB"), Event("push", "reader", (), fifo="fA")]
    assert pipeline_cycles([*ahead, *back], {}, {}, HANDOVER, cost(1, 1)) is None


def test_slots_that_are_of_use() -> None:
    """Values come while the core goes through the keys, for which another engine reads; else a few are enough."""
    nest = ((ITEMS[0], 2), (BLOCKS[0], 30))
    keys = [*reader(nest, (1, 2), "fK", "other"), *compute(nest, (5, 6), "fK")]
    values = [*reader(nest, (3, 4), "fV"), *compute(nest, (5, 7), "fV")]
    assert useful_slots([*keys, *values]) == {"fK": 4, "fV": 30}
    assert useful_slots([*keys, *reader(nest, (3, 4), "fV", "other"), *compute(nest, (5, 7), "fV")])["fV"] == 4
    assert least_slots([*keys, *values]) == {"fK": 2, "fV": 2}
