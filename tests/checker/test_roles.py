"""Who may do what: each step stands on an engine of its role, an Init too, which writes a buffer as an op does; nothing
is sent where rows and columns are none on the chip.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.program import Carry, Init, Program
from pavane.reject import CapacityRefused
from pavane.targets.load import load_target
from tests.checker import editing as e
from tests.examples import matmul_multicast
from tests.oracle import judge

TOY = load_target("toy")


def with_init(process: str) -> Program:
    """The product, and a process that sets a carry which nobody reads."""
    spare = Carry("spare", 8, 8, "f32", address=0x8000)
    made = e.in_shape(matmul_multicast(TOY, 40, 40, 40), lambda shape: replace(shape, carries=(*shape.carries, spare)))
    return e.in_process(process, lambda body: (Init("spare"), *body))(made)


@pytest.mark.parametrize("process", ["leadA", "recvB", "write"])
def test_no_init_where_nothing_computes(process):
    made = with_init(process)
    assert "is no compute" in judge(made, TOY).fault
    with pytest.raises(CapacityRefused, match="is no compute"):
        e.accepted(made, TOY)


def test_an_init_on_the_engine_that_computes():
    made = with_init("compute")
    assert judge(made, TOY, interleavings=2).safe
    assert e.accepted(made, TOY).refusals == ()


def test_nothing_is_sent_on_scattered_sites():
    scattered = replace(TOY, grid=replace(TOY.grid, scattered=True))
    with pytest.raises(CapacityRefused, match="does not multicast along rows and columns"):
        e.accepted(matmul_multicast(scattered, 40, 40, 40), scattered)
