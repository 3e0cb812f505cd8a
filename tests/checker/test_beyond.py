"""Blocks of a product that are put into a row, each with more columns than the product has: what stands beyond is what
the accumulator was set to, and must not be taken for the block beside it.
"""

from __future__ import annotations

import pytest

from pavane.ir.expr import Reduce, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fifo,
    Formal,
    Front,
    Generic,
    Init,
    Items,
    Loop,
    MatmulTiles,
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
    Tree,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.reject import MeaningRefused
from pavane.targets.load import load_target
from tests.building import COL, ROW, X, one_section, read, rect, shape_of, span, whole, window, write
from tests.checker.editing import accepted
from tests.oracle import judge

TOY = load_target("toy")
SITE = rect(0, 1, 0, 1)


def loop(*steps: Node, extent: int = 4, var: str = "LV_ITEM_X") -> Loop:
    return Loop(var, quasi(extent), steps)


def program(block: Quasi, kept_columns: int, again: int = 1) -> Program:
    """O = A . B, 8 x 32 elements by blocks of 8 columns, block `block` in each turn, `kept_columns` of the accumulator
    kept each time (and that `again` times).
    """
    formals = (
        Formal("A", shape_of(8, 8), "bf16", "IN"), Formal("B", shape_of(8, 32), "bf16", "IN"),
        Formal("O", shape_of(8, 32), "f32", "OUT"),
    )  # fmt: skip
    product = fn("mul", at("A", "i0", "k0"), at("B", "k0", "i1"))
    spec = Spec("O", shape_of(0, 0), shape_of(8, 32), Reduce("SUM", "k0", quasi(8), product))
    add = MatmulTiles(Ref("acc"), Ref("fA"), Ref("fB"), False, whole(8), whole(8), whole(8), Tree())
    keep = Compute(Generic(Ref("row", col=8 * block), at("acc", ROW, COL), whole(8), whole(kept_columns)))
    out = Compute(Generic(Ref("fO"), at("row", ROW, quasi(COL) + 8 * X), whole(8), span(8 * X, 8, 32)))
    kept = loop(keep, extent=again, var="LV_SUB_H")
    compute = (
        Front("fA"), loop(Front("fB"), Init("acc"), Compute(add), kept, Pop("fB")), Pop("fA"),
        loop(Reserve("fO"), out, Push("fO")),
    )  # fmt: skip
    reads = (
        *read("fA", "A", window((0, 8), (0, 8), row=0)),
        loop(*read("fB", "B", window((0, 8), (8 * block, 8), row=0))),
    )
    writes = (loop(*write("fO", "O", window((0, 8), (8 * X, 8), row=0))),)
    shape = Shape(
        "blocks", formals, (spec,), Items(quasi(1), quasi(4), 8, 8),
        Numerics(operands=(("A", "bf16"), ("B", "bf16"))),
        processes=(
            Process("read", SITE, "reader_a", reads), Process("compute", SITE, "matrix", compute),
            Process("write", SITE, "writer", writes),
        ),
        fifos=(
            Fifo("fA", "LOCAL", 8, 8, "bf16", 1, 0), Fifo("fB", "LOCAL", 8, 8, "bf16", 1, 1024),
            Fifo("fO", "LOCAL", 8, 8, "f32", 1, 2048),
        ),
        carries=(Carry("acc", 8, 16, "f32", address=4096), Carry("row", 8, 40, "f32", address=8192)),
    )  # fmt: skip
    tensors = (
        Tensor("a", shape_of(8, 8), "bf16", "INPUT"), Tensor("b", shape_of(8, 32), "bf16", "WEIGHT"),
        Tensor("o", shape_of(8, 32), "f32", "OUTPUT"),
    )  # fmt: skip
    return one_section(TOY, shape, tensors, {"A": "a", "B": "b", "O": "o"})


ORDERS = {"from the start": X, "from the end": 3 - X, "from the middle": (X + 1) % 4}


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_as_wide_as_the_product_are_accepted_in_any_order(order):
    made = program(ORDERS[order], 8)
    assert judge(made, TOY).safe
    accepted(made, TOY)


@pytest.mark.parametrize("again", [1, 2])
@pytest.mark.parametrize("order", ["from the end", "from the middle"])
def test_wider_blocks_write_over_the_block_beside_them(order, again):
    made = program(ORDERS[order], 16, again)
    assert "wrong value" in judge(made, TOY).fault
    with pytest.raises(MeaningRefused, match="nothing known"):
        accepted(made, TOY)
