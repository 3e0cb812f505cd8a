"""`show`, `explain`, `targets`, `models`: commands that only read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.artefact import Artefact, PassRecord, write_artefact
from pavane.ir.program import Join, Plan
from pavane.ir.text import show
from pavane.targets.descriptor import target_digest
from pavane.targets.load import load_target, target_names
from tests import examples
from tests.unit.cli.lines import done, refused

TOY = load_target("toy")
PLAN = Plan(32, 32, 32, 1_200, (64, 32, 32), 1_500, "dram", 12)
JOIN = Join("A along a row", "multicast", 900, "separate", 1_400)


def planned():
    program = examples.matmul_multicast(TOY)
    return replace(program, shapes=(replace(program.shapes[0], plan=PLAN, joins=(JOIN,)),))


@pytest.fixture
def file(tmp_path):
    passes = (
        PassRecord("matmul", "tile", "1" * 64, 1200, "+  plan\n"),
        PassRecord("matmul", "fuse_generic", "1" * 64, 1200),
    )
    write_artefact(tmp_path / "a.pavane", Artefact(planned(), TOY, passes=passes))
    return str(tmp_path / "a.pavane")


def test_show_prints_the_program(file):
    assert done("show", file) == show(planned())


def test_show_prints_one_section(file):
    assert done("show", file, "matmul").startswith("section matmul(A: bf16[100,70]")
    assert "available matmul" in refused(2, "show", file, "nothing")


def test_show_prints_what_a_pass_changed(file):
    assert done("show", file, "--pass", "tile") == f"matmul, tile: {'1' * 16}, 1,200 cycles predicted\n+  plan\n"
    assert done("show", file, "--pass", "fuse_generic").endswith("nothing changed\n")
    assert "available tile, fuse_generic" in refused(2, "show", file, "--pass", "nothing")


def test_explain_gives_a_line_a_shape(file):
    assert done("explain", file).splitlines() == [
        "program matmul for toy: 1 section, 1,200 predicted cycles",
        "  matmul     1 x  100.0 %  bound by dram",
        "  memory: 20,480 of 65,536 bytes a site",
    ]


def test_explain_gives_the_reasons_of_a_section(file):
    text = done("explain", file, "matmul")
    assert "plan: blocks of 32 x 32, k in blocks of 32: 1,200 cycles predicted" in text
    assert "runner-up: 64 x 32, k 32: 1,500 cycles, 25.0 % more; 12 plans considered" in text
    assert "bottleneck: dram" in text
    assert "bound: 2,969 cycles to move 95,000 bytes once" in text  # (100*70 + 70*150) * 2 + 100*150*4, 2 x 16 a cycle
    assert "join A along a row: multicast at 900 cycles, not separate at 1,400" in text
    assert "exact to the bit" in text
    assert "memory: 20,480 of 65,536 bytes a site" in text
    assert "available matmul" in refused(2, "explain", file, "nothing")


@pytest.mark.parametrize("command", ["show", "explain", "check", "simulate"])
def test_what_is_no_program_is_refused(command, tmp_path):
    (tmp_path / "a.pavane").write_bytes(b"hello")
    assert "no .pavane file" in refused(3, command, str(tmp_path / "a.pavane"))
    assert "cannot read" in refused(3, command, str(tmp_path / "none.pavane"))


def test_a_descriptor_prints_as_the_toml_that_it_is(tmp_path):
    (tmp_path / "printed.toml").write_text(done("targets", "toy"), encoding="utf-8")
    assert target_digest(load_target(str(tmp_path / "printed.toml"))) == target_digest(TOY)


def test_targets_are_listed():
    lines = done("targets").splitlines()
    assert [line.split()[0] for line in lines] == list(target_names())
    assert any(line.startswith("toy ") and "2 x 2  sites" in line for line in lines)
    assert len({line.index(" x ") for line in lines}) == 1
    assert len({line.index(" site") for line in lines}) == 1
    assert "one of blackhole_p150, host, " in refused(2, "targets", "nothing")
    assert "1 to 256" in refused(2, "targets", "host", "--cores", "0")


def test_models_are_listed():
    assert "smollm2-135m (default)" in done("models")
    assert "unknown model" in refused(2, "models", "--fetch", "nothing")
