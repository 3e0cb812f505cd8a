"""Every command that writes asks for the place first, and alike: a missing folder is named with the way to make it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pavane.cli.outputs import make_folder, require_place
from pavane.reject import FileReject
from tests.unit.cli.lines import done, refused

COMPILE = ("compile", "--op", "matmul:4,4,4", "-t", "toy")


@pytest.fixture
def written(tmp_path):
    """A program, in a folder of its own."""
    (tmp_path / "programs").mkdir()
    path = tmp_path / "programs" / "a.pavane"
    done(*COMPILE, "-o", str(path))
    return path


def lines(written: Path, place: Path) -> dict[str, tuple[str, ...]]:
    """Of each option that writes: a command that writes there."""
    return {
        "--output": (*COMPILE, "-o", str(place)),
        "--trace": ("simulate", str(written), "--trace", str(place)),
        "--dump": (*COMPILE, "-o", str(written.parent / "b.pavane"), "--dump", str(place)),
    }


@pytest.mark.parametrize("option", ["--output", "--trace", "--dump"])
def test_a_missing_folder_is_named_and_never_made(written, tmp_path, option):
    place = tmp_path / "no such" / "place"
    said = refused(3, *lines(written, place)[option])
    assert said == (
        f"pavane: there is no folder {place.parent}. at {place}. way out: `mkdir -p '{place.parent}'` makes it.\n"
    )
    assert not place.parent.exists()
    assert [p.name for p in written.parent.iterdir()] == ["a.pavane"]


@pytest.mark.parametrize("option", ["--output", "--trace", "--dump"])
def test_a_file_in_the_place_of_a_folder_is_named(written, option):
    said = refused(3, *lines(written, written / "place")[option])
    assert f"{written} is no folder" in said


@pytest.mark.parametrize("option", ["--output", "--trace"])
def test_a_folder_in_the_place_of_a_file_is_named(written, tmp_path, option):
    assert "a folder has that name" in refused(3, *lines(written, tmp_path / "programs")[option])


def test_a_file_in_the_place_of_the_dump_is_named(written):
    assert str(written) in refused(3, *lines(written, written)["--dump"])


def test_a_dump_makes_its_own_folder_or_takes_one_that_is_there(written, tmp_path):
    for _ in range(2):
        done(*lines(written, tmp_path / "dump")["--dump"])
    names = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert names[0] == "0001_matmul_4x4x4_template.txt"
    assert not [name for name in names if name.startswith(".")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FileReject, match="may not be written"):
        require_place(tmp_path / "a")


def test_what_may_not_be_written_is_refused_whoever_asks(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    for asked in (lambda: require_place(tmp_path / "a"), lambda: make_folder(tmp_path / "b")):
        with pytest.raises(FileReject, match="may not be written"):
            asked()
    assert list(tmp_path.iterdir()) == []


def test_a_link_into_a_missing_folder_is_no_way_around(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "file")
    with pytest.raises(FileReject, match="there is no folder"):
        require_place(tmp_path / "link")


def test_nothing_is_computed_for_a_place_that_is_not_there(tmp_path):
    """The model would be read first: it is not there either, and the place is what is said."""
    said = refused(3, "compile", str(tmp_path / "none.gguf"), "-t", "toy", "-o", str(tmp_path / "gone" / "a"))
    assert "there is no folder" in said
