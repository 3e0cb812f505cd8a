"""How items fall on sites, against counting them one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pavane.cost.spread import Spread, slowest_runs, spread_items
from pavane.targets.descriptor import Grid


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 9))
def test_slowest_runs_are_those_of_the_site_with_most_elements(extent: int, block: int, sites: int) -> None:
    starts = range(0, extent, block)
    lengths = [min(block, extent - start) for start in starts]
    shares = [lengths[site::sites] for site in range(sites)]
    busiest = max(shares, key=sum)
    runs = slowest_runs(extent, block, sites)
    assert sum(length * count for length, count in runs) == sum(busiest)
    assert sum(count for _, count in runs) == len(busiest)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 5), st.integers(1, 5))
def test_the_mapping_has_the_least_items_on_its_busiest_site(
    items_y: int, items_x: int, width: int, height: int
) -> None:
    spread = spread_items(items_y, items_x, Grid(width=width, height=height))

    def busiest(s: Spread) -> int:
        return -(-items_y // s.sites_y) * -(-items_x // s.sites_x)

    sites = width * height
    options = (
        -(-items_y // height) * -(-items_x // width),
        items_y * -(-items_x // sites),
        -(-items_y // sites) * items_x,
    )
    assert busiest(spread) == min(options)
    assert spread.width <= width
    assert spread.height <= height


def test_grid_wins_a_tie_and_is_forced_when_lines_must_be_lines() -> None:
    grid = Grid(width=2, height=2)
    assert spread_items(4, 4, grid) == Spread("GRID", 2, 2)
    assert spread_items(1, 8, grid) == Spread("LINEAR_X", 2, 2)
    assert spread_items(8, 1, grid) == Spread("LINEAR_Y", 2, 2)
    assert spread_items(1, 8, grid, only_grid=True) == Spread("GRID", 2, 1)


def test_no_more_sites_than_the_busiest_one_needs() -> None:
    grid = Grid(width=8, height=4)
    assert spread_items(16, 9, grid) == Spread("GRID", 5, 4)  # two turns of x, whether on 8 columns or on 5
    assert spread_items(1, 18, grid) == Spread("LINEAR_X", 6, 3)  # not 8 x 3 with six sites idle
    assert spread_items(40, 1, grid) == Spread("LINEAR_Y", 5, 4)  # two turns each
    assert spread_items(1, 23, grid) == Spread("LINEAR_X", 8, 3)
