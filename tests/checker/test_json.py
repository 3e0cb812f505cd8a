"""Programs as JSON that no pass produced: those of `accept/` are accepted, those of `refuse/` refused as named.

A file in `refuse/` is `CODE-what_is_wrong.json`; CODE is the obligation's.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from pavane.ir.program import Program
from pavane.reject import NotProven
from pavane.targets.load import load_target
from pavane.verify.check import check
from pavane.verify.prove import prove

HERE = Path(__file__).parent
ACCEPTED = sorted((HERE / "accept").glob("*.json"))
REFUSED = sorted((HERE / "refuse").glob("*.json"))


def checked(path: Path) -> None:
    """Prove and check a program for `toy`."""
    toy = load_target("toy")
    program = msgspec.json.decode(path.read_bytes(), type=Program)
    check(replace(program, phase="VERIFIED", certificate=prove(program, toy)), toy)


@pytest.mark.parametrize("path", ACCEPTED, ids=lambda p: p.stem)
def test_accepted(path):
    checked(path)


@pytest.mark.parametrize("path", REFUSED, ids=lambda p: p.stem)
def test_refused(path):
    with pytest.raises(NotProven) as caught:
        checked(path)
    assert caught.value.code == path.stem.split("-")[0]


def test_there_are_files():
    assert len(ACCEPTED) >= 1
    assert len(REFUSED) >= 5
