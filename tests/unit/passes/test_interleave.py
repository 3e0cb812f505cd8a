"""Where weights lie: by blocks of rows over the channels, where a site beside each would be done sooner."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane import api
from pavane.ir.digest import graph_digest
from pavane.ir.program import Program
from pavane.passes.interleave import interleave
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.decoder import DecoderWeights
from pavane.tensor_graph.graph import Graph
from tests.adjacent import chip
from tests.decoders import expected_weights, stored_dtype
from tests.tiny_models import tiny_config

DEPTH = 256
ROW = DEPTH * 4


def product(columns: int, target: SpatialTarget, transposed: bool = True) -> tuple[Program, ...]:
    graph = Graph("product")
    x = graph.input("x", (1, DEPTH))
    w = graph.weight("w", (columns, DEPTH) if transposed else (DEPTH, columns))
    graph.output("y", graph.matmul(x, w, transposed=transposed))
    return api.graph(graph).sections(target)


def unit(sections: tuple[Program, ...], target: SpatialTarget, name: str = "w") -> int:
    """Of a weight; its formals say the same, and nothing else says anything."""
    lying = interleave(sections, target)
    units = {t.name: t.interleave_bytes for s in lying for t in s.tensors}
    for section in lying:
        bound = {b.formal: b.tensor for b in section.instances[0].bindings}
        assert all(f.interleave_bytes == units[bound[f.name]] for f in section.shapes[0].formals)
    return units[name]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (2048, 64),  # 8 rounds of 64 rows: a wait for each, and the last one multiplied after it is read
        (512, 64),
        (64, 16),
        (16, 0),  # one channel would do it all
        (65, 0),  # the fifth block of 16 rows would be a second one for a site, and of 32 there are three
    ],
)
def test_a_unit_is_the_rows_with_which_the_slowest_site_is_done_first(columns, rows):
    target = chip()
    assert unit(product(columns, target), target) == rows * ROW


def test_a_weight_whose_columns_are_the_items_lies_as_the_chip_does_it():
    target = chip()
    assert unit(product(2048, target, transposed=False), target) == 0


def test_sections_are_the_same_where_no_site_is_beside_a_channel():
    target = chip(adjacent=(), far=0)
    sections = product(2048, target)
    assert interleave(sections, target) == sections


def test_nothing_is_gained_where_sites_beside_channels_get_little_more():
    target = chip(far=16)
    assert unit(product(2048, target), target) == 0


def test_slow_products_gain_nothing():
    """A row of 4,096 bytes of a tile in 400 cycles: 10 bytes a cycle on 4 sites, and all sites read 4 x 8."""
    target = chip()
    engines = tuple(replace(e, matrix=tuple(replace(m, cycles=512) for m in e.matrix)) for e in target.engines)
    assert unit(product(2048, target), replace(target, engines=engines)) == 0


def test_units_fit_the_memory_of_a_site():
    target = chip()
    small = replace(target, memory=replace(target.memory, bytes=1 << 16))
    assert unit(product(2048, small), small) == 16 * ROW


def test_a_head_is_a_unit_and_a_table_lies_as_its_product_reads_it():
    """32 heads of 16 rows over 4 channels; the embedding is gathered from too."""
    target = chip()
    config = tiny_config(layers=1, width=256, feed_forward=512, heads=32, kv_heads=1, head_width=16, vocabulary=1024)
    table = tuple((n, s, stored_dtype(s, True)) for n, s in expected_weights(config))
    sections = api.decoder(config, DecoderWeights(table), rows=1, contract="FLOAT", context=20).sections(target)
    row = 256 * 34 // 32
    assert unit(sections, target, "layers.0.q") == 16 * row
    assert unit(sections, target, "layers.0.k") == 0
    assert unit(sections, target, "embedding") % (16 * row) == 0
    assert unit(sections, target, "embedding") > 0


def test_how_weights_lie_is_no_part_of_what_a_program_means():
    target = chip()
    (section,) = product(2048, target)
    (lying,) = interleave((section,), target)
    assert lying != section
    assert graph_digest(lying) == graph_digest(section)
