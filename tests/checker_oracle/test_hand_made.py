"""Programs made by hand to fool the checker: the oracle calls each unsafe, and the checker must refuse it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.checker_oracle.hand_made import PROGRAMS, signed
from tests.checker_oracle.programs import Case, refusal
from tests.oracle import judge


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_the_checker_refuses(make: Callable[[], Case]) -> None:
    program, target = make()
    program = signed(program)
    assert judge(program, target).fault
    assert refusal(program, target) is not None
