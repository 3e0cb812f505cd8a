"""One rule for exit codes (docs/refusals.md): what the command line itself is to blame for ends with 2, whatever the
command, the option and the part of Pavane that finds it; files end with 3, a chip's description with 4.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pavane import reject
from pavane.cli.main import app

ROOT = Path(__file__).parents[3]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]

COUNTS = ("0", "-1", "1.5", "many", "")
CORES = (*COUNTS, "257")
NAMES = ("nothing", "", "host ", "-")
OPS = ("matmul", "matmul:1,2", "matmul:0,1,1", "matmul:4,4,4:i5", "conv:1,2,3", "matmul:4,4,99999999999", "")
CONTEXTS = (*COUNTS, "4096")  # the model of these tests has 128 positions
CONTRACTS = ("int3", "")
FLAG = ("=yes",)

# Of each parameter: values that cannot be. Those of `paths` name files: any path may be one.
WRONG = {
    "run": {
        "model_name": ("gpt-9", ""),
        "prompt": ("", "\udcff", "hello " * 200),
        "max_tokens": COUNTS,
        "temperature": ("-1", "nan", "inf", "hot"),
        "top_k": ("-1", "1.5", "all"),
        "top_p": ("0", "-1", "1.1", "nan", "half"),
        "seed": ("-1", "1.5", "x"),
        "context": CONTEXTS,
        "cores": CORES,
        "contract": CONTRACTS,
        "weights": ("q9", ""),
        "raw": FLAG,
    },
    "compile": {
        "model_name": ("gpt-9", ""),
        "op": OPS,
        "target": NAMES,
        "cores": CORES,
        "part": ("middle", ""),
        "contract": CONTRACTS,
        "weights": ("q9", ""),
        "context": CONTEXTS,
    },
    "check": {},
    "show": {"section": NAMES, "pass_name": NAMES},
    "explain": {"section": NAMES},
    "simulate": {
        "symbols": ("pos=64", "pos=-1", "pos=", "pos", "=3", "nothing=3", "pos=1.5", "", "pos=" + "9" * 99),
        "sites": FLAG,
    },
    "targets": {"name": NAMES, "cores": CORES},
    "models": {"fetch": NAMES},
}
PATHS = {
    "compile": ("output", "dump"),
    "check": ("file",),
    "show": ("file",),
    "explain": ("file",),
    "simulate": ("file", "trace"),
}
CASES = [
    (command, parameter, value)
    for command, parameters in WRONG.items()
    for parameter, values in parameters.items()
    for value in values
]


@pytest.fixture(scope="module", autouse=True)
def program(place):
    """Of the model, beside it."""
    line = ["compile", str(place / "tiny.gguf"), "-t", "toy", "--context", "64"]
    assert ended(*line, "-o", str(place / "a.pavane")) == 0


def ended(*arguments: str) -> int:
    """The exit code; one paragraph on stderr and nothing on stdout where it is not 0."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    if result.exit_code:
        assert result.stdout == ""
        assert result.stderr.startswith(("pavane: ", "Usage: ", "Error: ")), result.stderr
    return result.exit_code


def line(place: Path, command: str, parameter: str, value: str) -> list[str]:
    """A command line that is right but for one value."""
    right = {
        "run": {"model_name": str(place / "tiny.gguf"), "prompt": "hello", "max_tokens": "1", "context": "64"},
        "compile": {"model_name": str(place / "tiny.gguf"), "output": str(place / "new.pavane"), "target": "toy"},
        "targets": {"name": "host"},
        "models": {},
    }.get(command, {"file": str(place / "a.pavane")})
    if parameter == "op":
        del right["model_name"]
    if command == "compile" and parameter == "cores":
        right["target"] = "host"
    return [command, *written(command, {**right, parameter: value})]


def written(command: str, values: dict[str, str]) -> list[str]:
    options, arguments = [], []
    for parameter in COMMANDS[command].params:
        if parameter.name in values:
            value = values[parameter.name]
            if parameter.param_type_name == "argument":
                arguments.append(value)
            else:
                flag = getattr(parameter, "is_flag", False)
                options += [parameter.opts[0] + value] if flag else [parameter.opts[0], value]
    return [*options, "--", *arguments]


def test_every_parameter_of_every_command_is_here():
    found = {(name, p.name) for name, command in COMMANDS.items() for p in command.params if p.name != "help"}
    tried = {(command, parameter) for command, parameters in WRONG.items() for parameter in parameters}
    paths = {(command, parameter) for command, parameters in PATHS.items() for parameter in parameters}
    assert found == tried | paths
    assert set(WRONG) == set(COMMANDS)


