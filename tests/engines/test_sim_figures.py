"""Figures of real chips in the simulator: significand bits of operands, a site's link, pages, posts on their way."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.program import Counter, Rect
from pavane.ir.quasi import quasi
from pavane.sim.channels import Channels, requests_of
from pavane.sim.engine import Clock
from pavane.sim.faults import ProtocolFault
from pavane.sim.numbers import shortened
from pavane.sim.state import CounterState
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


def asked(channels, now, requests, site):
    """When the last byte has passed, without the latency."""
    transfer = channels.ask(now, requests, site, 0)
    channels.serve(transfer.asked_at)
    return transfer.done_at


def test_a_load_is_no_faster_than_the_link_of_its_site():
    """Four pages of 2,048 bytes, a request each 27 cycles, pass four channels in 128; over a link of 28 a cycle they
    take 293 from the first request on, over a wide one the last page's 128 from the last one on.
    """
    wormhole = load_target("wormhole_n150")
    pages = requests_of(0, 1, 8192, 8192, 2048, 12, 2048)
    assert asked(Channels(wormhole), 100, pages, (1, 1)) == 100 + 27 + 293
    wide = replace(wormhole, noc=replace(wormhole.noc, bytes_per_cycle=4096))
    assert asked(Channels(wide), 100, pages, (1, 1)) == 100 + 4 * 27 + 128


def test_a_channel_gives_the_site_beside_it_more_than_others():
    """A page of bank 1, which (0, 0) is beside: 94 cycles at 22 bytes a cycle; of bank 0, and for others, 128 at 16.

    Three in turn, for it, another and it again: 93.1, 221.1 and 314.2.
    """
    wormhole = load_target("wormhole_n150")
    page = wormhole.dram.page_bytes
    own, other = (requests_of(n * page, 1, 2048, 2048, page, 12, page) for n in (1, 0))
    request = wormhole.dram.request_cycles
    assert asked(Channels(wormhole), 0, own, (0, 0)) == request + 94
    assert asked(Channels(wormhole), 0, other, (0, 0)) == request + 128
    assert asked(Channels(wormhole), 0, own, (1, 1)) == request + 128
    queued = Channels(wormhole)
    assert [asked(queued, 0, own, site) for site in ((0, 0), (1, 1), (0, 0))] == [
        request + cycles for cycles in (94, 222, 315)
    ]


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
