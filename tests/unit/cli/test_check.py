"""`pavane check`: every obligation with what was established; of a file that is wrong, every broken obligation."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from pavane.artefact import Artefact, write_artefact
from pavane.cli.main import app
from pavane.ir.quasi import quasi
from pavane.passes.verify import verify
from pavane.report.certificate import chip_lines
from pavane.targets.descriptor import target_digest
from pavane.targets.load import load_target
from pavane.verify.check import OBLIGATIONS
from tests.building import site
from tests.checker.editing import carry, every, signed, with_fields, without
from tests.examples import matmul_multicast

TOY = load_target("toy")
ACCEPTED = verify(matmul_multicast(TOY), TOY)


@pytest.fixture
def checked(tmp_path):
    """The result of `pavane check` on a program."""

    def run(program):
        write_artefact(tmp_path / "a.pavane", Artefact(program, TOY))
        return CliRunner().invoke(app, ["check", str(tmp_path / "a.pavane")])

    return run


def rows(output: str) -> dict[str, str]:
    """The first line of each obligation."""
    return {line.split()[0]: line for line in output.splitlines() if line[:2] == "  " and line[2:3].isalpha()}


def test_every_obligation_is_there_with_its_time_and_the_digest(checked):
    result = checked(ACCEPTED)
    assert result.exit_code == 0, result.output
    assert f"  binds digest {ACCEPTED.certificate.program}" in result.stdout.splitlines()
    assert f"accepted: matmul, {len(OBLIGATIONS)} obligations in " in result.stdout
    found = rows(result.stdout)
    for obligation in OBLIGATIONS:
        assert found[obligation].split()[2] == "ms"
        assert "matmul: " in found[obligation]


def test_every_broken_obligation_is_named(checked):
    """The write engine hands a slot back during its store, and the leader sends to itself."""
    wrong = every(without("write", 2), with_fields("leadA", 4, to=site(0, quasi("SITE_Y"))))
    result = checked(signed(wrong(matmul_multicast(TOY)), TOY))
    assert result.exit_code == 7
    assert "refused: matmul: order, multicast" in result.stdout
    found = rows(result.stdout)
    assert "REFUSED: fC is popped before" in found["order"]
    assert "REFUSED: the send does not name every member" in found["multicast"]
    assert "1 outputs" in found["coverage"]
    assert "not examined" in found["meaning"]
    assert "fC is popped before" in result.stderr
    assert "[multicast]" in result.stderr


def test_an_edited_file_is_examined_all_the_same(checked):
    """Its digest is not the certified one, and two buffers overlap."""
    result = checked(carry("acc", address=0x2000)(ACCEPTED))
    assert result.exit_code == 7
    assert "refused: matmul: certificate-mismatch, capacity" in result.stdout
    assert "REFUSED: acc and fC overlap" in rows(result.stdout)["capacity"]
    assert "[capacity]" in result.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: replace(p, certificate=None), "carries no certificate"),
        (lambda p: replace(p, phase="SIZED"), "no written order"),
        (lambda p: replace(p, certificate=replace(p.certificate, schedules=())), "one schedule for each shape"),
    ],
)
def test_what_cannot_be_examined_is_refused_with_the_same_code(checked, change, says):
    result = checked(change(ACCEPTED))
    assert result.exit_code == 7
    assert says in result.stderr
    assert result.stdout == ""


BIGGER = replace(TOY, memory=replace(TOY.memory, bytes=2 * TOY.memory.bytes))


@pytest.mark.parametrize(
    ("chip", "says"),
    [
        (TOY, f"chip toy, digest {target_digest(TOY)}, as Pavane knows it"),
        (BIGGER, f"NOT the toy that Pavane knows, whose digest is {target_digest(TOY)}"),
        (replace(BIGGER, name="mine"), "its figures are the file's: Pavane knows no chip of that name"),
        (replace(TOY, name="toy.toml"), "Pavane knows no chip of that name"),
        (load_target("host", cores=2), "as Pavane knows it"),
        (replace(load_target("host", cores=2), clock_hz=1), "NOT the host of this machine that Pavane knows"),
        (replace(TOY, name="host", grid=replace(TOY.grid, width=1000)), "NOT the host of this machine"),
    ],
    ids=["known", "twice the memory", "its own name", "a path", "this machine", "another clock", "too wide a host"],
)
def test_the_chip_is_told_from_the_one_of_that_name(chip, says):
    lines = chip_lines(chip)
    assert target_digest(chip) in lines[0]
    assert says in "\n".join(lines)


def test_a_file_for_a_chip_that_only_says_it_is_toy(tmp_path):
    write_artefact(tmp_path / "a.pavane", Artefact(verify(matmul_multicast(BIGGER), BIGGER), BIGGER))
    result = CliRunner().invoke(app, ["check", str(tmp_path / "a.pavane")])
    assert result.exit_code == 0, result.output
    assert f"chip toy, digest {target_digest(BIGGER)}" in result.stdout.splitlines()
    assert "NOT the toy that Pavane knows" in result.stdout
    assert "accepted: matmul" in result.stdout
