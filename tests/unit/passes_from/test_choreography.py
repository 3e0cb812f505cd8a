"""What a TEMPLATE's stages do, step by step, is what its spec says; slots start as NaN: nothing unwritten is read."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.program import Program
from pavane.passes.from_qwen_ops import decoder_sections
from pavane.passes.from_tensor_op import from_tensor_op
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.tensor_graph.front import recognize_stages
from pavane.tensor_graph.graph import Graph
from pavane.tensor_graph.operands import extents_at, viewed
from pavane.tensor_graph.reference import evaluate_spec
from pavane.validate import violations
from tests.unit.passes.interpreter import Machine
from tests.unit.passes_from.test_from_qwen_ops import CONFIGS, TOKENS, random_weights, weight_table

TOY = load_target("toy")
TARGETS = {"toy": TOY, "host": load_target("host", cores=2), "small tiles": replace(TOY, tile=(4, 8))}
RNG = np.random.default_rng(0)


def stepped(program: Program, tensors: dict[str, np.ndarray], symbols: dict[str, int]) -> dict[str, np.ndarray]:
    """All tensors after the stages have run, in float64."""
    (shape,), (instance,) = program.shapes, program.instances
    wide = dict(tensors)
    for tensor in program.tensors:
        extents = extents_at(tensor.shape, symbols)
        known = wide.get(tensor.name)
        kept = known is not None and np.shape(known) == extents
        wide[tensor.name] = np.array(known, np.float64) if kept else np.full(extents, np.nan)
    formals = {f.name: f for f in shape.formals}
    views = {b.tensor: viewed(wide[b.tensor], formals[b.formal], symbols) for b in instance.bindings}
    machine = Machine(program, views, symbols)
    machine.run()
    assert not machine.reserved
    assert not machine.held
    assert not any(machine.queues.values())
    return wide


def agree(
    program: Program, target: SpatialTarget, tensors: dict[str, np.ndarray], symbols: dict[str, int]
) -> dict[str, np.ndarray]:
    """Stages and spec on the same tensors; what both give."""
    assert violations(program, target) == ()
    meant, done = evaluate_spec(program, tensors, symbols), stepped(program, tensors, symbols)
    for spec in program.shapes[0].spec:
        name = next(b.tensor for b in program.instances[0].bindings if b.formal == spec.out)
        tolerance = 2e-3 if meant[name].dtype == np.float16 else 2e-6
        np.testing.assert_allclose(done[name], np.asarray(meant[name], float), rtol=tolerance, atol=tolerance)
    return meant


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_decoder(name: str, target: str) -> None:
    """Two epochs of every section: the second one reads what the first appended."""
    config, chip = replace(CONFIGS[name], layers=1), TARGETS[target]
    state: dict[str, np.ndarray] = dict(random_weights(config))
    state["rope_inverse_frequencies"] = np.array(config.rope_inverse_frequencies, np.float32)
    state["local_rope_inverse_frequencies"] = np.array(config.local_rope_inverse_frequencies, np.float32)
    made = decoder_sections(config, weight_table(config), chip, rows="rows", contract="FLOAT", context=40)
    for tensor in made.tensors:
        if tensor.role == "STATE":
            state[tensor.name] = np.full([e.const for e in tensor.shape], np.nan, np.float16)
    for position, rows in ((0, 7), (7, 3)):
        state["ids"] = TOKENS[position : position + rows].astype(np.int32)
        for section in made.sections:
            state = agree(section, chip, state, {"pos": position, "rows": rows})


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_graph(target: str) -> None:
    """Products with epilogues and prologues, chains, norms, attention, a gather."""
    chip = TARGETS[target]
    g = Graph()
    x, w = g.input("x", (11, 33)), g.weight("w", (33, 21))
    y = g.apply("tanh", g.apply("add", g.matmul(x, w), g.weight("bias", (21,))))
    g.output("y", y)
    g.output("z", g.matmul(g.rmsnorm(y, g.weight("gain", (21,))), g.weight("v", (9, 21)), transposed=True))
    g.output("s", g.softmax(g.apply("mul", x, g.input("scale", (11, 1)))))
    q, k = g.input("q", (5, 4, 6)), g.input("k", (19, 2, 6))
    g.output("o", g.attention(q, k, g.input("values", (19, 2, 6)), window=7))
    state = {
        node.name: RNG.normal(size=[e.const for e in node.shape]).astype(np.float32)
        for node in g.freeze().nodes
        if type(node.op).__name__ == "Input"
    }
    for op in recognize_stages(g):
        state = agree(from_tensor_op(op, chip), chip, state, {})
    assert {"y", "z", "s", "o"} <= set(state)
