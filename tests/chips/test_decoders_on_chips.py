"""Whole decoders of four shapes on real chips, and on one that only a TOML file describes; and what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.model_shapes import MODELS, stored_weights, weight_bytes_a_token
from msgspec.structs import replace

from pavane import api
from pavane.cli.targets import _figures
from pavane.ir.digest import canonical_bytes
from pavane.ir.program import Post, Wait
from pavane.reject import ComposeReject, NoPlan, OutOfCounters
from pavane.report.explain import explain
from pavane.sim import simulate
from pavane.targets.load import load_target
from pavane.targets.restrict import restricted
from pavane.tensor_graph.decoder_reference import decoder_reference
from pavane.tensor_graph.q8 import dequantise_q8
from tests.decoders import random_weights, run_simulator, stored_dtype
from tests.decoders import stored_weights as stored_arrays
from tests.tiny_models import tiny_config

CHIPS = ("wormhole_n150", "blackhole_p150", "sn40l", "xdna2")
FIFTH = Path(__file__).with_name("fifth.toml")
MOST_ARTEFACT_BYTES = 4_000_000


def centred_relative_rms(found: np.ndarray, expected: np.ndarray) -> float:
    a, b = (x - x.mean(axis=1, keepdims=True) for x in (found.astype(np.float64), expected.astype(np.float64)))
    return float(np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2)))


def source(name: str, rows: int | str = 1, layers: int | None = None, contract: str = "FLOAT", context: int = 2048):
    config = MODELS[name]
    if layers is not None:
        local = tuple(n for n in config.local_layers if n < layers)
        config = replace(config, layers=layers, local_layers=local)
    return api.decoder(config, stored_weights(config), rows=rows, contract=contract, context=context)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_layer_of_each_model_compiles_for_each_chip(name, chip):
    target = load_target(chip)
    for rows in (1, "rows"):
        program = api.compile(source(name, rows, layers=1), target)
        assert program.phase == "VERIFIED"
        assert api.check(program, target)
        assert len(canonical_bytes(program)) <= MOST_ARTEFACT_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("contract", ["FLOAT", "INT8_ACTIVATIONS"])
def test_each_model_whole(name, chip, contract):
    target = load_target(chip)
    for rows in (1, "rows"):
        program = api.compile(source(name, rows, contract=contract), target)
        assert len(canonical_bytes(program)) <= MOST_ARTEFACT_BYTES


@pytest.mark.parametrize(("name", "layers"), [("smollm2-135m", 30), ("llama-3.1-8b", 2)])
def test_a_token_on_wormhole_takes_no_less_than_its_weights(name, layers):
    """No faster than all channels move the weights, which are too many for the sites; and most of what is moved are
    weights.
    """
    target, config = load_target("wormhole_n150"), replace(MODELS[name], layers=layers)
    program = api.compile(source(name, layers=layers), target)
    assert all(tensor.home != "sharded" for tensor in program.tensors)
    result = simulate(program, target, symbols={"pos": 100}, functional=False)
    least = weight_bytes_a_token(config) // (target.dram.channels * target.dram.bytes_per_cycle)
    moved = sum(channel.read_bytes for channel in result.channels)
    assert least < result.cycles < 4 * least
    assert weight_bytes_a_token(config) < moved < 1.3 * weight_bytes_a_token(config)


@pytest.mark.parametrize("contract", ["FLOAT", "INT8_ACTIVATIONS"])
@pytest.mark.parametrize("chip", ["wormhole_n150", "xdna2", str(FIFTH)], ids=["wormhole_n150", "xdna2", "fifth"])
def test_a_small_decoder_says_what_the_reference_says(chip, contract):
    """Token by token and in blocks, through operands of 11 significand bits or blocks of 8-bit integers."""
    target = load_target(chip)
    figures = {"width": 64, "feed_forward": 96, "heads": 4, "kv_heads": 2, "head_width": 16, "vocabulary": 90}
    config = tiny_config(layers=2, **figures)
    plain = random_weights(config, 3)
    arrays = stored_arrays(config, plain, True)
    meant = {n: dequantise_q8(arrays[n]) if stored_dtype(a.shape, True) == "q8_0" else a for n, a in plain.items()}
    tokens = [int(t) for t in np.random.default_rng(3).integers(0, config.vocabulary, 7)]
    expected = decoder_reference(config, meant, tokens, np.float64)
    table = stored_weights(config)
    for rows, block in ((1, 1), ("rows", 4)):
        meaning = api.decoder(config, table, rows=rows, contract=contract, context=20, logits_every_row=True)
        found = run_simulator(api.compile(meaning, target), target, arrays, tokens, block)
        assert centred_relative_rms(found, expected) < (0.005 if contract == "FLOAT" else 0.08)


# --- a chip by a TOML file alone --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, "rows"])
@pytest.mark.parametrize("contract", ["FLOAT", "INT8_ACTIVATIONS"])
def test_a_fifth_chip_compiles_a_layer_of_smollm2(rows, contract):
    """5 x 3 sites of 48 KB, 6-bit credits, no multicast: posters meet at once, 2 x 15 posts in 32."""
    fifth = load_target(FIFTH)
    program = api.compile(source("smollm2-135m", rows, layers=1, contract=contract), fifth)
    assert api.check(program, fifth)
    assert all(fifo.kind == "LOCAL" for shape in program.shapes for fifo in shape.fifos)
    assert {c.name for c in program.counters if c.engine == "mover"} == {"go.mover"}
    assert simulate(program, fifth, symbols=middle(program), functional=False).cycles > 0


def middle(program):
    return {s.name: (s.lo + s.hi) // 2 for s in program.symbols}


@pytest.mark.parametrize("size", [(6, 3), (3, 6), (16, 16), (9, 2)])
def test_larger_grids_of_it_meet_in_rows_and_columns(size):
    """With more than 16 posters two rounds do not fit 6 bits; rows and columns of at most 16 do."""
    fifth = load_target(FIFTH)
    target = replace(fifth, grid=replace(fifth.grid, width=size[0], height=size[1]))
    program = api.compile(source("smollm2-135m", layers=1), target)
    assert api.check(program, target)
    assert {c.name for c in program.counters if c.engine == "mover"} == {"row.mover", "go.mover"}
    waits = {t.counter: t.n for w in program.workers for t in w.body if isinstance(t, Wait) and w.engine == "mover"}
    assert (waits["row.mover"], waits["go.mover"]) == size
    assert any(isinstance(turn, Post) and turn.counter == "row.mover" for w in program.workers for turn in w.body)
    assert simulate(program, target, symbols=middle(program), functional=False).cycles > 0


def test_rows_that_are_too_long_are_refused_with_both_sums():
    fifth = load_target(FIFTH)
    target = replace(fifth, grid=replace(fifth.grid, width=17, height=2))
    with pytest.raises(ComposeReject, match=r"2 x 34 posts in flight, or 2 x 17 in rows and columns.*32 \(6 bits"):
        api.compile(source("smollm2-135m", layers=1), target)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_a_context_whose_scores_do_not_fit_a_site_is_refused_with_every_buffer():
    xdna2 = load_target("xdna2")
    with pytest.raises(NoPlan) as caught:
        api.compile(source("smollm2-135m", layers=1, context=16384), xdna2)
    assert any(term.startswith("S ") for term in caught.value.terms)
    assert "bytes a site" in caught.value.remedy


@pytest.mark.parametrize(
    "change",
    [
        lambda t: restricted(t, width=1, height=1),
        lambda t: restricted(t, width=64, height=1),
        lambda t: restricted(t, width=1, height=7),
        lambda t: replace(t, dram=replace(t.dram, channels=1, adjacent=t.dram.adjacent[:1])),
        lambda t: replace(t, noc=replace(t.noc, multicast=False)),
        lambda t: replace(t, fifos=replace(t.fifos, per_site=9)),
        lambda t: replace(t, counters=replace(t.counters, per_site=5)),
    ],
    ids=["one site", "one row", "one column", "one channel", "no multicast", "nine FIFOs", "five counters"],
)
@pytest.mark.parametrize("chip", ["wormhole_n150", "xdna2"])
def test_a_poorer_chip_still_does_it(chip, change):
    """All but one: 64 sites in one row, whose locks of 6 bits cannot count two rounds."""
    target = change(load_target(chip))
    if chip == "xdna2" and target.grid.width == 64:
        with pytest.raises(ComposeReject, match="2 x 64 in rows and columns"):
            api.compile(source("smollm2-135m", layers=1), target)
        return
    program = api.compile(source("smollm2-135m", layers=1), target)
    assert simulate(program, target, symbols=middle(program), functional=False).cycles > 0


def test_two_counters_are_not_enough():
    xdna2 = load_target("xdna2")
    poor = replace(xdna2, counters=replace(xdna2.counters, per_site=2))
    with pytest.raises(OutOfCounters) as caught:
        api.compile(source("smollm2-135m", layers=1), poor)
    assert caught.value.available == "2 counters"


def test_compose_is_deterministic():
    target = load_target("xdna2")
    first, second = (api.compile(source("gemma-3-270m", layers=1), target) for _ in range(2))
    assert canonical_bytes(first) == canonical_bytes(second)


def test_explain_and_targets_show_the_figures():
    """What a page costs is in the descriptor's listing; a second slot that did not fit is among the joins."""
    xdna2 = load_target("xdna2")
    assert "page_bytes = 2048" in "\n".join(_figures(load_target("wormhole_n150")))
    program = api.compile(source("llama-3.1-8b", "rows", layers=1), xdna2)
    said = explain(program, xdna2, "q")
    assert "join slots of fX: one at" in said
    assert "of 65,536 bytes a site, 1,024 of them reserved" in said
