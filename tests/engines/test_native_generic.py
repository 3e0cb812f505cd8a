"""Generics against numpy: operators and their errors, every element type, index maps, sums, masks, guards."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pavane import native
from pavane.ir.expr import At, Const, Expr, Fn, Reduce, Var, at, fn
from pavane.ir.quasi import quasi
from pavane.ir.types import INTEGER_RANGE
from pavane.native.index import lane_offsets
from pavane.targets.load import load_target
from tests.building import COL, GEN_K, ROW, span
from tests.engines.native_programs import accepted, as_numbers, as_stored, generic_program

F32 = np.float32
HOST = load_target("host", 1)
X, Z = at("x", ROW, COL), at("z", ROW, COL)


def run(
    expr: Expr, arrays: dict[str, tuple[np.ndarray, str]], rows: int, cols: int, dtype: str = "f32", guard=()
) -> np.ndarray:
    """The output of a Generic over stored arrays of the given types."""
    operands = {
        n: (d, a.shape[0], a.shape[1] // 34 * 32 if d == "q8_0" else a.shape[1]) for n, (a, d) in arrays.items()
    }
    program = generic_program(HOST, expr, operands, rows, cols, dtype, guard)
    with native.load(program, HOST, weights={}, accept=accepted) as ready:
        ready.launch({}, {n: a for n, (a, _) in arrays.items()})
        return ready.tensor("Y").copy()


def run_f32(
    expr: Expr, x: np.ndarray, cols: int | None = None, rows: int | None = None, **more: np.ndarray
) -> np.ndarray:
    arrays = {"x": (x, "f32"), **{n: (a, "f32") for n, a in more.items()}}
    return run(expr, arrays, x.shape[0] if rows is None else rows, x.shape[1] if cols is None else cols)


# --- functions ------------------------------------------------------------------------------------------------------

SAMPLES = 20000


def sample(low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(int(abs(low)) + int(high))
    return np.concatenate(
        [rng.uniform(low, high, SAMPLES), rng.uniform(low, high, SAMPLES) * 1e-3, [low, high, 0.0]]
    ).astype(F32)


FUNCTIONS = {
    "exp": (np.exp, sample(-87, 88), 1.0),
    "log": (np.log, np.exp(sample(-87, 88).astype(np.float64)).astype(F32), 2.0),
    "sin": (np.sin, sample(-100000, 100000), 2.0),
    "cos": (np.cos, sample(-100000, 100000), 2.0),
    "tanh": (np.tanh, sample(-12, 12), 2.0),
    "erf": (np.vectorize(math.erf), sample(-5, 5), 2.0),
    "sqrt": (np.sqrt, np.abs(sample(0, 1e6)), 0.5),
    "rsqrt": (lambda v: 1 / np.sqrt(v), np.abs(sample(0, 1e6)) + F32(1e-9), 1.5),
}


@pytest.mark.parametrize("op", sorted(FUNCTIONS))
def test_errors_of_functions(op):
    """In units of the last place of the f32 nearest the true value."""
    exact, points, most = FUNCTIONS[op]
    found = run_f32(fn(op, X), points[None, :])[0]
    expected = exact(points.astype(np.float64))
    unit = np.maximum(np.spacing(np.abs(expected).astype(F32)), np.finfo(F32).smallest_subnormal).astype(np.float64)
    assert (np.abs(found - expected) / unit).max() <= most


def test_ends_of_functions():
    low = F32(-3.0e38)
    assert run_f32(fn("exp", X), np.array([[low, -200, -104.5, 89, 1e30, -np.inf, np.inf]], F32)).tolist() == [
        [0, 0, 0, np.inf, np.inf, 0, np.inf]
    ]
    small = run_f32(fn("exp", X), np.array([[-103.0, -95.0, -88.0]], F32))[0]
    assert np.allclose(small, np.exp(np.array([-103.0, -95.0, -88.0])), rtol=1e-5, atol=1.5e-45)
    assert run_f32(fn("log", X), np.array([[1, 0, np.inf]], F32)).tolist() == [[0, -np.inf, np.inf]]
    tiny = np.array([[1e-40, 3e-45]], F32)
    assert np.allclose(run_f32(fn("log", X), tiny), np.log(tiny.astype(np.float64)), rtol=1e-6)
    assert run_f32(fn("tanh", X), np.array([[-50, 0, 50]], F32)).tolist() == [[-1, 0, 1]]
    assert run_f32(fn("erf", X), np.array([[-1e30, 0, 1e30]], F32)).tolist() == [[-1, 0, 1]]
    far = np.array([[1e9, -1e10, 1e12, -1e20, 3e38]], F32)
    assert (np.abs([run_f32(fn(op, X), far) for op in ("sin", "cos")]) <= 1).all()


def test_rounding_operators():
    x = np.array([[0.5, -0.5, 1.5, 2.5, -2.4, 0.49999997, -1.9]], F32)
    assert run_f32(fn("round", X), x).tolist() == [[1, -1, 2, 3, -2, 0, -2]]
    assert run_f32(fn("cast", X, dtype="i32"), x).tolist() == [[0, 0, 1, 2, -2, 0, -1]]
    wide = np.array([[300.0, -2.7, -300.0]], F32)
    assert run(fn("cast", X, dtype="i8"), {"x": (wide, "f32")}, 1, 3, "i8").tolist() == [[127, -2, -128]]
    assert run(fn("cast", X, dtype="i32"), {"x": (wide * 1e12, "f32")}, 1, 3, "i32")[0, [0, 2]].tolist() == [
        2**31 - 1,
        -(2**31),
    ]


@pytest.mark.parametrize("dtype", ["i8", "i32"])
def test_a_cast_saturates_wherever_it_stands(dtype):
    least, most = INTEGER_RANGE[dtype]
    x = np.array([[most * 4.0, least * 4.0, 3.7, -3.7]], F32)
    assert run_f32(fn("mul", fn("cast", X, dtype=dtype), 0.5), x).tolist() == [[F32(most) / 2, least / 2, 1.5, -1.5]]


def test_numbers_beyond_f32_are_infinite():
    x = np.array([[1.0, -2.0]], F32)
    assert run_f32(fn("min", X, 1e300), x).tolist() == x.tolist()
    assert run_f32(fn("mul", X, -1e300), x).tolist() == [[-math.inf, math.inf]]


# --- random expressions ---------------------------------------------------------------------------------------------

BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "eq": lambda a, b: (a == b).astype(F32), "lt": lambda a, b: (a < b).astype(F32),
    "le": lambda a, b: (a <= b).astype(F32),
}  # fmt: skip


def leaves_() -> st.SearchStrategy[Expr]:
    rows, columns = quasi(ROW), quasi(COL)
    return st.one_of(
        st.floats(-4, 4, width=32).map(Const),
        st.sampled_from([X, Z, at("x", ROW, 0), at("z", 0, COL), at("x", 1, 2), at("x", ROW, COL)]),
        st.sampled_from(
            [at("x", ROW, columns // 2), at("z", ROW, columns + 1 - 2 * (columns % 2)), at("x", 0, (columns + 3) % 7)]
        ),
        st.sampled_from([Var(columns), Var(rows * 3 + 1), Var(columns % 5), Var((rows + columns) // 3)]),
    )


def expressions() -> st.SearchStrategy[Expr]:
    def grow(inner):
        return st.one_of(
            st.tuples(st.sampled_from(sorted(BINARY)), inner, inner).map(lambda t: Fn(t[0], t[1:])),
            inner.map(lambda e: Fn("abs", (e,))),
            st.tuples(inner, inner, inner).map(lambda t: Fn("select", t)),
        )

    return st.recursive(leaves_(), grow, max_leaves=8)


def meaning(expr: Expr, data: dict[str, np.ndarray], point: dict[str, int]) -> np.floating:
    if isinstance(expr, Const):
        return F32(expr.value)
    if isinstance(expr, Var):
        return F32(expr.value.evaluate(point))
    if isinstance(expr, At):
        return data[expr.name][tuple(i.evaluate(point) for i in expr.index)]
    if isinstance(expr, Reduce):
        terms = [meaning(expr.body, data, {**point, GEN_K: k}) for k in range(expr.extent.evaluate(point))]
        return max(terms) if expr.kind == "MAX" else lane_sum(terms)
    values = [meaning(a, data, point) for a in expr.args]
    if expr.op == "select":
        return values[1] if values[0] != 0 else values[2]
    return np.abs(values[0]) if expr.op == "abs" else BINARY[expr.op](*values)


def lane_sum(terms: list[np.floating]) -> np.floating:
    lanes = np.zeros(16, F32)
    for k, term in enumerate(terms):
        lanes[k % 16] += term
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes[0]


def evaluated(expr: Expr, data: dict[str, np.ndarray], rows: int, cols: int) -> np.ndarray:
    return np.array([[meaning(expr, data, {ROW: r, COL: c}) for c in range(cols)] for r in range(rows)], F32)


@given(expressions(), st.integers(1, 3), st.sampled_from([1, 2, 16, 17, 35]))
def test_random_expressions(expr, rows, cols):
    rng = np.random.default_rng(cols)
    data = {n: rng.integers(-3, 4, (3, 40)).astype(F32) / F32(2) for n in ("x", "z")}
    found = run(expr, {n: (a, "f32") for n, a in data.items()}, rows, cols)
    assert np.array_equal(found, evaluated(expr, data, rows, cols))


REDUCTIONS = {
    "a row": at("x", ROW, GEN_K),
    "a column": at("x", GEN_K, COL),
    "squares": fn("mul", at("x", ROW, GEN_K), at("x", ROW, GEN_K)),
    "across": fn("mul", at("x", ROW, GEN_K), at("z", GEN_K, COL)),
    "masked": fn("select", fn("le", Var(quasi(GEN_K)), Var(quasi(ROW) + 5)), at("x", ROW, GEN_K), -3.0e38),
    "less a mean": fn("sub", at("x", ROW, GEN_K), fn("mul", at("z", ROW, 0), 0.5)),
}


@pytest.mark.parametrize("kind", ["SUM", "MAX"])
@pytest.mark.parametrize("body", sorted(REDUCTIONS))
@pytest.mark.parametrize("extent", [1, 16, 37])
def test_reductions(kind, body, extent):
    rng = np.random.default_rng(extent)
    data = {n: rng.standard_normal((40, 40)).astype(F32) for n in ("x", "z")}
    inner = Reduce(kind, GEN_K, quasi(extent), REDUCTIONS[body])
    expr = fn("mul", fn("add", inner, 1.0), at("z", ROW, COL))
    found = run(expr, {n: (a, "f32") for n, a in data.items()}, 3, 19)
    with np.errstate(over="ignore"):
        assert np.array_equal(found, evaluated(expr, data, 3, 19))


def test_an_empty_sum_is_nothing():
    inner = Reduce("SUM", GEN_K, quasi(0), at("x", ROW, GEN_K))
    assert run_f32(fn("add", inner, 2.0), np.ones((2, 3), F32)).tolist() == [[2.0] * 3] * 2


# --- element types --------------------------------------------------------------------------------------------------


C = quasi(COL)
NEAR = [C // 2, 4 * (C // 2) - C + 1, 47 - C, 8 * (C // 8) + 3, C - 3 * ((C + 5) // 4) + 40, C // 16 + 7]
FAR = [(C * 5) % 32, 2 * C, C // 3]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "i32", "q8_0"])
@pytest.mark.parametrize("index", [C, C + 16, C + 3, quasi(4), *NEAR, *FAR])
def test_reading_every_type(dtype, index):
    values = np.random.default_rng(1).integers(-100, 101, (3, 96)).astype(F32)
    stored = as_stored(values * (1 if dtype.startswith("i") else F32(0.37)), dtype)
    found = run(at("x", ROW, index), {"x": (stored, dtype)}, 3, 33)
    columns = [index.evaluate({COL: c}) for c in range(33)]
    assert np.array_equal(found, as_numbers(stored, dtype)[:, columns])


def test_which_columns_are_near_each_other():
    """The same from every multiple of 16 on: what is said of the first 16 holds for all."""
    for index in (*NEAR, 2 * C, (C // 2 + 1) // 2):
        offsets = lane_offsets(index, COL)
        for first in (0, 16, 32, 80):
            values = [index.evaluate({COL: first + lane}) for lane in range(16)]
            assert offsets == tuple(v - values[0] for v in values)
    for index in (C // 3, (C * 5) % 32, (C + quasi("pos")) // 2):
        assert lane_offsets(index, COL) is None
    assert lane_offsets(quasi("pos") // 3, COL) == (0,) * 16


@pytest.mark.parametrize("extent", [5, 16, 40])
def test_a_sum_over_neighbours_swapped(extent):
    k = quasi(GEN_K)
    x = np.random.default_rng(extent).integers(-9, 10, (3, extent + 1)).astype(F32)
    found = run_f32(Reduce("SUM", GEN_K, quasi(extent), at("x", ROW, 4 * (k // 2) - k + 1)), x, cols=1)
    columns = [4 * (j // 2) - j + 1 for j in range(extent)]
    assert np.array_equal(found[:, 0], x[:, columns].sum(axis=1))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_writing_floats_rounds_to_nearest_even(dtype):
    rng = np.random.default_rng(2)
    special = [[0.0, -0.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1e-8, 65520.0, -1e30, 6e-8] * 4 + [np.inf, -np.inf]]
    x = np.concatenate([np.array(special, F32), rng.standard_normal((2, 34)).astype(F32) * 1000])
    found = run(X, {"x": (x, "f32")}, 3, 34, dtype)
    with np.errstate(over="ignore"):
        assert np.array_equal(found.view(np.uint8), as_stored(x, dtype).view(np.uint8))
    assert found.dtype == {"f32": F32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]


@pytest.mark.parametrize("dtype", ["i8", "i32"])
def test_writing_integers(dtype):
    x = np.random.default_rng(3).integers(-127, 128, (2, 37)).astype(F32)
    assert np.array_equal(run(fn("round", X), {"x": (x, "f32")}, 2, 37, dtype), x.astype(dtype.replace("i", "int")))


def test_a_copy_of_integers_keeps_those_that_no_f32_holds():
    x = np.arange(2**24, 2**24 + 74, dtype=np.int32).reshape(2, 37) * [[1], [-127]]
    assert np.array_equal(run(X, {"x": (x.astype(np.int32), "i32")}, 2, 37, "i32"), x)
    last = at("x", 1, 36)
    assert (run(last, {"x": (x.astype(np.int32), "i32")}, 2, 37, "i32") == x[1, 36]).all()


def test_writing_blocks_is_ggmls():
    x = np.random.default_rng(4).standard_normal((4, 96)).astype(F32)
    x[0, :32] = 0
    x[1, :32] *= F32(1e-6)  # a subnormal scale
    x[1, 32:64] *= F32(1e-12)  # a scale of 0, quants all the same
    x[2, 32:64] = np.arange(32, dtype=F32) - 16
    assert np.array_equal(run(X, {"x": (x, "f32")}, 4, 96, "q8_0"), as_stored(x, "q8_0"))


# --- spans and guards -----------------------------------------------------------------------------------------------


def test_an_empty_guard_does_nothing():
    x = np.ones((2, 5), F32)
    full, empty = span(2, 1, 3), span(3, 1, 3)
    assert (run(X, {"x": (x, "f32")}, 2, 5, guard=(full,)) == 1).all()
    operands = {"x": ("f32", 2, 5)}
    program = generic_program(HOST, fn("add", X, 1.0), operands, 2, 5, guard=(full, empty))
    with native.load(program, HOST, weights={}, accept=accepted) as ready:
        ready.launch({}, {"x": x})
        assert (ready.tensor("Y") == 0).all()
