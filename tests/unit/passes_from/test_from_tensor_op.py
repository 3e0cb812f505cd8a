"""Templates of single ops: they mean what numpy says, keep the grammar's rules, and claim exactness only where it
holds.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pavane.ir.program import Program
from pavane.ir.types import Const, Ints
from pavane.passes.from_tensor_op import from_tensor_op
from pavane.passes.matrix_mode import choose_mode
from pavane.reject import ArgumentReject, NoEngine
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.tensor_graph.front import recognize_stages
from pavane.tensor_graph.graph import Graph
from pavane.tensor_graph.q8 import dequantise_q8, quantise_q8
from pavane.tensor_graph.reference import evaluate_sections
from pavane.validate import violations

TARGETS = {"toy": load_target("toy"), "host": load_target("host", cores=2)}
RNG = np.random.default_rng(0)


def sections(graph: Graph, target: SpatialTarget) -> tuple[Program, ...]:
    """Valid TEMPLATEs that survive a round trip."""
    out = tuple(from_tensor_op(op, target) for op in recognize_stages(graph))
    for program in out:
        assert violations(program, target) == ()
        assert msgspec.json.decode(msgspec.json.encode(program), type=Program) == program
    return out


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (33, 65, 31), (7, 96, 200), (100, 70, 150)])
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(target: str, m: int, k: int, n: int, transposed: bool) -> None:
    g = Graph()
    b_shape = (n, k) if transposed else (k, n)
    g.output("c", g.matmul(g.input("a", (m, k)), g.weight("b", b_shape), transposed))
    (program,) = sections(g, TARGETS[target])
    a, b = floats(m, k), floats(*b_shape)
    out = evaluate_sections((program,), {"a": a, "b": b}, {})["c"]
    np.testing.assert_allclose(out, a @ (b.T if transposed else b), atol=1e-4)


def test_matmul_template_is_that_of_the_worked_example(toy: SpatialTarget) -> None:
    g = Graph()
    a = g.input("a", (100, 70), dtype="bf16", fill=Ints(-4, 4))
    g.output("c", g.matmul(a, g.weight("b", (70, 150), dtype="bf16", fill=Ints(-4, 4))))
    (program,) = sections(g, toy)
    (shape,) = program.shapes
    assert (shape.items.y.const, shape.items.x.const) == (4, 5)
    assert [stage.name for stage in shape.groups[0].stages] == ["reader_a", "reader_b", "compute", "writer"]
    assert [(f.name, f.rows, f.cols, f.dtype, f.depth) for f in shape.fifos] == [
        ("fA", 32, 32, "bf16", 2),
        ("fB", 32, 32, "bf16", 2),
        ("fC", 32, 32, "f32", 2),
    ]
    assert shape.numerics.exact


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 70), st.sampled_from(sorted(TARGETS)))
def test_epilogues_of_any_shape(m: int, k: int, n: int, target: str) -> None:
    g = Graph()
    y = g.matmul(g.input("a", (m, k)), g.weight("b", (k, n)))
    y = g.apply("add", g.apply("add", y, g.weight("row", (n,))), g.input("col", (m, 1)))
    y = g.apply("mul", g.apply("mul", y, g.input("full", (m, n))), g.weight("one", (1,)))
    g.output("y", y)
    programs = sections(g, TARGETS[target])
    shapes = {"a": (m, k), "b": (k, n), "row": (n,), "col": (m, 1), "full": (m, n), "one": (1,)}
    t = {name: floats(*shape) for name, shape in shapes.items()}
    out = evaluate_sections(programs, t, {})["y"]
    expected = (t["a"] @ t["b"] + t["row"] + t["col"]) * t["full"] * t["one"]
    np.testing.assert_allclose(out, expected, atol=2e-4)


@given(st.integers(1, 40), st.integers(1, 90), st.sampled_from(sorted(TARGETS)))
def test_softmax_and_norm(m: int, n: int, target: str) -> None:
    g = Graph()
    x, gain = g.input("x", (m, n)), g.weight("g", (n,))
    g.output("s", g.softmax(x))
    g.output("r", g.rmsnorm(x, gain))
    t = {"x": floats(m, n), "g": floats(n)}
    out = evaluate_sections(sections(g, TARGETS[target]), t, {})
    weights = np.exp(t["x"] - t["x"].max(1, keepdims=True))
    np.testing.assert_allclose(out["s"], weights / weights.sum(1, keepdims=True), atol=1e-6)
    norm = t["x"] / np.sqrt((t["x"].astype(float) ** 2).mean(1, keepdims=True) + 1e-5) * t["g"]
    np.testing.assert_allclose(out["r"], norm, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_higher_ranks_and_symbols(target: str) -> None:
    g = Graph()
    rows = g.symbol("rows", 1, 32, 4)
    x = g.input("x", (rows, 3, 5))
    g.output("y", g.reduce("MAX", g.apply("exp", x)))
    programs = sections(g, TARGETS[target])
    x_values = floats(4, 3, 5)
    out = evaluate_sections(programs, {"x": x_values}, {"rows": 4})["y"]
    np.testing.assert_allclose(out, np.exp(x_values).max(-1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.parametrize(("heads", "kv", "width", "window"), [(4, 4, 8, 0), (6, 2, 5, 3), (3, 1, 40, 0)])
def test_attention(target: str, heads: int, kv: int, width: int, window: int) -> None:
    g = Graph()
    rows = g.symbol("rows", 1, 8, 3)
    q, k = g.input("q", (rows, heads, width)), g.input("k", (rows + 37, kv, width))
    g.output("o", g.attention(q, k, g.input("v", (rows + 37, kv, width)), window=window))
    programs = sections(g, TARGETS[target])
    t = {"q": floats(3, heads, width), "k": floats(40, kv, width), "v": floats(40, kv, width)}
    out = evaluate_sections(programs, t, {"rows": 3})["o"]
    for r in range(3):
        for h in range(heads):
            seen = slice(max(0, 38 + r - window) if window else 0, 38 + r)
            scores = t["k"][seen, h * kv // heads] @ t["q"][r, h] * width**-0.5
            weights = np.exp(scores - scores.max())
            expected = weights @ t["v"][seen, h * kv // heads] / weights.sum()
            np.testing.assert_allclose(out[r, h], expected, atol=1e-5)


@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
def test_gather(target: str, dtype: str) -> None:
    g = Graph()
    ids = g.input("ids", (5,), dtype="i32", fill=Ints(0, 8))
    g.output("e", g.gather(g.weight("t", (9, 96), dtype=dtype), ids))
    programs = sections(g, TARGETS[target])
    table = floats(9, 96) if dtype == "f32" else quantise_q8(floats(9, 96))
    t = {"ids": np.array([8, 0, 0, 3, 7], np.int32), "t": table}
    rows = (table if dtype == "f32" else dequantise_q8(table))[t["ids"]]
    assert (evaluate_sections(programs, t, {})["e"] == rows).all()
    fifo = next(f for f in programs[0].shapes[0].fifos if f.name == "fE")
    assert fifo.kind == "LOCAL"


def test_integer_outputs_are_rounded_and_saturated(toy: SpatialTarget) -> None:
    g = Graph()
    nearest = g.apply("round", g.apply("mul", g.input("x", (1, 4)), 10.0))
    g.output("y", g.apply("cast", nearest, dtype="i8"))
    programs = sections(g, toy)
    out = evaluate_sections(programs, {"x": np.array([[0.26, -0.25, 50.0, -50.0]])}, {})["y"]
    assert out.dtype == np.int8
    assert out.tolist() == [[3, -3, 127, -128]]


# --- exactness --------------------------------------------------------------------------------------------------------


def matmul_of(target: SpatialTarget, k: int, a: Ints | Const, b: Ints | Const, dtype: str = "f32", output: str = "f32"):
    g = Graph()
    g.output("c", g.matmul(g.input("a", (2, k), dtype, a), g.weight("b", (k, 3), dtype, b)), dtype=output)
    (program,) = sections(g, target)
    return program.shapes[0].numerics


def test_exact_up_to_the_accumulator(toy: SpatialTarget) -> None:
    """256 * 256 * 256 is 2**24."""
    at_limit = matmul_of(toy, 256, Ints(-256, 256), Ints(0, 256))
    assert at_limit.exact
    assert at_limit.operands == (("A", "bf16"), ("B", "bf16"))
    assert not matmul_of(toy, 257, Ints(-256, 256), Ints(0, 256)).exact


def test_exact_up_to_the_operands(toy: SpatialTarget) -> None:
    """257 does not fit 8 significand bits: the product rides on f32 instead, and is exact there."""
    wider = matmul_of(toy, 200, Ints(-257, 257), Ints(0, 256))
    assert wider.operands == (("A", "f32"), ("B", "f32"))
    assert wider.exact
    engines = tuple(replace(e, matrix=tuple(m for m in e.matrix if m.a == "bf16")) for e in toy.engines)
    narrow = matmul_of(replace(toy, engines=engines), 200, Ints(-257, 257), Ints(0, 256))
    assert narrow.operands == (("A", "bf16"), ("B", "bf16"))
    assert not narrow.exact


def test_exact_needs_a_full_multiplication(toy: SpatialTarget) -> None:
    coarse = tuple(replace(e, matrix=tuple(replace(m, operand_bits=4) for m in e.matrix)) for e in toy.engines)
    assert matmul_of(replace(toy, engines=coarse), 8, Ints(-16, 16), Ints(0, 16)).exact
    assert not matmul_of(replace(toy, engines=coarse), 8, Ints(-17, 17), Ints(0, 16)).exact


def test_exact_needs_an_output_that_holds_it(toy: SpatialTarget, host: SpatialTarget) -> None:
    assert not matmul_of(toy, 8, Ints(0, 1), Ints(0, 1), output="bf16").exact
    assert not matmul_of(toy, 8, Const(0.5), Ints(0, 1)).exact
    assert matmul_of(toy, 8, Const(3.0), Ints(0, 1)).exact
    assert matmul_of(host, 8, Ints(-128, 127), Ints(-128, 127), dtype="i8").exact


def test_sections_after_others_and_epilogues_are_not_claimed(toy: SpatialTarget) -> None:
    g = Graph()
    a = g.input("a", (2, 4), fill=Ints(0, 1))
    first = g.matmul(a, g.weight("b", (4, 4), fill=Ints(0, 1)))
    g.output("c", g.apply("add", g.matmul(first, g.weight("d", (4, 4), fill=Ints(0, 1))), 1.0))
    one, two = sections(g, toy)
    assert one.shapes[0].numerics.exact
    assert not two.shapes[0].numerics.exact


def test_no_engine(toy: SpatialTarget) -> None:
    with pytest.raises(NoEngine, match="multiplies i32 by i32") as caught:
        choose_mode(toy, "i32", "i32")
    assert "matrix: bf16 x bf16" in caught.value.available
    none = replace(toy, engines=tuple(replace(e, matrix=()) for e in toy.engines))
    with pytest.raises(NoEngine, match="no matrix mode at all"):
        matmul_of(none, 4, Ints(0, 1), Ints(0, 1))


# --- q8_0 -------------------------------------------------------------------------------------------------------------


def q8_graph(rows: int, k: int, n: int, contract: str = "FLOAT", norm: bool = False, transposed: bool = True) -> Graph:
    g = Graph(contract=contract)
    x = g.input("x", (rows, k))
    x = g.rmsnorm(x, g.weight("g", (k,))) if norm else x
    w = g.weight("w", (n, k) if transposed else (k, n), dtype="q8_0")
    g.output("y", g.matmul(x, w, transposed))
    return g


@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.parametrize("contract", ["FLOAT", "INT8_ACTIVATIONS"])
@pytest.mark.parametrize("norm", [False, True])
def test_q8(target: str, contract: str, norm: bool) -> None:
    (program,) = sections(q8_graph(5, 64, 40, contract, norm), TARGETS[target])
    t = {"x": floats(5, 64), "g": floats(64), "w": quantise_q8(floats(40, 64))}
    x = t["x"] / np.sqrt((t["x"] ** 2).mean(1, keepdims=True) + 1e-5) * t["g"] if norm else t["x"]
    out = evaluate_sections((program,), t, {})["y"]
    np.testing.assert_allclose(out, x @ dequantise_q8(t["w"]).T, atol=1e-4)
    (shape,) = program.shapes
    panels = [c.dtype for c in shape.carries if c.cols == 64]
    assert panels == (["q8_0"] if contract == "INT8_ACTIVATIONS" else ["f32"] if norm else [])
    assert shape.numerics.contract == contract
    assert next(f for f in shape.fifos if f.name == "fB").dtype == "q8_0"


def test_q8_refuses(toy: SpatialTarget) -> None:
    (op,) = recognize_stages(q8_graph(33, 64, 40))
    with pytest.raises(ArgumentReject, match="33 rows, and a tile of toy has 32"):
        from_tensor_op(op, toy)


def test_alias_where_the_target_addresses_memory(host: SpatialTarget, toy: SpatialTarget) -> None:
    (on_host,), (on_toy,) = (sections(q8_graph(5, 64, 40), t) for t in (host, toy))
    assert [f.kind for f in on_host.shapes[0].fifos] == ["ALIAS", "ALIAS", "LOCAL"]
    assert [f.kind for f in on_toy.shapes[0].fifos] == ["LOCAL", "LOCAL", "LOCAL"]
