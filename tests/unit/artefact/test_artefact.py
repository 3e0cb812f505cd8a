"""A `.pavane` file is whole, unedited, of this version, for the chip that it says, or refused with a reason."""

from __future__ import annotations

import hashlib
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pavane.artefact import (
    MAGIC,
    Artefact,
    ModelInfo,
    PassRecord,
    WeightReference,
    artefact_bytes,
    parse_artefact,
    read_artefact,
    require_target,
    write_artefact,
)
from pavane.reject import FileReject, TargetReject
from pavane.targets.load import load_target
from tests import examples

TOY = load_target("toy")
ARTEFACT = Artefact(
    program=examples.matmul_multicast(TOY),
    target=TOY,
    weights=WeightReference("model.gguf", "0" * 64, ("b",)),
    passes=(PassRecord("matmul", "tile", "1" * 64, 100, "+ plan"),),
    model=ModelInfo("tiny", "decode", "FLOAT", 64),
)


def packed(content: bytes) -> bytes:
    """A file with a right first line for any content."""
    return MAGIC + f"1 {hashlib.sha256(content).hexdigest()}\n".encode() + zlib.compress(content)


def test_what_is_written_is_read(tmp_path):
    write_artefact(tmp_path / "a.pavane", ARTEFACT)
    assert read_artefact(tmp_path / "a.pavane") == ARTEFACT
    assert (tmp_path / "a.pavane").read_bytes() == artefact_bytes(ARTEFACT)
    assert os.listdir(tmp_path) == ["a.pavane"]


def test_the_first_line_names_the_content():
    line, _, _ = artefact_bytes(ARTEFACT).partition(b"\n")
    assert line.split()[:2] == [b"pavane", b"1"]
    assert len(line) == 9 + 64


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(FileReject, match="cannot read") as caught:
        read_artefact(tmp_path / "none.pavane")
    assert caught.value.exit_code == 3
    assert "pavane compile" in caught.value.remedy


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(FileReject):
        read_artefact(tmp_path)


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileReject, match="cannot write"):
        write_artefact(tmp_path / "file" / "a.pavane", ARTEFACT)


@pytest.mark.parametrize("kept", [0, 3, 60, 74, 100, 1000, -1])
def test_a_file_cut_short_is_refused(kept):
    with pytest.raises(FileReject, match=r"no \.pavane file|cut short"):
        parse_artefact(artefact_bytes(ARTEFACT)[:kept])


@given(place=st.integers(0, len(artefact_bytes(ARTEFACT)) - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_is_refused(place, bit):
    data = bytearray(artefact_bytes(ARTEFACT))
    data[place] ^= 1 << bit
    with pytest.raises(FileReject):
        parse_artefact(bytes(data))


@given(st.binary(max_size=300))
def test_any_other_bytes_are_refused(data):
    with pytest.raises(FileReject):
        parse_artefact(data)
    with pytest.raises(FileReject):
        parse_artefact(packed(data))


def test_bytes_after_the_end_are_refused():
    with pytest.raises(FileReject, match="changed"):
        parse_artefact(artefact_bytes(ARTEFACT) + b"x")


def test_another_version_is_refused():
    data = artefact_bytes(ARTEFACT).replace(b"pavane 1", b"pavane 2", 1)
    with pytest.raises(FileReject, match="another version") as caught:
        parse_artefact(data)
    assert (caught.value.needed, caught.value.available) == ("1", "2")


def test_an_edited_program_with_a_new_digest_must_still_be_a_program():
    content = zlib.decompress(artefact_bytes(ARTEFACT).partition(b"\n")[2])
    with pytest.raises(FileReject, match=r"no program.*LOCALE"):
        parse_artefact(packed(content.replace(b'"LOCAL"', b'"LOCALE"')))


@pytest.mark.parametrize("opening", [b"[", b'{"program":', b'{"target":{"a":'])
def test_deep_nesting_is_refused(opening):
    with pytest.raises(FileReject):
        parse_artefact(packed(opening * 1_000_000))


def test_a_bomb_is_refused_before_it_unpacks(monkeypatch):
    monkeypatch.setattr("pavane.artefact.MAX_CONTENT_BYTES", 1000)
    with pytest.raises(FileReject, match="too big"):
        parse_artefact(packed(b" " * 100_000))


def test_what_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("pavane.artefact.MAX_CONTENT_BYTES", 1000)
    with pytest.raises(FileReject, match="too big for a file") as caught:
        write_artefact(tmp_path / "a.pavane", ARTEFACT)
    assert caught.value.available == "1000 bytes"
    assert not list(tmp_path.iterdir())


def test_a_big_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("pavane.artefact.MAX_FILE_BYTES", 10)
    write_artefact(tmp_path / "a.pavane", ARTEFACT)
    with pytest.raises(FileReject, match="too big"):
        read_artefact(tmp_path / "a.pavane")


def test_a_file_must_hold_its_own_chip():
    other = replace(TOY, clock_hz=2)
    with pytest.raises(FileReject, match="another chip"):
        parse_artefact(artefact_bytes(replace(ARTEFACT, target=other)))


def test_a_program_for_another_chip_is_refused():
    assert require_target(ARTEFACT, TOY) is ARTEFACT
    with pytest.raises(TargetReject, match="another chip") as caught:
        require_target(ARTEFACT, replace(TOY, clock_hz=2))
    assert caught.value.exit_code == 4
    assert "-t toy" in caught.value.remedy
