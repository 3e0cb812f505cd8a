"""What holds of every pass: its output is valid and right, its input unchanged, its bytes the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from pavane.ir.digest import canonical_bytes, digest
from pavane.ir.program import PHASES
from pavane.reject import ProgramReject
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.validate import violations
from tests.unit.passes.chains import PASSES, each_pass, require_right_answer
from tests.unit.passes.templates import CASES

ROOT = Path(__file__).parents[3]
TARGETS = ("toy", "host")


def target_named(name: str) -> SpatialTarget:
    return load_target(name, cores=2 if name == "host" else None)


@pytest.mark.parametrize("target_name", TARGETS)
@pytest.mark.parametrize("case_name", CASES)
def test_templates_are_valid_and_right(case_name: str, target_name: str) -> None:
    target = target_named(target_name)
    case = CASES[case_name](target)
    assert violations(case.program, target) == ()
    require_right_answer(case.program, case)


@pytest.mark.parametrize("target_name", TARGETS)
@pytest.mark.parametrize("case_name", CASES)
def test_every_pass_gives_a_valid_program_with_the_right_answer(case_name: str, target_name: str) -> None:
    target = target_named(target_name)
    case = CASES[case_name](target)
    for name, program in each_pass(case.program, target):
        assert program.phase == PASSES[name][1]
        assert violations(program, target) == (), name
        require_right_answer(program, case)


@pytest.mark.parametrize("case_name", CASES)
def test_no_pass_changes_its_input_or_the_meaning(case_name: str, toy: SpatialTarget) -> None:
    program = CASES[case_name](toy).program
    for function, _ in PASSES.values():
        before = canonical_bytes(program)
        result = function(program, toy)
        assert canonical_bytes(program) == before
        assert (result.graph_digest, result.symbols, result.tensors) == (
            program.graph_digest,
            program.symbols,
            program.tensors,
        )
        assert result.shapes[0].spec == program.shapes[0].spec
        program = result


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_refuses_a_program_at_another_phase(name: str, toy: SpatialTarget) -> None:
    program = replace(CASES["matmul"](toy).program, phase=PHASES[-1])
    with pytest.raises(ProgramReject, match="VERIFIED"):
        PASSES[name][0](program, toy)


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_refuses_more_than_one_section(name: str, toy: SpatialTarget) -> None:
    program = CASES["matmul"](toy).program
    wanted = {"tile": "TEMPLATE", "fuse_readers": "TILED", "fuse_generic": "FUSED", "place": "FUSED"}
    phase = wanted.get(name) or PHASES[PHASES.index(PASSES[name][1]) - 1]
    two = replace(program, phase=phase, instances=program.instances * 2)
    with pytest.raises(ProgramReject, match="1 shapes and 2 instances"):
        PASSES[name][0](two, toy)


def all_digests() -> str:
    """One line a pass and case: what two processes must agree on."""
    lines = []
    for target in map(target_named, TARGETS):
        for case_name, case in CASES.items():
            lines += [
                f"{target.name} {case_name} {name} {digest(p)}" for name, p in each_pass(case(target).program, target)
            ]
    return "\n".join(lines)


def test_same_bytes_under_another_hash_seed() -> None:
    script = "from tests.unit.passes.test_every_pass import all_digests; print(all_digests())"
    outputs = []
    for seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(("src", "."))}
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        outputs.append(done.stdout.strip())
    assert outputs[0] == outputs[1] == all_digests()
