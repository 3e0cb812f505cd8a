"""Descriptors: whole, free of contradictions, named by a digest, or refused with every fault."""

from __future__ import annotations

import os
import re
from importlib import resources

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pavane.reject import ArgumentReject, TargetReject
from pavane.targets.check import check_target
from pavane.targets.descriptor import MatrixMode, SpatialTarget, target_digest
from pavane.targets.load import load_target, target_names
from pavane.targets.rectangle import largest_rectangle
from pavane.targets.restrict import adjacent_sites, restricted

TOML = resources.files("pavane.targets").joinpath("data", "toy.toml").read_text(encoding="utf-8")
TOY = load_target("toy")


def refused(path, text: str) -> TargetReject:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TargetReject) as caught:
        load_target(str(path))
    assert caught.value.exit_code == 4
    return caught.value


def test_the_toy_target_is_this_one():
    """A change of any figure changes every program for it: change it on purpose, and this line with it."""
    assert target_digest(TOY) == "97ccd948fb4dcffc55df7120baa221ae6c5e5e60baff73e197fad710ed0d9d2f"
    assert (TOY.grid.width, TOY.grid.height, TOY.sites, TOY.memory.bytes, TOY.counters.bits) == (2, 2, 4, 65536, 4)


def test_known_names():
    assert target_names() == tuple(sorted(target_names()))
    assert {"host", "toy"} <= set(target_names())


@pytest.mark.parametrize("name", target_names())
def test_every_target_that_travels_agrees_with_itself(name):
    assert load_target(name).name == name


def test_engines_by_role_wrap_around():
    assert [TOY.engine_for("reader", n).name for n in range(3)] == ["reader_a", "reader_b", "reader_a"]
    host = load_target("host", cores=3)
    assert {host.engine_for(role, 1).name for role in ("reader", "compute", "writer")} == {"core"}


def test_a_host_has_the_cores_that_were_asked_for():
    assert load_target("host", cores=3).grid.width == 3
    assert target_digest(load_target("host", cores=1)) != target_digest(load_target("host", cores=2))


@pytest.mark.parametrize("cores", [0, -1, 100_000])
def test_an_absurd_number_of_cores_is_refused(cores):
    with pytest.raises(ArgumentReject, match="1 to 256"):
        load_target("host", cores=cores)


def test_cores_are_for_the_host():
    with pytest.raises(ArgumentReject, match="host"):
        load_target("toy", cores=2)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ArgumentReject, match="host, sn40l, toy"):
        load_target("wormhole_n9000")


def test_a_user_adds_a_chip_with_one_file(tmp_path):
    (tmp_path / "mine.toml").write_text(TOML.replace('name = "toy"', 'name = "mine"'), encoding="utf-8")
    assert replace(load_target(str(tmp_path / "mine.toml")), name="toy") == TOY


@pytest.mark.parametrize(
    ("line", "figure"),
    [("bytes = 65536", "bytes"), ("clock_hz = 1_000_000_000", "clock_hz"), ("hop_cycles = 2", "hop_cycles")],
)
def test_a_missing_figure_is_named(tmp_path, line, figure):
    assert line in TOML
    reject = refused(tmp_path / "a.toml", TOML.replace(line, "", 1))
    assert f"`{figure}`" in reject.what
    assert str(tmp_path / "a.toml") in reject.where


def test_a_misspelt_figure_is_no_default(tmp_path):
    assert "`hop_cycels`" in refused(tmp_path / "a.toml", TOML.replace("hop_cycles", "hop_cycels")).what


@pytest.mark.parametrize("text", ["", "grid = ", "\x00", "a = [" * 2000, 'name = "x"'])
def test_what_is_no_descriptor_is_refused(tmp_path, text):
    refused(tmp_path / "a.toml", text)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(TargetReject):
        load_target(str(tmp_path / "a.toml"))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(TargetReject, match="cannot be read"):
        load_target(str(tmp_path / "none.toml"))


def with_engine(number: int, **figures: object) -> SpatialTarget:
    """The toy with other figures of one engine."""
    engine = replace(TOY.engines[number], **figures)
    return replace(TOY, engines=(*TOY.engines[:number], engine, *TOY.engines[number + 1 :]))


