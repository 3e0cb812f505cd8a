"""The script's own behaviour: its version, and an interrupt before anything is imported."""

from __future__ import annotations

import builtins
import errno
import io
import os
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from pavane.cli import entry
from pavane.cli.main import app


def test_version_is_the_packages():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"pavane {metadata.version('pavane')}\n")


@pytest.fixture
def interrupted(monkeypatch):
    """What imports the commands is interrupted."""
    genuine = builtins.__import__

    def until_then(name, *arguments, **keywords):
        if name == "pavane.cli.main":
            raise KeyboardInterrupt
        return genuine(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", until_then)


def test_an_interrupt_while_importing_ends_quietly(interrupted, capsys):
    with pytest.raises(SystemExit) as caught:
        entry.main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "pavane: interrupted\n"


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("stream", [None, Full()], ids=["closed", "full"])
def test_an_interrupt_that_cannot_be_said_ends_alike(interrupted, monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(SystemExit) as caught:
        entry.main()
    assert caught.value.code == 130
