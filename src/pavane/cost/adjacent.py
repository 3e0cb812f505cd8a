"""Blocks of a weight that go round the DRAM channels: which fall on the sites beside them, how they fill channels.

Block b of `unit_bytes` lies in channel b mod C. Item n falls on site n mod (sites). So where an item is one block, and
the first C sites in the order of items are the sites beside channels 0 .. C - 1 and no others take part, each site
reads its own channel only.
"""

from __future__ import annotations

from collections.abc import Mapping

from pavane.cost.spread import Spread
from pavane.cost.traffic import Event
from pavane.ir.program import LV_ITEM_X
from pavane.ir.types import row_bytes
from pavane.targets.descriptor import SpatialTarget

Sizes = Mapping[str, int]  # elements of a block by variable


def own_channel_only(event: Event, sizes: Sizes, spread: Spread, target: SpatialTarget) -> bool:
    """Does every site load from its own channel only?"""
    dram = target.dram
    in_line = spread.mapping == "LINEAR_X" or (spread.mapping == "GRID" and spread.height == 1)
    if not dram.adjacent or not in_line or spread.sites_x != dram.channels:
        return False
    in_order = tuple((n % spread.width, n // spread.width) for n in range(dram.channels))
    return in_order == dram.adjacent and _item_bytes(event, sizes) == event.unit_bytes


def filled_rounds(moved: int, event: Event, sizes: Sizes, spread: Spread, target: SpatialTarget) -> int:
    """Bytes that would take all channels as long as the fullest one takes.

    Sites take the same turn at the same time: what they move in it, in whole units, does not go round evenly.
    """
    around, at_once = event.unit_bytes * target.dram.channels, _item_bytes(event, sizes) * spread.sites_x
    if not around or not at_once:
        return moved
    turns, rest = divmod(moved, at_once)
    return (turns * -(-at_once // around) + -(-rest // around)) * around


def _item_bytes(event: Event, sizes: Sizes) -> int:
    """What an item takes of the tensor, where items walk along it; otherwise nothing."""
    rows = event.dims[0]
    if event.items != (LV_ITEM_X,) or rows.var not in ("", LV_ITEM_X):
        return 0
    return (sizes.get(LV_ITEM_X, rows.size) if rows.var else rows.size) * row_bytes(event.dtype, event.line)
