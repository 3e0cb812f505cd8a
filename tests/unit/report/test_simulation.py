"""What `pavane simulate` says: a line an engine whatever the number of sites, the most loaded one by name."""

from __future__ import annotations

from dataclasses import replace

from pavane.report.simulation import simulation_lines
from pavane.sim import simulate
from pavane.sim.result import ChannelTraffic, EngineTime, SimResult, Waited
from pavane.targets.load import load_target
from tests import examples

TOY = load_target("toy")


def result(side: int) -> SimResult:
    """side x side sites of 1,000 cycles: `matrix` is busy 100 + x + 10 y, `reader` only on (0, 0)."""
    sites = [(x, y) for y in range(side) for x in range(side)]
    engines = {(x, y, "matrix"): EngineTime(100 + x + 10 * y, 50 + x) for x, y in sites}
    waits = [Waited("compute", site, "a pushed slot of q.fA", 300 - site[0] - site[1]) for site in sites]
    return SimResult(
        outputs={},
        state={},
        cycles=1_000,
        epoch_cycles=(1_000,),
        engines={(0, 0, "reader"): EngineTime(250, 700), **engines},
        channels=(ChannelTraffic(4_000, 100, 125), ChannelTraffic(3_000, 0, 500)),
        sent_bytes=0,
        waits=(*waits, Waited("write", (0, 0), "a fence", 7)),
    )


def test_the_lines():
    assert list(simulation_lines(result(3), TOY, {"pos": 4})) == [
        "1,000 cycles, 0.001 ms on toy at pos=4",
        "  matrix  9 sites, 10.0 to 12.2 % busy, median 11.1, most on (2, 2); median 51 cycles waiting",
        "  reader  25.0 % busy on site (0, 0), 700 cycles waiting",
        "  DRAM: 7,000 bytes read, 100 written; 2 channels, 12.5 to 50.0 % busy",
        "  compute waited 300 cycles for a pushed slot of q.fA on (0, 0), the longest of 9 sites",
        "  write waited 7 cycles for a fence on (0, 0)",
    ]


def test_more_sites_are_no_more_lines():
    assert len(list(simulation_lines(result(33), TOY, {}))) == len(list(simulation_lines(result(2), TOY, {}))) == 6


def test_many_waits_are_counted():
    many = [Waited(f"w{number:02}", (0, 0), "a fence", 100 - number) for number in range(14)]
    found = list(simulation_lines(replace(result(1), waits=tuple(many)), TOY, {}))
    assert [line.split()[0] for line in found[4:14]] == [f"w{number:02}" for number in range(10)]
    assert found[14:] == ["  and 4 shorter waits"]


def test_every_site_is_there_when_asked_for():
    found = list(simulation_lines(result(3), TOY, {}, per_site=True))
    assert found[0] == "1,000 cycles, 0.001 ms on toy"
    assert "  site (2, 1) matrix: 11.2 % busy, 52 cycles waiting" in found
    assert "  channel 1: 3,000 bytes read, 0 written, 50.0 % busy" in found
    assert "  compute on (2, 1) waited 297 cycles for a pushed slot of q.fA" in found
    assert len(found) == 1 + 10 + 2 + 10


def test_a_real_run_is_the_sum_of_its_sites():
    program = examples.matmul_multicast(TOY)
    found = simulate(program, TOY, symbols={}, functional=False)
    summary, sites = (list(simulation_lines(found, TOY, {}, per_site=p)) for p in (False, True))
    assert summary[0] == sites[0] == f"{found.cycles:,} cycles, {found.cycles / 1e6:.3f} ms on toy"
    assert [line.split()[0] for line in summary[1:6]] == ["matrix", "reader_a", "reader_b", "writer", "DRAM:"]
    assert all("4 sites" in line for line in summary[1:5])
    assert sum(line.startswith("  site ") for line in sites) == 16


def test_one_channel_has_no_range():
    one = replace(result(1), channels=(ChannelTraffic(4_000, 100, 125),))
    assert "  DRAM: 4,000 bytes read, 100 written; 1 channel, 12.5 % busy" in list(simulation_lines(one, TOY, {}))
