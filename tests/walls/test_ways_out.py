"""A refusal that a user can cause says the way out: every one that the source raises by name gives a remedy."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pavane import reject

PACKAGE = Path(__file__).parents[2] / "src" / "pavane"
NAMES = {
    name
    for name, kind in vars(reject).items()
    if isinstance(kind, type) and issubclass(kind, (reject.InputReject, reject.TargetReject, reject.OutsideFragment))
}
PLACES = ("frontends", "native", "targets", "tensor_graph", "api.py", "artefact.py", "generate.py", "program_cache.py")
FILES = sorted(
    file
    for place in PLACES
    for file in ((PACKAGE / place).rglob("*.py") if (PACKAGE / place).is_dir() else (PACKAGE / place,))
)


def refusals(tree: ast.AST) -> list[ast.Call]:
    raised = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise))
    return [c for c in raised if isinstance(c, ast.Call) and isinstance(c.func, ast.Name) and c.func.id in NAMES]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_every_refusal_has_a_remedy(file: Path) -> None:
    for call in refusals(ast.parse(file.read_text(encoding="utf-8"))):
        given = {keyword.arg for keyword in call.keywords}
        assert "remedy" in given, f"{file.name}, line {call.lineno}: {ast.unparse(call)[:100]}"


def test_the_refusals_are_found() -> None:
    assert len([c for file in FILES for c in refusals(ast.parse(file.read_text(encoding="utf-8")))]) > 50
