"""Mistakes that do no harm are accepted; beside each stands one like it that does. The oracle says which is which."""

from __future__ import annotations

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
    Front,
    Generic,
    Init,
    Load,
    Pop,
    Program,
    Push,
    Ref,
    Reserve,
    Tensor,
)
from pavane.ir.quasi import Domain, Quasi, quasi
from pavane.ir.types import Ints
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.verify.check.terms import normal
from tests.building import COL, ROW, X, shape_of, span, whole, window
from tests.checker import between_sections as two
from tests.checker import editing as e
from tests.checker.test_forms import DOUBLE, READ, WRITE, loop, program, read, through_a_row
from tests.evidence import bases
from tests.evidence.classes import CLASSES
from tests.evidence.verdicts import refusals_of
from tests.examples import matmul_multicast, norm_product_host
from tests.oracle import judge

TOY, HOST = load_target("toy"), load_target("host", 2)
MATMUL = matmul_multicast(TOY, 40, 40, 40)
Case = tuple[Program, SpatialTarget]


@dataclass(frozen=True)
class Pair:
    """What does no harm, what does, and the refusal that names it."""

    harmless: Case
    harmful: Case
    refused: type[reject.NotProven]


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


def _gather(greatest: int) -> Case:
    """Rows of a table of three: the loads say that ids are below three, the spec says below two."""
    made, target = bases.base("gather.0")
    (shape,), (ids, *others) = made.shapes, made.shapes[0].formals
    fill = Ints(0, greatest)
    row, col = shape.spec[0].expr.index
    spec = replace(shape.spec[0], expr=at("E", replace(row, hi=2), col))
    shape = replace(shape, formals=(replace(ids, fill=fill), *others), spec=(spec,))
    tensors = (replace(made.tensors[0], fill=fill), *made.tensors[1:])
    made = replace(made, shapes=(shape,), tensors=tensors)
    return replace(made, graph_digest=graph_digest(made)), target


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


def _started(dtype: str, initial: float) -> Case:
    """O = A + initial, exactly; the initial value is that of a carry."""
    total = Generic(Ref("fO"), fn("add", at("fA", ROW, COL), at("row", ROW, COL)), whole(8), span(8 * X, 8, 32))
    steps = loop(Front("fA"), Init("row"), Reserve("fO"), Compute(total), Push("fO"), Pop("fA"))
    made = e.spec(expr=fn("add", at("A", "i0", "i1"), initial))(program(READ, steps, WRITE))
    (shape,), (a, out) = made.shapes, made.tensors
    few, (given, result) = Ints(-3, 3), shape.formals
    carry = replace(shape.carries[0], dtype=dtype, initial=initial)
    exact = replace(shape.numerics, exact=True)
    shape = replace(shape, formals=(replace(given, fill=few), result), carries=(carry,), numerics=exact)
    made = replace(made, shapes=(shape,), tensors=(replace(a, fill=few), out))
    return replace(made, graph_digest=graph_digest(made)), TOY


def _large(dtype: str, largest: int) -> Case:
    """An exact product that takes A as bf16, A being stored in a type; B has integers up to 4."""
    fill = Ints(-largest, largest)
    slots = e.fifo("fA", dtype=dtype, depth=1 if dtype == "f32" else 2)
    return e.every(e.formal("A", dtype=dtype, fill=fill), e.tensor("a", dtype=dtype, fill=fill), slots)(MATMUL), TOY


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
    "sites without work": Pair(two.at_once(20), two.at_once(70), reject.OrderRefused),
    "a meeting of columns": Pair(
        two.meeting_in_columns("SITE_Y"), two.meeting_in_columns("SITE_X"), reject.OrderRefused),
    "a poster that runs ahead": Pair(two.running_ahead(False), two.running_ahead(True), reject.OrderRefused),
    "a slot reserved early": Pair(
        two.compute_without_start(False), two.compute_without_start(True), reject.OrderRefused),
    "a slot handed over after another": Pair(
        two.handed_over(late=False), two.handed_over(late=True), reject.OrderRefused),
    "items beyond the tensor": Pair(two.every_other_item(70), two.every_other_item(150), reject.CoverageRefused),
    "two operands that are one tensor": Pair(_largest("a"), _largest("b"), reject.MeaningRefused),
    "a cache read as another view": Pair(
        two.both_from_the_cache(True), two.both_from_the_cache(False), reject.OrderRefused),
    "a cache read below what is appended": Pair(
        two.at_once_from_the_cache(quasi(0)), two.at_once_from_the_cache(quasi("rows")), reject.OrderRefused),
    "a buffer over rows that nothing is in": Pair(
        two.compute_without_start(True, 256, 6656), two.compute_without_start(True, 256, 6624), reject.OrderRefused),
    "a buffer over one that its site leaves alone": Pair(
        two.on_one_row(64), two.on_one_row(128), reject.OrderRefused),
    "a section behind the FIFOs of the one before": Pair(
        two.behind_its_fifos(1), two.behind_its_fifos(2), reject.OrderRefused),
    "an index said to be in another range": Pair(_gather(1), _gather(2), reject.BoundsRefused),
    "integers of many bits, stored as they are multiplied": Pair(
        _large("bf16", 500), _large("f32", 257), reject.NumericsRefused),
    "integers of many bits, stored in few": Pair(
        _large("bf16", 1 << 15), _large("bf16", 1 << 17), reject.NumericsRefused),
    "a carry that starts at the most that its type counts to": Pair(
        _started("bf16", 256.0), _started("bf16", 257.0), reject.NumericsRefused),
    "a carry that starts at the most of an integer type": Pair(
        _started("i8", 127.0), _started("i8", 128.0), reject.OutsideFragment),
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


@pytest.mark.parametrize(
    "strange", [fn("log", at("A", 0)), fn("rsqrt", at("A", 0)), fn("sqrt", at("A", 0)), fn("div", 1.0, at("A", 0))]
)
def test_what_may_have_no_value_is_no_number(strange: Expr) -> None:
    power, half = fn("exp", strange), fn("div", at("A", 0), 2.0)
    assert _normal(fn("sub", strange, strange)) == fn("sub", strange, strange)
    assert _normal(fn("div", power, power)) == fn("div", power, power)
    assert _normal(fn("sub", half, half)) == Const(0.0)


def test_what_is_read_too_early_is_named_before_the_boundary_that_is_never_passed() -> None:
    """The second section's runs exchanged with the first's: a wait that never ends, too."""
    name = "cache read before append"
    made = [m for n in bases.names() if n.startswith("halves.") for m in CLASSES[name].make(*bases.base(n))]
    said = [refusals_of(m.program, m.target)[0][0] for m in made]
    assert said
    assert set(said) == {"order"}
