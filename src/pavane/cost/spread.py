"""How a work grid falls on the sites: which rectangle, which axis of it each item variable walks, and the slowest
worker's share.

`tile` and `fuse_readers` ask it to predict, `place` to decide: so predicted and placed are the same. Items are taken
cyclically. Of the mappings the one whose busiest site has the fewest items wins; ties go to the earlier of

    GRID       y -> SITE_Y, x -> SITE_X
    LINEAR_X   x -> SITE_X + W * SITE_Y      every site has all y
    LINEAR_Y   y -> SITE_X + W * SITE_Y      every site has all x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pavane.targets.descriptor import Grid

ItemMapping = Literal["GRID", "LINEAR_X", "LINEAR_Y"]
MAPPINGS: tuple[ItemMapping, ...] = ("GRID", "LINEAR_X", "LINEAR_Y")

Run = tuple[int | None, int]  # (elements of an item along an axis, or None: as written; how many turns have that many)


@dataclass(frozen=True)
class Spread:
    """A mapping onto the rectangle of `width` x `height` sites at the grid's origin."""

    mapping: ItemMapping
    width: int
    height: int

    @property
    def sites(self) -> int:
        return self.width * self.height

    @property
    def sites_x(self) -> int:
        """Among how many sites the items of one row are shared."""
        return {"GRID": self.width, "LINEAR_X": self.sites, "LINEAR_Y": 1}[self.mapping]

    @property
    def sites_y(self) -> int:
        return {"GRID": self.height, "LINEAR_X": 1, "LINEAR_Y": self.sites}[self.mapping]


def spread_items(items_y: int, items_x: int, grid: Grid, only_grid: bool = False) -> Spread:
    """The mapping whose busiest site has fewest items. `only_grid`: lines of sites must take lines of items."""
    mappings = MAPPINGS[:1] if only_grid else MAPPINGS
    candidates = [_fitted(mapping, items_y, items_x, grid) for mapping in mappings]
    return min(candidates, key=lambda s: _ceil(items_y, s.sites_y) * _ceil(items_x, s.sites_x))


def _fitted(mapping: ItemMapping, items_y: int, items_x: int, grid: Grid) -> Spread:
    """On the fewest sites with which the busiest one has no more turns: what every site reads is read less often.

    Of scattered sites on all that there are items for: each is where it is for what it reads.
    """
    few = _most if grid.scattered else _fewest
    if mapping == "GRID":
        return Spread(mapping, few(items_x, grid.width), few(items_y, grid.height))
    sites = few(items_x if mapping == "LINEAR_X" else items_y, grid.width * grid.height)
    heights = range(_ceil(sites, grid.width), grid.height + 1)
    height = min(heights, key=lambda h: (_ceil(sites, h) * h, h))
    return Spread(mapping, _ceil(sites, height), height)


def _fewest(items: int, sites: int) -> int:
    """As many of the sites as take the items in as few turns as all of them."""
    return _ceil(max(1, items), _ceil(max(1, items), sites))


def _most(items: int, sites: int) -> int:
    """As many of the sites as there are items for."""
    return min(max(1, items), sites)


def slowest_runs(extent: int, block: int, sites: int) -> tuple[Run, ...]:
    """What the busiest site takes of `extent` elements in blocks of `block`, shared cyclically by `sites`."""
    if extent <= 0:
        return ((0, 1),)
    items = _ceil(extent, block)
    turns = _ceil(items, sites)
    last = extent - (items - 1) * block
    if items - (turns - 1) * sites > 1 or last == block:
        return ((block, turns),)
    return ((last, 1),) if turns == 1 else ((block, turns - 1), (last, 1))


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)
