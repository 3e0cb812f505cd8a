"""`evaluate_spec` against small sums done by hand, and q8_0 against ggml's own quantiser."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from msgspec.structs import replace

from pavane.ir.expr import Const, Expr, Indirect, Reduce, Var, at, fn
from pavane.ir.program import Formal, Items, Numerics, Shape, Spec, Tensor
from pavane.ir.quasi import quasi
from pavane.reject import LaunchReject
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.q8 import dequantise_q8, quantise_q8
from pavane.tensor_graph.reference import evaluate_sections, evaluate_spec
from tests.building import one_section, shape_of
from tests.examples import attention_host, matmul_multicast, norm_product_host

X = np.array([[1.0, -2.0, 3.5], [0.5, 4.0, -1.5]], np.float32)


def evaluated(
    target: SpatialTarget, expr: Expr, extents: tuple[int, ...] = (2, 3), dtype: str = "f32", **more
) -> np.ndarray:
    """One spec over X [2, 3] and what else is given."""
    arrays = {"X": X, **more}
    kinds = {"float32": "f32", "int32": "i32", "uint8": "q8_0"}
    tensors = [Tensor(n.lower(), shape_of(*a.shape), kinds[str(a.dtype)], "INPUT") for n, a in arrays.items()]
    formals = [Formal(n, shape_of(*a.shape), kinds[str(a.dtype)], "IN") for n, a in arrays.items()]
    out = Tensor("out", shape_of(*extents), dtype, "OUTPUT")
    shape = Shape(
        name="s", formals=(*formals, Formal("Y", shape_of(*extents), dtype, "OUT")),
        spec=(Spec("Y", shape_of(*(0 for _ in extents)), shape_of(*extents), expr),),
        items=Items(quasi(1), quasi(1), 1, 1), numerics=Numerics(),
    )  # fmt: skip
    bindings = {n: n.lower() for n in arrays} | {"Y": "out"}
    program = one_section(target, shape, (*tensors, out), bindings)
    return evaluate_spec(program, {n.lower(): a for n, a in arrays.items()}, {})["out"]


def test_operators(toy: SpatialTarget) -> None:
    x = at("X", "i0", "i1")
    assert evaluated(toy, fn("add", x, 1.0)).tolist() == [[2.0, -1.0, 4.5], [1.5, 5.0, -0.5]]
    assert evaluated(toy, fn("round", x)).tolist() == [[1, -2, 4], [1, 4, -2]]
    assert evaluated(toy, fn("cast", x, dtype="i8"), dtype="i8").tolist() == [[1, -2, 3], [0, 4, -1]]
    assert evaluated(toy, fn("cast", fn("mul", x, 100.0), dtype="i8"), dtype="i8").tolist() == [
        [100, -128, 127],
        [50, 127, -128],
    ]
    assert evaluated(toy, fn("select", fn("lt", x, 1.0), 0.0, x)).tolist() == [[1, 0, 3.5], [0, 4, 0]]
    assert evaluated(toy, fn("max", fn("abs", x), 2.0)).tolist() == [[2, 2, 3.5], [2, 4, 2]]
    np.testing.assert_allclose(evaluated(toy, fn("rsqrt", fn("abs", x))), 1 / np.sqrt(np.abs(X)), rtol=1e-7)
    np.testing.assert_allclose(evaluated(toy, fn("erf", x))[0], [0.8427008, -0.9953223, 0.9999993], atol=1e-7)


def test_indices_and_reductions(toy: SpatialTarget) -> None:
    total = Reduce("SUM", "k0", quasi(3), at("X", "i0", "k0"))
    assert evaluated(toy, total, (2,)).tolist() == [2.5, 3.0]
    assert evaluated(toy, Reduce("MAX", "k0", quasi(3), at("X", "i0", "k0")), (2,)).tolist() == [3.5, 4.0]
    second = quasi("i0") - 2 * (quasi("i0") // 2)
    turned = at("X", "i1", quasi("i0") + 1 - 2 * second)
    assert evaluated(toy, turned, (2, 2)).tolist() == [[-2.0, 4.0], [1.0, 0.5]]
    assert evaluated(toy, Var(2 * quasi("i0") - quasi("i1"))).tolist() == [[0, -1, -2], [2, 1, 0]]
    gram = Reduce("SUM", "k0", quasi(3), fn("mul", at("X", "i0", "k0"), at("X", "i1", "k0")))
    assert evaluated(toy, gram, (2, 2)).tolist() == (X @ X.T).tolist()
    assert evaluated(toy, Reduce("SUM", "k0", quasi(0), Const(1.0)), (2,)).tolist() == [0.0, 0.0]


def test_indirect_rows(toy: SpatialTarget) -> None:
    row = at("X", Indirect("IDS", (quasi("i0"),), 0, 2), "i1")
    ids = np.array([1, 1, 0], np.int32)
    assert evaluated(toy, row, (3, 3), IDS=ids).tolist() == X[[1, 1, 0]].tolist()
    with pytest.raises(LaunchReject, match="outside the table"):
        evaluated(toy, row, (3, 3), IDS=np.array([0, 2, 0], np.int32))


def test_outside_an_operand_is_an_error(toy: SpatialTarget) -> None:
    with pytest.raises(IndexError, match="X is read at 1 to 3 of 3"):
        evaluated(toy, at("X", "i0", quasi("i1") + 1))
    with pytest.raises(IndexError, match="-1 to 1"):
        evaluated(toy, at("X", "i0", quasi("i1") - 1))


def test_hand_written_matmul(toy: SpatialTarget) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (100, 70)), rng.integers(-4, 5, (70, 150))
    out = evaluate_spec(matmul_multicast(toy), {"a": a, "b": b}, {})["c"]
    assert out.dtype == np.float32
    assert (out == a @ b).all()


def test_hand_written_norm_product_reads_q8_as_stored(host: SpatialTarget) -> None:
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=(5, 64)).astype(np.float32), rng.normal(size=64).astype(np.float32)
    w = quantise_q8(rng.normal(size=(96, 64)))
    out = evaluate_spec(norm_product_host(host), {"x": x, "g": g, "w": w}, {"rows": 5})["y"]
    normed = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * g
    np.testing.assert_allclose(out, normed @ dequantise_q8(w).T, atol=1e-5)


def test_hand_written_attention(host: SpatialTarget) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(size=s).astype(np.float32) for s in ((3, 3, 16), (64, 1, 16), (64, 1, 16)))
    out = evaluate_spec(attention_host(host), {"q": q, "kc": k, "vc": v}, {"pos": 4, "rows": 3})["o"]
    for r in range(3):
        for h in range(3):
            scores = k[: 5 + r, 0] @ q[r, h] / 4
            weights = np.exp(scores - scores.max())
            np.testing.assert_allclose(out[r, h], weights @ v[: 5 + r, 0] / weights.sum(), atol=1e-6)


def test_sections_follow_each_other(toy: SpatialTarget) -> None:
    """A second section reads what the first wrote, in storage form."""
    first = matmul_multicast(toy, 4, 4, 4)
    a, b, c = first.tensors
    second = replace(first, tensors=(replace(a, name="c", dtype="f32"), b, replace(c, name="d")))
    bindings = tuple(
        replace(b, tensor={"a": "c", "c": "d"}.get(b.tensor, b.tensor)) for b in first.instances[0].bindings
    )
    second = replace(second, instances=(replace(first.instances[0], bindings=bindings),))
    numbers = np.arange(16).reshape(4, 4)
    out = evaluate_sections((first, second), {"a": numbers, "b": np.eye(4) * 2}, {})
    assert (out["d"] == 4 * numbers).all()


def test_a_missing_tensor_is_refused(toy: SpatialTarget) -> None:
    with pytest.raises(LaunchReject, match="tensor b"):
        evaluate_spec(matmul_multicast(toy), {"a": np.zeros((100, 70))}, {})


def test_q8_is_ggmls() -> None:
    rng = np.random.default_rng(3)
    values = (rng.normal(size=(7, 96)) * rng.uniform(1e-6, 50, (7, 1))).astype(np.float32)
    values[0, :32] = 0
    ours = quantise_q8(values)
    assert (ours == quantize(values, GGMLQuantizationType.Q8_0)).all()
    assert (dequantise_q8(ours) == dequantize(ours, GGMLQuantizationType.Q8_0)).all()
