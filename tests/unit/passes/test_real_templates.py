"""The passes on what the lowerings write: every section of small decoders, and single ops from authored graphs."""

from __future__ import annotations

import numpy as np
import pytest

from pavane.ir.program import Program
from pavane.ir.types import Ints
from pavane.passes.from_qwen_ops import decoder_sections
from pavane.passes.from_tensor_op import from_tensor_op
from pavane.passes.section_shape import section_shape
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.decoder import DecoderConfig, DecoderWeights
from pavane.tensor_graph.front import recognize_stages
from pavane.tensor_graph.graph import Graph
from pavane.validate import violations
from tests.tiny_models import tiny_config
from tests.unit.passes.chains import each_pass
from tests.unit.passes.interpreter import run


def stored_weights(c: DecoderConfig) -> DecoderWeights:
    """Every matrix q8_0, every vector f32."""
    tensors = [("embedding", (c.vocabulary, c.width), "q8_0"), ("output_norm", (c.width,), "f32")]
    for i in range(c.layers):
        heads, kv = c.heads * c.head_width, c.kv_heads * c.head_width
        matrices = {"q": (heads, c.width), "k": (kv, c.width), "v": (kv, c.width), "o": (c.width, heads)}
        matrices |= {
            "gate": (c.feed_forward, c.width),
            "up": (c.feed_forward, c.width),
            "down": (c.width, c.feed_forward),
        }
        vectors = ("attention_norm", "ffn_norm")
        tensors += [(f"layers.{i}.{name}", shape, "q8_0") for name, shape in matrices.items()]
        tensors += [(f"layers.{i}.{name}", (c.width,), "f32") for name in vectors]
    return DecoderWeights(tuple(tensors))


def decoder(target: SpatialTarget, rows: int | str, contract: str) -> dict[str, Program]:
    """The distinct sections of a two-layer decoder."""
    config = tiny_config(context=64)
    forward = decoder_sections(config, stored_weights(config), target, rows=rows, contract=contract, context=64)
    found: dict[str, Program] = {}
    for section in forward.sections:
        found.setdefault(section_shape(section), section)
    return found


@pytest.mark.parametrize("rows", [1, "rows"])
@pytest.mark.parametrize("contract", ["FLOAT", "INT8_ACTIVATIONS"])
@pytest.mark.parametrize("target_name", ["toy", "host"])
def test_decoder_sections(target_name: str, contract: str, rows: int | str, request: pytest.FixtureRequest) -> None:
    target = request.getfixturevalue(target_name)
    sections = decoder(target, rows, contract)
    assert 8 <= len(sections) <= 14
    for section in sections.values():
        for name, program in each_pass(section, target):
            assert violations(program, target) == (), (section.name, name)


def test_layers_share_their_shapes(toy: SpatialTarget) -> None:
    config = tiny_config(context=64, layers=4)
    many = decoder_sections(config, stored_weights(config), toy, rows=1, contract="FLOAT", context=64)
    assert {section_shape(s) for s in many.sections} == set(decoder(toy, 1, "FLOAT"))


@pytest.mark.parametrize("target_name", ["toy", "host"])
@pytest.mark.parametrize("extents", [(33, 65, 31), (100, 70, 150), (7, 576, 200)])
@pytest.mark.parametrize("transposed", [False, True])
def test_authored_matmul(
    extents: tuple[int, int, int], transposed: bool, target_name: str, request: pytest.FixtureRequest
) -> None:
    target = request.getfixturevalue(target_name)
    m, k, n = extents
    graph = Graph("product")
    a = graph.input("a", (m, k), fill=Ints(-4, 4))
    b = graph.weight("b", (n, k) if transposed else (k, n), fill=Ints(-4, 4))
    graph.output("c", graph.matmul(a, b, transposed))
    (op,) = recognize_stages(graph)
    rng = np.random.default_rng(0)
    left, right = rng.integers(-4, 5, (m, k)).astype(float), rng.integers(-4, 5, (k, n)).astype(float)
    for name, program in each_pass(from_tensor_op(op, target), target):
        assert violations(program, target) == (), name
        tensors = {"a": left, "b": np.ascontiguousarray(right.T) if transposed else right, "c": np.full((m, n), np.nan)}
        run(program, tensors)
        np.testing.assert_array_equal(tensors["c"], left @ right)


@pytest.mark.parametrize("target_name", ["toy", "host"])
def test_authored_softmax_of_a_norm(target_name: str, request: pytest.FixtureRequest) -> None:
    target = request.getfixturevalue(target_name)
    graph = Graph("rows")
    x, g = graph.input("x", (70, 50)), graph.weight("g", (50,))
    graph.output("y", graph.softmax(graph.rmsnorm(x, g)))
    rng = np.random.default_rng(0)
    tensors = {"x": rng.standard_normal((70, 50)), "g": rng.standard_normal(50)}
    normed = tensors["x"] / np.sqrt((tensors["x"] ** 2).mean(axis=1, keepdims=True) + 1e-5) * tensors["g"]
    weights = np.exp(normed - normed.max(axis=1, keepdims=True))
    for op in recognize_stages(graph):
        for name, program in each_pass(from_tensor_op(op, target), target):
            assert violations(program, target) == (), name
        for tensor in program.tensors:
            tensors.setdefault(tensor.name, np.full(tuple(e.const for e in tensor.shape), np.nan))
        run(program, tensors)
    np.testing.assert_allclose(tensors["y"], weights / weights.sum(axis=1, keepdims=True), rtol=1e-9)
