"""The abstract state of a section: on every site, how full each FIFO is and what each counter holds beyond its
waiter's register.

Steps change it; nothing else does, because no control of a program depends on data. A FIFO's `held` counts slots that
are reserved, handed over or in front (all that a `Reserve` must find room beside); `ready` counts slots handed over
and not yet in front. A counter's `value` is (posts so far + ahead) - (posts consumed so far), the number that a
`Wait` compares with its n.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from pavane.ir.program import SITE_X, SITE_Y, Counter, Fifo, Front, Pop, Post, Push, Rect, Reserve, Step, Wait
from pavane.reject import BalanceRefused
from pavane.verify.check.boxes import Box, extent_of
from pavane.verify.check.inequalities import on_points
from pavane.verify.check.section import named_by

Snapshot = Mapping[tuple[str, str], np.ndarray]


def named_sites(to: Rect, doer: Box, width: int, height: int, where: str) -> np.ndarray:
    """How many of the doer's sites name each site (row, column) of the grid in `to`; refuses what lies outside the
    grid.
    """
    left, right, top, bottom = edges_on_sites(to, doer)
    if (left < 0).any() or (top < 0).any() or (right > width).any() or (bottom > height).any():
        raise BalanceRefused(
            "a step names sites outside its section's sites", where=where, available=f"{width} x {height} sites"
        )
    if (left >= right).any() or (top >= bottom).any():
        raise BalanceRefused("a step names no site on some of its sites", where=where)
    marks = np.zeros((height + 1) * (width + 1), np.int64)
    for y, x, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        marks += sign * np.bincount((y * (width + 1) + x).ravel(), minlength=marks.size)
    return marks.reshape(height + 1, width + 1).cumsum(0).cumsum(1)[:height, :width]


def edges_on_sites(to: Rect, doer: Box) -> list[np.ndarray]:
    """x0, x1, y0, y1 of a rectangle as each of the doer's sites names it: arrays [row, column]."""
    x0, x1, y0, y1 = doer
    site_y, site_x = np.mgrid[0 : y1 - y0, 0 : x1 - x0]
    values = {SITE_X: site_x, SITE_Y: site_y}
    return [np.broadcast_to(on_points(edge, values), site_x.shape) for edge in (to.x0, to.x1, to.y0, to.y1)]


class SiteState:
    """What every site's FIFOs and counters hold; `blocked` says why a step cannot go on, `do` carries it out.

    An array stays as it is once it is in `now`: a step puts another in its place, so a snapshot copies none.
    """

    def __init__(self, boxes: Iterable[Box], fifos: Iterable[Fifo], counters: Iterable[Counter]) -> None:
        self.width, self.height = extent_of(boxes)
        self.depth = {fifo.name: max(fifo.depth, 1) for fifo in fifos}
        empty = np.zeros((self.height, self.width), np.int64)
        self.now = {(kind, name): empty for name in self.depth for kind in ("held", "ready")}
        self.now |= {("value", c.name): empty + c.ahead for c in counters}

    def blocked(self, step: Step, doer: Box) -> str:
        """What the step waits for on some site of its process, or nothing."""
        at = _slices(doer)
        if isinstance(step, Reserve) and (self.now["held", step.fifo][at] >= self.depth[step.fifo]).any():
            return f"a free slot of {step.fifo}"
        if isinstance(step, Front) and (self.now["ready", step.fifo][at] < 1).any():
            return f"a slot handed over in {step.fifo}"
        if isinstance(step, Wait) and (self.now["value", step.counter][at] < step.n).any():
            return f"{step.n} post{'s' if step.n != 1 else ''} of {step.counter}"
        return ""

    def do(self, step: Step, doer: Box, where: str = "") -> None:
        """Carry out a step on every site of its process; the caller has asked `blocked`."""
        if isinstance(step, Post):
            key = ("value", step.counter)
            self.now[key] = self.now[key] + step.n * named_sites(step.to, doer, self.width, self.height, where)
        elif type(step) in _CHANGES:
            kind, sign = _CHANGES[type(step)]
            key = (kind, named_by(step))
            array = self.now[key].copy()
            array[_slices(doer)] += sign * (step.n if isinstance(step, Wait) else 1)
            self.now[key] = array

    def snapshot(self) -> Snapshot:
        """What `differences` and `restore` understand."""
        return dict(self.now)

    def restore(self, snapshot: Snapshot) -> None:
        self.now = dict(snapshot)

    def differences(self, before: Snapshot) -> tuple[str, ...]:
        """What a turn left otherwise than it found it, worded, in name order."""
        words = {"held": "slots held of FIFO", "ready": "slots ready in FIFO", "value": "posts left in counter"}
        changed = []
        for kind, name in sorted(key for key, array in before.items() if self.now[key] is not array):
            change = self.now[kind, name] - before[kind, name]
            if change.any():
                y, x = (int(i) for i in np.argwhere(change)[0])
                changed.append(f"{int(change[y, x]):+d} {words[kind]} {name} on site ({x}, {y})")
        return tuple(changed)


_CHANGES: dict[type, tuple[str, int]] = {
    Reserve: ("held", 1),
    Push: ("ready", 1),
    Front: ("ready", -1),
    Pop: ("held", -1),
    Wait: ("value", -1),
}


def _slices(doer: Box) -> tuple[slice, slice]:
    return slice(doer[2], doer[3]), slice(doer[0], doer[1])
