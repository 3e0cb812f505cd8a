"""Half and full sync on chips that have both: what each holds, which one a section takes, and what full sync costs."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import api
from pavane.ir.digest import canonical_bytes
from pavane.ir.program import Process, Program
from pavane.ir.text import show
from pavane.passes import full_sync
from pavane.reject import NoEngine, OutOfRegisters, ProgramReject
from pavane.report.explain import explain
from pavane.sim import simulate
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.targets.restrict import restricted
from pavane.validate import require_valid
from tests.decoders import compile_decoder
from tests.tiny_models import tiny_gemma

WORMHOLE = load_target("wormhole_n150")
PACKED_BYTES_PER_CYCLE = {"wormhole_n150": 64, "blackhole_p150": 128}


def sum_of(inputs: int, rows: int, cols: int, dtype: str = "f32", function: str = "") -> api.Source:
    """y = f(x0) + f(x1) + ..., one op that reads all of them."""
    graph = api.Graph(f"sum_of_{inputs}")
    given = [graph.input(f"x{number}", (rows, cols), dtype) for number in range(inputs)]
    terms = [graph.apply(function, x) if function else x for x in given]
    total = terms[0]
    for term in terms[1:]:
        total = graph.apply("add", total, term)
    graph.output("y", total, dtype)
    return api.graph(graph)


def registers(program: Program) -> list[str]:
    return [p.registers for shape in program.shapes for p in shape.processes if p.engine == "tensix"]


def in_sync(program: Program, registers: str) -> Program:
    """As no chip could run it where an op holds too many tiles; the simulator only counts time."""

    def changed(process: Process) -> Process:
        return replace(process, registers=registers) if process.engine == "tensix" else process

    shapes = (replace(shape, processes=tuple(map(changed, shape.processes))) for shape in program.shapes)
    return replace(program, shapes=tuple(shapes))


def cycles(program: Program, target: SpatialTarget) -> int:
    return simulate(program, target, functional=False).cycles


@pytest.mark.parametrize("chip", sorted(PACKED_BYTES_PER_CYCLE))
@pytest.mark.parametrize(("dtype", "half", "full"), [("f32", 3, 7), ("bf16", 7, 15)])
def test_full_sync_where_only_that_holds_an_op(chip, dtype, half, full):
    """The operands and the result: 4 tiles of 32 bits in half sync and 8 in full sync, twice as many of 16 bits."""
    target = load_target(chip)
    taken = {inputs: registers(api.compile(sum_of(inputs, 64, 64, dtype), target)) for inputs in (half, half + 1, full)}
    assert taken == {half: ["HALF"], half + 1: ["FULL"], full: ["FULL"]}
    with pytest.raises(OutOfRegisters) as caught:
        api.compile(sum_of(full + 1, 64, 64, dtype), target)
    assert caught.value.needed == f"{full + 2} tiles"
    assert caught.value.available == f"{full + 1} of engine tensix of {chip} in full sync"
    assert len(caught.value.terms) == full + 2


def test_what_full_sync_computes_is_right():
    rng = np.random.default_rng(5)
    given = {f"x{number}": rng.standard_normal((70, 50)).astype(np.float32) for number in range(6)}
    program = api.compile(sum_of(6, 70, 50), WORMHOLE)
    assert registers(program) == ["FULL"]
    result = simulate(program, WORMHOLE, tensors=given)
    np.testing.assert_allclose(result.outputs["y"], sum(given.values()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chip", sorted(PACKED_BYTES_PER_CYCLE))
def test_full_sync_costs_the_time_in_which_results_leave(chip):
    """On one site, which computes most of the time: 64 x 64 results of 4 bytes, at what the packers write a cycle."""
    target = restricted(load_target(chip), width=1, height=1)
    program = api.compile(sum_of(4, 64, 64, function="tanh"), target)
    packing = 64 * 64 * 4 // PACKED_BYTES_PER_CYCLE[chip]
    assert registers(program) == ["FULL"]
    assert cycles(program, target) - cycles(in_sync(program, "HALF"), target) == packing
    predicted = program.shapes[0].plan.cycles + target.launch.cycles
    assert abs(predicted - cycles(program, target)) < 0.05 * predicted


def test_a_section_that_half_sync_does_not_hold_on_wormhole():
    """On 64 sites: one block of 16 x 64 each is packed in 64 cycles more; of many blocks the channels hide it."""
    for rows, cols, function, more in ((64, 64, "tanh", 64), (512, 512, "", 0)):
        program = api.compile(sum_of(4, rows, cols, function=function), WORMHOLE)
        assert registers(program) == ["FULL"]
        assert cycles(program, WORMHOLE) - cycles(in_sync(program, "HALF"), WORMHOLE) == more


def test_a_product_in_full_sync_packs_its_sums_and_their_copy():
    """64 x 64 of 4 bytes, twice; the zeros that it begins with are packed while the operands are fetched."""
    target = restricted(WORMHOLE, width=1, height=1)
    program = api.compile(api.op("matmul:64,64,64"), target)
    assert cycles(in_sync(program, "FULL"), target) - cycles(program, target) == 2 * 64 * 64 * 4 // 64


def test_half_sync_is_not_written_down():
    half, full = (api.compile(sum_of(inputs, 64, 64), WORMHOLE) for inputs in (3, 4))
    assert b"registers" not in canonical_bytes(half)
    assert canonical_bytes(full).count(b'"registers":"FULL"') == 1
    assert ", registers in full sync" in show(full)
    assert "sync" not in show(half)
    name = full.shapes[0].name
    assert "registers of compute: full sync" in explain(full, WORMHOLE, name)
    assert "registers" not in explain(half, WORMHOLE, half.shapes[0].name)


def test_no_other_chip_has_full_sync():
    """Neither a section that needs it, nor a program that claims it."""
    toy = load_target("toy")
    with pytest.raises(OutOfRegisters) as caught:
        api.compile(sum_of(4, 64, 64), toy)
    assert (caught.value.needed, caught.value.available) == ("5 tiles", "4 of engine matrix of toy")
    program = api.compile(sum_of(3, 64, 64), toy)
    (shape,) = program.shapes
    claimed = replace(shape, processes=tuple(replace(p, registers="FULL") for p in shape.processes))
    forged = replace(program, shapes=(claimed,), certificate=None, phase="PERSISTENT")
    with pytest.raises(NoEngine, match="engine matrix has no full sync"):
        simulate(forged, toy, functional=False)
    with pytest.raises(ProgramReject, match="engine 'matrix' has no full sync"):
        require_valid(forged, toy)


# --- a cut that only full sync undoes ---------------------------------------------------------------------------------


def test_gemma_keeps_its_cut_in_half_sync(monkeypatch):
    """norm_sum (a norm's result plus a residual, five tiles) stays in two Generics, and simulation says so too."""
    config = tiny_gemma(layers=1, width=256)
    half = compile_decoder(config, WORMHOLE, 1, quantised=True, contract="FLOAT", context=64)
    joins = [join for shape in half.shapes for join in shape.joins if join.what == "registers"]
    assert joins
    assert all((join.taken, join.other) == ("half sync", "full sync") for join in joins)
    assert all(join.cycles < join.other_cycles for join in joins)
    monkeypatch.setattr(full_sync, "_cycles", lambda _, shape, __: len(shape.carries))
    full = compile_decoder(config, WORMHOLE, 1, quantised=True, contract="FLOAT", context=64)
    assert registers(full).count("FULL") == len(joins)
    at_start = {"pos": 0}
    in_half, in_full = (simulate(p, WORMHOLE, symbols=at_start, functional=False).cycles for p in (half, full))
    assert in_half <= in_full
