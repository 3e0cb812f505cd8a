"""Orders of sums, rounding, q8_0, and the closed list of operators, each against the plainest way to write it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from pavane.ir.expr import Const, Reduce, Var, at, fn
from pavane.ir.program import Tree
from pavane.ir.quasi import quasi
from pavane.sim.generic import evaluated
from pavane.sim.matmul import accumulated, accumulated_q8
from pavane.sim.numbers import quantised, stored, values
from pavane.tensor_graph.q8 import round_half_away
from tests.building import COL, GEN_K, ROW

F32 = np.float32
TREES = (
    Tree(),
    Tree(fused=True),
    Tree(0, 16, True),
    Tree(0, 8, False),
    Tree(32, 4, False),
)


def multiply_add(acc: np.floating, a: np.floating, b: np.floating, fused: bool) -> np.floating:
    return F32(float(a) * float(b) + float(acc)) if fused else F32(acc + F32(a * b))


def one_sum(acc: np.floating, a: np.ndarray, b: np.ndarray, tree: Tree) -> np.floating:
    """The words of `Tree`, one scalar at a time."""
    if tree.lanes == 1:
        for x, y in zip(a, b, strict=True):
            acc = multiply_add(acc, x, y, tree.fused)
        return acc
    for start in range(0, len(a), tree.atom or len(a)):
        lanes = [F32(0)] * tree.lanes
        for j in range(start, min(len(a), start + (tree.atom or len(a)))):
            lane = (j - start) % tree.lanes
            lanes[lane] = multiply_add(lanes[lane], a[j], b[j], tree.fused)
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [F32(lanes[i] + lanes[i + half]) for i in range(half)]
        acc = F32(acc + lanes[0])
    return acc


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("k", [1, 31, 96])
def test_a_product_keeps_its_tree(tree, k):
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((3, k)).astype(F32), rng.standard_normal((4, k)).astype(F32)
    acc = rng.standard_normal((3, 4)).astype(F32)
    expected = [[one_sum(acc[r, c], a[r], b[c], tree) for c in range(4)] for r in range(3)]
    assert np.array_equal(accumulated(acc, a, b, tree), np.array(expected))


def test_small_integers_take_the_short_way_to_the_same_bits():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 10, (5, 64)).astype(F32) for _ in range(2))
    acc = rng.integers(-9, 10, (5, 5)).astype(F32)
    assert np.array_equal(accumulated(acc, a, b, Tree()), acc + a @ b.T)


def test_past_the_exact_limit_the_order_shows():
    """2**24 + 1 is no f32: the sum in ascending k loses the ones that any other order would keep."""
    a, b = np.array([[2.0**24, 1, 1]], F32), np.ones((1, 3), F32)
    assert accumulated(np.zeros((1, 1), F32), a, b, Tree())[0, 0] == 2.0**24


@pytest.mark.parametrize("lanes", [1, 8])
def test_q8_by_q8_adds_integers_in_a_block(lanes):
    rng = np.random.default_rng(lanes)
    a, b = quantised(rng.standard_normal((2, 96)).astype(F32)), quantised(rng.standard_normal((3, 96)).astype(F32))
    found = accumulated_q8(np.zeros((2, 3), F32), a, b, Tree(0, lanes, True))
    for r in range(2):
        for c in range(3):
            sums = [F32(0)] * lanes
            for block in range(3):
                scale = F32(F32(a["d"][r, block]) * F32(b["d"][c, block]))
                products = a["q"][r, block].astype(int) * b["q"][c, block].astype(int)
                for lane in range(lanes):
                    part = products.reshape(lanes, -1)[lane].sum()
                    sums[lane] = multiply_add(sums[lane], scale, F32(part), True)
            while len(sums) > 1:
                half = len(sums) // 2
                sums = [F32(sums[i] + sums[i + half]) for i in range(half)]
            assert found[r, c] == sums[0]


def test_q8_blocks_are_the_files_own():
    """Bit-equal to ggml's reference rule."""
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(F32)
    x[0, :32] = 0
    ours, theirs = quantised(x), quantize(x, GGMLQuantizationType.Q8_0).view(quantised(x).dtype)
    assert np.array_equal(ours["d"], theirs["d"])
    assert np.array_equal(ours["q"], theirs["q"])
    assert not ours["q"][0, 0].any()
    assert np.array_equal(values(theirs, "q8_0"), dequantize(theirs.view(np.uint8), GGMLQuantizationType.Q8_0))


