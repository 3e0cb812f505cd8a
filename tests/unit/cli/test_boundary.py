"""What a user can cause ends in one paragraph on stderr and the documented exit code, never in a traceback."""

from __future__ import annotations

import os
import subprocess

import pytest
import typer
from typer.testing import CliRunner

from pavane import reject
from pavane.cli.boundary import Guarded, paragraph
from tests.unit.cli.lines import ENVIRONMENT, SCRIPT


def app_that_raises(error: BaseException) -> typer.Typer:
    app = typer.Typer(cls=Guarded, pretty_exceptions_enable=False)

    @app.callback()
    def group() -> None:
        """A group, as the real one."""

    @app.command()
    def fail() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (reject.FileReject, 3),
        (reject.ArgumentReject, 2),
        (reject.TargetReject, 4),
        (reject.MissingExtra, 4),
        (reject.ProgramReject, 5),
        (reject.MemoryExceeded, 6),
        (reject.CertificateMismatch, 7),
    ],
)
def test_a_refusal_is_a_paragraph_and_its_code(kind, code):
    error = kind("it cannot be", where="here", needed="9 bytes", available="8 bytes", remedy="give it more")
    result = CliRunner().invoke(app_that_raises(error), ["fail"])
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr == (
        "pavane: it cannot be. at here. needed 9 bytes, available 8 bytes. way out: give it more.\n"
    )


def test_an_interrupt_exits_with_130():
    result = CliRunner().invoke(app_that_raises(KeyboardInterrupt()), ["fail"])
    assert (result.exit_code, result.stderr) == (130, "pavane: interrupted\n")


def test_a_bug_is_not_dressed_up():
    result = CliRunner().invoke(app_that_raises(ZeroDivisionError()), ["fail"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_many_terms_are_cut():
    error = reject.ProgramReject("broken", terms=[f"term {number}" for number in range(40)])
    assert "term 11; and 28 more" in paragraph(error)
    assert "term 12" not in paragraph(error)


@pytest.mark.parametrize("part", ["what", "where", "available", "terms", "remedy"])
def test_long_quotations_are_cut(part):
    parts = {"what": "broken", "needed": "this", part: ["x" * 1_000_000] if part == "terms" else "x" * 1_000_000}
    said = paragraph(reject.ProgramReject(**parts))
    assert "x" * 1000 + "... (and 999,000 characters more)" in said
    assert len(said) < 1200


@pytest.mark.parametrize("text", ["[red]brackets[/red]", "a" * 500, "zwölf €"])
def test_words_come_out_as_they_are(text):
    result = CliRunner().invoke(app_that_raises(reject.FileReject(text)), ["fail"])
    assert result.stderr == f"pavane: {text}.\n"


def pavane(*arguments: str, **streams: object) -> subprocess.CompletedProcess:
    line = [*SCRIPT, *arguments]
    return subprocess.run(line, env=ENVIRONMENT, text=True, check=False, **(streams or {"capture_output": True}))


def test_a_reader_that_goes_away_is_no_traceback(tmp_path):
    """`pavane targets toy | head -1`: the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(tmp_path / "errors", "w+") as errors:
        done = pavane("targets", "toy", stdout=writing, stderr=errors)
        errors.seek(0)
        assert errors.read() == ""
    os.close(writing)
    assert done.returncode == 141


@pytest.mark.parametrize("arguments", [("--nothing",), ("nothing",), ("show",), ("run", "--max-tokens", "many")])
def test_wrong_options_exit_with_2(arguments):
    done = pavane(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_help_tells_the_exit_codes():
    done = pavane("--help")
    assert done.returncode == 0
    assert "7 it is not proven" in " ".join(done.stdout.split())
