"""Block floats on chips that take them: which mode a product rides on, that it is within its bound on the simulated
chip, a whole layer, what other chips and the checker say.
"""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from bench.model_shapes import MODELS, rope_frequencies, stored_weights
from msgspec.structs import replace

from pavane import api
from pavane.frontends.deploy import deployed_dtype
from pavane.ir.program import Load, Program
from pavane.ir.types import BFP_BLOCK, MAGNITUDE_BITS, Ints, row_bytes
from pavane.ir.walk import rebuild
from pavane.passes.matrix_mode import choose_mode
from pavane.reject import (
    ArgumentReject,
    BoundsRefused,
    LaunchReject,
    NoEngine,
    NotProven,
    NumericsRefused,
    TargetReject,
)
from pavane.sim import simulate
from pavane.targets.check import check_target
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.targets.load import load_target, target_names
from pavane.tensor_graph.blocks import decode_blocks, encode_blocks
from pavane.tensor_graph.bound import worst_ratio
from pavane.tensor_graph.decoder_reference import decoder_reference
from pavane.tensor_graph.graph import Graph
from tests.checker.editing import refusal, signed
from tests.chips.test_decoders_on_chips import centred_relative_rms
from tests.chips.test_sections_in_bounds import SMALL, ratios, small
from tests.decoders import random_weights, run_simulator

TENSIX = ("wormhole_n150", "blackhole_p150")
KINDS = sorted(MAGNITUDE_BITS)
LOFI, HIFI2, HIFI3, HIFI4 = 1, 2, 3, 4
SEVEN = Ints(-7, 7)


def product_graph(m: int, k: int, n: int, dtype: str, transposed: bool, fill: Ints | None = None) -> Graph:
    graph = Graph("product")
    a = graph.input("a", (m, k), fill=fill)
    b = graph.weight("b", (n, k) if transposed else (k, n), dtype, fill)
    graph.output("c", graph.matmul(a, b, transposed=transposed))
    return graph


def without_block_floats(target: SpatialTarget) -> SpatialTarget:
    return replace(target, engines=tuple(replace(engine, block_floats=()) for engine in target.engines))


@pytest.mark.parametrize("chip", TENSIX)
@pytest.mark.parametrize(
    ("a", "b", "taken", "bits", "cycles"),
    [
        (("f32", None), ("bfp8", None), ("f32", "f32"), (11, 10), HIFI4),
        (("f32", None), ("bfp4", None), ("f32", "f32"), (11, 5), HIFI3),
        (("bf16", None), ("bfp8", None), ("bf16", "bf16"), (8, 8), HIFI4),
        (("bf16", None), ("bfp4", None), ("bf16", "bf16"), (8, 5), HIFI3),
        (("bfp8", None), ("bfp8", None), ("bf16", "bf16"), (7, 8), HIFI2),
        (("bfp8", None), ("bfp4", None), ("bf16", "bf16"), (7, 5), LOFI),
        (("f32", SEVEN), ("bfp8", SEVEN), ("f32", "f32"), (7, 5), LOFI),
    ],
)
def test_the_fidelity_follows_from_the_magnitudes_bits(chip, a, b, taken, bits, cycles):
    """They are widened on the way in: no cycle of the vector unit, where q8_0 takes 8 a step."""
    mode = choose_mode(load_target(chip), a[0], b[0], a[1], b[1]).mode
    assert ((mode.a, mode.b), mode.bits, mode.cycles) == (taken, bits, cycles)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(
    ("m", "k", "n", "transposed"),
    [(1, 576, 100, True), (33, 576, 100, True), (7, 112, 100, True), (3, 16, 5, True), (7, 100, 48, False)],
)
def test_a_product_is_within_its_bound(dtype, m, k, n, transposed):
    """Shapes that divide nothing but the blocks; decoding loses nothing, so only a's rounding and the sum count."""
    target = load_target("wormhole_n150")
    program = api.compile(api.graph(product_graph(m, k, n, dtype, transposed)), target)
    rng = np.random.default_rng(m * k * n)
    numbers = rng.standard_normal((n, k) if transposed else (k, n)) * 2.0 ** rng.integers(-40, 40, (1, 1))
    given = {"a": rng.standard_normal((m, k)).astype(np.float32), "b": encode_blocks(numbers, dtype)}
    found = simulate(program, target, tensors=given).outputs["c"]
    assert 0 < worst_ratio(program, given, {**given, "c": found}, {}, 0, target) <= 1
    meant = decode_blocks(given["b"], dtype, np.float64)
    expected = given["a"].astype(np.float64) @ (meant.T if transposed else meant)
    assert np.abs(found - expected).max() < 2.0**-10 * np.abs(expected).max()
    moved = {f.name: f.dtype for f in program.shapes[0].fifos}
    assert moved["fB"] == dtype