def test_rounding_into_types():
    assert round_half_away(np.array([0.5, -0.5, 1.5, 2.5, -2.4])).tolist() == [1, -1, 2, 3, -2]
    assert stored(np.array([300.0, -2.7, 2.7]), "i8").tolist() == [127, -2, 2]
    assert float(stored(np.array([1 + 2.0**-8]), "bf16")[0]) == 1.0  # a half, to even


OPERATORS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "eq": lambda a, b: float(a == b), "lt": lambda a, b: float(a < b), "le": lambda a, b: float(a <= b),
    "min": min, "max": max,
    "abs": abs, "exp": math.exp, "log": math.log, "sqrt": math.sqrt, "rsqrt": lambda a: 1 / math.sqrt(a),
    "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "erf": math.erf, "round": round,
}  # fmt: skip


def test_integers_do_not_wrap():
    """What 64 bits would not hold is an f32; what they hold is exact."""
    x = np.array([[2**31 - 1, -(2**31), 2**30 + 1]], np.int64)
    p = at("p", ROW, COL)

    def found(expr):
        return evaluated(expr, lambda name, r, c: x[r, c], {}, 1, 3)[0].tolist()

    square = fn("mul", p, p)
    assert found(square) == [n * n for n in x[0].tolist()]
    assert found(fn("mul", square, p)) == [F32(F32(n * n) * F32(n)) for n in x[0].tolist()]
    each = fn("mul", at("p", ROW, 1), at("p", ROW, 1))
    assert found(Reduce("SUM", GEN_K, quasi(8), each)) == [2.0**65] * 3
    assert found(Reduce("SUM", GEN_K, quasi(2**16), at("p", ROW, 1))) == [-(2**47)] * 3


@pytest.mark.parametrize("op", sorted(OPERATORS))
def test_every_operator(op):
    data = {"p": np.array([[0.3, 1.7, 2.2]], F32), "q": np.array([[0.3, 0.9, 5.0]], F32)}
    args = [at("p", ROW, COL), at("q", ROW, COL)][: 2 if op in list(OPERATORS)[:9] else 1]
    found = evaluated(fn(op, *args), lambda name, r, c: data[name][r, c], {}, 1, 3)
    inputs = [data["p"][0].tolist(), data["q"][0].tolist()][: len(args)]
    expected = [OPERATORS[op](*x) for x in zip(*inputs, strict=True)]
    assert np.allclose(found[0].astype(float), expected, rtol=2e-7, atol=0)


def test_select_cast_and_variables():
    data = np.array([[-1.9, 1.9, 7.0]], F32)
    chosen = fn("select", fn("le", Var(quasi(COL)), Var(quasi("n"))), fn("cast", at("p", ROW, COL), dtype="i32"), -5.0)
    found = evaluated(chosen, lambda _, r, c: data[r, c], {"n": 1}, 1, 3)
    assert found.dtype == np.int64
    assert found.tolist() == [[-1, 1, -5]]


def test_integers_stay_integers():
    """2**30 + 1 is no f32."""
    data = np.array([[2**30]], np.int64)
    found = evaluated(fn("add", at("p", ROW, COL), 1.0), lambda _, r, c: data[r, c], {}, 1, 1)
    assert found.tolist() == [[2**30 + 1]]


def test_a_sum_has_sixteen_lanes():
    data = np.random.default_rng(2).standard_normal((2, 37)).astype(F32)
    total = Reduce("SUM", GEN_K, quasi("n"), at("p", ROW, GEN_K))
    found = evaluated(total, lambda _, r, c: data[r, c], {"n": 37}, 2, 1)
    ones = np.ones(37, F32)
    assert [v for (v,) in found] == [one_sum(F32(0), row, ones, Tree(0, 16)) for row in data]
    assert evaluated(total, lambda _, r, c: data[r, c], {"n": 0}, 2, 1).tolist() == [[0], [0]]


def test_a_constant_fills():
    assert evaluated(Const(0.25), lambda *_: np.zeros(0), {}, 2, 3).tolist() == [[0.25] * 3] * 2
