"""The script's own behaviour: its version, and an interrupt before anything is imported."""

from __future__ import annotations

import builtins
from importlib import metadata

import pytest
from typer.testing import CliRunner

from pavane.cli import entry
from pavane.cli.main import app


def test_version_is_the_packages():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"pavane {metadata.version('pavane')}\n")


def test_an_interrupt_while_importing_ends_quietly(monkeypatch, capsys):
    genuine = builtins.__import__

    def interrupted(name, *arguments, **keywords):
        if name == "pavane.cli.main":
            raise KeyboardInterrupt
        return genuine(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    with pytest.raises(SystemExit) as caught:
        entry.main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "pavane: interrupted\n"