@pytest.mark.parametrize(("dtype", "fill"), [("bfp8", Ints(-127, 127)), ("bfp4", SEVEN)])
def test_integers_that_a_block_holds_are_exact(dtype, fill):
    target = load_target("wormhole_n150")
    program = api.compile(api.graph(product_graph(9, 48, 21, dtype, True, fill)), target)
    assert program.shapes[0].numerics.exact
    rng = np.random.default_rng(4)
    a, b = (rng.integers(fill.lo, fill.hi + 1, shape).astype(np.float32) for shape in ((9, 48), (21, 48)))
    given = {"a": a, "b": encode_blocks(b, dtype)}
    assert (simulate(program, target, tensors=given).outputs["c"] == a @ b.T).all()
    broken = {**given, "b": encode_blocks(b / np.float32(2), dtype)}
    with pytest.raises(LaunchReject, match="'b' holds fractions"):
        simulate(program, target, tensors=broken)


@pytest.mark.parametrize("dtype", KINDS)
def test_results_are_stored_in_blocks_and_read_again(dtype):
    """What is rounded into blocks is within the bound of a step; the next section reads what was stored."""
    target, graph = load_target("wormhole_n150"), Graph("chain")
    x, w = graph.input("x", (5, 112)), graph.input("w", (5, 112), dtype)
    total = graph.apply("add", x, w)
    graph.output("y", total, dtype)
    graph.output("m", graph.reduce("MAX", graph.apply("mul", total, 2.0)))
    program = api.compile(api.graph(graph), target)
    rng = np.random.default_rng(5)
    given = {"x": rng.standard_normal((5, 112)).astype(np.float32)}
    given["x"][0] *= 2.0 ** rng.integers(-30, 30, 112)
    given["w"] = encode_blocks(rng.standard_normal((5, 112)), dtype)
    found = simulate(program, target, tensors=given).outputs
    after = {**given, "y": found["y"].view(np.uint8), "m": found["m"]}
    sums = given["x"] + decode_blocks(given["w"], dtype)
    assert (after["y"] == encode_blocks(sums, dtype)).all()
    assert all(worst_ratio(program, after, after, {}, n, target) <= 1 for n in range(len(program.instances)))


@pytest.mark.parametrize(("rows", "dtype"), [(1, "bfp8"), ("rows", "bfp4")])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_each_section_of_a_layer_is_within_its_bound(name, rows, dtype):
    found = dict(ratios(small(name), rows, 45, dtype))
    assert all(ratio <= 1 for ratio in found.values()), found
    assert sum(ratio > 0 for ratio in found.values()) >= 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "figures", "rows", "block", "tokens"),
    [
        ("bfp8", {}, 1, 1, 3),
        ("bfp4", {}, "rows", 3, 5),
        ("bfp8", {"width": 100, "feed_forward": 176, "heads": 5, "kv_heads": 1, "head_width": 22}, 1, 1, 4),
    ],
    ids=["SmolLM2", "SmolLM2 prompt", "odd"],
)
def test_a_layer_says_what_the_reference_says(dtype, figures, rows, block, tokens):
    """Rows of 100 are no whole blocks and stay f32; those of 176 are."""
    target, base = load_target("wormhole_n150"), MODELS["smollm2-135m"]
    frequencies = rope_frequencies(figures.get("head_width", base.head_width))
    config = replace(base, **{"layers": 1, "vocabulary": 96, "rope_inverse_frequencies": frequencies, **figures})
    source = api.decoder(
        config, stored_weights(config, dtype), rows=rows, contract="FLOAT", context=24, logits_every_row=True
    )
    program = api.compile(source, target)
    stored, meant = {"rope_inverse_frequencies": np.array(frequencies, np.float32)}, {}
    for tensor, values in random_weights(config, 11).items():
        in_blocks = deployed_dtype(values.shape, dtype) == dtype
        stored[tensor] = encode_blocks(values, dtype) if in_blocks else values
        meant[tensor] = decode_blocks(stored[tensor], dtype) if in_blocks else values
    assert sum(array.dtype == np.uint8 for array in stored.values()) == (1 if figures else 8)
    ids = [int(t) for t in np.random.default_rng(11).integers(0, config.vocabulary, tokens)]
    found = run_simulator(program, target, stored, ids, block)
    assert centred_relative_rms(found, decoder_reference(config, meant, ids, np.float64)) < 2.0**-9


@pytest.mark.parametrize("dtype", KINDS)
def test_bytes_from_dram_are_those_of_the_blocks(dtype):
    """A weight is read once, as it is stored, and in less time."""
    target, read, cycles, readers = load_target("wormhole_n150"), {}, {}, {}
    for stored in ("q8_0", dtype):
        program = api.compile(api.graph(product_graph(1, 4096, 4096, stored, True)), target)
        result = simulate(program, target, functional=False)
        read[stored] = sum(channel.read_bytes for channel in result.channels)
        cycles[stored] = result.cycles
        readers[stored] = max(p.rect.x1.const * p.rect.y1.const for p in program.shapes[0].processes)
    assert {stored: size - 4096 * row_bytes(stored, 4096) for stored, size in read.items()} == {
        stored: count * 4 * 4096
        for stored, count in readers.items()  # and every site that works reads x once
    }
    assert cycles[dtype] < cycles["q8_0"]


