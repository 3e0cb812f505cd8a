"""What an op holds in registers: checker and oracle, which count apart, agree on what fits and on what does not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane import api
from pavane.ir.expr import Expr, at, fn
from pavane.ir.program import Compute, Generic, Process, Program
from pavane.ir.walk import rebuild
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.targets.load import load_target
from pavane.verify.check import examine
from tests.building import COL, ROW
from tests.checker.editing import accepted, in_shape, signed
from tests.chips.test_full_sync import sum_of
from tests.oracle import judge

TOY = load_target("toy")  # 4 tiles of 32 bits
FULL_SYNC = {"full_register_tiles": 6, "full_register_tiles_16_bit": 12, "pack_bytes_per_cycle": 16}


def with_matrix(**figures: int) -> SpatialTarget:
    """The toy chip with other registers."""
    engines = (replace(e, **figures) if e.name == "matrix" else e for e in TOY.engines)
    return replace(TOY, engines=tuple(engines))


BOTH = with_matrix(**FULL_SYNC)


def on_matrix(program: Program, change) -> Program:
    """The program with the matrix engine's process changed."""

    def changed(process: Process) -> Process:
        return change(process) if process.engine == "matrix" else process

    return in_shape(program, lambda s: replace(s, processes=tuple(map(changed, s.processes))))


def capacity_refusals(program: Program, target: SpatialTarget) -> list[tuple[str, str, str, tuple[str, ...]]]:
    refusals = (r for r in examine(signed(program, target), target).refusals if r.code == "capacity")
    return [(r.what, r.needed, r.available, r.terms) for r in refusals]


@pytest.mark.parametrize(("inputs", "sync"), [(3, "HALF"), (4, "FULL"), (5, "FULL")])
def test_what_fits_is_accepted_and_safe(inputs, sync):
    program = api.compile(sum_of(inputs, 40, 40), BOTH)
    assert [p.registers for p in program.shapes[0].processes if p.engine == "matrix"] == [sync]
    assert accepted(program, BOTH)
    assert judge(program, BOTH).safe


def test_an_op_of_full_sync_in_half_of_the_registers():
    """One tile too many; in full sync it is right."""
    program = on_matrix(api.compile(sum_of(4, 40, 40), BOTH), lambda p: replace(p, registers="HALF"))
    held = ("fY", "fX0", "fX1", "fX2", "fX3")
    assert capacity_refusals(program, BOTH) == [("a compute step holds too many tiles", "5", "4", held)]
    assert judge(program, BOTH).fault == "chip: an op into fY holds more tiles than the 4 of engine matrix"


def test_full_sync_on_an_engine_that_has_none():
    program = on_matrix(api.compile(sum_of(3, 40, 40), TOY), lambda p: replace(p, registers="FULL"))
    assert [what for what, *_ in capacity_refusals(program, TOY)] == ["engine matrix has no full sync"]
    assert judge(program, TOY).fault == "chip: engine matrix has no full sync"


@pytest.mark.parametrize(
    ("dtype", "narrow", "fits"), [("bf16", 8, True), ("bf16", 0, False), ("f32", 8, False), ("bf16", 4, False)]
)
def test_the_widest_type_says_how_many_tiles_there_are(dtype, narrow, fits):
    """Five tiles, on a chip that has four of 32 bits."""
    program = api.compile(sum_of(4, 40, 40, dtype), with_matrix(register_tiles_16_bit=8, **FULL_SYNC))
    target = with_matrix(register_tiles_16_bit=narrow)
    here = on_matrix(replace(program, target_digest=target_digest(target)), lambda p: replace(p, registers="HALF"))
    assert (capacity_refusals(here, target) == []) == fits
    assert judge(here, target).safe == fits


@pytest.mark.parametrize(("places", "fits"), [(4, True), (5, False)])
def test_a_buffer_read_at_several_places_is_several_tiles(places, fits):
    """Another sum than the spec's, which is refused too; but not for its tiles."""

    def read_more(node):
        return (Compute(replace(node.op, expr=_columns(places))),) if _is_sum(node) else (node,)

    program = api.compile(sum_of(1, 40, 40, function="abs"), TOY)
    more = on_matrix(program, lambda p: replace(p, body=rebuild(p.body, read_more)))
    read = tuple(f"fX0[LV_GEN_ROW, {column}]" for column in range(places))
    refused = [] if fits else [("a compute step holds too many tiles", "5", "4", read)]
    assert capacity_refusals(more, TOY) == refused
    assert judge(more, TOY).fault.startswith("chip: an op into fY holds more") == (not fits)


def _is_sum(node) -> bool:
    return isinstance(node, Compute) and isinstance(node.op, Generic) and at("fX0", ROW, COL) in _reads(node.op.expr)


def _reads(expr: Expr) -> tuple[Expr, ...]:
    return (expr, *getattr(expr, "args", ()))


def _columns(count: int) -> Expr:
    total: Expr = at("fX0", ROW, 0)
    for column in range(1, count):
        total = fn("add", total, at("fX0", ROW, column))
    return total
