"""Weights and caches that stay on the chip: what is decided, that the numbers are right, what a token then moves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.model_shapes import MODELS, decoder_config, stored_weights
from msgspec.structs import replace

from pavane import api
from pavane.ir.program import Program
from pavane.passes.decoder_tensors import expected_weights
from pavane.passes.forward import forward
from pavane.passes.pack import pack
from pavane.passes.planning import Planning
from pavane.passes.reside import reside, with_shards
from pavane.pipeline import compile_joined
from pavane.reject import CapacityRefused, LaunchReject
from pavane.sim import Simulator, simulate
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.targets.restrict import restricted
from pavane.tensor_graph.decoder import DecoderConfig, DecoderWeights
from pavane.tensor_graph.decoder_reference import decoder_reference
from pavane.tensor_graph.graph import Graph
from pavane.tensor_graph.q8 import dequantise_q8, quantise_q8
from tests.checker.editing import refusal, tensor
from tests.chips.test_decoders_on_chips import centred_relative_rms
from tests.decoders import random_weights, run_simulator, stored_dtype
from tests.decoders import stored_weights as arrays_of
from tests.oracle.judge import judge

CONTEXT = 24
LIMIT = 2.0**-8  # the Wormhole's operands have 11 significand bits, and a value goes through some twenty sections
TOKENS = [3, 60, 7, 11, 2, 9, 64]
SMALL = decoder_config(
    name="small", layers=2, width=64, feed_forward=96, heads=4, kv_heads=2, head_width=16, vocabulary=101,
    rope="interleaved", tied_embeddings=True,
)  # fmt: skip
ODD = decoder_config(
    name="odd", layers=1, width=96, feed_forward=75, heads=3, kv_heads=1, head_width=22, vocabulary=67,
)  # fmt: skip
WAFER = Path(__file__).with_name("wafer.toml")


def part_of_n150(width: int, height: int) -> SpatialTarget:
    """So many sites, and one channel of DRAM."""
    n150 = load_target("wormhole_n150")
    return restricted(replace(n150, dram=replace(n150.dram, channels=1)), width, height)


def chips() -> list[SpatialTarget]:
    return [load_target("toy"), part_of_n150(3, 2), part_of_n150(1, 1), load_target(WAFER)]


def source_of(config: DecoderConfig, rows: int | str) -> api.Source:
    table = tuple((n, s, stored_dtype(s, True)) for n, s in expected_weights(config))
    weights, every = DecoderWeights(table), rows != 1
    return api.decoder(config, weights, rows=rows, contract="FLOAT", context=CONTEXT, logits_every_row=every)


def compiled(config: DecoderConfig, target: SpatialTarget, rows: int | str) -> Program:
    return api.compile(source_of(config, rows), target)


def sharded(program: Program) -> dict[str, tuple[int, int]]:
    return {t.name: (t.offset, t.shard_bytes) for t in program.tensors if t.home == "sharded"}


def without(source: api.Source, target: SpatialTarget) -> Program:
    planning = Planning()
    packed = pack(source.sections(target), target, planning)
    return compile_joined(source.name, forward(packed, target, planning), target, planning)


def dram_bytes(result) -> int:
    return sum(channel.read_bytes + channel.written_bytes for channel in result.channels)


# --- what is decided --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", chips(), ids=["toy", "3x2", "1x1", "wafer"])
def test_both_programs_find_the_same_tensors_at_the_same_places(target):
    decode, prompt = compiled(SMALL, target, 1), compiled(SMALL, target, "rows")
    lasting = {t.name for t in decode.tensors if t.role in ("WEIGHT", "STATE") and len(t.shape) > 1}
    assert sharded(decode) == sharded(prompt)
    assert set(sharded(decode)) == lasting


def test_the_deal_is_of_the_tensor_and_the_chip():
    """On 3 x 2 sites 64 rows are even parts of 11; on one site a block is a tile."""
    row = 64 // 32 * 34
    assert sharded(compiled(SMALL, part_of_n150(3, 2), 1))["layers.0.q"][1] == 11 * row
    assert sharded(compiled(SMALL, part_of_n150(1, 1), 1))["layers.0.q"][1] == 32 * row


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (load_target("host", 2), "engines address memory in place"),
        (load_target("xdna2"), "the model is far larger than the sites' memories"),
        (
            replace(load_target("toy"), noc=replace(load_target("toy").noc, start_cycles=1000)),
            "other sites are farther than memory",
        ),
        (replace(load_target("toy"), noc=replace(load_target("toy").noc, bytes_per_cycle=4)), "the network is thin"),
    ],
    ids=["host", "xdna2", "far", "thin"],
)
def test_where_it_does_not_pay_nothing_is_sharded(target, why):
    source = api.decoder(MODELS["smollm2-135m"], stored_weights(MODELS["smollm2-135m"]), contract="FLOAT")
    sections = source.sections(target)
    found = reside(sections, (), target, Planning())
    assert found.target == target, why
    assert not any(t.home == "sharded" for section in found.sections for t in section.tensors)


def test_shares_leave_every_section_of_all_programs_room():
    """A prompt's buffers take 25,504 bytes at least; less room, fewer residents, never a refusal, the same in both."""
    counts = []
    for size in (65536, 49152, 40960, 36864, 28672):
        small = restricted(load_target("toy"), memory_bytes=size)
        decode, prompt = compiled(SMALL, small, 1), compiled(SMALL, small, "rows")
        assert sharded(decode) == sharded(prompt)
        counts.append(len(sharded(decode)))
    assert counts == [19, 19, 13, 0, 0]  # less than half of the model is not worth it


