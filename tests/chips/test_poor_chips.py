"""Chips that lack something: one site, one DRAM channel, no multicast. They compile, verify, and give what rich ones
give, to the bit; chips that have too little are refused with exit code 6, those whose workers have holes with 4.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from pavane import api
from pavane.cli.main import app
from pavane.reject import ComposeReject, OutOfRegisters, TargetReject
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.targets.restrict import restricted
from pavane.tensor_graph.decoder_reference import decoder_reference
from pavane.tensor_graph.q8 import dequantise_q8
from tests.chips.test_decoders_on_chips import centred_relative_rms
from tests.chips.test_sections_in_bounds import worst_of_sections
from tests.decoders import compile_decoder, random_weights, run_simulator, stored_dtype, stored_weights
from tests.tiny_models import tiny_config

CHIPS = ("toy", "wormhole_n150")
POOR = {
    "one site": lambda t: restricted(t, width=1, height=1),
    "one channel": lambda t: replace(t, dram=replace(t.dram, channels=1, adjacent=t.dram.adjacent[:1])),
    "no multicast": lambda t: replace(t, noc=replace(t.noc, multicast=False)),
}
LAYER = tiny_config(layers=1, width=32, feed_forward=64, heads=2, kv_heads=1, vocabulary=70)
TOKENS = (3, 1, 4, 15, 9)
TOY_TOML = resources.files("pavane.targets").joinpath("data", "toy.toml").read_text(encoding="utf-8")


def logits(target: SpatialTarget, rows: int | str, block: int, contract: str) -> np.ndarray:
    """Of every position, on the simulated chip, from a program that the checker accepts."""
    program = compile_decoder(LAYER, target, rows, quantised=True, contract=contract, context=20)
    assert api.check(program, target)
    weights = stored_weights(LAYER, random_weights(LAYER, 3), True)
    return run_simulator(program, target, weights, TOKENS, block)


def referred() -> np.ndarray:
    plain = random_weights(LAYER, 3)
    stored = stored_weights(LAYER, plain, True)
    meant = {n: dequantise_q8(stored[n]) if stored_dtype(a.shape, True) == "q8_0" else a for n, a in plain.items()}
    return decoder_reference(LAYER, meant, list(TOKENS), np.float64)


@pytest.mark.parametrize(
    ("rows", "block", "contract", "error"), [(1, 1, "FLOAT", 0.005), ("rows", 3, "INT8_ACTIVATIONS", 0.08)]
)
@pytest.mark.parametrize("chip", CHIPS)
def test_a_layer_on_a_poor_chip_is_that_of_a_rich_one(chip, rows, block, contract, error):
    """Token by token and in blocks: the same bits as on the whole chip, and the reference's logits."""
    target = load_target(chip)
    rich = logits(target, rows, block, contract)
    assert centred_relative_rms(rich, referred()) < error
    for lack, change in POOR.items():
        assert np.array_equal(logits(change(target), rows, block, contract), rich), lack


@pytest.mark.parametrize("lack", sorted(POOR))
@pytest.mark.parametrize("chip", CHIPS)
def test_each_section_on_a_poor_chip_is_within_its_bound(chip, lack):
    worst = worst_of_sections("smollm2-135m", "rows", POOR[lack](load_target(chip)))
    assert sum(ratio > 0 for ratio in worst.values()) >= 7
    assert max(worst.values()) <= 1, worst


# --- too little -------------------------------------------------------------------------------------------------------


def with_registers(target: SpatialTarget, tiles: int) -> SpatialTarget:
    """In half sync, and no full sync."""
    none = ("register_tiles_16_bit", "full_register_tiles", "full_register_tiles_16_bit", "pack_bytes_per_cycle")
    engines = tuple(replace(e, register_tiles=tiles, **dict.fromkeys(none, 0)) for e in target.engines)
    return replace(target, engines=engines)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_decoder_needs_memory_beside_the_chip(chip):
    target = load_target(chip)
    with pytest.raises(ComposeReject, match="do not fit the memory beside the chip") as caught:
        logits(replace(target, dram=replace(target.dram, bytes=1)), 1, 1, "FLOAT")
    total = sum(int(term.split()[1]) for term in caught.value.terms)
    assert (caught.value.exit_code, caught.value.needed) == (6, f"{total} B, {total - 1} B too many")
    assert f" of {chip} hold it together" in caught.value.remedy


def test_an_op_alone_needs_it_too():
    """64 x 64 in f32 twice and 64 x 64 of result: 49,152 bytes."""
    target = load_target("toy")
    enough = replace(target, dram=replace(target.dram, bytes=49_152))
    assert api.compile(api.op("matmul:64,64,64"), enough).phase == "VERIFIED"
    with pytest.raises(ComposeReject) as caught:
        api.compile(api.op("matmul:64,64,64"), replace(enough, dram=replace(target.dram, bytes=49_151)))
    assert (caught.value.needed, caught.value.available) == ("49152 B, 1 B too many", "49151 B")
    assert caught.value.terms == ("INPUT 16384 B", "OUTPUT 16384 B", "WEIGHT 16384 B")


@pytest.mark.parametrize("chip", CHIPS)
def test_an_op_needs_registers(chip):
    """The norm's panel is one tile of three others; a product's result is one of another."""
    target = load_target(chip)
    for tiles in (1, 3):
        with pytest.raises(OutOfRegisters) as caught:
            logits(with_registers(target, tiles), 1, 1, "FLOAT")
        assert caught.value.exit_code == 6
        assert caught.value.available.startswith(f"{tiles} of engine ")
    assert api.compile(api.op("matmul:64,64,64"), with_registers(target, 2)).phase == "VERIFIED"


@pytest.mark.parametrize(
    ("line", "poorer", "code", "words"),
    [
        ("bytes = 268435456", "bytes = 1", 6, "49152 B, 49151 B too many"),
        ("register_tiles = 4", "register_tiles = 1", 6, "needed 2 tiles, available 1 of engine matrix"),
        ("bytes = 65536", "bytes = 64", 6, "bytes a site"),
        ("height = 2", "height = 2\nmissing = [[1, 1]]", 4, "describe the largest whole one, width = 2 and height = 1"),
    ],
)
def test_the_command_line_refuses_with_the_right_code(tmp_path: Path, line, poorer, code, words):
    assert TOY_TOML.count(line) == 1
    chip = tmp_path / "poor.toml"
    chip.write_text(TOY_TOML.replace(line, poorer), encoding="utf-8")
    arguments = ["compile", "--op", "matmul:64,64,64", "-t", str(chip), "-o", str(tmp_path / "a.pavane")]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, "Traceback" in result.output) == (code, False), result.output
    assert words in " ".join(result.stderr.split())
    assert not (tmp_path / "a.pavane").exists()


def test_holes_are_not_compiled_over():
    """In a call too: a descriptor that is changed by hand is checked as a file is."""
    target = load_target("toy")
    holed = replace(target, grid=replace(target.grid, missing=((0, 1),)))
    with pytest.raises(TargetReject, match="width = 2 and height = 1"):
        api.compile(api.op("matmul:64,64,64"), holed)
