"""A second oracle: a program's choreography as a Promela model, which SPIN explores.

    spin_verdict(program, target, epochs) -> SpinVerdict    a fault; or all was explored; or a limit was reached

It imports `pavane.ir` and the descriptor's type, and shares nothing with `tests.oracle`, checker, prover, simulator or
native. It knows bytes and who waits for whom; it knows no values, so it says nothing about meaning, numerics, coverage
or initialisation.

    accesses   which bytes a step touches        events   what a worker does, as data      steps   workers' events
    watches    bytes that can be in conflict     promela  the model's text                 run     spin, cc, pan
"""

from __future__ import annotations

from tests.spin.run import SpinVerdict, missing_tools, spin_verdict, two_launches

__all__ = ["SpinVerdict", "missing_tools", "spin_verdict", "two_launches"]