def test_small_weights_come_first_and_rows_that_an_index_picks_last():
    """A token reads all of a product's weight, and one row of an embedding that is not the output's."""
    config = replace(SMALL, tied_embeddings=False)
    here = sharded(compiled(config, restricted(load_target("toy"), memory_bytes=48128), 1))
    assert {"layers.0.k", "layers.1.down", "output", "layers.0.k_cache"} <= set(here)
    assert "embedding" not in here
    fewer = sharded(compiled(config, restricted(load_target("toy"), memory_bytes=40960), 1))
    assert {"layers.0.k", "layers.1.q"} <= set(fewer)
    assert not {"output", "layers.0.k_cache"} & set(fewer)


def test_both_costs_are_kept():
    program = compiled(SMALL, load_target("toy"), 1)
    joins = [j for shape in program.shapes for j in shape.joins if j.what.startswith("reside ")]
    assert {j.taken for j in joins} == {"resident on the sites"}
    assert all(j.cycles > 0 and j.other_cycles > 0 for j in joins)


def test_a_section_some_of_whose_tensors_are_resident_says_which():
    """A weight is, its cache is not: what that costs, and what both would."""
    program = compiled(SMALL, restricted(load_target("toy"), memory_bytes=40960), 1)
    joins = {j.what: j for shape in program.shapes for j in shape.joins if j.what.startswith("reside ")}
    join = joins["reside layers.0.k, layers.0.k_cache (k)"]
    assert (join.taken, join.other) == ("only layers.0.k resident on the sites", "all of them")
    assert join.cycles > 0
    assert joins["reside layers.0.k_cache, layers.0.v_cache (attention)"].taken.startswith("beside the chip")


# --- what it computes -------------------------------------------------------------------------------------------------


def expected(config) -> np.ndarray:
    plain = random_weights(config, 5)
    meant = {n: dequantise_q8(quantise_q8(a)) if stored_dtype(a.shape, True) == "q8_0" else a for n, a in plain.items()}
    return decoder_reference(config, meant, TOKENS, np.float64)


@pytest.mark.parametrize("target", chips()[:3], ids=["toy", "3x2", "1x1"])
@pytest.mark.parametrize("config", [SMALL, ODD], ids=["small", "odd"])
def test_a_conversation_goes_on_from_program_to_program(config, target):
    """A prompt, three tokens, a prompt, a token: two programs on one chip, over one set of weights and caches."""
    prompt_program, decode_program = compiled(config, target, "rows"), compiled(config, target, 1)
    assert sharded(decode_program)
    prompt = Simulator(prompt_program, target, arrays_of(config, random_weights(config, 5), True))
    decode = Simulator(decode_program, target, share=prompt)
    found = []
    for simulator, first, end in ((prompt, 0, 2), (decode, 2, 3), (decode, 3, 4), (prompt, 4, 6), (decode, 6, 7)):
        symbols = {"pos": first, "rows": end - first}
        symbols = {s.name: symbols[s.name] for s in simulator.program.symbols}
        result = simulator.launch(symbols, {"ids": np.array(TOKENS[first:end], np.int32)})
        found.append(result.outputs["logits"][: end - first])
    assert centred_relative_rms(np.concatenate(found), expected(config)) < LIMIT


