"""Figures of real chips in the simulator: significand bits of operands, a site's link, pages, posts on their way."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.program import Counter, Rect
from pavane.ir.quasi import quasi
from pavane.sim.engine import Clock
from pavane.sim.faults import ProtocolFault
from pavane.sim.numbers import shortened
from pavane.sim.state import CounterState
from pavane.sim.timing import Channels
from pavane.targets.load import load_target

HERE = Rect(quasi(0), quasi(1), quasi(0), quasi(1))


def test_shortened_is_bfloat16_at_8_bits_and_half_at_11():
    numbers = np.random.default_rng(1).standard_normal(10_000).astype(np.float32)
    words = numbers.view(np.uint32).astype(np.uint64)
    bfloat = ((words + 0x7FFF + ((words >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    assert np.array_equal(shortened(numbers, 8), bfloat)
    usual = numbers[np.abs(numbers) > 2.0**-14]
    assert np.array_equal(shortened(usual, 11), usual.astype(np.float16).astype(np.float32))
    whole = np.arange(-2048, 2049).astype(np.float32)
    assert np.array_equal(shortened(whole, 11), whole)


def test_a_load_is_no_faster_than_the_link_of_its_site():
    """4,096 bytes over 12 channels of 16 a cycle take 22 cycles; over a link of 28 a cycle 147."""
    wormhole = load_target("wormhole_n150")
    assert Channels(wormhole).stream(100, (342,) * 11 + (334,)) == 100 + 147
    wide = replace(wormhole, noc=replace(wormhole.noc, bytes_per_cycle=4096))
    assert Channels(wide).stream(100, (342,) * 11 + (334,)) == 100 + 22


def test_a_channel_gives_the_site_beside_it_more_than_others():
    """2,200 bytes of bank 1, which (0, 0) is beside: 100 cycles at 22 a cycle; of bank 0, and for others, 138 at 16."""
    wormhole = load_target("wormhole_n150")
    own, other = (0, 2200, *[0] * 10), (2200, *[0] * 11)
    assert Channels(wormhole).stream(0, own, (0, 0)) == 100
    assert Channels(wormhole).stream(0, other, (0, 0)) == 138
    assert Channels(wormhole).stream(0, own, (1, 1)) == 138
    queued = Channels(wormhole)
    assert [queued.stream(0, own, site) for site in ((0, 0), (1, 1), (0, 0))] == [100, 238, 338]


@pytest.mark.parametrize("kind", ["MONOTONE", "CREDIT"])
def test_posts_count_from_their_time_on(kind):
    clock = Clock()
    state = CounterState(Counter("c", HERE, "e", kind, 6))
    for time in (30, 10, 20):
        state.post(1, time, clock)
    state.settle(9)
    assert not state.consume(0, 1)
    state.settle(20)
    assert state.consume(0, 2)
    assert not state.consume(0, 1)
    state.settle(30)
    assert state.consume(0, 1)


def test_credits_that_do_not_fit_are_a_fault():
    clock = Clock()
    state = CounterState(Counter("c", HERE, "e", "CREDIT", 2))
    for _ in range(4):
        state.post(1, 5, clock)
    with pytest.raises(ProtocolFault, match="2 bits holds 4 credits"):
        state.settle(5)
