"""Which terms the oracle takes for equal, and that what it takes for equal has equal numbers."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest

from pavane.ir.expr import ARITY, At, Const, Expr, Indirect, Reduce, Var, at, fn
from pavane.ir.quasi import quasi
from tests.oracle import residues
from tests.oracle.cells import Cells, constants, is_constant
from tests.oracle.expressions import Scope, value_of
from tests.oracle.laws import Laws

A, B, C = (at("x", 0, k) for k in range(3))
X, W = at("x", 0, "k"), at("w", "k", 0)
TWO = Const(2.0)


def evaluator(seed: int = 0):
    """Evaluates expressions over x (3 x 6), w (6 x 3), ids (3) and others, at the point i = 2."""
    laws, rng = Laws(seed), np.random.default_rng(seed)
    x = rng.uniform(0.5, 2.0, (3, 6))
    held = {
        "x": laws.leaves("x", x),
        "w": laws.leaves("w", rng.uniform(0.5, 2.0, (6, 3))),
        "ids": laws.leaves("ids", np.array([1.0, 1.0, 0.0])),
        "zeros": constants(np.zeros((1, 3))),
        "twin": laws.leaves("twin", x),
        "nothing": laws.leaves("nothing", np.zeros(1)),
    }

    def evaluate(expr: Expr) -> Cells:
        scope = Scope(laws, {}, {"i": 2}, lambda a, indices: held[a.name][indices])
        return value_of(expr, scope)[1]

    evaluate.laws = laws
    return evaluate


def sum_of(body: Expr, extent: int = 6, kind: str = "SUM") -> Expr:
    return Reduce(kind, "k", quasi(extent), body)


def products(start: int, extent: int) -> Expr:
    k = quasi("k") + start
    return sum_of(fn("mul", at("x", 0, k), at("w", k, 0)), extent)


def softmax(shift: Expr) -> Expr:
    return fn("div", fn("exp", fn("sub", A, shift)), sum_of(fn("exp", fn("sub", X, shift))))


def gathered(i: int) -> Expr:
    return At("x", (Indirect("ids", (quasi(i),), 0, 3), quasi(0)))


EQUAL = {
    "the order of a sum": (fn("add", A, B), fn("add", B, A)),
    "its grouping": (fn("add", fn("add", A, B), C), fn("add", A, fn("add", B, C))),
    "the order of a product": (fn("mul", A, B), fn("mul", B, A)),
    "a factor": (fn("mul", A, fn("add", B, C)), fn("add", fn("mul", A, B), fn("mul", A, C))),
    "a factor of a SUM": (sum_of(fn("mul", X, A)), fn("mul", A, sum_of(X))),
    "a difference": (fn("sub", A, B), fn("add", A, fn("mul", B, -1.0))),
    "taken away again": (fn("sub", fn("add", A, B), B), A),
    "a quotient": (fn("mul", fn("div", A, B), C), fn("div", fn("mul", A, C), B)),
    "a term of zero": (fn("add", A, fn("mul", B, 0.0)), A),
    "padding": (fn("add", products(0, 6), fn("mul", A, at("zeros", 0, 1))), products(0, 6)),
    "a SUM in blocks": (products(0, 6), fn("add", products(0, 4), products(4, 2))),
    "blocks in another order": (products(0, 6), fn("add", products(4, 2), products(0, 4))),
    "an empty SUM": (products(0, 0), Const(0.0)),
    "exp of a sum": (fn("exp", fn("add", A, B)), fn("mul", fn("exp", A), fn("exp", B))),
    "exp shifted": (softmax(sum_of(X, kind="MAX")), softmax(fn("mul", C, 3.0))),
    "MAX in blocks": (
        sum_of(X, kind="MAX"),
        fn("max", sum_of(at("x", 0, quasi("k") + 2), 4, "MAX"), sum_of(X, 2, "MAX")),
    ),
    "max of one": (fn("max", A, A), A),
    "max of constants": (fn("max", fn("max", 1.0, A), 2.0), fn("max", A, 2.0)),
    "min": (fn("min", A, B), fn("mul", fn("max", fn("mul", A, -1.0), fn("mul", B, -1.0)), -1.0)),
    "abs": (fn("abs", fn("sub", A, B)), fn("abs", fn("sub", B, A))),
    "rsqrt": (fn("rsqrt", A), fn("div", 1.0, fn("sqrt", A))),
    "lt and le": (fn("lt", A, B), fn("sub", 1.0, fn("le", B, A))),
    "eq": (fn("eq", A, B), fn("eq", fn("sub", B, A), 0.0)),
    "eq of equals": (fn("eq", fn("add", A, B), fn("add", B, A)), Const(1.0)),
    "a comparison of constants": (fn("lt", Var(quasi("i")), 3.0), Const(1.0)),
    "a constant condition": (fn("select", fn("le", Var(quasi("i")), 1.0), A, B), B),
    "one branch": (fn("select", C, A, A), A),
    "a mask": (fn("mul", fn("select", C, 1.0, 0.0), A), fn("select", C, A, 0.0)),
    "a loop variable": (Var(2 * quasi("i") + 1), Const(5.0)),
    "round of a constant": (fn("round", 2.5), Const(3.0)),
    "cast of a constant": (fn("cast", 300.7, dtype="i8"), Const(127.0)),
    "a dyadic constant": (fn("add", fn("mul", A, 0.375), fn("mul", A, -0.125)), fn("div", A, 4.0)),
}

DIFFERENT = {
    "another addend": (fn("add", A, B), fn("add", A, C)),
    "operands of a difference": (fn("sub", A, B), fn("sub", B, A)),
    "operands of a quotient": (fn("div", A, B), fn("div", B, A)),
    "a product counted twice": (fn("add", products(0, 6), products(0, 1)), products(0, 6)),
    "a product that is missing": (products(0, 5), products(0, 6)),
    "one product for another": (fn("add", products(0, 1), products(0, 1)), products(0, 2)),
    "another epsilon": (fn("rsqrt", fn("add", A, 1e-5)), fn("rsqrt", fn("add", A, np.nextafter(1e-5, 1.0)))),
    "the decimal, not the double": (fn("add", 0.1, 0.2), Const(0.3)),
    "another loop variable": (Var(quasi("i")), Var(quasi("i") + 1)),
    "a column of the row": (at("x", 0, "i"), at("x", "i", 0)),
    "another tensor": (at("x", 0, 0), at("w", 0, 0)),
    "max for min": (fn("max", A, B), fn("min", A, B)),
    "a maximum without one": (sum_of(X, 5, "MAX"), sum_of(X, 6, "MAX")),
    "MAX for SUM": (sum_of(X, 6, "MAX"), sum_of(X)),
    "lt for le": (fn("lt", A, B), fn("le", A, B)),
    "branches": (fn("select", fn("lt", A, B), A, C), fn("select", fn("lt", A, B), C, A)),
    "one function for another": (fn("sin", A), fn("cos", A)),
    "a function dropped": (fn("tanh", A), A),
    "rounding": (fn("round", A), A),
    "a cast to another type": (fn("cast", A, dtype="i8"), fn("cast", A, dtype="i32")),
    "exp of a product": (fn("exp", fn("mul", A, B)), fn("mul", fn("exp", A), fn("exp", B))),
}

COINCIDENCES = {
    "two inputs": (at("x", 0, 0), at("twin", 0, 0)),
    "a difference of two inputs": (fn("sub", A, at("twin", 0, 0)), Const(0.0)),
    "a weight of zero": (fn("add", A, fn("mul", B, at("nothing", 0))), A),
    "a greater one": (fn("max", A, at("nothing", 0)), A),
    "two indices": (gathered(0), gathered(1)),
    "an index's value": (gathered(0), at("x", 1, 0)),
}


@pytest.mark.parametrize("pair", EQUAL.values(), ids=EQUAL)
def test_equal(pair: tuple[Expr, Expr]) -> None:
    one, other = map(evaluator(), pair)
    assert residues.same(one["term"], other["term"])
    assert one["number"] == pytest.approx(float(other["number"]), rel=1e-12)


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_different(pair: tuple[Expr, Expr]) -> None:
    one, other = map(evaluator(), pair)
    assert not residues.same(one["term"], other["term"])


@pytest.mark.parametrize("pair", COINCIDENCES.values(), ids=COINCIDENCES)
def test_equal_numbers_by_chance_are_different_terms(pair: tuple[Expr, Expr]) -> None:
    one, other = map(evaluator(), pair)
    assert one["number"] == other["number"]
    assert not residues.same(one["term"], other["term"])


def drawn(rng: random.Random, levels: int, operators: tuple[str, ...]) -> Expr:
    """A small expression over three leaves and a few constants."""
    if not levels or rng.random() < 0.2:
        return rng.choice((A, B, C, A, B, Const(0.0), Const(1.0), TWO, Const(-0.5)))
    name = rng.choice(operators)
    args = [drawn(rng, levels - 1, operators) for _ in range(ARITY[name])]
    return fn(name, *args, dtype="i8" if name == "cast" else "")


def by_term(operators: tuple[str, ...], count: int) -> dict[int, list[float]]:
    """Numbers of random expressions, grouped by the term modulo P."""
    rng, evaluate = random.Random(1), evaluator()
    found: dict[int, list[float]] = defaultdict(list)
    for _ in range(count):
        cell = evaluate(drawn(rng, 3, operators))
        if abs(cell["number"]) < 1e6:
            found[int(cell["term"]) >> 32].append(float(cell["number"]))
    return found


def test_equal_terms_have_equal_numbers() -> None:
    groups = by_term(tuple(ARITY), 6000)
    several = [group for group in groups.values() if len(group) > 1]
    assert len(several) > 150
    assert all(np.ptp(group) <= 1e-9 * max(1.0, abs(group[0])) for group in several)


def test_equal_numbers_of_sums_and_products_have_equal_terms() -> None:
    groups = by_term(("add", "sub", "mul"), 6000)
    numbers = sorted(group[0] for group in groups.values())
    assert len(numbers) > 1000
    assert np.diff(numbers).min() > 1e-12


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -3.5, 1e-5, 5e-324, 1.7976931348623157e308, -(2.0**-1000)])
def test_a_number_has_the_residue_of_its_fraction(number: float) -> None:
    top, bottom = number.as_integer_ratio()
    expected = [top * pow(bottom, -1, m) % m for m in residues.MODULI]
    assert int(residues.of_number(np.array(number))) == expected[0] << 32 | expected[1]


def test_residues_multiply_and_contract_as_integers() -> None:
    rng = np.random.default_rng(0)
    a, b = (residues.packed(*(rng.integers(0, m, shape) for m in residues.MODULI)) for shape in ((3, 50), (50, 4)))
    made = residues.contract(np.matmul, a, b)
    for modulus, shift in zip(residues.MODULI, (32, 0), strict=True):
        x, y, z = ([[int(v) >> shift & 0xFFFFFFFF for v in row] for row in m] for m in (a, b, made))
        for r in range(3):
            assert z[r] == [sum(x[r][k] * y[k][c] for k in range(50)) % modulus for c in range(4)]
    assert (residues.mul(a, residues.inverse(a)) == residues.ONE).all()


def test_the_moduli_are_a_prime_and_the_half_of_it() -> None:
    assert residues.P == 2 * residues.Q + 1
    assert all(all(m % d for d in range(3, 1 << 16, 2)) for m in residues.MODULI)
    assert pow(residues.G, residues.Q, residues.P) == 1 != residues.G


def test_a_term_is_written_out() -> None:
    evaluate = evaluator()
    cell = evaluate(fn("max", fn("add", products(0, 5), 0.5), fn("tanh", A)))
    addends = "mul(x[0, 0], w[0, 0]), mul(x[0, 1], w[1, 0]), mul(x[0, 2], w[2, 0]), and 2 more"
    assert evaluate.laws.record.worded(cell) == f"max(add(SUM({addends}), 0.5), tanh(x[0, 0]))"
    same = evaluate(fn("max", fn("add", B, 0.0), fn("mul", B, 1.0)))
    assert evaluate.laws.record.worded(same) == "x[0, 1]"


def test_constants_are_known() -> None:
    evaluate = evaluator()
    assert is_constant(evaluate(fn("add", Var(quasi("i")), 1.0)))
    assert not is_constant(evaluate(fn("mul", A, 1.0)))
