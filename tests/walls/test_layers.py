"""Imports go downward only: a module imports its own package and lower layers, never a sibling of its layer.

The checker, besides, imports nothing that it judges, and no backend imports what predicted its time.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
LAYERS = (
    ("reject", "atomic", "user_cache"),
    ("ir",),
    ("targets",),
    ("tensor_graph", "validate"),
    ("cost", "verify"),
    ("frontends", "passes"),
    ("pipeline", "native", "sim", "emit"),
    ("api", "artefact", "generate", "program_cache", "report"),
    ("cli", "__init__"),
)
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names}
# These four are modules of one package in all but name: they may use one another.
TOGETHER = ("api", "artefact", "generate", "program_cache")
# Libraries that raise whatever they like for bad input: a user's template, a vocabulary that tokenizers refuses.
RAISE_ANYTHING = ("pavane.frontends.chat", "pavane.frontends.tokenizer")
FILES = sorted((SOURCE / "pavane").rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> tuple[str, ...]:
    """Every module of pavane that a file imports, wherever in the file; relative names resolved."""
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            found += [f"{base}.{alias.name}" for alias in node.names]
    return tuple(name for name in found if name.split(".")[0] == "pavane")


def package_of(module: str) -> str:
    """The name in LAYERS that a module belongs to; the public door for `pavane` itself and what it re-exports."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYER_OF else "__init__"


def test_every_package_has_a_layer():
    tops = {p.stem if p.is_file() else p.name for p in (SOURCE / "pavane").iterdir() if not p.name.startswith("__p")}
    assert {t for t in tops if t not in LAYER_OF and t != "py"} == set()


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_downward(path):
    own = package_of(module_of(path))
    for name in imports(path):
        other = package_of(name)
        allowed = LAYER_OF[other] < LAYER_OF[own] or other == own or (own in TOGETHER and other in TOGETHER)
        assert allowed, f"{module_of(path)} (layer {LAYER_OF[own]}) imports {name} (layer {LAYER_OF[other]})"


@pytest.mark.parametrize("path", [p for p in FILES if "/verify/check/" in p.as_posix()], ids=module_of)
def test_the_checker_imports_nothing_it_judges(path):
    for name in imports(path):
        inside = name.startswith("pavane.verify.check")
        assert inside or package_of(name) in ("ir", "targets", "reject"), f"{module_of(path)} imports {name}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if package_of(module_of(p)) in ("native", "sim", "emit")], ids=module_of
)
def test_backends_import_neither_passes_nor_cost(path):
    assert [name for name in imports(path) if package_of(name) in ("passes", "cost")] == []


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_no_assert_where_it_would_vanish(path):
    """`assert` is gone under -O, so nothing that must hold may rest on one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree))


@pytest.mark.parametrize("path", [p for p in FILES if module_of(p) not in RAISE_ANYTHING], ids=module_of)
def test_no_exception_is_swallowed_whole(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type is not None else ""
            assert caught not in ("", "Exception", "BaseException"), f"{module_of(path)}, line {node.lineno}"


CHECK_ALONE = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] in (["pavane", p] for p in ("passes", "cost", "pipeline", "validate", "frontends")):
            raise ImportError(f"{name} is behind the wall")
sys.meta_path.insert(0, Wall())
import pavane.verify.check
"""


def test_the_checker_works_with_the_passes_gone():
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", CHECK_ALONE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_heavy_libraries_load_on_demand():
    script = "import sys, pavane; print([m for m in ('torch', 'onnx', 'onnxruntime') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
