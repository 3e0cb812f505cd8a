"""Block floats on this machine: the same bits as the reference's decoding and encoding, and as the simulated host."""

from __future__ import annotations

import numpy as np
import pytest

from pavane import api, native
from pavane.ir.types import BFP_BLOCK, MAGNITUDE_BITS, Ints
from pavane.reject import LaunchReject
from pavane.sim import simulate
from pavane.targets.load import load_target
from pavane.tensor_graph.blocks import decode_blocks, encode_blocks
from pavane.tensor_graph.bound import worst_ratio
from pavane.tensor_graph.graph import Graph
from pavane.tensor_graph.operands import stored

KINDS = sorted(MAGNITUDE_BITS)
HOST = load_target("host", 2)


def compiled(graph: Graph):
    return api.compile(api.graph(graph), HOST)


def launched(program, inputs, weights=None) -> dict[str, np.ndarray]:
    names = [t.name for t in program.tensors if t.role == "OUTPUT"]
    with native.load(program, HOST, weights=weights or {}) as engine:
        engine.launch({}, inputs)
        return {name: engine.tensor(name).copy() for name in names}


def numbers(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Rows of every size there is, one of zeros."""
    values = rng.standard_normal((rows, columns)) * 2.0 ** rng.integers(-135, 120, (rows, 1))
    values[rows // 2] = 0
    return values.astype(np.float32)


@pytest.mark.parametrize("dtype", KINDS)
def test_every_element_is_read_as_it_is_meant(dtype):
    """All magnitudes under exponents from the least to the greatest, a sign alone too."""
    bits = MAGNITUDE_BITS[dtype]
    exponents = np.array([0, 1, 2, 3, bits - 1, bits, bits + 1, 100, 127, 200, 247, 254], np.uint8)
    elements = np.arange(max(2 << bits, BFP_BLOCK), dtype=np.uint8).reshape(-1, BFP_BLOCK)
    if dtype == "bfp4":
        elements = elements[:, 0::2] | elements[:, 1::2] << 4
    blocks = [np.concatenate(([e], row)) for e in exponents for row in elements]
    data = np.array(blocks, np.uint8).reshape(len(exponents), -1)
    rows, columns = len(exponents), len(elements) * BFP_BLOCK
    graph = Graph("read")
    graph.output("y", graph.apply("max", graph.input("x", (rows, columns), dtype), -3.0e38))
    found = launched(compiled(graph), {"x": data})["y"]
    expected = np.maximum(decode_blocks(data, dtype), np.float32(-3.0e38))
    assert found.view(np.uint32).tolist() == expected.view(np.uint32).tolist()


@pytest.mark.parametrize("dtype", KINDS)
def test_what_is_written_is_what_the_rule_says(dtype):
    rng, graph = np.random.default_rng(1), Graph("write")
    graph.output("y", graph.apply("mul", graph.input("x", (40, 112)), 1.0), dtype)
    x = numbers(rng, 40, 112)
    x[3] *= np.float32(2.0) ** rng.integers(-20, 20, 112).astype(np.float32)
    x[4, ::3] = np.ldexp(np.float32(1.5), -np.arange(38)).astype(np.float32)  # halves, down to nothing
    assert (launched(compiled(graph), {"x": x})["y"] == encode_blocks(x, dtype)).all()


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(
    ("m", "k", "n", "transposed"),
    [(1, 576, 100, True), (33, 48, 17, True), (3, 16, 1, True), (7, 100, 48, False), (33, 70, 112, False)],
)
def test_products_are_those_of_the_simulated_host(dtype, m, k, n, transposed):
    graph = Graph("product")
    b = graph.weight("b", (n, k) if transposed else (k, n), dtype)
    graph.output("c", graph.matmul(graph.input("a", (m, k)), b, transposed=transposed))
    program, rng = compiled(graph), np.random.default_rng(m + k + n)
    a, weight = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k) if transposed else (k, n))
    given = {"a": a, "b": encode_blocks(weight, dtype)}
    found = launched(program, {"a": a}, {"b": given["b"]})["c"]
    assert (found == simulate(program, HOST, tensors=given).outputs["c"]).all()
    assert 0 < worst_ratio(program, given, {**given, "c": found}, {}, 0, HOST) <= 1


@pytest.mark.parametrize(
    ("a", "b"), [("bfp8", "bfp8"), ("bfp8", "bfp4"), ("bfp4", "f32"), ("bfp8", "bf16"), ("f16", "bfp4")]
)
@pytest.mark.parametrize(("m", "transposed"), [(1, True), (9, True), (1, False), (33, False)])
def test_either_operand_may_be_in_blocks(a, b, m, transposed):
    k, n, graph, rng = 48, 32, Graph("product"), np.random.default_rng(m)
    shapes = {"a": (m, k), "b": (n, k) if transposed else (k, n)}
    values = [graph.input(name, shape, dtype) for (name, shape), dtype in zip(shapes.items(), (a, b), strict=True)]
    graph.output("c", graph.matmul(*values, transposed=transposed))
    given = {name: stored(dtype, rng.standard_normal(shapes[name])) for name, dtype in (("a", a), ("b", b))}
    program = compiled(graph)
    found = launched(program, given)["c"]
    assert (found == simulate(program, HOST, tensors=given).outputs["c"]).all()
    assert worst_ratio(program, given, {**given, "c": found}, {}, 0, HOST) <= 1


@pytest.mark.parametrize("dtype", KINDS)
def test_rows_of_a_table_are_gathered(dtype):
    graph = Graph("gather")
    ids = graph.input("ids", (5,), "i32", Ints(0, 8))
    graph.output("y", graph.gather(graph.weight("table", (9, 80), dtype), ids))
    table = encode_blocks(np.random.default_rng(2).standard_normal((9, 80)), dtype)
    at = np.array([8, 0, 3, 3, 7], np.int32)
    found = launched(compiled(graph), {"ids": at}, {"table": table})["y"]
    assert (found == decode_blocks(table, dtype)[at]).all()


def test_a_promise_about_the_values_is_checked():
    graph = Graph("fill")
    graph.output("y", graph.apply("mul", graph.input("x", (2, 16), "bfp4", Ints(-3, 3)), 2.0))
    program = compiled(graph)
    small, great = (np.full((2, 16), value, np.float32) for value in (3.0, 4.0))
    assert (launched(program, {"x": encode_blocks(small, "bfp4")})["y"] == 6.0).all()
    with pytest.raises(LaunchReject, match="holds values from 4 to 4"):
        launched(program, {"x": encode_blocks(great, "bfp4")})
