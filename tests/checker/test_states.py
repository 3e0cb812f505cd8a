"""STATE tensors: each has a transition, and an epoch makes it, whether or not a section touches the tensor."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.program import Program, Symbol, Tensor, Transition
from pavane.ir.quasi import quasi
from pavane.reject import OrderRefused
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from tests.building import shape_of
from tests.checker import editing as e
from tests.checker.two_sections import twice_on_toy
from tests.evidence import bases
from tests.oracle import judge

TOY = load_target("toy")


def beside(role: str, transition: Transition | None) -> Program:
    """Two sections, and a tensor that neither touches."""
    made = replace(twice_on_toy(TOY), symbols=(Symbol("pos", 0, 3, 0),))
    return replace(made, tensors=(*made.tensors, Tensor("s", shape_of(4, 4), "f32", role, transition=transition)))


def appended() -> tuple[Program, SpatialTarget]:
    """A section appends to a cache, another reads it."""
    return bases.base(next(name for name in bases.names() if name.startswith("cache.") and bases.base(name)))


def refused(program: Program, target: SpatialTarget) -> str:
    with pytest.raises(OrderRefused) as caught:
        e.accepted(program, target)
    return str(caught.value)


def test_a_weight_that_no_section_touches_is_accepted():
    assert e.accepted(beside("WEIGHT", None), TOY).facts
    assert judge(beside("WEIGHT", None), TOY).safe


@pytest.mark.parametrize(
    ("transition", "why"),
    [
        (None, "a STATE tensor has no transition"),
        (Transition(quasi("pos"), quasi(1)), "an epoch does not write the rows of the transition"),
    ],
)
def test_a_state_that_no_section_touches_makes_no_transition(transition, why):
    assert why in refused(beside("STATE", transition), TOY)
    assert not judge(beside("STATE", transition), TOY).safe


def test_a_cache_is_refused_without_its_transition():
    made, target = appended()
    assert e.accepted(made, target).facts
    assert judge(made, target).safe
    without = tuple(replace(t, transition=None) if t.role == "STATE" else t for t in made.tensors)
    assert "transition" in refused(replace(made, tensors=without), target)
    assert not judge(replace(made, tensors=without), target).safe
