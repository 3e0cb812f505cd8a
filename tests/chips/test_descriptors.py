"""The descriptors of real chips: every figure says where it is from and how sure it is; what everything rests on."""

from __future__ import annotations

import re
from importlib import resources

import pytest
from msgspec.structs import replace

from pavane.reject import TargetReject
from pavane.targets.check import check_target
from pavane.targets.load import load_target

CHIPS = ("wormhole_n150", "blackhole_p150", "sn40l", "xdna2")
MARKS = ("documented", "derived", "estimated")


def lines(chip: str) -> list[str]:
    return resources.files("pavane.targets").joinpath("data", f"{chip}.toml").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("chip", CHIPS)
def test_every_figure_has_its_mark(chip):
    """A number stands beside `documented`, `derived` or `estimated`; a matrix mode under a comment that says so."""
    above = ""
    for line in lines(chip):
        figure, _, comment = line.partition("#")
        if re.match(r"^\s*\{ a = ", line):
            assert any(mark in above for mark in MARKS), line
        elif re.search(r"= *(\d|\[\d|true|false|\")", figure) and not re.match(
            r"^(name = \"[a-z0-9_]+\"$|description)", figure
        ):
            plain = figure.split("=")[0].strip()
            assert plain in ("name", "roles") or any(mark in comment for mark in MARKS), line
        above = (above + comment if above.lstrip().startswith("#") else comment) if comment else above


@pytest.mark.parametrize("chip", CHIPS)
def test_no_figure_is_without_a_source_or_a_word(chip):
    documented = [line for line in lines(chip) if "# documented:" in line]
    assert documented
    assert all(len(line.partition("# documented:")[2].strip()) > 3 for line in documented)


@pytest.mark.parametrize(
    ("chip", "sites", "usable", "counters", "bytes_per_second"),
    [
        ("wormhole_n150", 64, 1499136 - 103712, ("MONOTONE", 32, 16), 264e9),
        ("blackhole_p150", 110, 1572864 - 103712, ("MONOTONE", 32, 16), 496.8e9),
        ("sn40l", 1040, 524288, ("CREDIT", 8, 16), 1600e9),
        ("xdna2", 32, 65536 - 1024, ("CREDIT", 6, 16), 115.2e9),
    ],
)
def test_what_a_chip_is(chip, sites, usable, counters, bytes_per_second):
    target = load_target(chip)
    assert target.sites == sites
    assert target.memory.bytes - target.memory.reserved_bytes == usable
    assert (target.counters.kind, target.counters.bits, target.counters.per_site) == counters
    dram = target.dram
    assert dram.channels * dram.bytes_per_cycle * target.clock_hz == pytest.approx(bytes_per_second)


def test_a_row_costs_as_much_as_eight_on_wormhole():
    """One step is 8 x 16 x 16, so a single row runs at an eighth; a 32 x 32 x 32 product at HiFi4 takes 64 cycles."""
    target = load_target("wormhole_n150")
    bf16 = next(m for m in target.engine_for("compute").matrix if (m.a, m.b) == ("bf16", "bf16"))
    rows, depth, cols = bf16.tile
    assert (32 // rows) * (32 // depth) * (32 // cols) * bf16.cycles == 64
    assert rows == 8


def test_requests_of_a_window():
    dram = load_target("wormhole_n150").dram
    assert dram.requests(32, 612, contiguous=True) == 10  # 19,584 bytes in pages of 2048
    assert dram.requests(32, 272, contiguous=False) == 32
    assert dram.requests(2, 3000, contiguous=False) == 4
    assert load_target("toy").dram.requests(32, 272, contiguous=False) == 1


@pytest.mark.parametrize(("page", "words"), [(-1, "must not be negative"), (100, "must be a multiple of")])
def test_a_page_that_contradicts_its_unit_is_reported(page, words):
    target = load_target("wormhole_n150")
    with pytest.raises(TargetReject) as caught:
        check_target(replace(target, dram=replace(target.dram, page_bytes=page)))
    assert [words in term for term in caught.value.terms] == [True]


@pytest.mark.parametrize(
    ("chip", "beside", "far", "measured"),
    [("wormhole_n150", 267e9, (190e9, 200e9), 12), ("blackhole_p150", 500e9, (340e9, 350e9), 8)],
)
def test_what_channels_give_is_what_was_measured(chip, beside, far, measured):
    """With one reader beside each channel, within 2 %; with any others, in the measured range."""
    target = load_target(chip)
    dram = target.dram
    assert len(dram.adjacent) == dram.channels == measured
    assert dram.channels * dram.bytes_per_cycle * target.clock_hz == pytest.approx(beside, rel=0.02)
    assert far[0] <= dram.channels * dram.far_rate * target.clock_hz <= far[1]


@pytest.mark.parametrize("chip", ["toy", "sn40l", "xdna2"])
def test_channels_of_other_chips_serve_all_sites_alike(chip):
    dram = load_target(chip).dram
    assert dram.adjacent == ()
    assert dram.far_rate == dram.bytes_per_cycle
