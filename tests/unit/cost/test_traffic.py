"""Who moves what: windows that follow an item variable through a division, and messages between sites."""

from __future__ import annotations

from pathlib import Path

from pavane.cost.model import Blocks, predict
from pavane.cost.spread import Spread
from pavane.cost.traffic import Dim, Event, events, expected_values
from pavane.targets.load import load_target
from tests.chips.test_attention import section

WAFER = load_target(Path(__file__).parents[2] / "chips" / "wafer.toml")


def test_heads_that_share_keys_read_others_than_the_next_heads():
    """The window of the keys starts at head floor(LV_ITEM_X / 4): it moves with the item, if not in every turn."""
    n150 = load_target("wormhole_n150")
    program = section(32, 8, 128, n150, prompt=True, context=2048)
    found = events(program.shapes[0], n150, expected_values(program))
    moves_with = {event.fifo: event.items for event in found if event.kind == "load"}
    assert moves_with["fK"] == moves_with["fV"] == ("LV_ITEM_X",)
    assert moves_with["fQ"] == ("LV_ITEM_X", "LV_ITEM_Y")


def test_few_messages_between_sites_pass_at_once():
    """Eight rows of sites read the same kilobyte of shares; of 1152 sites 16 messages pass at once."""
    nest, dims = (("LV_ITEM_Y", 8), ("LV_ITEM_X", 40)), (Dim(1, "LV_ITEM_X"), Dim(256))
    sharded = Event(
        "load", "reader_a", nest, dims, "fW", "LOCAL", "f32", line=256, home="sharded", shard_bytes=1024,
        items=("LV_ITEM_X",),
    )  # fmt: skip
    blocks = {"LV_ITEM_Y": Blocks(8, 1), "LV_ITEM_X": Blocks(40, 1)}
    found = predict([sharded], blocks, Spread("GRID", 40, 8), WAFER)
    moved = 8 * 40 * 1024
    assert dict(found.busy)["noc"] == -(-moved // (16 * 32))
    assert found.dram_bytes == 0
    assert found.cycles >= dict(found.busy)["noc"]
