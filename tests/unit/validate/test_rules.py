"""Every rule has a program that it must refuse. The programs are the hand-written examples with one edit in their JSON.

Where a rule walks over loops and expressions, there is a flat case and a nested one.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pavane.ir.digest import canonical_bytes
from pavane.ir.expr import Fn, Var
from pavane.ir.program import Program
from pavane.ir.quasi import quasi
from pavane.reject import ProgramReject
from pavane.targets.load import load_target
from pavane.validate import require_valid, rule_ids, violations
from tests import examples

TOY, HOST = load_target("toy"), load_target("host", cores=2)
PROGRAMS = {
    "matmul": (examples.matmul_multicast(TOY), TOY),
    "norm": (examples.norm_product_host(HOST, contract="INT8_ACTIVATIONS"), HOST),
    "attention": (examples.attention_host(HOST), HOST),
}
ZERO = [0, 0, []]
HUGE = [0, 1 << 50, []]


def var(name: str, factor: int = 1, plus: int = 0) -> list:
    return [0, plus, [[factor, name]]]


def nodes(tree: Any) -> Iterator[dict]:
    """Every tagged dictionary of a tree, outermost first."""
    if isinstance(tree, dict):
        if "type" in tree:
            yield tree
        for value in tree.values():
            yield from nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from nodes(value)


def find(tree: Any, type: str, number: int = 0, **fields: Any) -> dict:
    """The node of a kind, and with these fields, of that number."""
    alike = [n for n in nodes(tree) if n["type"] == type and all(n.get(k) == v for k, v in fields.items())]
    return alike[number]


def remove(tree: Any, type: str, number: int = 0, **fields: Any) -> None:
    """Take the node of a kind out of the list that holds it."""
    node = find(tree, type, number, **fields)
    for holder in lists(tree):
        holder[:] = [item for item in holder if item is not node]


def lists(tree: Any) -> Iterator[list]:
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        if isinstance(value, list):
            yield value
        yield from lists(value)


def shape(tree: dict) -> dict:
    return tree["shapes"][0]


def put(holder: Any, key: Any, value: Any) -> None:
    holder[key] = value


Edit = Callable[[dict], Any]
CASES: tuple[tuple[str, str, Edit], ...] = (
    ("sane.version", "matmul", lambda t: put(t, "version", 99)),
    ("sane.numbers", "matmul", lambda t: put(shape(t)["fifos"][0], "rows", 1 << 50)),
    ("sane.numbers", "attention", lambda t: put(find(t, "generic")["rows"], "size", -(1 << 50))),
    ("sane.texts", "matmul", lambda t: put(t, "name", "a\x07b")),
    ("sane.texts", "matmul", lambda t: put(t, "name", "a" * 300)),
    ("sane.indices", "matmul", lambda t: put(t["tensors"][0]["shape"], 0, HUGE)),
    ("sane.lists", "matmul", lambda t: put(t, "shapes", t["shapes"] * 257)),
    ("sane.lists", "matmul", lambda t: put(shape(t), "processes", shape(t)["processes"] * 6)),
    ("sane.lists", "matmul", lambda t: put(t["instances"][0], "bindings", t["instances"][0]["bindings"] * 43)),
    ("sane.lists", "matmul", lambda t: shape(t)["processes"][0]["body"].extend([{"type": "fence"}] * 4096)),
    ("sane.lists", "matmul", lambda t: find(t, "loop", 2)["body"].extend([{"type": "fence"}] * 4096)),
    ("sane.lists", "attention", lambda t: put(find(t, "matmul"), "guard", [find(t, "matmul")["rows"]] * 129)),
    ("names.unique", "matmul", lambda t: t["tensors"].append(t["tensors"][0])),
    ("names.unique", "matmul", lambda t: put(shape(t)["carries"][0], "name", "fA")),
    ("names.instance", "matmul", lambda t: put(t["instances"][0], "shape", "nothing")),
    ("names.instance", "matmul", lambda t: t["instances"][0]["bindings"].pop()),
    ("names.worker", "matmul", lambda t: put(t["workers"][0]["body"][0], "instance", 7)),
    (
        "names.certificate",
        "matmul",
        lambda t: put(t, "certificate", {"program": "", "target": "", "schedules": [{"shape": "s", "schedule": []}]}),
    ),
    ("names.step", "matmul", lambda t: put(find(t, "reserve"), "fifo", "nothing")),
    ("names.step", "attention", lambda t: put(find(t, "matmul")["a"], "name", "nothing")),
    ("names.spec", "matmul", lambda t: put(find(shape(t)["spec"], "at"), "name", "nothing")),
    ("names.numerics", "matmul", lambda t: put(shape(t)["numerics"]["operands"][0], 0, "nothing")),
    ("variables.symbol", "norm", lambda t: put(t["symbols"][0], "lo", 40)),
    ("variables.tensor", "norm", lambda t: put(t["tensors"][0]["shape"], 0, var("LV_ITEM_X"))),
    (
        "variables.worker",
        "matmul",
        lambda t: (
            put(t, "counters", [dict(shape(t)["counters"][0])]),
            t["workers"][0]["body"].append(
                dict(
                    find(t, "post"), counter="creditA", to={"x0": var("LV_KBLOCK"), "x1": ZERO, "y0": ZERO, "y1": ZERO}
                )
            ),
        ),
    ),
    ("variables.formal", "norm", lambda t: put(shape(t)["formals"][0]["shape"], 0, var("SITE_X"))),
    ("variables.spec", "matmul", lambda t: put(find(shape(t)["spec"], "at")["index"], 0, var("i5"))),
    ("variables.spec", "attention", lambda t: put(find(shape(t)["spec"], "reduce", 1), "var", "j0")),
    ("variables.loop", "matmul", lambda t: put(find(t, "loop"), "var", "LV_GEN_ROW")),
    ("variables.loop", "matmul", lambda t: put(find(t, "loop", 1), "extent", var("SITE_X", 1, 1))),
    ("variables.loop", "matmul", lambda t: put(find(t, "loop", 2), "var", "LV_ITEM_Y")),
    ("variables.step", "matmul", lambda t: put(find(t, "load")["window"]["start"], 0, var("LV_SUB_H"))),
    ("variables.step", "norm", lambda t: put(find(shape(t)["processes"], "at")["index"], 1, var("pos"))),
    ("phase.program", "matmul", lambda t: put(t, "phase", "VERIFIED")),
    ("phase.workers", "matmul", lambda t: t["workers"].pop()),
    ("phase.workers", "matmul", lambda t: t["workers"].append(dict(t["workers"][0], name="twice"))),
    ("phase.parts", "matmul", lambda t: (put(t, "phase", "SYNCHRONIZED"), put(t, "workers", []))),
    ("phase.plan", "matmul", lambda t: as_groups(t, "TILED")),
    ("phase.rectangle", "matmul", lambda t: (as_groups(t, "PLACED"), shape(t)["groups"][0].pop("rect"))),
    ("phase.rectangle", "matmul", lambda t: as_groups(t, "TILED")),
    ("phase.layout", "matmul", lambda t: put(shape(t)["fifos"][0], "depth", 0)),
    ("phase.layout", "norm", lambda t: put(shape(t)["fifos"][0], "address", 64)),
    ("phase.multicast", "matmul", lambda t: as_groups(t, "TILED")),
    ("phase.handshake", "matmul", lambda t: as_groups(t, "SIZED")),
    (
        "tensor.shape",
        "norm",
        lambda t: put(t["tensors"][0]["shape"], 0, ZERO),
    ),
    ("tensor.shape", "norm", lambda t: put(t["tensors"][2]["shape"], 1, [0, 65, []])),
    ("tensor.fill", "matmul", lambda t: put(t["tensors"][0]["fill"], "lo", 9)),
    ("tensor.role", "matmul", lambda t: put(t["tensors"][0], "role", "STATE")),
    ("tensor.role", "matmul", lambda t: put(t["tensors"][0], "offset", 64)),
    ("binding.view", "matmul", lambda t: put(t["tensors"][0]["shape"], 0, [0, 99, []])),
    ("binding.view", "matmul", lambda t: put(t["tensors"][0], "dtype", "f32")),
    ("binding.view", "matmul", lambda t: put(t["tensors"][0]["fill"], "hi", 5)),
    ("binding.view", "matmul", lambda t: put(t["tensors"][2], "role", "INPUT")),
    (
        "binding.exclusive",
        "attention",
        lambda t: put(t["instances"][0]["bindings"][3], "tensor", t["instances"][0]["bindings"][0]["tensor"]),
    ),
    ("buffer.slot", "norm", lambda t: put(shape(t)["fifos"][2], "cols", 65)),
    ("buffer.ends", "matmul", lambda t: put(shape(t)["processes"][1]["rect"], "x0", ZERO)),
    ("buffer.ends", "matmul", lambda t: shape(t)["fifos"].append(dict(shape(t)["fifos"][0], name="unused"))),
    (
        "buffer.carry",
        "matmul",
        lambda t: put(
            shape(t)["processes"][5], "body", [{"type": "init", "carry": "acc"}, *shape(t)["processes"][5]["body"]]
        ),
    ),
    ("buffer.alias", "norm", lambda t: put(shape(t)["fifos"][3], "kind", "ALIAS")),
    ("buffer.counter", "matmul", lambda t: put(shape(t)["counters"][0], "engine", "matrix")),
    ("buffer.counter", "matmul", lambda t: put(find(t, "wait"), "n", 9)),
    ("buffer.counter", "matmul", lambda t: remove(t, "post", counter="validA")),
    ("buffer.accumulator", "matmul", lambda t: put(shape(t)["carries"][0], "dtype", "f16")),
    ("spec.output", "matmul", lambda t: put(shape(t)["spec"][0]["extents"], 0, [0, 101, []])),
    ("spec.output", "matmul", lambda t: put(shape(t), "spec", [])),
    ("spec.operand", "matmul", lambda t: put(find(shape(t)["spec"], "at"), "next", True)),
    ("spec.operand", "matmul", lambda t: find(shape(t)["spec"], "at")["index"].pop()),
    (
        "spec.reduction",
        "attention",
        lambda t: put(find(shape(t)["spec"], "reduce", 0, kind="MAX"), "extent", var("pos")),
    ),
    ("spec.cast", "matmul", lambda t: put(find(shape(t)["spec"], "fn"), "dtype", "i8")),
    ("spec.integer", "norm", lambda t: put(shape(t)["formals"][3], "dtype", "i32")),
    ("spec.items", "matmul", lambda t: put(shape(t)["items"], "rows", 0)),
    ("spec.items", "matmul", lambda t: put(shape(t)["items"], "x", ZERO)),
    ("spec.numerics", "matmul", lambda t: put(shape(t)["numerics"], "accumulator", "f16")),
    ("window.shape", "matmul", lambda t: find(t, "load")["window"]["size"].pop()),
    ("window.shape", "attention", lambda t: put(find(t, "load")["window"]["size"], 1, 2)),
    ("window.shape", "matmul", lambda t: put(find(t, "load")["window"], "row", 1)),
    ("window.slot", "matmul", lambda t: put(find(t, "load")["window"]["size"], 0, 33)),
    ("window.slot", "matmul", lambda t: put(shape(t)["fifos"][0], "dtype", "f16")),
    ("window.slot", "matmul", lambda t: put(find(t, "load"), "row", var("LV_KBLOCK"))),
    ("window.role", "matmul", lambda t: put(find(t, "load"), "tensor", "C")),
    ("window.blocks", "norm", lambda t: put(find(t, "load", fifo="fW")["window"]["start"], 1, [0, 16, []])),
    (
        "window.indirect",
        "matmul",
        lambda t: put(find(t, "load")["window"]["start"], 0, [1, "B", [ZERO, ZERO], 0, 101, "fB"]),
    ),
    ("order.step", "matmul", lambda t: remove(t, "reserve")),
    ("order.step", "matmul", lambda t: remove(t, "fence")),
    ("order.step", "matmul", lambda t: remove(t, "pop")),
    ("order.step", "attention", lambda t: remove(t, "pop", fifo="fK")),
    ("order.step", "norm", lambda t: remove(t, "front", fifo="fW")),
    ("order.initial", "matmul", lambda t: remove(t, "init")),
    ("op.span", "matmul", lambda t: put(find(t, "matmul")["k"], "size", 0)),
    ("op.place", "matmul", lambda t: put(find(t, "matmul")["rows"], "size", 64)),
    ("op.place", "attention", lambda t: put(find(t, "matmul")["dst"], "col", [0, 64, []])),
    ("op.blocks", "norm", lambda t: put(find(t, "matmul")["k"], "limit", [0, 63, []])),
    ("op.generic", "norm", lambda t: put(find(t, "generic")["expr"], "var", "LV_KBLOCK")),
    ("op.generic", "norm", lambda t: find(t, "generic")["expr"]["body"]["args"][0]["index"].pop()),
    (
        "op.generic",
        "norm",
        lambda t: put(
            find(t, "generic"), "expr", {"type": "fn", "op": "add", "args": [find(t, "generic")["expr"]] * 2}
        ),
    ),
    ("op.read", "norm", lambda t: put(find(t, "generic", 1)["expr"]["args"][1]["index"], 0, [0, 1, []])),
    ("op.tree", "norm", lambda t: put(find(t, "matmul")["tree"], "lanes", 3)),
    ("guard.missing", "attention", lambda t: find(t, "matmul").pop("guard")),
    ("guard.missing", "attention", lambda t: find(t, "generic", 1).pop("guard")),
    ("target.same", "matmul", lambda t: put(t, "target_digest", "0" * 64)),
    ("target.engine", "matmul", lambda t: rename_engine(t, "reader_a", "reader_z")),
    ("target.engine", "matmul", lambda t: rename_engine(t, "reader_a", "matrix")),
    ("target.registers", "matmul", lambda t: put(shape(t)["processes"][0], "registers", "FULL")),
    ("target.rectangle", "matmul", lambda t: rename_side(t, 2, 3)),
    ("target.sites", "matmul", lambda t: along(t, [[0, 0], [0, 0]])),
    ("target.sites", "matmul", lambda t: along(t, [[0, 0], [2, 1]])),
    ("target.destination", "matmul", lambda t: put(find(t, "send")["to"], "x1", [0, 3, []])),
    ("target.kind", "matmul", lambda t: put(shape(t)["counters"][0], "bits", 8)),
    ("target.kind", "norm", lambda t: put(t, "target", "host")),
)


def as_groups(tree: dict, phase: str) -> None:
    """The processes of a shape as the stages of groups, at an earlier phase."""
    processes = shape(tree).pop("processes")
    groups = [
        {
            "name": f"g{p['name']}",
            "rect": p["rect"],
            "stages": [{"name": p["name"], "engine": p["engine"], "body": p["body"]}],
        }
        for p in processes
    ]
    put(shape(tree), "groups", groups)
    put(tree, "phase", phase)
    put(tree, "workers", [])
    if phase == "TILED":
        name_sites(tree)


def along(tree: dict, sites: list[list[int]]) -> None:
    """The section along a list of sites, before it has workers."""
    as_groups(tree, "SYNCHRONIZED")
    put(shape(tree), "plan", {"rows": 32, "cols": 32, "k": 32, "cycles": 1})
    put(shape(tree), "sites", sites)


def name_sites(tree: dict) -> None:
    """Symbols instead of the coordinates of sites, which no index may use before PLACED."""
    text = msgspec.json.encode(shape(tree)).replace(b"SITE_", b"ZSITE_")
    put(tree, "shapes", [msgspec.json.decode(text)])
    put(tree, "symbols", [{"name": f"ZSITE_{axis}", "lo": 0, "hi": 1, "expected": 0} for axis in "XY"])


def rename_engine(tree: dict, old: str, new: str) -> None:
    for part in (*tree["workers"], *shape(tree)["processes"], *shape(tree)["counters"]):
        if part["engine"] == old:
            part["engine"] = new


def rename_side(tree: dict, old: int, new: int) -> None:
    """Rectangles that end at column `old` end at `new`, everywhere."""
    for part in (*tree["workers"], *shape(tree)["processes"], *shape(tree)["counters"]):
        if part["rect"]["x1"] == [0, old, []]:
            part["rect"]["x1"] = [0, new, []]


def edited(name: str, edit: Edit) -> Program:
    tree = copy.deepcopy(msgspec.json.decode(canonical_bytes(PROGRAMS[name][0])))
    edit(tree)
    return msgspec.json.decode(msgspec.json.encode(tree), type=Program)


@pytest.mark.parametrize(("rule", "name", "edit"), CASES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)])
def test_the_rule_refuses(rule, name, edit):
    target = TOY if rule == "target.kind" and name == "norm" else PROGRAMS[name][1]
    found = violations(edited(name, edit), target)
    assert rule in {violation.rule for violation in found}, found


def test_deep_nesting_is_refused_not_recursed_into():
    expr = Var(quasi("i0"))
    for _ in range(300):
        expr = Fn("abs", (expr,))
    program, target = PROGRAMS["matmul"]
    spec = replace(program.shapes[0].spec[0], expr=expr)
    deep = replace(program, shapes=(replace(program.shapes[0], spec=(spec,)),))
    assert [v.rule for v in violations(deep, target)] == ["sane.depth"]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_numbers_are_finite(value):
    program, target = PROGRAMS["matmul"]
    carry = replace(program.shapes[0].carries[0], initial=value)
    endless = replace(program, shapes=(replace(program.shapes[0], carries=(carry,)),))
    assert [v.rule for v in violations(endless, target)] == ["sane.numbers"]


def test_every_rule_has_a_case():
    elsewhere = {"sane.depth", "sane.count"}  # above; a million parts take too long
    assert {rule for rule, _, _ in CASES} | elsewhere == set(rule_ids())


def test_all_violations_are_reported_together():
    def two(tree):
        put(find(tree, "reserve"), "fifo", "nothing")
        put(find(tree, "post"), "counter", "nobody")

    with pytest.raises(ProgramReject) as caught:
        require_valid(edited("matmul", two), TOY)
    assert len(caught.value.terms) == 2
    assert all("[names.step]" in term for term in caught.value.terms)
    assert "step 0 (reserve)" in caught.value.where


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_valid_program_is_returned(name):
    program, target = PROGRAMS[name]
    assert require_valid(program, target) is program
