"""Every section of a layer, simulated on a Wormhole with real numbers, is within the bound of its numerics.

Small figures that divide nothing, of the four kinds of model. What one section hands to the next is an input or an
output here, so that each is judged on operands of its own.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.model_shapes import MODELS, rope_frequencies, stored_weights
from msgspec.structs import replace

from pavane.ir.digest import graph_digest
from pavane.ir.program import Program
from pavane.ir.types import block_elements
from pavane.passes.from_qwen_ops import decoder_sections
from pavane.pipeline import run_passes
from pavane.sim import Simulator
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.tensor_graph.blocks import encode_blocks
from pavane.tensor_graph.bound import worst_ratio

SMALL = {
    "smollm2-135m": {"width": 96, "feed_forward": 160, "heads": 3, "kv_heads": 1, "head_width": 22},
    "qwen3-0.6b": {"width": 64, "feed_forward": 224, "heads": 4, "kv_heads": 2, "head_width": 40},
    "llama-3.1-8b": {"width": 160, "feed_forward": 352, "heads": 6, "kv_heads": 2, "head_width": 16},
    "gemma-3-270m": {"width": 96, "feed_forward": 128, "heads": 2, "kv_heads": 1, "head_width": 48},
}
CONTEXT = 45


def small(name: str):
    config = MODELS[name]
    frequencies = rope_frequencies(SMALL[name]["head_width"])
    local = frequencies if config.local_rope_inverse_frequencies else ()
    figures = {**SMALL[name], "layers": 1, "vocabulary": 70, "rope_inverse_frequencies": frequencies}
    return replace(
        config,
        **figures,
        attention_window=min(config.attention_window, 9),
        local_layers=tuple(n for n in config.local_layers if n < 1),
        local_rope_inverse_frequencies=local,
    )


def by_itself(section: Program) -> Program:
    """The section with what other sections would hand it as inputs, and what it hands on as outputs."""
    written = {b.tensor for b in section.instances[0].bindings if b.formal in {s.out for s in section.shapes[0].spec}}
    roles = {True: "OUTPUT", False: "INPUT"}
    tensors = tuple(
        replace(t, role=roles[t.name in written], transition=None)
        if t.role == "SCRATCH" or (t.role == "STATE" and t.name not in written)
        else t
        for t in section.tensors
    )
    alone = replace(section, tensors=tensors)
    return replace(alone, graph_digest=graph_digest(alone))


def array(tensor, symbols, greatest, rng):
    shape = tuple(e.evaluate(greatest if tensor.role in ("WEIGHT", "STATE") else symbols) for e in tensor.shape)
    if tensor.dtype == "i32":
        return rng.integers(0, 70, shape).astype(np.int32)
    numbers = rng.standard_normal(shape).astype(np.float32)
    if block_elements(tensor.dtype) > 1:
        return encode_blocks(numbers / np.float32(math.sqrt(shape[-1])), tensor.dtype)
    return numbers.astype({"f32": np.float32, "f16": np.float16}[tensor.dtype])


def worst_of_sections(name: str, rows: int | str, target: SpatialTarget) -> dict[str, float]:
    """By section of a layer: the greatest error over its bound."""
    config, rng = small(name), np.random.default_rng(5)
    forward = decoder_sections(config, stored_weights(config), target, rows=rows, contract="FLOAT", context=CONTEXT)
    wanted = {"pos": 0 if rows == 1 else 11, "rows": 1 if rows == 1 else 7}
    worst = {}
    for section in forward.sections:
        program = run_passes(by_itself(section), target)
        symbols = {s.name: wanted[s.name] for s in program.symbols}
        if any(t.role == "STATE" for t in program.tensors):
            symbols["pos"] = 0
        greatest = {s.name: s.hi for s in program.symbols}
        given = {t.name: array(t, symbols, greatest, rng) for t in program.tensors if t.role in ("INPUT", "WEIGHT")}
        resident = {n: a for n, a in given.items() if any(t.name == n and t.role == "WEIGHT" for t in program.tensors)}
        simulator = Simulator(program, target, resident, timing=False)
        result = simulator.launch(symbols, {n: a for n, a in given.items() if n not in resident})
        after = {**given, **result.outputs, **result.state}
        worst[section.name] = worst_ratio(program, given, after, symbols, 0, target)
    return worst


def ratios(config, rows, context, weights="q8_0"):
    """Of each section of a decoder by itself, on random operands: its name, and the worst error over its bound."""
    target, rng = load_target("wormhole_n150"), np.random.default_rng(5)
    stored = stored_weights(config, weights)
    forward = decoder_sections(config, stored, target, rows=rows, contract="FLOAT", context=context)
    wanted = {"pos": 0 if rows == 1 else 11, "rows": 1 if rows == 1 else 7}
    for section in forward.sections:
        program = run_passes(by_itself(section), target)
        symbols = {s.name: wanted[s.name] for s in program.symbols}
        if any(t.role == "STATE" for t in program.tensors):
            symbols["pos"] = 0
        greatest = {s.name: s.hi for s in program.symbols}
        given = {t.name: array(t, symbols, greatest, rng) for t in program.tensors if t.role in ("INPUT", "WEIGHT")}
        resident = {n: a for n, a in given.items() if any(t.name == n and t.role == "WEIGHT" for t in program.tensors)}
        simulator = Simulator(program, target, resident, timing=False)
        result = simulator.launch(symbols, {n: a for n, a in given.items() if n not in resident})
        after = {**given, **result.outputs, **result.state}
        yield section.name, worst_ratio(program, given, after, symbols, 0, target)


@pytest.mark.parametrize("rows", [1, "rows"])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_each_section_of_a_layer_is_within_its_bound(name, rows):
    found = dict(ratios(small(name), rows, CONTEXT))
    assert all(ratio <= 1 for ratio in found.values()), found
    assert sum(ratio > 0 for ratio in found.values()) >= 7
