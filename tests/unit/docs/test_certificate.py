"""The numbers of docs/certificate.md are the checker's: its limits, and its worked example block by block."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pavane.ir.digest import canonical_bytes, graph_digest
from pavane.ir.program import SITE_X, SITE_Y, Do, Program, Store, Turns
from pavane.ir.types import Ints
from pavane.ir.walk import symbol_domain
from pavane.passes.verify import verify
from pavane.targets.load import load_target
from pavane.verify.check import check, fragment, fragment_shape, inequalities, order, resident, scope, terms
from pavane.verify.check.capacity import memory_map
from pavane.verify.check.coverage import MAX_WRITTEN
from pavane.verify.check.evaluation import evaluate
from pavane.verify.check.meaning import expected
from pavane.verify.check.multicast import multicast_leaders
from pavane.verify.check.section import section_of
from pavane.verify.check.terms import Effort, worded
from tests.evidence.bases import base
from tests.examples import matmul_multicast

PAGE = (Path(__file__).parents[3] / "docs" / "certificate.md").read_text(encoding="utf-8")
TOY = load_target("toy")
PROGRAM = verify(matmul_multicast(TOY), TOY)
SHAPE = PROGRAM.shapes[0]
SECTION = section_of(SHAPE, symbol_domain(PROGRAM), PROGRAM.certificate.schedules[0])
EVIDENCE = evaluate(SECTION, multicast_leaders(SECTION), Effort())


def shown(name: str) -> list[str]:
    (block,) = re.findall(rf"```text {name}\n(.*?)```", PAGE, re.DOTALL)
    return block.splitlines()


def _sha(tree: Any) -> str:
    return hashlib.sha256(json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def _text(program: Program) -> dict[str, Any]:
    return json.loads(canonical_bytes(program))


def test_the_program_digest_from_the_text():
    tree = _text(PROGRAM)
    bare = {name: value for name, value in tree.items() if name != "certificate"}
    assert _sha(bare | {"phase": "PERSISTENT"}) == tree["certificate"]["program"]


@pytest.mark.parametrize("program", [PROGRAM, base("cache.1")[0]], ids=["weights", "cache"])
def test_the_graph_digest_from_the_text(program):
    tree, floats, places = _text(program), {"type": "floats"}, ("home", "shard_bytes", "interleave_bytes")
    tensors = [
        [*(t[name] for name in ("name", "shape", "dtype", "role")), t.get("fill", floats), t.get("transition")]
        for t in tree["tensors"]
    ]
    meant = {}
    for shape in tree["shapes"]:
        formals = [{name: value for name, value in f.items() if name not in places} for f in shape["formals"]]
        meant[shape["name"]] = _sha([formals, shape["spec"]])
    sections = [[meant[instance["shape"]], instance["bindings"]] for instance in tree["instances"]]
    assert _sha([tree["symbols"], tensors, sections]) == graph_digest(program)


def test_a_file_that_states_defaults_is_the_same_program():
    tree = _text(PROGRAM)
    for tensor in tree["tensors"]:
        tensor.setdefault("fill", {"type": "floats"})
        tensor |= {"home": "dram", "transition": None, "shard_bytes": 0}
    for shape in tree["shapes"]:
        shape["carries"] = [{"initial": -0.0, "cut": False} | carry for carry in shape["carries"]]
        shape["counters"] = [{"kind": "MONOTONE", "ahead": 0} | counter for counter in shape["counters"]]
    stated = msgspec.json.decode(json.dumps(tree), type=Program)
    assert canonical_bytes(stated) == canonical_bytes(PROGRAM)
    assert check(stated, TOY).digest == PROGRAM.certificate.program


def test_limits():
    found = {"MAX_WRITTEN": MAX_WRITTEN}
    for module in (fragment, fragment_shape, scope, terms, inequalities, resident, order):
        found |= {name: value for name, value in vars(module).items() if name.startswith("MAX_")}
    assert sorted(shown("limits")) == sorted(f"{name} = {value}" for name, value in found.items())


def test_facts():
    assert shown("facts") == [f"{fact.obligation:10} {fact.of}: {fact.what}" for fact in check(PROGRAM, TOY).facts]


def test_schedule():
    def lines(items: tuple[Do | Turns, ...], depth: int) -> Iterator[str]:
        for item in items:
            if isinstance(item, Turns):
                yield f"{'  ' * depth}for {item.var} < {item.extent}"
                yield from lines(item.body, depth + 1)
            else:
                yield f"{'  ' * depth}{SHAPE.processes[item.process].name} {item.first}..{item.last}"

    assert shown("schedule") == list(lines(PROGRAM.certificate.schedules[0].schedule, 0))


def test_layout():
    assert shown("layout") == [f"{start} {end} {name}" for start, end, name in memory_map(SECTION)]


def test_digits():
    actor, leaf = next((a, s) for a in SECTION.actors for s in a.leaves if isinstance(s.step, Store))
    x0, x1, y0, y1 = actor.box
    extents = {SITE_X: x1 - x0, SITE_Y: y1 - y0} | {var: extent.const for var, extent in leaf.nest}
    lines = []
    for word, start, size, end in zip(
        ("rows", "columns"), leaf.step.window.start, leaf.step.window.size, SECTION.formals["C"].shape, strict=True
    ):
        digits = sorted((stride, extents[var], var) for stride, var in start.terms)
        words = ", ".join(f"{stride} * {extent} ({var})" for stride, extent, var in digits)
        lines.append(f"{word}: {size}, then {words} = {digits[-1][0] * digits[-1][1]} >= {end}")
    assert shown("digits") == lines


def test_operands_and_terms():
    product = EVIDENCE.computes[0]
    assert shown("operands") == [f"{name} = {worded(term)}" for name, term in product.operands.items()]
    (stored,) = EVIDENCE.stores
    spec = expected(SHAPE.spec[0], stored.step)
    assert shown("terms") == [worded(stored.value.term("")), worded(spec)]


def test_exactness():
    a, b = (formal.fill for formal in SHAPE.formals[:2])
    assert isinstance(a, Ints)
    assert isinstance(b, Ints)
    k = SHAPE.formals[0].shape[1].const
    most_a, most_b = max(abs(a.lo), abs(a.hi)), max(abs(b.lo), abs(b.hi))
    assert shown("exact") == [f"{k} * {most_a} * {most_b} = {k * most_a * most_b} <= 2**24"]
    assert SHAPE.numerics.exact


@pytest.mark.parametrize("obligation", sorted({fact.obligation for fact in check(PROGRAM, TOY).facts}))
def test_every_obligation_has_its_section(obligation):
    assert re.search(rf"^### {obligation}\b", PAGE, re.MULTILINE)
