"""Products of a row along the sites beside the DRAM channels: chosen where that is faster, and right in every bit.

The chip is an invented one (tests/adjacent.py); what the real ones choose is in `test_adjacent_on_chips`.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import api
from pavane.ir.program import Program
from pavane.sim import simulate
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.decoder_reference import decoder_reference
from pavane.tensor_graph.graph import Graph
from pavane.tensor_graph.q8 import dequantise_q8
from tests.adjacent import ADJACENT, chip
from tests.chips.test_decoders_on_chips import centred_relative_rms
from tests.decoders import compile_decoder, random_weights, run_simulator, stored_dtype, stored_weights
from tests.tiny_models import tiny_config

DEPTH = 256
LAYER = tiny_config(
    layers=1, width=256, feed_forward=1000, heads=4, kv_heads=1, head_width=64, vocabulary=1024, tied_embeddings=True
)
TOKENS = (3, 1, 4, 15, 9)


def product(rows: int, columns: int) -> api.Source:
    """y = x . w^T."""
    graph = Graph("product")
    x, w = graph.input("x", (rows, DEPTH)), graph.weight("w", (columns, DEPTH))
    graph.output("y", graph.matmul(x, w, transposed=True))
    return api.graph(graph)


def operands(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((rows, DEPTH)), rng.standard_normal((columns, DEPTH))
    return x.astype(np.float32), w.astype(np.float32)


def cycles(program: Program, target: SpatialTarget) -> int:
    symbols = {s.name: s.expected for s in program.symbols}
    return simulate(program, target, symbols=symbols, functional=False).cycles


@pytest.mark.parametrize("columns", [512, 500, 2000])
def test_a_product_of_a_row_stands_beside_the_channels_and_is_right(columns):
    target = chip()
    program = api.compile(product(1, columns), target)
    (shape,), (weight,) = program.shapes, [t for t in program.tensors if t.role == "WEIGHT"]
    assert shape.sites == ADJACENT
    assert weight.interleave_bytes % (DEPTH * 4) == 0
    assert api.check(program, target)
    x, w = operands(1, columns)
    found = simulate(program, target, tensors={"x": x, "w": w}).outputs["y"]
    assert np.allclose(found, x.astype(np.float64) @ w.T.astype(np.float64), atol=1e-3)


def test_each_site_reads_its_own_channel_only():
    """A channel gives its quarter of 512 rows of 1,024 bytes once, at the full rate; x comes page by page from the
    first two, at the far rate, with each of a site's two items.
    """
    target = chip()
    program = api.compile(product(1, 512), target)
    channels = simulate(program, target, functional=False).channels
    quarter, of_x = 512 * DEPTH * 4 // 4, 2 * len(ADJACENT) * 512
    assert [channel.read_bytes for channel in channels] == [quarter + of_x, quarter + of_x, quarter, quarter]
    for channel in channels:
        far = channel.read_bytes - quarter + channel.written_bytes
        assert quarter / 16 + far / 16 <= channel.busy_cycles <= quarter / 16 + far / 8


def test_it_is_faster_than_all_sites_and_than_no_such_sites():
    target, far = chip(), chip(adjacent=(), far=0)
    far = replace(far, dram=replace(far.dram, bytes_per_cycle=target.dram.far_rate))
    beside, everywhere = (cycles(api.compile(product(1, 2000), t), t) for t in (target, far))
    assert beside < 0.75 * everywhere


def test_the_comparison_is_recorded():
    (shape,) = api.compile(product(1, 2000), chip()).shapes
    (join,) = [join for join in shape.joins if join.what.startswith("channels ")]
    assert join.taken == "on the 4 sites beside the channels"
    assert join.other == "on all sites"
    assert join.cycles < join.other_cycles


def test_many_rows_are_for_all_sites_with_the_weight_as_it_lies():
    """256 rows are bound by products: all sites take part, and the weight lies as it does for one row."""
    target = chip()
    slow = tuple(replace(e, matrix=tuple(replace(m, cycles=128) for m in e.matrix)) for e in target.engines)
    busy = replace(target, engines=slow)
    one, many = (api.compile(product(rows, 2000), busy) for rows in (1, 256))
    assert [t.interleave_bytes for t in one.tensors if t.role == "WEIGHT"] == [
        t.interleave_bytes for t in many.tensors if t.role == "WEIGHT"
    ]
    assert one.shapes[0].sites
    assert not many.shapes[0].sites
    (join,) = [join for join in many.shapes[0].joins if join.what.startswith("channels ")]
    assert join.taken == "on all sites"


def logits(rows: int | str, block: int, target: SpatialTarget) -> tuple[Program, np.ndarray]:
    program = compile_decoder(LAYER, target, rows, quantised=True, contract="FLOAT", context=20)
    weights = stored_weights(LAYER, random_weights(LAYER, 3), True)
    return program, run_simulator(program, target, weights, TOKENS, block)


def test_decode_and_prompt_of_a_layer_share_the_weights_as_they_lie_and_say_what_the_reference_says():
    target = chip()
    decode, one_by_one = logits(1, 1, target)
    prompt, in_blocks = logits("rows", 3, target)
    weights = [{t.name: t for t in p.tensors if t.role == "WEIGHT"} for p in (decode, prompt)]
    lying = [{name: t.interleave_bytes for name, t in table.items()} for table in weights]
    assert lying[0] == lying[1]
    assert sum(unit > 0 for unit in lying[0].values()) >= 4
    assert {shape.name for shape in decode.shapes if shape.sites} >= {"gate", "up", "logits"}
    plain = random_weights(LAYER, 3)
    stored = stored_weights(LAYER, plain, True)
    meant = {n: dequantise_q8(stored[n]) if stored_dtype(a.shape, True) == "q8_0" else a for n, a in plain.items()}
    expected = decoder_reference(LAYER, meant, list(TOKENS), np.float64)
    assert centred_relative_rms(one_by_one, expected) < 0.001
    assert np.array_equal(one_by_one, in_blocks)


def test_a_chip_without_such_sites_gives_the_same_bits():
    alike = chip(adjacent=(), far=0)
    assert np.array_equal(logits(1, 1, chip())[1], logits(1, 1, alike)[1])
