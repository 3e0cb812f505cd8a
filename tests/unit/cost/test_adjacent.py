"""When blocks that go round the channels fall on the sites beside them, and at which rate they are priced."""

from __future__ import annotations

from dataclasses import replace as with_fields

import pytest
from msgspec.structs import replace

from pavane.cost.adjacent import filled_rounds, own_channel_only
from pavane.cost.model import Blocks, predict
from pavane.cost.spread import Spread
from pavane.cost.traffic import Dim, Event
from pavane.targets.load import load_target
from pavane.targets.restrict import adjacent_sites

CHIP = load_target("wormhole_n150")
LINE = adjacent_sites(CHIP)
ALONG = Spread("GRID", 12, 1)
UNIT = 32 * 1024 * 2  # 32 rows of 1,024 bf16
LOAD = Event(
    "load", "ncrisc", (("LV_ITEM_X", 24),), (Dim(32, "LV_ITEM_X"), Dim(1024)), "fW", "LOCAL", "bf16", line=1024,
    items=("LV_ITEM_X",), unit_bytes=UNIT,
)  # fmt: skip


def blocks(rows: int, size: int) -> dict[str, Blocks]:
    return {"LV_ITEM_X": Blocks(rows, size)}


def test_items_of_one_unit_along_the_line_fall_on_the_sites_of_their_channels():
    assert own_channel_only(LOAD, {"LV_ITEM_X": 32}, ALONG, LINE)


@pytest.mark.parametrize(
    ("sizes", "spread", "target"),
    [
        ({"LV_ITEM_X": 16}, ALONG, LINE),  # half a unit an item
        ({"LV_ITEM_X": 64}, ALONG, LINE),
        ({"LV_ITEM_X": 32}, Spread("GRID", 11, 1), LINE),  # fewer sites than channels
        ({"LV_ITEM_X": 32}, Spread("LINEAR_Y", 12, 1), LINE),  # every site has all of x
        ({"LV_ITEM_X": 32}, Spread("LINEAR_X", 8, 8), CHIP),
    ],
)
def test_any_other_fall_is_far(sizes, spread, target):
    assert not own_channel_only(LOAD, sizes, spread, target)


def test_a_head_is_an_item_of_its_rows():
    head = with_fields(LOAD, dims=(Dim(128), Dim(1024)), unit_bytes=128 * 2048)
    assert own_channel_only(head, {}, ALONG, LINE)
    assert not own_channel_only(with_fields(head, items=()), {}, ALONG, LINE)


def test_the_fullest_channel_counts():
    """25 units over 12 channels take as long as 36; of 64 at a time the fullest channel has 6, of the last 8 one; what
    is no walk over items is shared evenly.
    """
    sizes, everywhere = {"LV_ITEM_X": 32}, Spread("LINEAR_X", 8, 8)
    assert filled_rounds(25 * UNIT, LOAD, sizes, ALONG, LINE) == 36 * UNIT
    assert filled_rounds(24 * UNIT, LOAD, sizes, ALONG, LINE) == 24 * UNIT
    assert filled_rounds(72 * UNIT, LOAD, sizes, everywhere, CHIP) == (6 + 1) * 12 * UNIT
    assert filled_rounds(100, with_fields(LOAD, items=("LV_ITEM_X", "LV_ITEM_Y")), sizes, ALONG, LINE) == 100
    assert filled_rounds(100, with_fields(LOAD, unit_bytes=0), sizes, everywhere, CHIP) == 100


def test_the_rate_is_of_those_who_read():
    beside = predict([LOAD], blocks(768, 32), ALONG, LINE)
    everywhere = predict([LOAD], blocks(768, 32), Spread("LINEAR_X", 8, 3), CHIP)
    assert dict(beside.busy)["dram"] == 24 * UNIT // (12 * 22) + (24 * UNIT % (12 * 22) > 0)
    assert dict(everywhere.busy)["dram"] == 24 * UNIT // (12 * 16)
    assert dict(beside.busy)["ncrisc"] == 2 * (27 + max(31 * 27, -(-UNIT // 22)))


def test_requests_are_issued_while_bytes_come():
    """31 more requests of 27 cycles, and 65,536 bytes at 28 a cycle: the longer of both, after the first request."""
    slow = replace(CHIP, dram=replace(CHIP.dram, request_cycles=100))
    far = Spread("LINEAR_X", 8, 3)
    assert dict(predict([LOAD], blocks(768, 32), far, CHIP).busy)["ncrisc"] == 27 + 2341
    assert dict(predict([LOAD], blocks(768, 32), far, slow).busy)["ncrisc"] == 100 + 31 * 100
