"""Whatever is shared is served in order of arrival, which is not always the order in which it was asked for: later
requests of one load, messages that leave after many requests, reads in place beside writes."""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.program import Fifo, Formal, Front, Items, Numerics, Pop, Process, Shape, Tensor
from pavane.ir.quasi import quasi
from pavane.sim import simulate
from pavane.sim.channels import Channels, requests_of
from pavane.sim.links import Links
from pavane.sim.transfers import Transfer
from tests.building import one_section, read, rect, shape_of, window


def paged(toy):
    """Pages of 32 bytes, 8 cycles a request, and channels of a byte a cycle: a page takes 32 cycles."""
    return replace(toy, dram=replace(toy.dram, page_bytes=32, request_cycles=8, bytes_per_cycle=1))


def column(rows: int):
    """A page of each of so many rows, all in channel 0 of two."""
    return requests_of(0, rows, 32, 64, 32, 2, 32)


def test_a_later_request_of_an_earlier_load_waits_for_others(toy):
    """One load asks at 0 for four pages, another at 1 for one. They arrive at 8, 16, 24, 32 and at 9, and the channel
    gives them from 8, 72, 104, 136 and from 40 on; the other load would have waited until 136 in order of calls.
    """
    channels = Channels(paged(toy))
    first = channels.ask(0, column(4), (0, 0), 100)
    other = channels.ask(1, column(1), (1, 0), 100)
    channels.serve(32)
    assert other.done_at == 72 + 100
    assert first.done_at == 168 + 100
    assert channels.busy_cycles == (5 * 32, 0)


def test_two_loads_of_a_program_take_turns(toy):
    """The same in a program: the loads begin together, so the short one's page follows the first of the long one."""

    def reader(name: str, x: int, rows: int) -> tuple[Process, ...]:
        place = window((0, rows), (0, 8), row=0)
        here = rect(x, x + 1, 0, 1)
        return (
            Process(f"read{name}", here, "reader_a", read(f"f{name}", "A", place)),
            Process(f"drop{name}", here, "matrix", (Front(f"f{name}"), Pop(f"f{name}"))),
        )

    shape = Shape(
        name="two",
        formals=(Formal("A", shape_of(4, 16), "f32", "IN"),),
        spec=(),
        items=Items(quasi(1), quasi(1), 4, 8),
        numerics=Numerics(),
        processes=(*reader("Long", 0, 4), *reader("Short", 1, 1)),
        fifos=tuple(Fifo(f, "LOCAL", 4, 8, "f32", 1, 0) for f in ("fLong", "fShort")),
    )
    chip = paged(toy)
    program = one_section(chip, shape, (Tensor("a", shape_of(4, 16), "f32", "INPUT"),), {"A": "a"})
    result = simulate(program, chip, functional=False, trace=True)
    fences = {e.site: e.start + e.cycles - chip.launch.cycles for e in result.events if e.name == "a fence"}
    assert fences == {(0, 0): 168 + 100, (1, 0): 72 + 100}


def test_when_the_channels_are_served_changes_nothing(toy):
    """After every cycle, after some, or once when all have asked."""
    ends = set()
    for step in (1, 7, 40):
        channels, under_way = Channels(paged(toy)), []
        for now in range(0, 400, step):
            under_way += [channels.ask(t, column(3), (0, 0), 0) for t in range(now, now + step) if t < 40]
            channels.serve(now + step - 1)
        ends.add(tuple(transfer.done_at for transfer in under_way))
    assert len(ends) == 1


def test_a_read_in_place_does_not_wait_for_a_write_that_comes_later(host):
    """A write asked for at 0 arrives at 50; the channel gives a read that begins at 10 its 480 bytes from 10 to 20."""
    slow = replace(host, dram=replace(host.dram, request_cycles=50, bytes_per_cycle=48))
    channels = Channels(slow)
    written = channels.ask(0, requests_of(0, 1, 960, 960, 64, 1, 0), (0, 0), 0)
    assert channels.stream(10, requests_of(0, 1, 480, 480, 64, 1, 0)) == 20
    channels.serve(50)
    assert written.done_at == 70


def served(links: Links, *transfers: Transfer) -> list[int]:
    links.serve(max(transfer.asked_at for transfer in transfers))
    return [transfer.done_at for transfer in transfers]


def test_a_message_that_leaves_earlier_goes_first(toy):
    """Both hold the link for 160 bytes, 10 cycles; the second call's message leaves at 20, the first call's at 30: it
    starts 16 cycles later and finds the link free, or waits for the other.
    """
    links, later, earlier = Links(toy), Transfer(), Transfer()
    links.send(later, 30, (0, 0), (1, 2, 0, 1), 160)
    links.send(earlier, 25, (0, 0), (1, 2, 0, 1), 160)
    assert served(links, later, earlier) == [25 + 16 + 10 + 10 + 2, 25 + 16 + 10 + 2]


def test_what_is_fetched_first_leaves_first(toy):
    """Requests reach (0, 0) at 32 and 28, after a hop of 2; its port gives 160 bytes each from 44 and from 54 on."""
    links, later, earlier = Links(toy), Transfer(), Transfer()
    links.fetch(later, 30, (1, 0), (0, 0), 160)
    links.fetch(earlier, 26, (1, 0), (0, 0), 160)
    assert served(links, later, earlier) == [64 + 2, 54 + 2]


def test_what_is_delivered_first_is_answered_first(toy):
    """As above, and the answer's hop."""
    links, later, earlier = Links(toy), Transfer(), Transfer()
    links.deliver(later, 30, (0, 0), (1, 0), 160)
    links.deliver(earlier, 26, (0, 0), (1, 0), 160)
    assert served(links, later, earlier) == [62 + 2 + 2, 52 + 2 + 2]
