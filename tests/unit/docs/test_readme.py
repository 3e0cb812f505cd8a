"""What the README shows is what happens: its Python blocks run, its commands on small ops run in the order in which
they stand.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pavane.cli.main import app

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(block: str) -> list[str]:
    lines = [line.split("#")[0].strip() for line in block.splitlines()]
    return [line.removeprefix("pavane ") for line in lines if line.startswith("pavane ")]


def test_python_blocks_run(capsys):
    found = blocks("python")
    assert found
    for block in found:
        exec(compile(block, "README.md", "exec"), {})
    assert "coverage" in capsys.readouterr().out


def test_commands_on_an_op_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [b for b in blocks("sh") if "--op" in b]
    lines = commands(block)
    assert [line.split()[0] for line in lines] == ["compile", "check", "explain", "explain", "show", "simulate"]
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line))
        assert result.exit_code == 0, result.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["matmul.pavane", "trace.json"]


@pytest.mark.parametrize("target", ["run", "test"])
def test_the_two_commands_are_targets_of_the_makefile(target):
    assert f"make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_ci_runs_the_readmes_test_command():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    makes = [line for line in lines if line.startswith("make")]
    assert makes == [lines[-1]] == ["make test"]