def test_where_weights_lie_changes_no_bit():
    toy = load_target("toy")
    source = source_of(SMALL, 1)
    arrays = arrays_of(SMALL, random_weights(SMALL, 5), True)
    here, beside = api.compile(source, toy), without(source, toy)
    assert sharded(here)
    assert not sharded(beside)
    assert np.array_equal(*(run_simulator(program, toy, arrays, TOKENS, 1) for program in (here, beside)))


def test_programs_that_find_their_weights_elsewhere_cannot_share():
    toy = load_target("toy")
    program = compiled(SMALL, toy, 1)
    one = Simulator(program, toy, arrays_of(SMALL, random_weights(SMALL, 5), True))
    tensors = tuple(replace(t, offset=t.offset - 32) if t.name == "layers.1.q" else t for t in program.tensors)
    with pytest.raises(LaunchReject, match="cannot share"):
        Simulator(replace(program, tensors=tensors), toy, share=one)


def test_a_program_without_what_lies_on_the_sites_cannot_share():
    """Its buffers may stand there."""
    toy = load_target("toy")
    program = compiled(SMALL, toy, 1)
    one = Simulator(program, toy, arrays_of(SMALL, random_weights(SMALL, 5), True))
    named = set(sharded(program))
    with pytest.raises(LaunchReject, match="cannot share") as refused:
        Simulator(replace(program, tensors=tuple(t for t in program.tensors if t.name not in named)), toy, share=one)
    assert {term.split(",")[0] for term in refused.value.terms if "lies on the sites" in term} == named


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_cache_shares_bytes_with_nothing():
    """Over a buffer, over a result on the sites, over a weight's share, past the end of memory."""
    toy = load_target("toy")
    program = compiled(SMALL, toy, 1)
    on_sites = next(t.offset for t in program.tensors if t.home == "sites")
    for offset in (0, on_sites, sharded(program)["layers.1.q"][0], 65536 - 32):
        edit = tensor("layers.0.k_cache", offset=offset)
        assert isinstance(refusal(program, toy, edit), CapacityRefused)


def test_a_small_program_is_safe():
    """An independent judge, by interleavings and bytes; whether it pays is not asked here."""
    graph, toy = Graph("two_products"), load_target("toy")
    x = graph.input("x", (4, 32))
    y = graph.matmul(x, graph.weight("v", (32, 64)))
    graph.output("z", graph.matmul(y, graph.weight("w", (64, 32))))
    left, planning = restricted(toy, memory_bytes=65536 - 4096 - 2048), Planning()
    sections = []
    for section in api.graph(graph).sections(toy):
        rows = {"v": 8 * 64 * 4, "w": 3 * 32 * 4}  # of bytes: four blocks of eight rows, 22 of three
        held = [replace(t, shard_bytes=rows[t.name]) for t in section.tensors if t.role == "WEIGHT"]
        sections.append(with_shards(section, held))
    packed = forward(pack(sections, left, planning), left, planning)
    program = compile_joined("two_products", packed, toy, planning)
    assert set(sharded(program)) == {"v", "w"}
    assert judge(program, toy).safe


# --- what a token moves -----------------------------------------------------------------------------------------------


def test_a_resident_model_reads_its_weights_on_the_wafer():
    """Of a model whose layers fit the wafer a token moves what it takes in and gives out, and is sooner there."""
    wafer = load_target(WAFER)
    config = replace(MODELS["smollm2-135m"], layers=2, vocabulary=1024)
    source = api.decoder(config, stored_weights(config), contract="FLOAT", context=256)
    symbols = {"pos": 128}
    here = simulate(api.compile(source, wafer), wafer, symbols=symbols, functional=False)
    beside = simulate(without(source, wafer), wafer, symbols=symbols, functional=False)
    assert dram_bytes(beside) > 7_000_000
    assert dram_bytes(here) < 100_000  # ids, logits, and the gains, which several sites read
    assert here.cycles < beside.cycles
    assert here.own_shard_bytes + here.other_shard_bytes > 7_000_000
