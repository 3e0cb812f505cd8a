"""A model too large for the chip: by how much, on which memory, and what would hold it; what lies on the sites takes
nothing of the memory beside them. Each way out that is proposed is taken, and one step less is refused.
"""

from __future__ import annotations

import re
from math import prod

import pytest
from bench.model_shapes import MODELS, stored_weights
from msgspec.structs import replace

from pavane import api
from pavane.ir.program import Program
from pavane.ir.types import row_bytes
from pavane.reject import ComposeReject
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.targets.restrict import restricted
from pavane.tensor_graph.decoder import DecoderConfig
from pavane.tensor_graph.graph import Graph
from tests.chips.test_shards import SMALL, WAFER

N150, TOY = load_target("wormhole_n150"), load_target("toy")
TIGHT = restricted(TOY, memory_bytes=26_000)  # buffers leave a site no room for residents
LLAMA = MODELS["llama-3.1-8b"]
LLAMA_POSITION = 2 * 32 * 8 * 128 * 2  # keys and values of 32 layers, 8 heads of 128 in f16
SLACK = 31  # rows of a cache beyond the context, for a block of 32


def with_memory(target: SpatialTarget, size: int) -> SpatialTarget:
    """The chip with so many bytes beside it."""
    return replace(target, dram=replace(target.dram, bytes=size))


def compiled(
    config: DecoderConfig, target: SpatialTarget, weights: str = "q8_0", rows: int | str = 1, context: int = 64
) -> Program:
    table = stored_weights(config, weights)
    return api.compile(api.decoder(config, table, rows=rows, contract="FLOAT", context=context), target)


def refused(*arguments, **options) -> ComposeReject:
    with pytest.raises(ComposeReject, match="do not fit the memory beside the chip") as caught:
        compiled(*arguments, **options)
    return caught.value


def weight_bytes(config: DecoderConfig, weights: str, rank: int = 2) -> int:
    """Of the weights of so many dimensions."""
    table = stored_weights(config, weights).tensors
    return sum(prod(shape[:-1]) * row_bytes(dtype, shape[-1]) for _, shape, dtype in table if len(shape) == rank)


def proposed(refusal: ComposeReject) -> int:
    """The longest context that it says would fit."""
    return int(re.findall(r"a context of at most (\d+) positions", refusal.remedy)[0])


def on_sites(refusal: ComposeReject) -> int:
    """The bytes that it says lie on the sites."""
    found = re.findall(r"the sites hold (\d+) B more", refusal.available)
    return int(found[0]) if found else 0


# --- what lies where --------------------------------------------------------------------------------------------------


def test_what_lies_on_the_sites_takes_nothing_beside_them():
    """A wafer with 10 KB beside it, a model of 8.6 MB: matrices and caches are dealt to the sites."""
    config = replace(MODELS["smollm2-135m"], layers=2, vocabulary=1024)
    program = compiled(config, with_memory(load_target(WAFER), 10_000), context=256)
    sharded = [t for t in program.tensors if t.home == "sharded"]
    held = {r: sum(_bytes(t) for t in sharded if t.role == r) for r in ("WEIGHT", "STATE")}
    assert held == {"WEIGHT": weight_bytes(config, "q8_0"), "STATE": 2 * 2 * (256 + SLACK) * 3 * 64 * 2}
    beside = [t for t in program.tensors if t.home == "dram" and t.role != "SCRATCH"]
    assert sum(_bytes(t) for t in beside) <= 10_000
    assert {"ids", "logits"} <= {t.name for t in beside}


def _bytes(tensor) -> int:
    *outer, last = (extent.const for extent in tensor.shape)
    return prod(outer) * row_bytes(tensor.dtype, last)


def test_the_sites_count_where_several_chips_would_hold_it():
    """72,148 bytes of matrices and 14,080 of caches are dealt to the toy's sites, gains are copied to each: an id comes
    in and logits go out.
    """
    least = 4 + 4 * SMALL.vocabulary
    refusal = refused(SMALL, with_memory(TOY, least - 1), context=24)
    assert refusal.needed == f"{least} B, 1 B too many"
    assert refusal.available == f"{least - 1} B, and the sites hold 86228 B more"
    assert "2 of toy hold it together" in refusal.remedy
    assert compiled(SMALL, with_memory(TOY, least), context=24).phase == "VERIFIED"


def test_a_graph_whose_weights_lie_on_the_sites_needs_no_room_for_them():
    """Two products of 16 KB each, with 1 KB to come in and 1 KB to go out."""
    graph = Graph("two_products")
    x = graph.input("x", (4, 64))
    y = graph.matmul(x, graph.weight("v", (64, 64)))
    graph.output("z", graph.matmul(y, graph.weight("w", (64, 64))))
    far = replace(TOY, dram=replace(TOY.dram, latency_cycles=2000))
    program = api.compile(api.graph(graph), with_memory(far, 4096))
    assert {t.name for t in program.tensors if t.home == "sharded"} == {"v", "w"}


