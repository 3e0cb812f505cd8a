"""Values that pass what engines count in (an index expression 64 bits) or what f32 holds (a number of a Generic):
refused by the ranges of variables and by fills, wherever they stand.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.expr import Expr, Fn, Reduce, Var, at, fn
from pavane.ir.program import (
    Compute,
    Fifo,
    Formal,
    Generic,
    Items,
    Numerics,
    Pop,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Shape,
    Span,
    Spec,
    Symbol,
)
from pavane.ir.quasi import Floor, Quasi, quasi
from pavane.ir.types import DType, Fill, Floats, Ints
from pavane.reject import NumericsRefused, OutsideFragment
from pavane.targets.load import load_target
from tests.building import COL, GEN_K, ROW, SX, program_of, rect, shape_of, span, take, whole, window, write
from tests.checker import editing as e
from tests.checker.two_sections import twice_on_host
from tests.examples import matmul_multicast
from tests.oracle.judge import judge

HOST, TOY = load_target("host", 1), load_target("toy")
MATMUL = matmul_multicast(TOY)
FLOATS = Floats()
S = quasi("s")
ROWS, COLS = 8, 16
ELEMENTS = np.arange(ROWS * COLS, dtype=np.float32).reshape(ROWS, COLS)


def double(x: Expr, col: str) -> Expr:
    return fn("mul", x, 2.0)


def program(
    rows: Span, most: int, map_: Callable[[Expr, str], Expr] = double, dtype: DType = "f32", fill: Fill = FLOATS
) -> Program:
    """O = map(X), of the rows of a span that all eight are in; s is 0 .. most."""
    place = window((0, ROWS), (0, COLS), row=0)
    op = Generic(Ref("fO"), map_(at("fX", ROW, COL), COL), rows, whole(COLS))
    body = (
        *take("fX", "X", place), Reserve("fO"), Compute(op), Push("fO"), Pop("fX"), *write("fO", "O", place),
    )  # fmt: skip
    formals = (Formal("X", shape_of(ROWS, COLS), dtype, "IN", fill), Formal("O", shape_of(ROWS, COLS), "f32", "OUT"))
    spec = Spec("O", shape_of(0, 0), shape_of(ROWS, COLS), map_(at("X", "i0", "i1"), "i1"))
    shape = Shape(
        "double", formals, (spec,), Items(quasi(1), quasi(1), ROWS, COLS), Numerics(),
        processes=(Process("core", rect(0, 1, 0, 1), "core", body),),
        fifos=(Fifo("fX", "ALIAS", ROWS, COLS, dtype, 1), Fifo("fO", "LOCAL", ROWS, COLS, "f32", 1, 0)),
    )  # fmt: skip
    return program_of(HOST, shape, symbols=(Symbol("s", 0, most, 0),))


def launched(made: Program, s: int, x: np.ndarray = ELEMENTS) -> np.ndarray:
    with native.load(e.signed(made, HOST), HOST, weights={}) as ready:
        ready.launch({"s": s}, {"x": x})
        return ready.tensor("o").copy()


LARGE = {
    "a product": (S * (1 << 30), 1 << 17),
    "a sum": (S * (1 << 30) + S // 2 * (1 << 31), 1 << 16),
    "a numerator": ((S * ((1 << 40) - 1)) // (1 << 40), 1 << 7),
}


@pytest.mark.parametrize("what", LARGE)
def test_as_large_as_engines_count_is_accepted_and_right(what):
    more, most = LARGE[what]
    made = program(span(0, ROWS, more + ROWS), most)
    e.accepted(made, HOST)
    assert judge(made, HOST).safe
    assert np.array_equal(launched(made, most), 2 * ELEMENTS)


@pytest.mark.parametrize("what", LARGE)
def test_larger_is_refused(what):
    more, most = LARGE[what]
    with pytest.raises(OutsideFragment, match="too large a value"):
        e.accepted(program(span(0, ROWS, more + ROWS), most * 4), HOST)


@pytest.mark.parametrize(
    ("edge", "why"),
    [
        (SX * (1 << 40), "too large a value"),
        (Quasi(0, ((1, Floor(Quasi(1, ((1, "SITE_X"),)), 1 << 70)),)), "too large a figure"),
        (quasi("elsewhere"), "no meaning here"),
    ],
)
def test_where_a_worker_posts_is_no_exception(edge, why):
    host = load_target("host", 2)
    made = twice_on_host(host)
    (worker,) = made.workers
    run, post, *rest = worker.body
    post = replace(post, to=replace(post.to, x0=edge))
    with pytest.raises(OutsideFragment, match=why):
        e.accepted(replace(made, workers=(replace(worker, body=(run, post, *rest)),)), host)


def masked(sign: int) -> Callable[[Expr, str], Expr]:
    """X in the first four columns: the number of a column and of the fourth are those of two positions from s on."""

    def map_(x: Expr, col: str) -> Expr:
        here, fourth = Var((quasi(col) + S) * sign), Var((S + 3) * sign)
        return fn("select", fn("le", here, fourth) if sign > 0 else fn("le", fourth, here), x, 0.0)

    return map_


HELD = (1 << 24) - (COLS - 1)  # of s + column, the greatest that f32 holds with all below it


@pytest.mark.parametrize("sign", [1, -1])
def test_positions_that_f32_holds_are_compared_rightly(sign):
    made = program(whole(ROWS), HELD, masked(sign))
    e.accepted(made, HOST)
    found = launched(made, HELD)
    assert np.array_equal(found[:, :4], ELEMENTS[:, :4])
    assert not found[:, 4:].any()


@pytest.mark.parametrize("sign", [1, -1])
def test_others_are_refused(sign):
    with pytest.raises(NumericsRefused, match="may not hold every value exactly"):
        e.accepted(program(whole(ROWS), HELD + 1, masked(sign)), HOST)


def test_numbers_of_a_sum_are_bounded_by_its_terms():
    def map_(x: Expr, col: str) -> Expr:
        k = GEN_K if col == COL else "k0"
        return fn("add", x, Reduce("SUM", k, S + 1, Var(quasi(k) * 2)))

    e.accepted(program(whole(ROWS), 2895, map_), HOST)  # 2896 terms of at most 2 * 2895: below 2**24
    with pytest.raises(NumericsRefused, match="may not hold every value exactly"):
        e.accepted(program(whole(ROWS), 2896, map_), HOST)


# What is computed of whole numbers: for the greatest s that is right, and for one that is not.
COMPUTED = {
    "a product": (lambda c: fn("eq", fn("mul", Var(S + c), Var(S + 1)), fn("mul", Var(S), Var(S + 1))), 4080, 4097),
    "a multiple": (lambda c: fn("le", fn("mul", Var(S + c), 9.0), fn("mul", Var(S), 9.0)), 1_864_100, 1_864_200),
    "a sum": (lambda c: fn("le", fn("add", Var(S), Var(c)), Var(S)), (1 << 24) - 15, (1 << 24) - 14),
    "a difference": (lambda c: fn("eq", fn("sub", Var(S), Var(c * -1)), Var(S)), (1 << 24) - 15, (1 << 24) - 14),
}


@pytest.mark.parametrize("what", COMPUTED)
def test_what_is_computed_of_whole_numbers(what):
    make, held, beyond = COMPUTED[what]

    def map_(x: Expr, col: str) -> Expr:
        return fn("mul", x, make(quasi(col)))

    made = program(whole(ROWS), held, map_)
    e.accepted(made, HOST)
    assert np.array_equal(launched(made, held), ELEMENTS * (np.arange(COLS) == 0))
    with pytest.raises(NumericsRefused, match="may not hold every value exactly"):
        e.accepted(program(whole(ROWS), beyond, map_), HOST)


@pytest.mark.parametrize("constant", [float((1 << 24) + 1), 5.0000000001, -3.00000001, 2.4999999999, 1e-50])
def test_a_constant_that_would_be_another_whole_number_or_half(constant):
    def compared(value: float) -> Program:
        return program(whole(ROWS), 9, lambda x, col: fn("mul", x, fn("lt", Var(quasi(col) - 8), value)))

    with pytest.raises(NumericsRefused, match=r"the constant .* in f32"):
        e.accepted(compared(constant), HOST)
    for value in (min(round(constant), 1 << 24), 0.1, -1e30):
        made = compared(float(value))
        e.accepted(made, HOST)
        assert np.array_equal(launched(made, 0), ELEMENTS * (np.arange(COLS) - 8 < value))


THROUGH = {
    "a cast": lambda s, x: Fn("cast", (s,), "i32"),
    "a choice by an element": lambda s, x: fn("select", x, s, s),
    "the greater of it and 0": lambda s, x: fn("max", s, 0.0),
    "its magnitude": lambda s, x: fn("abs", s),
}


@pytest.mark.parametrize("what", THROUGH)
def test_what_a_whole_number_goes_through(what):
    def map_(x: Expr, col: str) -> Expr:
        return fn("mul", x, fn("eq", fn("add", THROUGH[what](Var(S), x), 1.0), Var(S)))

    made = program(whole(ROWS), (1 << 24) - 1, map_)
    e.accepted(made, HOST)
    assert not launched(made, (1 << 24) - 1).any()
    with pytest.raises(NumericsRefused, match="may not hold every value exactly"):
        e.accepted(program(whole(ROWS), 1 << 24, map_), HOST)


def is_largest(x: Expr, col: str) -> Expr:
    return fn("eq", x, float(1 << 24))


def test_integers_that_f32_holds_are_compared_rightly():
    made = program(whole(ROWS), 0, is_largest, "i32", Ints(-(1 << 24), 1 << 24))
    e.accepted(made, HOST)
    x = (1 << 24) - np.arange(ROWS * COLS, dtype=np.int32).reshape(ROWS, COLS)
    assert np.array_equal(launched(made, 0, x), x == 1 << 24)


@pytest.mark.parametrize("fill", [Ints(0, (1 << 24) + 1), Ints(-(1 << 24) - 1, 0), FLOATS])
def test_other_integers_are_refused_but_for_a_copy(fill):
    with pytest.raises(NumericsRefused, match="may not hold every value exactly"):
        e.accepted(program(whole(ROWS), 0, is_largest, "i32", fill), HOST)
    e.accepted(program(whole(ROWS), 0, lambda x, col: x, "i32", fill), HOST)


@pytest.mark.parametrize("value", [3.4e38, -3.4e38])
def test_a_constant_of_f32_is_accepted(value):
    e.accepted(program(whole(ROWS), 0, lambda x, col: fn("min", x, value)), HOST)


@pytest.mark.parametrize("value", [3.5e38, -1e300])
def test_a_constant_beyond_f32_is_refused(value):
    with pytest.raises(NumericsRefused, match="is infinite in f32"):
        e.accepted(program(whole(ROWS), 0, lambda x, col: fn("min", x, value)), HOST)


LARGEST = {
    "f32": 3.4e38,
    "bf16": 3.38e38,
    "f16": 65504.0,
    "q8_0": 8.3e6,
    "bfp8": 3.38e38,
    "i8": 127.0,
    "i32": 2147483647.0,
}


@pytest.mark.parametrize("dtype", LARGEST)
def test_a_carry_begins_with_a_value_of_its_type(dtype):
    for sign in (1, -1):
        held, beyond = (
            e.refusal(MATMUL, TOY, e.carry("acc", dtype=dtype, initial=sign * initial))
            for initial in (LARGEST[dtype], LARGEST[dtype] * 1.02)
        )
        assert "is no value of" not in str(held)
        assert f"is no value of {dtype}" in str(beyond)
