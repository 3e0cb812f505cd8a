"""Where a process stands and where indices lie, natively: sites along a list, and slots of indices, which count from
where their own load began.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from pavane import native
from pavane.ir.expr import Indirect, at
from pavane.ir.program import (
    Compute,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Items,
    Load,
    Loop,
    Node,
    Numerics,
    Pop,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
    Tensor,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import Ints
from pavane.targets.load import load_target
from pavane.tensor_graph.reference import evaluate_spec
from tests.building import COL, ROW, X, Y, one_section, read, rect, shape_of, whole, window, write
from tests.checker.editing import accepted as proven
from tests.engines.native_programs import accepted
from tests.evidence.hand import Hand
from tests.evidence.places import beside_channels

HOST = load_target("host", 1)


def integers(rng: np.random.Generator, tensor: Tensor) -> np.ndarray:
    return rng.integers(-4, 5, [extent.const for extent in tensor.shape]).astype(np.float32)


@pytest.mark.parametrize("number", range(6))
def test_sections_along_a_list_of_sites(number):
    """What a site does depends on its place in the list, not on the grid. Lists are drawn in any order."""
    program, target = beside_channels(Hand(random.Random(number), 0.0))
    assert any(shape.sites for shape in program.shapes)
    rng = np.random.default_rng(number)
    given = {t.name: integers(rng, t) for t in program.tensors if t.role in ("INPUT", "WEIGHT")}
    want = evaluate_spec(program, given, {})["y"]
    with native.load(program, target, weights={"w": given["w"]}, accept=accepted) as ready:
        for _ in range(2):
            ready.launch({}, {"x": given["x"]})
            assert np.allclose(ready.tensor("y"), want, rtol=1e-5, atol=1e-5)


Loops = tuple[tuple[str, int], ...]
LOOPS: Loops = (("LV_ITEM_Y", 2), ("LV_ITEM_X", 3))


def gathered(first: Quasi, then: Quasi, held: int = 1, swapped: bool = False, loops: Loops = LOOPS) -> Program:
    """O[i] = E[I[i]]: slots of `held` indices are loaded, from `first` on, then index `then` of each is used, in the
    same loops, or in those loops exchanged.
    """
    count, width = loops[0][1] * loops[1][1], 5
    fetch = Load("e", "E", window((Indirect("I", (then,), 0, 4, "i"), 1), (0, width), row=0))
    use = (
        *(Front("i"), Reserve("e"), fetch, Fence(), Push("e"), Pop("i"), Front("e"), Reserve("o")),
        Compute(Generic(Ref("o"), at("e", ROW, COL), whole(1), whole(width))),
        *(Push("o"), Pop("e")),
        *write("o", "O", window((then, 1), (0, width), row=0)),
    )
    body = (
        *nested(loops, read("i", "I", window((first, held)))),
        *nested(loops[::-1] if swapped else loops, use),
    )
    formals = (
        Formal("I", shape_of(count), "i32", "IN", Ints(0, 3)),
        Formal("E", shape_of(4, width), "f32", "IN"),
        Formal("O", shape_of(count, width), "f32", "OUT"),
    )
    meant = at("E", Indirect("I", (quasi("i0"),), 0, 4), "i1")
    shape = Shape(
        name="gather",
        formals=formals,
        spec=(Spec("O", shape_of(0, 0), shape_of(count, width), meant),),
        items=Items(quasi(count), quasi(1), 1, width),
        numerics=Numerics(),
        processes=(Process("core", rect(0, 1, 0, 1), "core", body),),
        fifos=(
            Fifo("i", "LOCAL", 1, held, "i32", count, 0),
            Fifo("e", "LOCAL", 1, width, "f32", 1, 1024),
            Fifo("o", "LOCAL", 1, width, "f32", 1, 2048),
        ),
    )
    tensors = (
        Tensor("ids", shape_of(count), "i32", "INPUT", Ints(0, 3)),
        Tensor("table", shape_of(4, width), "f32", "WEIGHT"),
        Tensor("y", shape_of(count, width), "f32", "OUTPUT"),
    )
    return one_section(HOST, shape, tensors, {"I": "ids", "E": "table", "O": "y"})


def nested(loops: Loops, steps: tuple[Node, ...]) -> tuple[Node, ...]:
    for var, extent in reversed(loops):
        steps = (Loop(var, quasi(extent), steps),)
    return steps


@pytest.mark.parametrize(("ny", "nx"), [(1, 3), (2, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("swapped", [False, True])
def test_indices_count_from_where_their_own_load_began(ny, nx, swapped):
    """Turn n of the loads is turn n of the uses; with the loops exchanged the variables then have other values."""
    then = ny * X + Y if swapped else nx * Y + X
    gathers_right(gathered(nx * Y + X, then, 1, swapped, (("LV_ITEM_Y", ny), ("LV_ITEM_X", nx))), ny * nx)


@pytest.mark.parametrize(("first", "held"), [(quasi(0), 6), (3 * Y, 3), (3 * Y + X, 6)])
def test_a_slot_may_hold_more_indices_than_are_used(first, held):
    gathers_right(gathered(first, 3 * Y + X, held), 6)


def gathers_right(program: Program, count: int) -> None:
    proven(program, HOST)
    table, rng = np.arange(20, dtype=np.float32).reshape(4, 5), np.random.default_rng(count)
    with native.load(program, HOST, weights={"table": table}, accept=accepted) as ready:
        for _ in range(3):
            ids = rng.integers(0, 4, count).astype(np.int32)
            ready.launch({}, {"ids": ids})
            assert np.array_equal(ready.tensor("y"), table[ids])
