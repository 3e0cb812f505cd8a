"""Programs whose numbers are right, by chance or within a tolerance, and whose terms are wrong: they are not safe."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pavane.ir.expr import Expr, at, fn
from pavane.ir.program import Load, Pop
from pavane.ir.quasi import quasi
from pavane.ir.types import Ints
from tests.building import COL, ROW
from tests.checker_oracle.hand_made import ALIAS_A, ALIAS_B, SLOT_C, assign, on_core, signed, stored, taken
from tests.checker_oracle.mutants import put
from tests.checker_oracle.programs import Case, refusal, small
from tests.evidence import edits
from tests.evidence.caches import gather
from tests.evidence.hand import Hand
from tests.oracle import comparison, judge

A, B = at("A", "i0", "i1"), at("B", "i0", "i1")
ALL_INDICES_ARE_EQUAL = 8  # a seed for which they are, in both epochs
IN_A, IN_B = at("fA", ROW, COL), at("fB", ROW, COL)


def one_op(done: Expr, meant: Expr) -> Case:
    """C = done(A, B) where the spec says meant(A, B)."""
    body = (*taken("fA", "A"), *taken("fB", "B"), *stored(assign("fC", done)), Pop("fA"), Pop("fB"))
    return on_core(body, meant, (ALIAS_A, ALIAS_B, SLOT_C))


def a_trace_of_another_operand() -> Case:
    return one_op(fn("add", IN_A, fn("mul", IN_B, 1e-9)), A)


def another_epsilon() -> Case:
    root = lambda a, epsilon: fn("rsqrt", fn("add", fn("mul", a, a), epsilon))  # noqa: E731
    return one_op(fn("add", root(IN_A, 1.00000001e-2), IN_B), fn("add", root(A, 1e-2), B))


def a_function_that_is_nearly_the_argument() -> Case:
    nearly = lambda a: fn("mul", fn("tanh", fn("mul", a, 2.0**-20)), 2.0**20)  # noqa: E731
    return one_op(fn("add", nearly(IN_A), IN_B), fn("add", A, B))


def another_row_by_the_same_index(name: str) -> Case:
    """Every row is gathered by the first index; where all indices are equal no number shows it."""
    program, target = small(name)
    (load,) = (p for p in edits.steps(program, Load) if p.step.tensor == "E")
    program = put(program, (*load.path, "window", "start", 0, "index", 0), quasi(0))
    (ids,) = (t for t, tensor in enumerate(program.tensors) if tensor.dtype == "i32")
    (formal,) = (f for f, formal in enumerate(program.shapes[0].formals) if formal.dtype == "i32")
    for path in (("tensors", ids), ("shapes", 0, "formals", formal)):
        program = put(program, (*path, "fill"), Ints(8, 9))
    return program, target


def numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "same_terms", lambda found, meant: np.ones(found.shape, bool))


@pytest.mark.parametrize(
    "make",
    [a_trace_of_another_operand, another_epsilon, a_function_that_is_nearly_the_argument],
    ids=lambda make: make.__name__,
)
def test_terms_show_what_a_tolerance_hides(make, monkeypatch: pytest.MonkeyPatch) -> None:
    program, target = make()
    program = signed(program)
    assert judge(program, target).fault.startswith("wrong term: C of instance 0")
    assert refusal(program, target) is not None
    numbers_only(monkeypatch)
    assert judge(program, target).safe


@pytest.mark.parametrize("name", ["gather_toy", "gather_host"])
def test_terms_show_what_equal_indices_hide(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, target = another_row_by_the_same_index(name)
    program = signed(program)
    assert judge(program, target, seed=ALL_INDICES_ARE_EQUAL).fault.startswith("wrong term: Y of instance 0")
    assert refusal(program, target) is not None
    numbers_only(monkeypatch)
    assert judge(program, target, seed=ALL_INDICES_ARE_EQUAL).safe
    assert not judge(program, target, seed=ALL_INDICES_ARE_EQUAL + 1).safe


def test_an_element_is_read_in_place_through_an_index() -> None:
    """One row, found by its id, that an alias shows: as right as a copy of it."""
    program, target = gather(Hand(random.Random(3), careless=0.0))
    (rows,) = (f for f, fifo in enumerate(program.shapes[0].fifos) if fifo.name == "fE")
    assert target.alias
    assert program.shapes[0].fifos[rows].rows == 1
    in_place = signed(put(program, ("shapes", 0, "fifos", rows, "kind"), "ALIAS"))
    assert judge(in_place, target).safe
    assert refusal(in_place, target) is None


def test_the_term_that_differs_is_named() -> None:
    program, target = one_op(fn("sub", IN_B, IN_A), fn("sub", A, B))
    fault = judge(signed(program), target).fault
    assert fault.startswith("wrong value: C of instance 0, stored at [0, 0]: (0, 0) is sub(b[0, 0], a[0, 0]) (")
    assert " instead of sub(a[0, 0], b[0, 0]) (" in fault


@pytest.mark.parametrize(
    ("done", "meant"),
    [
        (fn("mul", fn("add", IN_A, IN_B), 2.0), fn("add", fn("mul", B, 2.0), fn("add", A, A))),
        (fn("max", IN_B, IN_A), fn("max", A, B)),
        (fn("exp", fn("sub", IN_A, IN_B)), fn("div", fn("exp", A), fn("exp", B))),
    ],
)
def test_the_same_by_other_algebra_is_safe(done: Expr, meant: Expr) -> None:
    program, target = one_op(done, meant)
    assert judge(signed(program), target).safe
