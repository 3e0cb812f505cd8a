"""Programs with many tensors, shapes, sections or classes of sites are checked in time that grows with their size, or
refused; and what finds intervals that share bytes finds all of them.
"""

from __future__ import annotations

import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pavane.ir.expr import at
from pavane.ir.program import (
    Binding,
    Compute,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Instance,
    Items,
    Numerics,
    Pop,
    Process,
    Push,
    Ref,
    Reserve,
    Run,
    Shape,
    Spec,
    Tensor,
    Worker,
)
from pavane.ir.quasi import quasi
from pavane.reject import CapacityRefused, OutsideFragment
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.verify.check.intervals import Taken, sharing
from tests.building import COL, ROW, SX, SY, many_sections, rect, shape_of, take, whole, window, write
from tests.checker import editing as e

TOY = load_target("toy")
LARGE = replace(TOY, memory=replace(TOY.memory, bytes=1 << 30), dram=replace(TOY.dram, bytes=1 << 40))
BYTES = 8 * 8 * 4
SECONDS = 10

intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda i: (i[0], i[0] + i[1])), max_size=12)


@given(intervals)
def test_sharing(listed):
    named = [(start, end, number) for number, (start, end) in enumerate(listed)]
    found = sorted(tuple(sorted(pair)) for pair in sharing(named))
    meeting = ((a[2], b[2]) for a, b in combinations(named, 2) if a[0] < b[1] and b[0] < a[1])
    assert found == sorted(meeting)


@given(intervals, st.integers(0, 40), st.integers(1, 8))
def test_taken(listed, start, size):
    taken = Taken((low, high, f"{low}..{high}") for low, high in listed)
    found = taken.meets(start, start + size)
    assert (found is not None) == any(low < start + size and start < high for low, high in listed)
    assert found is None or (found[0] < start + size and start < found[1])


def _copy(name: str, side: int) -> Shape:
    """y = x, 8 x 8 elements a site of a square."""
    everywhere, rows = rect(0, side, 0, side), 8 * side * side
    place = window((8 * SX + 8 * side * SY, 8), (0, 8), row=0)
    load = (*take("fX", "X", place)[:2], Fence(), Push("fX"))
    op = Generic(Ref("fY"), at("fX", ROW, COL), whole(8), whole(8))
    compute = (Front("fX"), Reserve("fY"), Compute(op), Push("fY"), Pop("fX"))
    bodies = (("load", "reader_a", load), ("compute", "matrix", compute), ("store", "writer", write("fY", "Y", place)))
    return Shape(
        name,
        tuple(Formal(f, shape_of(rows, 8), "f32", role) for f, role in (("X", "IN"), ("Y", "OUT"))),
        (Spec("Y", shape_of(0, 0), shape_of(rows, 8), at("X", "i0", "i1")),),
        Items(quasi(1), quasi(1), 8, 8),
        Numerics(),
        processes=tuple(Process(p, everywhere, engine, body) for p, engine, body in bodies),
        fifos=(Fifo("fX", "LOCAL", 8, 8, "f32", 1, 0), Fifo("fY", "LOCAL", 8, 8, "f32", 1, BYTES)),
    )


def _program(
    tensors: tuple[Tensor, ...],
    written: int = 0,
    shapes: int = 1,
    side: int = 1,
    striped: bool = False,
    target: SpatialTarget = LARGE,
):
    """x copied to the first tensors, `written` of them, and to y; `striped`: readers by columns, others by rows."""
    rows = 8 * side * side
    first, *others = (_copy(f"copy{n}", side) for n in range(shapes))
    outcomes = (*(tensor.name for tensor in tensors[:written]), "y")
    instances = tuple(Instance(first.name, (Binding("X", "x"), Binding("Y", name))) for name in outcomes)
    workers = []
    for number, process in enumerate(first.processes):
        body = tuple(Run(n, process.name) for n in range(len(instances)))
        lines = [rect(i, i + 1, 0, side) if number == 0 else rect(0, side, i, i + 1) for i in range(side)]
        for n, edges in enumerate(lines if striped and number < 2 else [process.rect]):
            workers.append(Worker(f"{process.name}.{n}", edges, process.engine, body))
    ends = (Tensor("x", shape_of(rows, 8), "f32", "INPUT"), Tensor("y", shape_of(rows, 8), "f32", "OUTPUT"))
    made = many_sections("many", target, (first, *others), (*ends, *tensors), instances, tuple(workers))
    return e.signed(made, target)


def _scratch(count: int, step: int, home: str = "dram", rows: int = 8) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(f"t{n}", shape_of(rows, 8), "f32", "SCRATCH", offset=2 * BYTES + step * n, home=home)
        for n in range(count)
    )


@pytest.mark.parametrize("step", [BYTES, 32])
def test_many_tensors(step):
    """Apart, or each over the next seven."""
    started = time.perf_counter()
    e.accepted(_program(_scratch(3000, step), written=1500), LARGE)
    assert time.perf_counter() - started < SECONDS


def test_all_tensors_over_each_other():
    started = time.perf_counter()
    with pytest.raises(OutsideFragment, match="too many tensors share bytes"):
        e.accepted(_program(_scratch(2000, 32, rows=2000 * 8)), LARGE)
    assert time.perf_counter() - started < SECONDS


def test_many_tensors_on_the_sites_and_many_shapes():
    started = time.perf_counter()
    e.accepted(_program(_scratch(2000, BYTES, "sites"), shapes=200), LARGE)
    assert time.perf_counter() - started < SECONDS


@pytest.mark.parametrize(("offset", "other"), [(BYTES, "fY of copy0"), (2 * BYTES, "t0"), (200 * BYTES + 32, "u")])
def test_one_of_many_on_the_sites_over_something(offset, other):
    weight = Tensor("w", shape_of(8, 8), "f32", "WEIGHT", offset=300 * BYTES, home="sites")
    listed = (*_scratch(100, BYTES, "sites"), replace(weight, name="u", offset=200 * BYTES))
    e.accepted(_program((*listed, weight)), LARGE)
    with pytest.raises(CapacityRefused, match=f"w shares bytes with {other}"):
        e.accepted(_program((*listed, replace(weight, offset=offset))), LARGE)


def test_many_classes_of_sites():
    """Each crossing of a column's worker with a row's is a class."""
    target = replace(LARGE, grid=replace(LARGE.grid, width=48, height=48))
    started = time.perf_counter()
    e.accepted(_program((), side=48, striped=True, target=target), target)
    tensors = tuple(replace(t, shape=shape_of(8 * 48 * 48, 8)) for t in _scratch(20, 48 * 48 * BYTES))
    with pytest.raises(OutsideFragment, match="too many accesses"):
        e.accepted(_program(tensors, written=20, side=48, striped=True, target=target), target)
    assert time.perf_counter() - started < SECONDS