CONTRADICTIONS = (
    ("memory.bytes", replace(TOY, memory=replace(TOY.memory, bytes=0))),
    ("grid.width", replace(TOY, grid=replace(TOY.grid, width=0))),
    ("must not be negative", replace(TOY, noc=replace(TOY.noc, hop_cycles=-1))),
    ("at most 1024", replace(TOY, grid=replace(TOY.grid, width=5000))),
    ("dram.channels = 1025: at most 1024", replace(TOY, dram=replace(TOY.dram, channels=1025))),
    ("counters.bits", replace(TOY, counters=replace(TOY.counters, bits=1))),
    ("leaves nothing", replace(TOY, memory=replace(TOY.memory, reserved_bytes=65536))),
    ("power of two", replace(TOY, dram=replace(TOY.dram, alignment_bytes=24))),
    ("described twice", replace(TOY, engines=(*TOY.engines, TOY.engines[0]))),
    ("no engine has the role 'writer'", replace(TOY, engines=TOY.engines[:3])),
    ("generic_elements_per_cycle must be", with_engine(2, generic_elements_per_cycle=0)),
    ("not the role 'compute'", with_engine(0, matrix=TOY.engines[2].matrix)),
    ("register_tiles", with_engine(0, register_tiles=-1)),
    ("register_tiles", with_engine(0, register_tiles_16_bit=-1)),
    ("fewer tiles of 16 bits", with_engine(2, register_tiles=4, register_tiles_16_bit=3)),
    ("fewer tiles of 16 bits", with_engine(2, register_tiles=0, register_tiles_16_bit=3)),
    ("fewer tiles of 16 bits", with_engine(2, full_register_tiles=8, full_register_tiles_16_bit=7)),
    ("pack_bytes_per_cycle must not", with_engine(2, pack_bytes_per_cycle=-1)),
    ("go together", with_engine(2, full_register_tiles=8)),
    ("go together", with_engine(2, pack_bytes_per_cycle=8)),
    ("more tiles than half", with_engine(2, full_register_tiles=4, pack_bytes_per_cycle=8)),
    ("more tiles than half", with_engine(2, register_tiles=0, full_register_tiles=4, pack_bytes_per_cycle=8)),
    ("more tiles than half", with_engine(2, register_tiles_16_bit=9, full_register_tiles=8, pack_bytes_per_cycle=8)),
    ("an engine's name must be", with_engine(0, name="a" * 201)),
    ("65 engines: at most 64", replace(TOY, engines=(TOY.engines * 17)[:65])),
    ("more than 256 matrix modes", with_engine(2, matrix=TOY.engines[2].matrix * 200)),
    ("names 1025 sites: at most 1024", replace(TOY, dram=replace(TOY.dram, adjacent=((0, 0),) * 1025))),
    ("names (2, 0), which is no site of 2 x 2", replace(TOY, grid=replace(TOY.grid, missing=((2, 0),)))),
)  # fmt: skip


@pytest.mark.parametrize(("words", "target"), CONTRADICTIONS, ids=[words for words, _ in CONTRADICTIONS])
def test_each_contradiction_is_reported(words, target):
    with pytest.raises(TargetReject) as caught:
        check_target(target)
    assert any(words in term for term in caught.value.terms)


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("unknown element type", {"a": "f64"}),
        ("power of two", {"lanes": 3}),
        ("at most 1024", {"lanes": 2048}),
        ("at least 1", {"cycles": 0}),
        ("at least 1", {"tile": (0, 1, 1)}),
        ("more bits than operand_bits", {"a_bits": 7}),
        ("more bits than operand_bits", {"b_bits": 1}),
    ],
)
def test_each_contradiction_of_a_matrix_mode_is_reported(words, change):
    mode: MatrixMode = replace(TOY.engines[2].matrix[0], **change)
    with pytest.raises(TargetReject) as caught:
        check_target(with_engine(2, matrix=(mode,)))
    assert [words in term for term in caught.value.terms] == [True]


BF16 = TOY.engines[2].matrix[0]  # 8 bits of both