# --- refusals ---------------------------------------------------------------------------------------------------------


OTHERS = [name for name in target_names() if name not in (*TENSIX, "host")]


@pytest.mark.parametrize(("chip", "dtype"), list(product(OTHERS, KINDS)))
def test_other_chips_say_what_they_take(chip, dtype):
    """A product, a section without one, and a whole decoder."""
    target, rows = load_target(chip), Graph("rows")
    rows.output("y", rows.apply("mul", rows.input("x", (4, 32), dtype), 2.0))
    config = small("smollm2-135m")
    decoder = api.decoder(config, stored_weights(config, dtype), context=45)
    for source in (api.graph(product_graph(1, 64, 64, dtype, True)), api.graph(rows), decoder):
        with pytest.raises(NoEngine) as refused:
            api.compile(source, target)
        assert refused.value.available == "f32, f16, bf16, i8, i32, q8_0"
        assert dtype in refused.value.what


def test_the_checker_refuses_them_on_an_engine_that_does_not_take_them():
    target = load_target("wormhole_n150")
    program = api.compile(api.graph(product_graph(1, 64, 32, "bfp8", True)), target)
    poor = without_block_floats(target)
    forged = signed(replace(program, target_digest=target_digest(poor)), poor)
    with pytest.raises(NumericsRefused, match="takes no bfp8 out of fB"):
        api.check(forged, poor)


def stated(program: Program, **operands: str) -> Program:
    shape = program.shapes[0]
    numerics = replace(shape.numerics, operands=tuple((n, operands.get(n, t)) for n, t in shape.numerics.operands))
    return replace(program, shapes=(replace(shape, numerics=numerics),))


def test_the_checker_refuses_a_type_that_the_unpacker_does_not_make():
    target = load_target("wormhole_n150")
    program = api.compile(api.graph(product_graph(1, 64, 32, "bfp8", True)), target)
    forged = signed(stated(program, B="f16"), target)
    with pytest.raises(NotProven, match="fB holds bfp8, which no engine takes as f16"):
        api.check(forged, target)
    assert api.check(signed(program, target), target)


def shifted(program: Program) -> Program:
    """Loads of B begin half a block later."""

    def later(node):
        if isinstance(node, Load) and node.tensor == "B":
            *outer, column = node.window.start
            return (replace(node, window=replace(node.window, start=(*outer, column + BFP_BLOCK // 2))),)
        return (node,)

    shape = program.shapes[0]
    processes = tuple(replace(p, body=rebuild(p.body, later)) for p in shape.processes)
    return replace(program, shapes=(replace(shape, processes=processes),))


@pytest.mark.parametrize("dtype", KINDS)
def test_the_checker_refuses_a_window_inside_a_block(dtype):
    target = load_target("wormhole_n150")
    program = api.compile(api.graph(product_graph(1, 64, 32, dtype, True)), target)
    refused = refusal(program, target, shifted)
    assert isinstance(refused, BoundsRefused)
    assert f"a window of {dtype} does not begin and end at whole blocks of 16" in str(refused)


@pytest.mark.parametrize(("dtype", "width"), [("bfp8", 100), ("bfp4", 8)])
def test_rows_that_end_inside_a_block(dtype, width):
    for role in ("input", "weight"):
        with pytest.raises(ArgumentReject, match="rows are whole blocks"):
            getattr(Graph("g"), role)("x", (3, width), dtype)
    graph = Graph("g")
    with pytest.raises(ArgumentReject, match="rows are whole blocks"):
        graph.output("y", graph.apply("mul", graph.input("x", (3, width)), 2.0), dtype)


def test_a_descriptor_names_block_floats_only():
    target = load_target("wormhole_n150")
    engines = tuple(replace(e, block_floats=("bfp8", "q8_0")) if e.matrix else e for e in target.engines)
    with pytest.raises(TargetReject, match="'q8_0' is no block float"):
        check_target(replace(target, engines=engines))
    mode = replace(target.engine_for("compute").matrix[0], b="bfp8")
    engines = tuple(replace(e, matrix=(*e.matrix, mode)) if e.matrix else e for e in target.engines)
    with pytest.raises(TargetReject, match="bfp8 enters as bf16 or f32, and is named in block_floats"):
        check_target(replace(target, engines=engines))


def test_an_array_of_another_type_is_no_block_float():
    target = load_target("wormhole_n150")
    program = api.compile(api.graph(product_graph(1, 64, 32, "bfp4", True)), target)
    a = np.zeros((1, 64), np.float32)
    for wrong in (np.zeros((32, 64), np.uint8), np.zeros((32, 64), ml_dtypes.bfloat16), np.zeros((32, 36), np.int8)):
        with pytest.raises(LaunchReject, match="'b' was given"):
            simulate(program, target, tensors={"a": a, "b": wrong})
