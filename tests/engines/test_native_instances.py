"""Instances of one shape follow each other like turns of a loop: a process that runs ahead into the next one waits for
slots that are still in use in the one before.
"""

from __future__ import annotations

import numpy as np
import pytest

from pavane import native
from pavane.ir.expr import Reduce, at, fn
from pavane.ir.program import (
    Binding,
    Compute,
    Fifo,
    Formal,
    Front,
    Generic,
    Instance,
    Items,
    Numerics,
    Pop,
    Process,
    Program,
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
from pavane.native.layout import program_layout
from pavane.targets.descriptor import SpatialTarget
from tests.building import COL, GEN_K, ROW, many_sections, read, rect, shape_of, whole, window, write
from tests.checker.editing import accepted as proven
from tests.engines.native_programs import accepted

SIDE, INSTANCES = 32, 6
SITE, PLACE = rect(0, 1, 0, 1), window((0, SIDE), (0, SIDE), row=0)


def square(depth: int) -> Shape:
    """O = I . I^T, by an op that takes long against a load."""
    meant = Reduce("SUM", "k0", quasi(SIDE), fn("mul", at("I", "i0", "k0"), at("I", "i1", "k0")))
    made = Reduce("SUM", GEN_K, quasi(SIDE), fn("mul", at("i", ROW, GEN_K), at("i", COL, GEN_K)))
    op = Compute(Generic(Ref("o"), made, whole(SIDE), whole(SIDE)))
    extents = shape_of(SIDE, SIDE)
    return Shape(
        name="square",
        formals=(Formal("I", extents, "f32", "IN"), Formal("O", extents, "f32", "OUT")),
        spec=(Spec("O", shape_of(0, 0), extents, meant),),
        items=Items(quasi(1), quasi(1), SIDE, SIDE),
        numerics=Numerics(),
        processes=(
            Process("read", SITE, "reader_a", read("i", "I", PLACE)),
            Process("compute", SITE, "matrix", (Front("i"), Reserve("o"), op, Push("o"), Pop("i"))),
            Process("write", SITE, "writer", write("o", "O", PLACE)),
        ),
        fifos=(
            Fifo("i", "LOCAL", SIDE, SIDE, "f32", depth, 0),
            Fifo("o", "LOCAL", SIDE, SIDE, "f32", depth, 16 << 10),
        ),
    )


def squares(target: SpatialTarget, depth: int) -> Program:
    """y<n> = x<n> . x<n>^T: sections that share nothing but their shape's slots, so no boundary stands between them."""
    shape, extents = square(depth), shape_of(SIDE, SIDE)
    names = [str(n) for n in range(INSTANCES)]
    tensors = [Tensor(f"x{n}", extents, "f32", "INPUT") for n in names]
    tensors += [Tensor(f"y{n}", extents, "f32", "OUTPUT") for n in names]
    instances = tuple(Instance("square", (Binding("I", f"x{n}"), Binding("O", f"y{n}")), name=n) for n in names)
    workers = tuple(
        Worker(p.name, p.rect, p.engine, tuple(Run(n, p.name) for n in range(INSTANCES))) for p in shape.processes
    )
    return many_sections("squares", target, (shape,), tuple(tensors), instances, workers)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_who_runs_ahead_waits_for_slots_in_use(toy, depth):
    program, rng = squares(toy, depth), np.random.default_rng(depth)
    proven(program, toy)
    layout = program_layout(program, toy)
    assert (len(layout.queues), len(layout.counters), len(layout.bindings)) == (1, 1, INSTANCES)
    with native.load(program, toy, weights={}, accept=accepted) as ready:
        for _ in range(20):
            given = {f"x{n}": rng.integers(-3, 4, (SIDE, SIDE)).astype(np.float32) for n in range(INSTANCES)}
            ready.launch({}, given)
            for n in range(INSTANCES):
                assert np.array_equal(ready.tensor(f"y{n}"), given[f"x{n}"] @ given[f"x{n}"].T)
