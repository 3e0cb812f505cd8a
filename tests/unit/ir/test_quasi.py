"""Index expressions: one normal form, the same value everywhere, bounds that hold, and nothing else decodes."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pavane.ir.quasi import Domain, Quasi, Unbounded, lower, quasi, upper
from tests.strategies import NAMES, boxes, points, quasis

A, B = quasi("a"), quasi("b")


@given(quasis(), quasis(), points())
def test_arithmetic_is_arithmetic_of_values(x, y, point):
    assert (x + y).evaluate(point) == x.evaluate(point) + y.evaluate(point)
    assert (x - y).evaluate(point) == x.evaluate(point) - y.evaluate(point)
    assert (-x).evaluate(point) == -x.evaluate(point)
    assert (3 - x).evaluate(point) == 3 - x.evaluate(point)


@given(quasis(), st.integers(-9, 9), st.integers(1, 12), points())
def test_multiples_floors_and_remainders(x, factor, divisor, point):
    value = x.evaluate(point)
    assert (x * factor).evaluate(point) == value * factor
    assert (x // divisor).evaluate(point) == value // divisor
    assert (x % divisor).evaluate(point) == value % divisor
    assert x.ceil(divisor).evaluate(point) == -(-value // divisor)


@given(quasis(), quasis())
def test_sums_have_one_form(x, y):
    assert x + y == y + x
    assert (x + y) - y == x
    assert hash(x + y) == hash(y + x)
    assert x - x == quasi(0)


@given(quasis(), st.integers(1, 8), st.integers(1, 8))
def test_floors_have_one_form(x, first, second):
    assert ((A + B + 3) // first) // second == (A + B + 3) // (first * second)
    assert (x * second) // (first * second) == x // first
    assert (x + 7 * first) // first == x // first + 7


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (32 * A + 3 * B - 1, "32*a + 3*b - 1"),
        (quasi(0), "0"),
        (-A, "-a"),
        (A // 4 * 2, "2*floor(a, 4)"),
        ((A + 31) // 32, "floor(a + 31, 32)"),
        ((64 * A + 32 * B) // 32, "2*a + b"),
        (quasi(-7) // 2, "-4"),
    ],
)
def test_examples_of_the_form(expression, text):
    assert str(expression) == text


@given(quasis(), st.sampled_from(NAMES), quasis(), points())
def test_substitution_is_evaluation_of_the_replacement(x, name, replacement, point):
    inside = {**point, name: replacement.evaluate(point)}
    assert x.substitute({name: replacement}).evaluate(point) == x.evaluate(inside)


def test_substitution_is_simultaneous():
    assert (2 * A + B).substitute({"a": B, "b": A}) == 2 * B + A


@given(quasis(), boxes())
def test_bounds_hold_at_every_point(x, domain):
    ranges = [range(lo.const, hi.const + 1) for _, lo, hi in domain.ranges]
    values = [x.evaluate(dict(zip(NAMES, point, strict=True))) for point in itertools.product(*ranges)]
    assert lower(x, domain) <= min(values)
    assert upper(x, domain) >= max(values)


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-20, 20), boxes())
def test_bounds_of_affine_expressions_are_exact(p, q, constant, domain):
    x = p * A + q * B + constant
    ranges = {name: (lo.const, hi.const) for name, lo, hi in domain.ranges}
    ends = [x.evaluate({"a": a, "b": b}) for a in ranges["a"] for b in ranges["b"]]
    assert (lower(x, domain), upper(x, domain)) == (min(ends), max(ends))


def test_a_loop_to_a_rounded_up_extent_stays_near_it():
    """32*k for k < ceil(live/32) never reaches live: the bound that ragged windows rest on."""
    live = quasi("live")
    domain = Domain([("live", 1, 255)]).with_loop("k", live.ceil(32))
    assert upper(32 * quasi("k") - live, domain) == -1


def test_an_unknown_variable_has_no_bound():
    with pytest.raises(Unbounded, match="b"):
        upper(A + B, Domain([("a", 0, 3)]))


def test_a_point_without_a_value_says_which():
    with pytest.raises(KeyError, match="b"):
        (A + B).evaluate({"a": 1})


@given(quasis())
def test_what_is_written_is_read(x):
    data = msgspec.json.encode(x)
    assert msgspec.json.decode(data, type=Quasi) == x


@pytest.mark.parametrize(
    "text",
    [
        '[0,1,[[0,"a"]]]',
        '[0,1,[[1,"b"],[1,"a"]]]',
        '[0,1,[[1,"a"],[2,"a"]]]',
        '[0,0,[[1,[[0,5,[[1,"a"]]],4]]]]',
        '[0,0,[[1,[[0,1,[[5,"a"]]],4]]]]',
        '[0,0,[[1,[[0,0,[[2,"a"]]],4]]]]',
        "[0,0,[[1,[[0,1,[]],4]]]]",
        '[0,0,[[1,[[0,1,[[1,"a"]]],1]]]]',
        '[0,0,[[1,[[0,0,[[1,[[0,1,[[1,"a"]]],2]]]],3]]]]',
        "[0,72057594037927937,[]]",
        "[2,0,[]]",
    ],
)
def test_nothing_but_the_normal_form_decodes(text):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Quasi)


@pytest.mark.parametrize("divisor", [0, -3])
def test_division_is_by_positive_constants(divisor):
    with pytest.raises(ValueError, match="below 1"):
        A // divisor