@pytest.mark.parametrize(
    ("words", "others"),
    [
        (["must sum in one way"], [{"operand_bits": 4, "lanes": 2}]),
        (["must sum in one way"], [{"operand_bits": 4, "fused": True}]),
        (["must sum in one way"], [{"operand_bits": 4, "accumulator": "bf16", "accumulator_bits": 8}]),
        (["bits 8 x 8 are described twice"], [{"cycles": 1}]),
        (["none multiplies 10 bits of a by 8 of b"], [{"operand_bits": 5, "a_bits": 10}]),
        ([], [{"operand_bits": 4, "cycles": 1}, {"operand_bits": 5, "b_bits": 8, "cycles": 2}]),
    ],
)
def test_fidelities_differ_in_what_they_multiply(words, others):
    modes = (BF16, *(replace(BF16, **change) for change in others))
    target = with_engine(2, matrix=modes)
    if not words:
        assert check_target(target) == target
        return
    with pytest.raises(TargetReject) as caught:
        check_target(target)
    assert [word in term for word, term in zip(words, caught.value.terms, strict=True)] == [True]


def test_bits_of_a_mode():
    assert BF16.bits == (8, 8)
    assert replace(BF16, operand_bits=5, a_bits=7).bits == (7, 5)
    assert replace(BF16, operand_bits=5, b_bits=8).bits == (5, 8)


def test_the_cheapest_mode_that_multiplies_in_full_or_the_fullest():
    half = replace(BF16, operand_bits=4, cycles=8)
    engine = replace(TOY.engines[2], matrix=(half, BF16))
    assert engine.product_mode("bf16", "bf16", (4, 4)) == half
    assert engine.product_mode("bf16", "bf16", (4, 5)) == BF16
    assert engine.product_mode("bf16", "bf16", (24, 24)) == BF16
    assert engine.product_mode("bf16", "f32", (1, 1)) is None
    assert replace(engine, matrix=(BF16, half)).product_mode("bf16", "bf16", (4, 4)) == half
    dear = replace(half, cycles=64)
    assert replace(engine, matrix=(BF16, dear)).product_mode("bf16", "bf16", (4, 4)) == BF16


def test_registers_hold_as_many_tiles_as_the_widest_type_leaves_room_for():
    engine = replace(TOY.engines[2], register_tiles=4, register_tiles_16_bit=8)
    assert [engine.tiles_held(types) for types in (("bf16", "f16", "i8"), ("bf16", "f32"), ("q8_0",))] == [8, 4, 4]
    assert TOY.engines[2].tiles_held(("bf16",)) == 4
    assert replace(engine, register_tiles=0, register_tiles_16_bit=0).tiles_held(("bf16",)) == 0
    assert [load_target(t).engine_for("compute").tiles_held(("f16",)) for t in ("wormhole_n150", "xdna2")] == [8, 5]


@pytest.mark.parametrize(("chip", "cycles"), [("wormhole_n150", 64), ("blackhole_p150", 32)])
def test_full_sync_has_twice_the_tiles_and_a_price(chip, cycles):
    """A tile of 32 x 32 f32 leaves Wormhole's registers in 64 cycles."""
    engine = load_target(chip).engine_for("compute")
    assert engine.windows == ("HALF", "FULL")
    assert [engine.tiles_held((dtype,), "FULL") for dtype in ("f32", "bf16", "bfp8")] == [8, 16, 8]
    assert [engine.tiles_held((dtype,), "HALF") for dtype in ("f32", "bf16", "bfp8")] == [4, 8, 4]
    assert [engine.pack_cycles(size) for size in (4096, 1)] == [cycles, 1]
    assert TOY.engines[2].windows == ("HALF",)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ([[3, 1]], "1 hole: describe the largest whole one, width = 3 and height = 4 (columns 0 to 2, rows 0 to 3)"),
        ([[0, 0], [4, 3]], "2 holes: describe the largest whole one, width = 4 and height = 3 (columns 1 to 4"),
        ([[x, 1] for x in range(5)], "5 holes: describe the largest whole one, width = 5 and height = 2 (columns 0 to "
         "4, rows 2 to 3)"),
        ([[x, y] for x in range(5) for y in range(4)], "20 holes: none of its sites computes"),
    ],
)  # fmt: skip
def test_a_rectangle_with_holes_names_the_largest_without(tmp_path, missing, words):
    """A user says which sites do not compute; the way out is a smaller rectangle."""
    grid = f"[grid]\nwidth = 5\nheight = 4\nmissing = {missing}\n"
    text = re.sub(r"\[grid\]\nwidth = 2[^\n]*\nheight = 2[^\n]*\n", grid, TOML)
    assert grid in text
    assert any(words in term for term in refused(tmp_path / "a.toml", text).terms)


