"""Mistakes that do no harm are accepted; beside each stands one like it that does. The oracle says which is which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from pavane import reject
from pavane.ir.digest import graph_digest
from pavane.ir.expr import Const, Expr, Reduce, at, fn
from pavane.ir.program import (
    Binding,
    Compute,
    Formal,
    Load,
    Node,
    Post,
    Program,
    Rect,
    Run,
    Shape,
    Tensor,
    Wait,
    Worker,
)
from pavane.ir.quasi import Domain, Quasi, quasi
from pavane.ir.walk import substituted
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.verify.check.terms import normal
from tests.checker import editing as e
from tests.checker.test_forms import DOUBLE, READ, WRITE, Body, loop, program, read, through_a_row
from tests.checker.two_sections import twice_on_host, twice_on_toy
from tests.evidence import bases
from tests.evidence.classes import CLASSES
from tests.evidence.verdicts import refusals_of
from tests.examples import COL, ROW, X, norm_product_host, rect, shape_of, span, window
from tests.oracle import judge

TOY, HOST = load_target("toy"), load_target("host", 2)
Case = tuple[Program, SpatialTarget]


@dataclass(frozen=True)
class Pair:
    """What does no harm, what does, and the refusal that names it."""

    harmless: Case
    harmful: Case
    refused: type[reject.NotProven]


# --- inside a section -------------------------------------------------------------------------------------------------


def _through_a_row(kept: Quasi, loaded: Quasi, turns: int = 4) -> Case:
    """Block `loaded` of each turn is kept at place `kept` of a row, which is then doubled from its start."""
    fill, use = through_a_row(kept)
    return program(loop(*read(loaded), extent=turns), (replace(fill, extent=quasi(turns)), use), WRITE), TOY


def _row_by_row(row: Quasi, turns: int = 8) -> Case:
    """Each block is loaded a row a turn."""
    one = Load("fA", "A", window((row, 1), (8 * X, 8), row=0), row)
    reserve, _, *rest = read()
    return program(loop(reserve, *loop(one, extent=turns, var="LV_SUB_H"), *rest), DOUBLE, WRITE), TOY


def _norm(*edits: e.Edit) -> Case:
    return e.every(*edits)(norm_product_host(HOST)), HOST


S = quasi("LV_SUB_H")
ROTATED = (X + 1) % 4
MORE_ROWS, FEWER_ROWS = span(0, 32, quasi("rows") + 1), span(0, 32, quasi("rows") - 1)
PRODUCT, COPY = 17, 20  # steps of norm_product_host


# --- between sections -------------------------------------------------------------------------------------------------


def _at_once(cols: int) -> Case:
    """The second section follows without a boundary; the columns of its blocks belong to other cores."""
    made = twice_on_host(HOST, cols=cols, crossed=True)
    worker = replace(made.workers[0], body=(Run(0, "core"), Run(1, "core")))
    return replace(made, workers=(worker,), counters=()), HOST


def _meeting_in_columns(axis: str) -> Case:
    """Writers meet those of their column; the second section reads what another site along an axis has written."""
    made = twice_on_toy(TOY)
    other = {axis: 1 - quasi(axis)}
    made = e.in_shape(
        made, lambda s: replace(s, processes=tuple(replace(p, body=substituted(p.body, other)) for p in s.processes)), 1
    )
    column = Rect(quasi("SITE_X"), quasi("SITE_X") + 1, quasi(0), quasi(2))
    *others, writer = made.workers
    body = (writer.body[0], Post("go.writer", column), Wait("go.writer", 2), *writer.body[3:])
    return replace(made, workers=(*others, replace(writer, body=body))), TOY


def _running_ahead(other_core: bool) -> Case:
    """The second of three cores, which has no work, posts two rounds at once; the last reads what the first wrote."""
    host = load_target("host", 3)
    made = twice_on_host(host, cols=32, crossed=True)
    if other_core:
        core = made.shapes[1].processes[0]
        moved = replace(core, body=substituted(core.body, {"SITE_X": 2 - quasi("SITE_X")}))
        made = e.in_shape(made, lambda s: replace(s, processes=(moved,)), 1)
    first, post, wait, second = made.workers[0].body
    bodies = {
        0: (first, post, wait, second, post, wait), 1: (first, post, post, wait, second, wait),
        2: (first, post, wait, second, post, wait),
    }  # fmt: skip
    workers = (Worker(f"core.{x}", rect(x, x + 1, 0, 1), "core", body) for x, body in bodies.items())
    return replace(made, workers=tuple(workers)), host


def _compute_without_start(early: bool) -> Case:
    """Compute reserves its first slot, or sets it too, before one is in front that comes from behind the boundary."""

    def change(shape: Shape) -> Shape:
        read_, compute, write_ = shape.processes
        return replace(shape, processes=(read_, replace(compute, body=_in_items(compute.body, reserved)), write_))

    def reserved(front: Node, reserve: Node, op: Compute, *rest: Node) -> Body:
        zero = Compute(replace(op.op, expr=fn("exp", 0.0)))
        return (reserve, zero, front, op, *rest) if early else (reserve, front, op, *rest)

    made = e.in_shape(e.in_shape(twice_on_toy(TOY), change, 0), change, 1)
    workers = (
        replace(w, body=tuple(t for t in w.body if getattr(t, "counter", "") != "start.matrix")) for w in made.workers
    )
    counters = tuple(c for c in made.counters if c.name != "start.matrix")
    return replace(made, workers=tuple(workers), counters=counters), TOY


def _every_other_item(cols: int) -> Case:
    def change(shape: Shape) -> Shape:
        doubled = lambda *steps: substituted(steps, {"LV_ITEM_X": 2 * X})  # noqa: E731
        return replace(shape, processes=tuple(replace(p, body=_in_items(p.body, doubled)) for p in shape.processes))

    return e.in_shape(twice_on_toy(TOY, cols=cols), change, 1), TOY


def _in_items(body: Body, change: Callable[..., Body]) -> Body:
    """The steps inside the loops over items, changed."""
    (outer,) = body
    (inner,) = outer.body
    return (replace(outer, body=(replace(inner, body=change(*inner.body)),)),)


def _both_from_the_cache(wide: bool) -> Case:
    """The weights of rows are taken from the cache too: as many elements as they have, from its first on."""
    for name in (n for n in bases.names() if n.startswith("cache.")):
        made, target = bases.base(name)
        context, cols = (e.const for e in made.tensors[1].shape)
        if any(s.name == "weighted" for s in made.shapes) and made.symbols[1].hi > 1 and (cols >= context) == wide:
            second = made.instances[1]
            bound = tuple(Binding("P", "cache") if b.formal == "P" else b for b in second.bindings)
            made = replace(made, instances=(made.instances[0], replace(second, bindings=bound)))
            return replace(made, graph_digest=graph_digest(made)), target
    raise LookupError("no such base")


def _largest(tensor: str) -> Case:
    """O = max(A, B), taken as max(A, A), where B is a or another tensor."""
    element = at("fA", ROW, COL)
    twice = e.with_op("compute", 2, expr=fn("max", element, element))
    meant = e.spec(expr=fn("max", at("A", "i0", "i1"), at("B", "i0", "i1")))
    made = e.every(twice, meant)(program(READ, DOUBLE, WRITE))
    shape, instance = made.shapes[0], made.instances[0]
    shape = replace(shape, formals=(*shape.formals, Formal("B", shape_of(8, 32), "f32", "IN")))
    instance = replace(instance, bindings=(*instance.bindings, Binding("B", tensor)))
    tensors = (*made.tensors, Tensor("b", shape_of(8, 32), "f32", "INPUT"))
    return replace(made, shapes=(shape,), instances=(instance,), tensors=tensors), TOY


PAIRS = {
    "a row filled in another order": Pair(
        _through_a_row(ROTATED, ROTATED), _through_a_row(X, ROTATED), reject.MeaningRefused),
    "a row filled twice with the same": Pair(
        _through_a_row(X // 2, X // 2, 8), _through_a_row(X // 2, (X + 1) % 8 // 2, 8), reject.MeaningRefused),
    "a slot loaded in another order of rows": Pair(
        _row_by_row((S + 3) % 8), _row_by_row(S // 2, 16), reject.OrderRefused),
    "an op that goes on beyond a sum": Pair(
        _norm(e.with_op("core", COPY, rows=MORE_ROWS)), _norm(e.with_op("core", PRODUCT, rows=FEWER_ROWS)),
        reject.BoundsRefused),
    "an op that goes on beyond what was loaded": Pair(
        _norm(e.with_op("core", COPY, rows=MORE_ROWS)), _norm(e.with_op("core", PRODUCT, rows=MORE_ROWS)),
        reject.BoundsRefused),
    "sites without work": Pair(_at_once(20), _at_once(70), reject.OrderRefused),
    "a meeting of columns": Pair(_meeting_in_columns("SITE_Y"), _meeting_in_columns("SITE_X"), reject.OrderRefused),
    "a poster that runs ahead": Pair(_running_ahead(False), _running_ahead(True), reject.OrderRefused),
    "a slot reserved early": Pair(_compute_without_start(False), _compute_without_start(True), reject.OrderRefused),
    "items beyond the tensor": Pair(_every_other_item(70), _every_other_item(150), reject.CoverageRefused),
    "two operands that are one tensor": Pair(_largest("a"), _largest("b"), reject.MeaningRefused),
    "a cache read as another view": Pair(
        _both_from_the_cache(True), _both_from_the_cache(False), reject.OrderRefused),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_what_does_no_harm_is_accepted(name: str) -> None:
    made, target = PAIRS[name].harmless
    assert judge(made, target).safe
    e.accepted(made, target)


@pytest.mark.parametrize("name", PAIRS)
def test_what_does_is_refused(name: str) -> None:
    made, target = PAIRS[name].harmful
    assert judge(made, target).fault
    with pytest.raises(PAIRS[name].refused):
        e.accepted(made, target)


def _normal(term: Expr) -> Expr:
    return normal(term, Domain([("i0", 0, 3)]))


def test_a_reduction_of_one_term_is_that_term() -> None:
    largest = lambda extent: _normal(Reduce("MAX", "k", quasi(extent), at("A", "i0", "k")))  # noqa: E731
    assert largest(1) == at("A", "i0", 0)
    assert largest(2) != at("A", "i0", 0)


def test_what_is_one_number_whatever_stands_there_is_that_number() -> None:
    one, other = at("A", "i0", 0), at("A", "i0", 1)
    assert _normal(fn("exp", fn("sub", one, one))) == Const(1.0)
    assert _normal(fn("div", fn("exp", one), fn("exp", one))) == Const(1.0)
    assert _normal(fn("div", one, one)) == fn("div", one, one)
    assert _normal(fn("div", 0.0, 0.0)) == fn("div", 0.0, 0.0)
    assert _normal(fn("sub", one, other)) == fn("sub", one, other)


def test_what_is_read_too_early_is_named_before_the_boundary_that_is_never_passed() -> None:
    """The second section's runs exchanged with the first's: a wait that never ends, too."""
    name = "cache read before append"
    made = [m for n in bases.names() if n.startswith("halves.") for m in CLASSES[name].make(*bases.base(n))]
    said = [refusals_of(m.program, m.target)[0][0] for m in made]
    assert said
    assert set(said) == {"order"}
