"""How a sharded tensor is dealt: each byte has one place, neighbours in a block stay together, shares are even."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pavane.ir.shards import pieces, share_bytes


def test_blocks_go_round_the_sites():
    """Seven bytes in blocks of two on three sites: two full rounds would be twelve."""
    assert list(pieces(0, 7, 2, 3)) == [(0, 0, 2), (1, 0, 2), (2, 0, 2), (0, 2, 1)]
    assert share_bytes(7, 2, 3) == 4


def test_a_piece_begins_inside_a_block():
    assert list(pieces(3, 4, 4, 2)) == [(0, 3, 1), (1, 0, 3)]


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 9))
def test_every_byte_has_one_place_inside_its_share(total, block, sites):
    places = [(site, local + n) for site, local, size in pieces(0, total, block, sites) for n in range(size)]
    assert len(places) == len(set(places)) == total
    share = share_bytes(total, block, sites)
    assert all(0 <= site < sites and 0 <= local < share for site, local in places)
    assert share <= -(-total // sites) + block  # no more than a block above an even part
    assert [p for a in range(0, total, 3) for p in _each(a, min(3, total - a), block, sites)] == places


def _each(address: int, count: int, block: int, sites: int) -> list[tuple[int, int]]:
    return [(site, local + n) for site, local, size in pieces(address, count, block, sites) for n in range(size)]
