"""Figures that engines do not have: oracle and checker, which count with larger ones, call them faults."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from pavane.ir.expr import Expr, Reduce, Var, at, fn
from pavane.ir.program import Init, Pop, Spec
from pavane.ir.quasi import Quasi, quasi
from tests.building import COL, ROW, shape_of
from tests.checker_oracle.hand_made import ACC, ALIAS_A, SLOT_C, N, assign, on_core, signed, stored, taken
from tests.checker_oracle.mutants import put
from tests.checker_oracle.programs import Case, refusal
from tests.evidence.hand import Hand
from tests.evidence.large_figures import KINDS, large_figures
from tests.oracle import judge
from tests.oracle.figures import counted
from tests.oracle.spaces import Fault

A, IN_A = at("A", "i0", "i1"), at("fA", ROW, COL)
FAULTS = {"index": "overflow", **dict.fromkeys(("integers", "positions", "constant", "initial"), "wrong value")}


def one_op(done: Expr, meant: Expr) -> Case:
    program, target = on_core((*taken("fA", "A"), *stored(assign("fC", done)), Pop("fA")), meant, (ALIAS_A, SLOT_C))
    return signed(program), target


@pytest.mark.parametrize("position", [1 << 24, (1 << 24) + 2])
def test_positions_that_f32_holds(position: int) -> None:
    assert judge(*one_op(fn("add", IN_A, Var(quasi(position))), fn("add", A, Var(quasi(position))))).fault == ""


@pytest.mark.parametrize("position", [(1 << 24) + 1, -(1 << 24) - 1, (1 << 40) + 1])
def test_positions_that_f32_does_not_hold(position: int) -> None:
    case = one_op(fn("add", IN_A, Var(quasi(position))), fn("add", A, Var(quasi(position))))
    assert "which f32 does not hold" in judge(*case).fault
    assert refusal(*case) is not None


@pytest.mark.parametrize(("value", "finite"), [(3.4e38, True), (-3.4e38, True), (3.5e38, False), (-1e300, False)])
def test_constants(value: float, finite: bool) -> None:
    case = one_op(fn("min", IN_A, value), fn("min", A, value))
    assert ("infinite in f32" in judge(*case).fault) != finite
    assert (refusal(*case) is None) == finite


@pytest.mark.parametrize(
    ("dtype", "value", "finite"),
    [("f16", 65504.0, True), ("f16", 65536.0, False), ("bf16", 3.4e38, False), ("f32", 3.4e38, True)],
)
def test_what_a_carry_begins_with(dtype: str, value: float, finite: bool) -> None:
    carry = replace(ACC, dtype=dtype, initial=value)
    ops = (Init("acc"), *stored(assign("fC", fn("add", IN_A, at("acc", ROW, COL)))))
    case = on_core((*taken("fA", "A"), *ops, Pop("fA")), fn("add", A, value), (ALIAS_A, SLOT_C), (carry,))
    case = signed(case[0]), case[1]
    assert (judge(*case).fault == "") == finite
    assert (refusal(*case) is None) == finite


@pytest.mark.parametrize("kind", KINDS)
def test_a_careless_hand_takes_larger_ones_and_both_see_it(kind: str) -> None:
    """Careless enough for larger figures, and nothing else."""
    seen = set()
    for number in range(200):
        program, target = large_figures(Hand(random.Random(f"{kind} {number}"), careless=1e-9))
        if program.shapes[0].name == kind:
            fault = judge(program, target, interleavings=0).fault
            assert not fault or refusal(program, target) is not None, (number, fault)
            seen.add(fault.partition(":")[0])
    assert {"", FAULTS[kind]} == seen


def test_an_index_is_counted_in_64_bits() -> None:
    s = quasi("s")
    assert counted(s * (1 << 40) - 5, {"s": 1 << 22}) == (1 << 62) - 5
    over = (s * ((1 << 40) - 1)) // (1 << 40) - s
    assert counted(over, {"s": 1 << 22}) == -1
    for index in (s * (1 << 40), over):
        with pytest.raises(Fault, match="passes 64 bits"):
            counted(index, {"s": 1 << 24})


# --- reductions of any extent -----------------------------------------------------------------------------------------


def a_sum(extent: Quasi, kind: str = "SUM") -> Case:
    """The spec is a reduction over so many columns of A; the op has it over LV_GEN_K."""
    meant = Reduce(kind, "k0", extent, at("A", "i0", "k0"))  # type: ignore[arg-type]
    swapped = extent.substitute({"i0": quasi(ROW), "i1": quasi(COL)})
    return one_op(Reduce(kind, "LV_GEN_K", swapped, at("fA", ROW, "LV_GEN_K")), meant)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "extent", [quasi("i0") + 1, quasi("i1"), quasi("i0") - 7, (quasi("i0") + quasi("i1")) // 2, quasi(0), quasi(-3)]
)
def test_an_extent_may_depend_on_where_it_stands(extent: Quasi) -> None:
    assert judge(*a_sum(extent)).fault == ""


def test_one_term_more_is_another_sum() -> None:
    program, target = a_sum(quasi("i0"))
    meant = Reduce("SUM", "k0", quasi("i0") + 1, at("A", "i0", "k0"))
    other = put(program, ("shapes", 0, "spec"), (Spec("C", shape_of(0, 0), shape_of(N, N), meant),))
    assert judge(other, target).fault.startswith("wrong")


def test_an_empty_sum_reads_nothing_and_an_empty_maximum_is_none() -> None:
    beyond = Reduce("SUM", "k0", quasi(0), at("A", quasi("i0") + N, "k0"))
    assert judge(*one_op(Reduce("SUM", "LV_GEN_K", quasi(0), IN_A), beyond)).fault == ""
    assert "a MAX of nothing" in judge(*a_sum(quasi("i0"), "MAX")).fault
