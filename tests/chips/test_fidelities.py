"""Fidelities of the Tensix matrix engine: which is taken, that it multiplies in full, what the simulator makes of it.

LoFi multiplies 7 significand bits of a by 5 of b, HiFi2 all of b, HiFi3 all of a by 5 bits of b, HiFi4 all.
"""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from pavane import api
from pavane.ir.expr import at, fn
from pavane.ir.program import (
    Compute,
    Fifo,
    Formal,
    Generic,
    Items,
    Numerics,
    Process,
    Program,
    Ref,
    Shape,
)
from pavane.ir.quasi import quasi
from pavane.ir.types import Const, Floats, Ints
from pavane.passes.matrix_mode import choose_mode
from pavane.sim import simulate
from pavane.sim.numbers import shortened
from pavane.targets.descriptor import MatrixMode, SpatialTarget
from pavane.targets.fidelity import buffer_bits, significant_bits
from pavane.targets.load import load_target, target_names
from pavane.tensor_graph.bound import error_bound, worst_ratio
from pavane.tensor_graph.graph import Graph
from tests.building import COL, ROW, read, rect, shape_of, whole, window

TENSIX = ("wormhole_n150", "blackhole_p150")
LOFI, HIFI2, HIFI3, HIFI4 = 1, 2, 3, 4  # cycles of a step of 8 x 16 x 16
SEVEN, BYTE = Ints(-7, 7), Ints(-128, 127)


def product_graph(a: tuple, b: tuple, m: int = 9, k: int = 40, n: int = 21) -> Graph:
    graph = Graph("product")
    graph.output("c", graph.matmul(graph.input("a", (m, k), *a), graph.weight("b", (k, n), *b)))
    return graph


def compiled(a: tuple, b: tuple, target: SpatialTarget) -> Program:
    program = api.compile(api.graph(product_graph(a, b)), target)
    assert api.check(program, target)
    return program


def only(target: SpatialTarget, *modes: MatrixMode) -> SpatialTarget:
    """The chip with these modes alone."""
    engines = tuple(replace(e, matrix=modes) if e.matrix else e for e in target.engines)
    return replace(target, engines=engines)


@pytest.mark.parametrize("chip", TENSIX)
@pytest.mark.parametrize(
    ("a", "b", "taken", "bits", "cycles"),
    [
        (("f32", SEVEN), ("f32", SEVEN), ("f32", "f32"), (7, 5), LOFI),
        (("bf16", Ints(-128, 128)), ("bf16", Ints(-32, 32)), ("bf16", "bf16"), (7, 5), LOFI),
        (("bf16", Ints(0, 129)), ("bf16", Ints(-32, 32)), ("bf16", "bf16"), (8, 5), HIFI3),
        (("bf16", Ints(-128, 128)), ("bf16", Ints(0, 33)), ("bf16", "bf16"), (7, 8), HIFI2),
        (("f32", BYTE), ("f32", BYTE), ("f32", "f32"), (7, 10), HIFI2),
        (("i8", None), ("i8", None), ("bf16", "bf16"), (7, 8), HIFI2),
        (("bf16", Ints(0, 129)), ("bf16", Ints(0, 33)), ("bf16", "bf16"), (8, 8), HIFI4),
        (("f32", Ints(0, 2000)), ("f32", Ints(0, 30)), ("f32", "f32"), (11, 5), HIFI3),
        (("f32", Ints(0, 2000)), ("f32", Ints(0, 1000)), ("f32", "f32"), (11, 10), HIFI4),
        (("bf16", None), ("bf16", None), ("bf16", "bf16"), (8, 8), HIFI4),
        (("bf16", None), ("bf16", SEVEN), ("bf16", "bf16"), (8, 5), HIFI3),
        (("f32", None), ("f32", None), ("f32", "f32"), (11, 10), HIFI4),
        (("f32", None), ("f16", None), ("f32", "f16"), (11, 10), HIFI4),
        (("f32", None), ("bf16", None), ("f32", "f32"), (11, 10), HIFI4),
        (("f32", None), ("q8_0", None), ("f32", "q8_0"), (11, 10), HIFI4 + 8),
        (("f32", Const(3.0)), ("f32", Const(0.0)), ("f32", "f32"), (7, 5), LOFI),
    ],
)
def test_the_cheapest_fidelity_that_multiplies_in_full(chip, a, b, taken, bits, cycles):
    mode = choose_mode(load_target(chip), a[0], b[0], a[1], b[1]).mode
    assert ((mode.a, mode.b), mode.bits, mode.cycles) == (taken, bits, cycles)


@pytest.mark.parametrize("chip", TENSIX)
def test_blocks_meet_blocks_in_four_phases(chip):
    """Quants have up to 7 bits of magnitude in both registers, which takes all phases."""
    mode = choose_mode(load_target(chip), "q8_0", "q8_0").mode
    assert (mode.a, mode.b, mode.tile, mode.cycles) == ("q8_0", "q8_0", (8, 32, 16), 16)


@pytest.mark.parametrize("chip", [name for name in target_names() if name != "host"])
def test_no_mode_rounds_more_than_the_fullest_of_its_types(chip):
    """For all stored types and many ranges; and the order of the descriptor decides nothing."""
    target = load_target(chip)
    backwards = only(target, *reversed(target.engine_for("compute").matrix))
    fills = (Floats(), *(Ints(-n, n) for n in (1, 8, 31, 33, 127, 129, 255, 1025, 5000)))
    for a, b, fill_a, fill_b in product(("f32", "bf16"), ("f32", "f16", "bf16", "q8_0"), fills, fills):
        mode = choose_mode(target, a, b, fill_a, fill_b).mode
        alike = [m.bits for m in target.engine_for("compute").matrix if (m.a, m.b) == (mode.a, mode.b)]
        for side, (stored, fill) in enumerate(((a, fill_a), (b, fill_b))):
            assert mode.bits[side] >= min(significant_bits(stored, fill), max(bits[side] for bits in alike))
        assert choose_mode(backwards, a, b, fill_a, fill_b).mode == mode