@pytest.mark.parametrize(("command", "parameter", "value"), CASES)
def test_a_value_that_cannot_be_ends_with_2(place, command, parameter, value):
    assert ended(*line(place, command, parameter, value)) == 2
    assert not (place / "new.pavane").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("--nothing",),
        ("check",),
        ("check", "a", "b"),
        ("check", "--nothing", "a"),
        ("compile", "-o", "new.pavane"),
        ("compile", "smollm2-135m", "--op", "matmul:4,4,4", "-o", "new.pavane"),
        ("compile", "--op", "matmul:4,4,4", "-t", "toy", "--cores", "2", "-o", "new.pavane"),
        ("compile", "--op", "matmul:4,4,4", "--part", "prompt", "-o", "new.pavane"),
        ("compile", "--op", "matmul:4,4,4", "-t", "toy"),
        ("targets", "toy", "--cores", "2"),
        ("run",),
    ],
)
def test_a_line_that_cannot_be_ends_with_2(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ended(*arguments) == 2
    assert list(tmp_path.iterdir()) == []


OPEN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@pytest.mark.parametrize(
    ("command", "parameter"),
    [
        ("compile", "op"),
        ("compile", "target"),
        ("compile", "part"),
        ("compile", "contract"),
        ("show", "section"),
        ("show", "pass_name"),
        ("explain", "section"),
        ("simulate", "symbols"),
        ("targets", "name"),
        ("models", "fetch"),
        ("run", "top_p"),
    ],
)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(text=OPEN)
def test_any_text_is_refused_alike(place, command, parameter, text):
    """No text of these is a name or a value that exists, so all of them end the same way."""
    assert ended(*line(place, command, parameter, "~" + text)) == (4 if text.endswith(".toml") else 2)


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("command", ["check", "show", "explain", "simulate"])
def test_a_file_that_is_wrong_ends_with_3(place, tmp_path, command, kind):
    (tmp_path / "empty").touch()
    (tmp_path / "cut").write_bytes((place / "a.pavane").read_bytes()[:500])
    assert ended(command, str(tmp_path / ("missing", "empty", "cut", ".")[kind])) == 3


@pytest.mark.parametrize("command", ["check", "show", "explain", "simulate"])
def test_a_file_that_may_not_be_read_ends_with_3(place, monkeypatch, command):
    monkeypatch.setattr(os, "access", lambda *_: False)  # what typer asks; root may read everything
    monkeypatch.setattr(Path, "read_bytes", may_not)
    assert ended(command, str(place / "a.pavane")) == 3


def may_not(path: Path) -> bytes:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


@pytest.mark.parametrize("name", ["missing.gguf", "empty.gguf", "cut.gguf", "folder.gguf"])
@pytest.mark.parametrize("command", ["run", "compile"])
def test_a_model_that_is_wrong_ends_with_3(place, tmp_path, command, name):
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "cut.gguf").write_bytes((place / "tiny.gguf").read_bytes()[:2000])
    (tmp_path / "folder.gguf").mkdir()
    assert ended(*line(place, command, "model_name", str(tmp_path / name))) == 3


@pytest.mark.parametrize("name", ["missing.toml", "empty.toml", "wrong.toml", "folder.toml"])
@pytest.mark.parametrize("command", ["targets", "compile"])
def test_a_description_that_is_wrong_ends_with_4(place, tmp_path, command, name):
    (tmp_path / "empty.toml").touch()
    (tmp_path / "wrong.toml").write_text("name = 3\n", encoding="utf-8")
    (tmp_path / "folder.toml").mkdir()
    assert ended(*line(place, command, "name" if command == "targets" else "target", str(tmp_path / name))) == 4


def test_the_codes_are_those_of_the_refusals():
    kinds = [kind for kind in vars(reject).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    used = {kind.exit_code for kind in kinds if kind is not reject.SpatialReject}
    assert used == {2, 3, 4, 5, 6, 7}
    assert used | {0, 1, 8, 130, 141} == dict(reject.EXIT_CODES).keys()


def test_the_help_says_the_codes():
    words = "; ".join(f"{code} {when}" for code, when in reject.EXIT_CODES)
    assert words in re.sub(r"\s+", " ", CliRunner().invoke(app, ["--help"]).stdout)


def test_the_readme_names_the_codes_that_a_refusal_has():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^Exit codes: .+?\n\n", readme, re.MULTILINE | re.DOTALL)
    assert [int(code) for code in re.findall(r"\b\d+\b", line)] == [0, 2, 3, 4, 5, 8, 130]
