"""What is stored beside what the spec says.

A fault is a `wrong value` where the numbers show it, and a `wrong term` where the terms alone do: the data of this run
hides it, or the tolerance, or the numbers are equal for a reason that no law knows.
"""

from __future__ import annotations

import numpy as np

from tests.oracle import residues
from tests.oracle.cells import Cells
from tests.oracle.record import Record
from tests.oracle.spaces import Fault


def require_same(found: Cells, meant: Cells, scale: float, record: Record, where: str) -> None:
    """Equal terms, and numbers that are as far apart as `scale` at most."""
    for kind, same in (("value", _same_numbers(found, meant, scale)), ("term", same_terms(found, meant))):
        if not same.all():
            row, col = map(int, np.argwhere(~same)[0])
            said, wanted = (f"{record.worded(x)} ({x['number']:.9g})" for x in (found[row, col], meant[row, col]))
            raise Fault(f"wrong {kind}: {where}: ({row}, {col}) is {said} instead of {wanted}")


def same_terms(found: Cells, meant: Cells) -> np.ndarray:
    return residues.same(found["term"], meant["term"])


def _same_numbers(found: Cells, meant: Cells, scale: float) -> np.ndarray:
    numbers, wanted = found["number"], meant["number"]
    return (np.abs(numbers - wanted) <= scale) | (numbers == wanted) | (np.isnan(numbers) & np.isnan(wanted))


def rounding_scale(all_meant: Cells, exact: bool) -> float:
    """What double precision may make of equal terms of an output; nothing where it is claimed exact."""
    finite = np.abs(all_meant["number"][np.isfinite(all_meant["number"])])
    return 0.0 if exact else 1e-7 * max(1e-3, float(finite.max()) if finite.size else 1.0)