@pytest.mark.parametrize(("width", "room", "held"), [(1, 60_000, {"WEIGHT"}), (4, 1000, {"STATE", "WEIGHT"})])
def test_what_memory_beside_the_chip_cannot_hold_lies_on_the_sites(width, room, held):
    """Where that is slower, too: the network is thin. Weights; caches where they must, or where it is quicker."""
    thin = replace(TOY, noc=replace(TOY.noc, bytes_per_cycle=width))
    assert all(t.home != "sharded" for t in compiled(SMALL, thin, context=24).tensors)
    program = compiled(SMALL, with_memory(thin, room), context=24)
    assert {t.role for t in program.tensors if t.home == "sharded"} == held


# --- what would hold it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, "rows"])
def test_the_longest_context_that_is_proposed_fits(rows):
    """What may come to lie on the sites, 1,312 bytes of gains and the results, has room beside them in the proposal."""
    room = 120_000
    refusal = refused(SMALL, with_memory(TIGHT, room), rows=rows, context=2000)
    most, a_position = proposed(refusal), 2 * 2 * 2 * 16 * 2
    assert f"(2000 are asked for, {a_position} B each)" in refusal.remedy
    kept = sum(int(t.split()[1]) for t in refusal.terms if not t.startswith("STATE"))
    at_best = (room - kept) // a_position - SLACK
    may_move = 1312 + (36_000 if rows == "rows" else 1088)
    assert at_best - 1 - may_move // a_position <= most < at_best
    assert compiled(SMALL, with_memory(TIGHT, room), rows=rows, context=most).phase == "VERIFIED"
    assert refused(SMALL, with_memory(TIGHT, room), rows=rows, context=at_best + 1)


def test_a_context_too_long_says_how_much_and_both_ways_out():
    refusal = refused(LLAMA, N150, context=60_000)
    caches, logits = (60_000 + SLACK) * LLAMA_POSITION, 4 * LLAMA.vocabulary
    weights = weight_bytes(LLAMA, "q8_0") - on_sites(refusal)
    gains = weight_bytes(LLAMA, "q8_0", 1) + 4 * LLAMA.head_width // 2
    total = weights + caches + logits + 4
    assert refusal.terms == ("INPUT 4 B", f"OUTPUT {logits} B", f"STATE {caches} B", f"WEIGHT {weights} B")
    assert refusal.needed == f"{total} B, {total - N150.dram.bytes} B too many"
    assert refusal.available.split(",")[0] == f"{N150.dram.bytes} B"
    assert refusal.where == "wormhole_n150"
    results = 131_584  # of a token, at most
    assert proposed(refusal) == (N150.dram.bytes - total + caches - gains - results) // LLAMA_POSITION - SLACK
    assert "; or matrices stored as bfp4; or 2 of wormhole_n150 hold it together" in refusal.remedy


@pytest.mark.parametrize(
    ("weights", "room", "context", "remedy"),
    [
        ("q8_0", 1_900_000_000, 2048, "matrices stored as bfp4; or 2 of"),
        ("bfp8", 1_900_000_000, 2048, "matrices stored as bfp4; or 2 of"),
        ("bfp4", 900_000_000, 2048, "a smaller model; or 2 of"),
        ("q8_0", 900_000_000, 2048, "a smaller model; or 3 of"),
        (
            "q8_0",
            1_900_000_000,
            60_000,
            r"matrices stored as bfp4 and a context of at most \d+ positions \(60000 are asked for, .*\); or 2 of",
        ),
    ],
)
def test_what_would_hold_it(weights, room, context, remedy):
    """Four layers of Llama-8B take 2.04 GB in q8_0 and in bfp8, 1.08 GB in bfp4, and 16,384 B a position."""
    refusal = refused(replace(LLAMA, layers=4), with_memory(N150, room), weights=weights, context=context)
    assert re.fullmatch(remedy + r" wormhole_n150 hold it together, or one chip with \d+ B beside it", refusal.remedy)


def test_the_type_that_is_proposed_fits():
    """Two layers and a short context: 1.05 bytes of q8_0 become 0.56 of bfp4."""
    config = replace(MODELS["smollm2-135m"], layers=2, vocabulary=1024)
    small = with_memory(restricted(N150, 1, 1), 6_500_000)
    assert refused(config, small).remedy.startswith("matrices stored as bfp4; or 2 of")
    assert compiled(config, small, weights="bfp4").phase == "VERIFIED"


def test_a_type_that_the_chip_does_not_take_is_not_proposed():
    assert "stored as" not in refused(SMALL, with_memory(TIGHT, 60_000), context=24).remedy


def test_integers_are_not_to_be_rounded():
    graph = Graph("integers")
    x = graph.input("x", (4, 64), "i8")
    graph.output("z", graph.matmul(x, graph.weight("w", (64, 64), "i8")))
    with pytest.raises(ComposeReject) as caught:
        api.compile(api.graph(graph), with_memory(N150, 2000))
    assert caught.value.remedy.startswith("a smaller model; or 3 of wormhole_n150")
