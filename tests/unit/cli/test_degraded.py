"""`pavane run` where things are short: no room or no place for files, one core, many workers, an interrupt."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.tiny_models import tiny_config, write_tiny_gguf
from tests.unit.cli.lines import ENVIRONMENT, SCRIPT

resource = pytest.importorskip("resource")
LEAST_FILE_BYTES = 4096  # what a file may grow to: stands in for a full disk


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, and a cache in which it is deployed and compiled."""
    directory = tmp_path_factory.mktemp("degraded")
    write_tiny_gguf(directory / "tiny.gguf", tiny_config(layers=1, context=8000), 1)
    assert finished(start(directory, "--max-tokens", "4"))[0] == 0
    return directory


def start(place: Path, *options: str, cache: Path | None = None, **rest) -> subprocess.Popen:
    environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(cache or place / "cache")}
    arguments = ["run", str(place / "tiny.gguf"), "--prompt", "hello the", "--context", "8000", "--cores", "2"]
    command = [*SCRIPT, *arguments, *options]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **rest)


def finished(child: subprocess.Popen) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=120)
    assert "Traceback" not in err
    return child.returncode, out, err


def test_an_interrupt_in_the_middle_ends_with_130(place):
    child = start(place, "--max-tokens", "7900")
    assert child.stdout is not None
    assert child.stdout.read(1)
    child.send_signal(signal.SIGINT)
    code, _, err = finished(child)
    assert code == 130
    assert "interrupted" in err


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_one_core_and_three_workers_say_the_same(place):
    first = min(os.sched_getaffinity(0))
    usual = finished(start(place, "--max-tokens", "6"))
    alone = finished(start(place, "--max-tokens", "6", preexec_fn=lambda: os.sched_setaffinity(0, {first})))
    many = finished(start(place, "--max-tokens", "6", "--cores", "3"))
    assert [usual[0], alone[0], many[0]] == [0, 0, 0]
    assert usual[1] == alone[1] == many[1]


def test_without_room_for_programs_it_works(place, tmp_path):
    shutil.copytree(place / "cache" / "pavane" / "deployed", tmp_path / "pavane" / "deployed")
    shutil.copy(place / "cache" / "pavane" / "sources.json", tmp_path / "pavane" / "sources.json")

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LEAST_FILE_BYTES, LEAST_FILE_BYTES))

    code, out, _ = finished(start(place, "--max-tokens", "6", cache=tmp_path, preexec_fn=full))
    assert code == 0
    assert out == finished(start(place, "--max-tokens", "6"))[1]


def test_without_a_place_for_the_model_it_says_so(place):
    code, out, err = finished(start(place, "--max-tokens", "6", cache=Path(os.devnull) / "cache"))
    assert code == 3
    assert not out
    assert "cannot write" in err
    assert "another cache directory" in err
