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
    """4,096 bytes over 12 channels of 24 a cycle take 15 cycles; over a link of 28 a cycle 147."""
    wormhole = load_target("wormhole_n150")
    assert Channels(wormhole).stream(100, (342,) * 11 + (334,)) == 100 + 147
    wide = replace(wormhole, noc=replace(wormhole.noc, bytes_per_cycle=4096))
    assert Channels(wide).stream(100, (342,) * 11 + (334,)) == 100 + 15


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