@given(st.integers(1, 6), st.integers(1, 6), st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5))))
def test_no_whole_rectangle_is_larger(width, height, holes):
    columns, rows = largest_rectangle(width, height, holes)
    sides = [(x0, x1, y0, y1) for x0 in range(width) for x1 in range(x0, width) for y0 in range(height)
             for y1 in range(y0, height)]  # fmt: skip
    whole = [s for s in sides if not any(s[0] <= x <= s[1] and s[2] <= y <= s[3] for x, y in holes)]
    most = max(((x1 - x0 + 1) * (y1 - y0 + 1) for x0, x1, y0, y1 in whole), default=0)
    assert len(columns) * len(rows) == most
    assert not most or (columns[0], columns[-1], rows[0], rows[-1]) in whole


def test_all_contradictions_are_reported_together():
    broken = replace(TOY, clock_hz=0, memory=replace(TOY.memory, bytes=0), counters=replace(TOY.counters, bits=99))
    with pytest.raises(TargetReject) as caught:
        check_target(broken)
    assert len(caught.value.terms) == 4  # clock, memory, reserved against memory, bits


def test_a_descriptor_survives_its_bytes():
    assert msgspec.json.decode(msgspec.json.encode(TOY), type=type(TOY)) == TOY


@pytest.mark.parametrize(
    ("figure", "changed", "named"),
    [
        ("latency_cycles = 100", "latency_cycles = 4611686018427387904", "dram.latency_cycles"),
        ('name = "toy"', 'name = ""', "printable"),
        ('name = "toy"', 'name = "a\\u0007b"', "printable"),
    ],
)
def test_giants_and_unprintable_names_are_refused(tmp_path, figure, changed, named):
    text = resources.files("pavane.targets").joinpath("data", "toy.toml").read_text(encoding="utf-8")
    assert figure in text
    path = tmp_path / "chip.toml"
    path.write_text(text.replace(figure, changed), encoding="utf-8")
    with pytest.raises(TargetReject, match=named):
        load_target(path)


def test_a_fifo_is_no_descriptor(tmp_path):
    path = tmp_path / "pipe.toml"
    os.mkfifo(path)
    with pytest.raises(TargetReject, match="cannot be read"):
        load_target(path)


SIDES = replace(TOY.dram, adjacent=((0, 0), (1, 1)), far_bytes_per_cycle=8)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("go together", {"far_bytes_per_cycle": 0}),
        ("go together", {"adjacent": ()}),
        ("names 1 sites for 2 channels", {"adjacent": ((0, 0),)}),
        ("names (2, 0), which is no site of 2 x 2", {"adjacent": ((0, 0), (2, 0))}),
        ("names (0, 0) for several channels", {"adjacent": ((0, 0), (0, 0))}),
        ("is above what the sites beside the channels get, 16", {"far_bytes_per_cycle": 17}),
        ("dram.far_bytes_per_cycle = -1 must not be negative", {"far_bytes_per_cycle": -1}),
    ],
)
def test_sites_beside_channels_that_cannot_be_are_refused(words, changes):
    check_target(replace(TOY, dram=SIDES))
    with pytest.raises(TargetReject) as caught:
        check_target(replace(TOY, dram=replace(SIDES, **changes)))
    assert any(words in term for term in caught.value.terms)


def test_where_engines_work_in_place_no_site_is_beside_a_channel():
    with pytest.raises(TargetReject, match="address memory in place"):
        check_target(replace(TOY, alias=True, dram=SIDES))


def test_a_part_of_a_chip_is_far_from_all_channels_and_the_sites_beside_them_are_a_line():
    chip = replace(TOY, dram=SIDES)
    assert restricted(chip, memory_bytes=1 << 15).dram == SIDES
    part = restricted(chip, width=1)
    assert (part.dram.adjacent, part.dram.bytes_per_cycle, part.dram.far_rate) == ((), 8, 8)
    line = adjacent_sites(chip)
    assert (line.grid.width, line.grid.height, line.grid.scattered) == (2, 1, True)
    assert (line.dram.adjacent, line.dram.bytes_per_cycle, line.dram.far_rate) == (((0, 0), (1, 0)), 16, 8)
    assert check_target(line)
