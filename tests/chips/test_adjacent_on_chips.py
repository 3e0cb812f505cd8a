"""Which sections of real models stand beside the DRAM channels of real chips, and how weights lie there."""

from __future__ import annotations

import pytest
from bench.model_shapes import MODELS, stored_weights
from msgspec.structs import replace

from pavane import api
from pavane.ir.program import Program
from pavane.ir.types import row_bytes
from pavane.passes.interleave import interleave
from pavane.sim import simulate
from pavane.targets.load import load_target
from pavane.tensor_graph.decoder import DecoderConfig, DecoderWeights


def source(config: DecoderConfig, rows: int | str, dtype: str = "q8_0") -> api.Source:
    stored = stored_weights(config).tensors
    weights = tuple((name, shape, dtype if kind == "q8_0" else kind) for name, shape, kind in stored)
    return api.decoder(config, DecoderWeights(weights), rows=rows, contract="FLOAT", context=2048)


def one_layer(name: str, **figures: int) -> DecoderConfig:
    return replace(MODELS[name], layers=1, local_layers=(), **figures)


def beside(program: Program) -> set[str]:
    return {shape.name for shape in program.shapes if shape.sites}


@pytest.mark.parametrize(("chip", "dtype"), [("wormhole_n150", "q8_0"), ("blackhole_p150", "bf16")])
@pytest.mark.parametrize("model", sorted(MODELS))
def test_decode_and_prompt_find_the_weights_in_the_same_channels(model, chip, dtype):
    """Neither rows nor plans decide; rows are whole in one channel."""
    target = load_target(chip)
    lying = []
    for rows in (1, "rows"):
        sections = interleave(source(MODELS[model], rows, dtype).sections(target), target)
        weights = {t.name: t for s in sections for t in s.tensors if t.role == "WEIGHT"}
        lying.append({name: t.interleave_bytes for name, t in weights.items()})
        for tensor in weights.values():
            assert tensor.interleave_bytes % row_bytes(tensor.dtype, tensor.shape[-1].const) == 0
    assert lying[0] == lying[1]
    assert any(lying[0].values())


def test_nothing_lies_otherwise_where_a_site_multiplies_more_slowly_than_all_sites_read():
    """q8_0 in FLOAT on Blackhole: 23 bytes a cycle and site, 8 sites; all sites read 8 x 32."""
    target = load_target("blackhole_p150")
    sections = interleave(source(MODELS["llama-3.1-8b"], 1).sections(target), target)
    assert all(t.interleave_bytes == 0 for s in sections for t in s.tensors)


@pytest.mark.parametrize(
    ("chip", "dtype", "expected"),
    [
        ("wormhole_n150", "q8_0", {"o", "gate", "up", "down", "logits"}),
        ("blackhole_p150", "q8_0", set()),  # a site multiplies 23 bytes a cycle, of 46 that its channel gives
        ("blackhole_p150", "bf16", {"o", "gate", "up", "down", "logits"}),
    ],
)
def test_a_layer_of_llama_stands_there_where_its_products_keep_up(chip, dtype, expected):
    target = load_target(chip)
    config = one_layer("llama-3.1-8b", vocabulary=16384)
    program = api.compile(source(config, 1, dtype), target)
    assert beside(program) == expected
    assert api.check(program, target)
    far = replace(target.dram, adjacent=(), bytes_per_cycle=target.dram.far_rate, far_bytes_per_cycle=0)
    alike = replace(target, dram=far)
    without = api.compile(source(config, 1, dtype), alike)
    times = [
        simulate(p, t, symbols={"pos": 1024}, functional=False).cycles for p, t in ((program, target), (without, alike))
    ]
    assert times[0] < (0.85 if expected else 1.02) * times[1]


def test_blocks_of_many_rows_stay_on_all_sites():
    """A prompt of 32 rows is bound by products, but for the logits of its last row."""
    target = load_target("wormhole_n150")
    program = api.compile(source(one_layer("llama-3.1-8b", vocabulary=16384), "rows"), target)
    assert beside(program) <= {"logits"}
    assert any(tensor.interleave_bytes for tensor in program.tensors)


def test_small_products_stay_on_all_sites():
    """Of SmolLM2 in q8_0 at most the logits have enough to read."""
    config = one_layer("smollm2-135m")
    assert beside(api.compile(source(config, 1), load_target("wormhole_n150"))) <= {"logits"}
