"""When a slot is in use (docs/ir.md, Slots): from the first step that puts something into it, and not before."""

from __future__ import annotations

import random

from msgspec.structs import replace

from pavane.ir.program import Fifo, Front, Node, Pop, Push, Reserve, Shape, Tensor
from pavane.targets.descriptor import Grid
from tests.building import read, shape_of, window
from tests.checker_oracle.programs import Case
from tests.evidence.hand import Hand, chip
from tests.evidence.pipelines import pointwise_shape
from tests.evidence.sections import Part, composed
from tests.oracle import judge

ROWS, COLS = 8, 16


def beside_a_section(*pushed: Node) -> Case:
    """A section's reader hands slots of `token` to its writer, over bytes that the section before it may still use."""
    hand = Hand(random.Random(0), careless=0.0)
    target = replace(chip(hand), grid=Grid(width=1, height=1))
    one, end = pointwise_shape(hand, target, "one", ROWS, COLS)
    other, _ = pointwise_shape(hand, target, "other", ROWS, COLS, start=end)
    token = Fifo("token", "LOCAL", 1, 8, "f32", 1, next(f.address for f in one.fifos if f.name == "fO"))
    tensors = (
        *(Tensor(name, shape_of(ROWS, COLS), "f32", "INPUT") for name in "xz"),
        *(Tensor(name, shape_of(ROWS, COLS), "f32", "OUTPUT") for name in "yw"),
    )
    parts = (
        Part(one, (("I", "x"), ("O", "y"))),
        Part(_handing(other, token, pushed), (("I", "z"), ("O", "w")), boundary=False),
    )
    return composed(hand, target, parts, tensors), target


def _handing(shape: Shape, token: Fifo, pushed: tuple[Node, ...]) -> Shape:
    more = {"reader_a": pushed, "writer": (Front("token"), Pop("token"))}
    processes = tuple(replace(p, body=(*p.body, *more.get(p.engine, ()))) for p in shape.processes)
    return replace(shape, fifos=(*shape.fifos, token), processes=processes)


def test_a_slot_that_nothing_is_put_into_is_not_in_use() -> None:
    assert judge(*beside_a_section(Reserve("token"), Push("token"))).fault == ""


def test_one_that_something_is_put_into_is() -> None:
    assert judge(*beside_a_section(*read("token", "I", window((0, 1), (0, 8))))).fault.startswith("race")
