"""Each pass on the toy target, as text. `pytest --update-golden` rewrites the files; missing or orphaned ones fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from pavane.ir.text import show_section
from pavane.targets.descriptor import SpatialTarget
from tests.unit.passes.chains import PASSES, each_pass
from tests.unit.passes.templates import CASES

GOLDEN = Path(__file__).parents[2] / "golden" / "passes"
GOLDEN_CASES = ("matmul", "norm_product", "chain")
STEPS = ("template", *PASSES)


def golden_text(case_name: str, step: str, toy: SpatialTarget) -> str:
    program = CASES[case_name](toy).program
    if step != "template":
        program = next(result for name, result in each_pass(program, toy) if name == step)
    return show_section(program, program.shapes[0].name)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("case_name", GOLDEN_CASES)
def test_pass_output(case_name: str, step: str, request: pytest.FixtureRequest, toy: SpatialTarget) -> None:
    path = GOLDEN / f"{case_name}.{STEPS.index(step)}_{step}.txt"
    text = golden_text(case_name, step, toy)
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path.name} is missing: run pytest --update-golden"
    assert text == path.read_text(encoding="utf-8")


def test_no_orphans() -> None:
    wanted = {f"{case}.{number}_{step}.txt" for case in GOLDEN_CASES for number, step in enumerate(STEPS)}
    assert {path.name for path in GOLDEN.iterdir()} == wanted
