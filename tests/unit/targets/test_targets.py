"""Descriptors: whole, free of contradictions, named by a digest, or refused with every fault."""

from __future__ import annotations

import os
from importlib import resources

import msgspec
import pytest
from msgspec.structs import replace

from pavane.reject import TargetReject
from pavane.targets.check import check_target
from pavane.targets.descriptor import MatrixMode, SpatialTarget, target_digest
from pavane.targets.load import load_target, target_names

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
    assert target_digest(TOY) == "4e454b4396211e6c3901c63be3f85ded6a5496debb0c8f9c131e6a63db65e4eb"
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
    with pytest.raises(TargetReject, match="1 to 256"):
        load_target("host", cores=cores)


def test_cores_are_for_the_host():
    with pytest.raises(TargetReject, match="host"):
        load_target("toy", cores=2)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(TargetReject, match="host, sn40l, toy"):
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
    ("counters.bits", replace(TOY, counters=replace(TOY.counters, bits=1))),
    ("leaves nothing", replace(TOY, memory=replace(TOY.memory, reserved_bytes=65536))),
    ("power of two", replace(TOY, dram=replace(TOY.dram, alignment_bytes=24))),
    ("described twice", replace(TOY, engines=(*TOY.engines, TOY.engines[0]))),
    ("no engine has the role 'writer'", replace(TOY, engines=TOY.engines[:3])),
    ("generic_elements_per_cycle must be", with_engine(2, generic_elements_per_cycle=0)),
    ("not the role 'compute'", with_engine(0, matrix=TOY.engines[2].matrix)),
    ("register_tiles", with_engine(0, register_tiles=-1)),
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
        ("at least 1", {"cycles": 0}),
        ("at least 1", {"tile": (0, 1, 1)}),
    ],
)
def test_each_contradiction_of_a_matrix_mode_is_reported(words, change):
    mode: MatrixMode = replace(TOY.engines[2].matrix[0], **change)
    with pytest.raises(TargetReject) as caught:
        check_target(with_engine(2, matrix=(mode,)))
    assert [words in term for term in caught.value.terms] == [True]


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
