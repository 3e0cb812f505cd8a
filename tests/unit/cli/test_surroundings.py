"""Odd surroundings of the `pavane` script: streams that are closed or full, locales, terminals, long names.

Never a traceback, always the documented exit code, and the result byte for byte wherever it can go.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pavane.cli.main import app
from tests.unit.cli.lines import ENVIRONMENT, SCRIPT

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no device that is always full")
LONG = "a" * 5000


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("surroundings") / "zwölf.pavane"
    arguments = ["compile", "--op", "matmul:4,4,4", "-t", "toy", "-o", str(path)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return path


def pavane(*arguments: str, redirected: str = "", **environment: str) -> tuple[int, bytes, bytes]:
    """Exit code, stdout, stderr of the script, started by a shell that redirects its streams."""
    usual = {k: v for k, v in ENVIRONMENT.items() if k not in ("LC_ALL", "COLUMNS", "PYTHONIOENCODING")}
    line = ["sh", "-c", f'exec "$0" "$@" {redirected}', *SCRIPT, *arguments]
    done = subprocess.run(line, env={**usual, **environment}, capture_output=True)
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@needs_full
@pytest.mark.parametrize("arguments", [["--help"], ["compile", "--help"]])
def test_a_full_disk_behind_the_output_is_said(arguments):
    code, _, said = pavane(*arguments, redirected="> /dev/full")
    assert code == 3
    assert said.startswith(b"pavane: cannot write the result (No space left on device)")


@pytest.mark.parametrize("arguments", [["--help"], ["compile", "--help"]])
def test_a_reader_that_is_gone_ends_with_141(arguments, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*SCRIPT, *arguments], env=ENVIRONMENT, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [["explain"], ["--help"], ["check", "--help"], ["--version"]])
def test_a_closed_output_is_said(program, arguments):
    """By what Pavane writes, and by what typer would have written."""
    files = [str(program)] if arguments == ["explain"] else []
    code, _, said = pavane(*arguments, *files, redirected=">&-")
    assert (code, said.startswith(b"pavane: the standard output is closed")) == (3, True)


@pytest.mark.parametrize("redirected", ["<&- 2>&-", pytest.param("2> /dev/full", marks=needs_full)])
def test_what_cannot_be_said_changes_no_exit_code(redirected, tmp_path):
    place = tmp_path / "a.pavane"
    assert pavane("compile", "--op", "matmul:4,4,4", "-t", "toy", "-o", str(place), redirected=redirected)[0] == 0
    assert place.stat().st_size > 1000
    assert pavane("check", str(tmp_path / "none"), redirected=redirected)[0] == 3
    for line in ((), ("nothing",), ("--nothing",), ("check",), ("run", "--max-tokens", "many")):
        assert pavane(*line, redirected=redirected)[0] == 2


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "10", "NO_COLOR": "1"},
        {"PYTHONIOENCODING": "ascii", "TERM": "dumb", "COLUMNS": "0"},
    ],
)
def test_a_locale_or_a_terminal_changes_no_result(program, environment):
    usual = CliRunner().invoke(app, ["explain", str(program)]).stdout
    assert pavane("explain", str(program), **environment) == (0, usual.encode(), b"")
    code, _, said = pavane("check", str(program) + "ü", **environment)
    assert code == 3
    assert b"zw" in said
    assert said.count(b"\n") == 1


@pytest.mark.parametrize(("arguments", "code"), [(("check",), 3), ((), 2)])
def test_letters_that_a_terminal_obeys_are_spelled_out(arguments, code):
    """In the name of a file that is not there, and of a command."""
    ended, _, said = pavane(*arguments, "a\x1b[31m\x07b")
    assert ended == code
    assert b"a\\x1b[31m\\x07b" in said


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("compile", "--op", "matmul:4,4,4", "-t", "toy", "-o", LONG), 3),
        (("compile", "--op", "matmul:4,4,4", "-t", "toy", "-o", "a.pavane", "--dump", LONG), 3),
        (("compile", LONG, "-o", "a.pavane"), 2),
        (("compile", LONG + ".gguf", "-o", "a.pavane"), 3),
        (("compile", "--op", "matmul:4,4,4", "-t", LONG, "-o", "a.pavane"), 2),
        (("compile", "--op", "matmul:4,4,4", "-t", LONG + ".toml", "-o", "a.pavane"), 4),
        (("check", LONG), 3),
        (("run", LONG, "--prompt", "a"), 2),
    ],
)
def test_names_that_no_file_can_have(arguments, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, list(arguments))
    assert (result.exit_code, result.stdout) == (code, "")
    assert isinstance(result.exception, SystemExit)
    assert list(tmp_path.iterdir()) == []


def test_an_artefact_cut_anywhere_is_refused(program, tmp_path):
    data = program.read_bytes()
    cut = tmp_path / "cut.pavane"
    for length in (0, 1, 7, 60, 76, 77, 78, len(data) // 2, len(data) - 1):
        cut.write_bytes(data[:length])
        for command in ("check", "show", "explain", "simulate"):
            result = CliRunner().invoke(app, [command, str(cut)])
            assert (result.exit_code, result.stdout) == (3, ""), (length, command, result.output)
            assert str(cut) in result.stderr