@pytest.mark.parametrize("chip", TENSIX)
@pytest.mark.parametrize(
    ("a", "b", "exact"),
    [
        (SEVEN, SEVEN, True),
        (Ints(-128, 128), Ints(-32, 32), True),
        (Ints(-256, 256), Ints(-32, 32), True),
        (Ints(-100, 100), Ints(-256, 256), True),
        (Ints(0, 2048), Ints(0, 31), True),
        (Ints(0, 2049), Ints(0, 31), False),
        (Ints(0, 31), Ints(0, 1024), True),
        (Ints(0, 31), Ints(0, 1025), False),
    ],
)
def test_integers_are_exact_up_to_what_the_fullest_multiplies(chip, a, b, exact):
    """Claimed, accepted by the checker, and so to the bit, the greatest and the least among them."""
    target = load_target(chip)
    program = compiled(("f32", a), ("f32", b), target)
    assert program.shapes[0].numerics.exact is exact
    rng = np.random.default_rng(1)
    given = {n: rng.integers(f.lo, f.hi + 1, s) for n, f, s in (("a", a, (9, 40)), ("b", b, (40, 21)))}
    given["a"][0], given["b"][:, 0] = a.hi, b.hi
    given["a"][1], given["b"][:, 1] = a.lo, b.lo
    found = simulate(program, target, tensors={n: x.astype(np.float32) for n, x in given.items()}).outputs["c"]
    if exact:
        assert (found == given["a"] @ given["b"]).all()


def test_small_integers_take_a_quarter_of_the_time():
    """The predicted and the simulated cycles of the matrix engine: a step a phase."""
    target = load_target("wormhole_n150")
    busy = []
    for fill in (SEVEN, None):
        program = compiled(("bf16", fill), ("bf16", fill), target)
        result = simulate(program, target, functional=False)
        busy.append(max(s.busy_cycles for (_, _, engine), s in result.engines.items() if engine == "tensix"))
    steps = 2 * 3 * 2  # 9 x 40 x 21 in steps of 8 x 16 x 16, k in blocks of 32
    assert busy[1] - busy[0] == steps * (HIFI4 - LOFI)


def test_the_simulator_multiplies_what_the_mode_says():
    """Floats on an engine that has LoFi alone: a at 7 bits, b at 5; the section's bound says so too."""
    target = load_target("wormhole_n150")
    lofi = next(m for m in target.engine_for("compute").matrix if (m.a, m.cycles) == ("bf16", LOFI))
    coarse = only(target, lofi)
    program = compiled(("f32", None), ("f32", None), coarse)
    rng = np.random.default_rng(2)
    given = {
        "a": rng.standard_normal((9, 40)).astype(np.float32),
        "b": rng.standard_normal((40, 21)).astype(np.float32),
    }
    result = simulate(program, coarse, tensors=given)
    found = result.outputs["c"]
    in_bf16 = {n: shortened(x, 8) for n, x in given.items()}
    meant = shortened(in_bf16["a"], 7).astype(np.float64) @ shortened(in_bf16["b"], 5).astype(np.float64)
    assert np.allclose(found, meant, rtol=0, atol=1e-5)
    assert not np.allclose(found, given["a"].astype(np.float64) @ given["b"], rtol=0, atol=1e-2)
    after = {**given, "c": found}
    assert worst_ratio(program, given, after, {}, 0, coarse) <= 1
    ((wide,), (narrow,)) = (error_bound(program, given, {}, 0, chip) for chip in (coarse, target))
    assert (wide.bound > 3 * narrow.bound).all()  # 2**-7 and 2**-5 beside 2**-8 twice; both round to bf16 first


def test_floats_on_the_fullest_are_within_its_bound():
    target = load_target("wormhole_n150")
    program = compiled(("bf16", None), ("bf16", None), target)
    rng = np.random.default_rng(3)
    given = {n: rng.standard_normal(s).astype(ml_dtypes.bfloat16) for n, s in (("a", (9, 40)), ("b", (40, 21)))}
    found = simulate(program, target, tensors=given).outputs["c"]
    assert 0 < worst_ratio(program, given, {**given, "c": found}, {}, 0, target) <= 1
    exactly = given["a"].astype(np.float64) @ given["b"].astype(np.float64)
    assert np.allclose(found, exactly, rtol=0, atol=1e-5)  # nothing of bf16 is lost, sums round in f32


@pytest.mark.parametrize(("scaled", "bits"), [(False, 1), (True, 24)])
def test_of_a_slot_that_an_op_writes_too_only_the_type_is_known(scaled, bits):
    """Ones of either sign are loaded; a tenth of them needs every bit."""
    tenth = Compute(Generic(Ref("fA"), fn("mul", at("fA", ROW, COL), 0.1), whole(8), whole(8)))
    reserve, load, fence, push = read("fA", "A", window((0, 8), (0, 8), row=0))
    body = (reserve, load, fence, *((tenth,) if scaled else ()), push)
    shape = Shape(
        "ones", (Formal("A", shape_of(8, 8), "f32", "IN", Ints(-1, 1)),), (), Items(quasi(1), quasi(1), 8, 8),
        Numerics(), processes=(Process("core", rect(0, 1, 0, 1), "core", body),),
        fifos=(Fifo("fA", "LOCAL", 8, 8, "f32", 1, 0),),
    )  # fmt: skip
    assert buffer_bits(shape) == {"fA": bits}
