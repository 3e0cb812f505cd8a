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
from pavane.reject import BalanceRefused, OutsideFragment
from pavane.verify.check.boxes import Box
from pavane.verify.check.inequalities import on_points

MAX_SITES = 1 << 14


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
    marks = np.zeros((height + 1, width + 1), np.int64)
    for y, x, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(marks, (y, x), sign)
    return marks.cumsum(0).cumsum(1)[:height, :width]


def edges_on_sites(to: Rect, doer: Box) -> list[np.ndarray]:
    """x0, x1, y0, y1 of a rectangle as each of the doer's sites names it: arrays [row, column]."""
    x0, x1, y0, y1 = doer
    site_y, site_x = np.mgrid[0 : y1 - y0, 0 : x1 - x0]
    values = {SITE_X: site_x, SITE_Y: site_y}
    return [np.broadcast_to(on_points(edge, values), site_x.shape) for edge in (to.x0, to.x1, to.y0, to.y1)]


class SiteState:
    """What every site's FIFOs and counters hold; `blocked` says why a step cannot go on, `do` carries it out."""

    def __init__(self, boxes: Iterable[Box], fifos: Iterable[Fifo], counters: Iterable[Counter]) -> None:
        boxes = tuple(boxes)
        self.width = max((b[1] for b in boxes), default=1)
        self.height = max((b[3] for b in boxes), default=1)
        if self.width * self.height > MAX_SITES:
            raise OutsideFragment(
                "a section covers too many sites", needed=f"{self.width} x {self.height}", available=f"{MAX_SITES}"
            )
        self.depth = {fifo.name: max(fifo.depth, 1) for fifo in fifos}
        self.held = {name: self._zeros() for name in self.depth}
        self.ready = {name: self._zeros() for name in self.depth}
        self.value = {c.name: self._zeros() + c.ahead for c in counters}
        self._named: dict[tuple[Rect, Box], np.ndarray] = {}

    def _zeros(self) -> np.ndarray:
        return np.zeros((self.height, self.width), np.int64)

    def posted(self, step: Post, doer: Box, where: str = "") -> np.ndarray:
        """The posts that one turn of a step gives to each site."""
        key = (step.to, doer)
        if key not in self._named:
            self._named[key] = named_sites(step.to, doer, self.width, self.height, where)
        return self._named[key] * step.n

    def blocked(self, step: Step, doer: Box) -> str:
        """What the step waits for on some site of its process, or nothing."""
        at = _slices(doer)
        if isinstance(step, Reserve) and (self.held[step.fifo][at] >= self.depth[step.fifo]).any():
            return f"a free slot of {step.fifo}"
        if isinstance(step, Front) and (self.ready[step.fifo][at] < 1).any():
            return f"a slot handed over in {step.fifo}"
        if isinstance(step, Wait) and (self.value[step.counter][at] < step.n).any():
            return f"{step.n} post{'s' if step.n != 1 else ''} of {step.counter}"
        return ""

    def do(self, step: Step, doer: Box, where: str = "") -> None:
        """Carry out a step on every site of its process; the caller has asked `blocked`."""
        at = _slices(doer)
        if isinstance(step, Reserve):
            self.held[step.fifo][at] += 1
        elif isinstance(step, Push):
            self.ready[step.fifo][at] += 1
        elif isinstance(step, Front):
            self.ready[step.fifo][at] -= 1
        elif isinstance(step, Pop):
            self.held[step.fifo][at] -= 1
        elif isinstance(step, Wait):
            self.value[step.counter][at] -= step.n
        elif isinstance(step, Post):
            self.value[step.counter] += self.posted(step, doer, where)

    def snapshot(self) -> dict[tuple[str, str], np.ndarray]:
        """A copy that `differences` and `restore` understand."""
        parts = (("held", self.held), ("ready", self.ready), ("value", self.value))
        return {(kind, name): array.copy() for kind, arrays in parts for name, array in arrays.items()}

    def restore(self, snapshot: Mapping[tuple[str, str], np.ndarray]) -> None:
        for (kind, name), array in snapshot.items():
            getattr(self, kind)[name] = array.copy()

    def differences(self, before: Mapping[tuple[str, str], np.ndarray]) -> tuple[str, ...]:
        """What a turn left otherwise than it found it, worded, in name order."""
        words = {"held": "slots held of FIFO", "ready": "slots ready in FIFO", "value": "posts left in counter"}
        changed = []
        for (kind, name), array in sorted(before.items()):
            change = getattr(self, kind)[name] - array
            if change.any():
                y, x = (int(i) for i in np.argwhere(change)[0])
                changed.append(f"{int(change[y, x]):+d} {words[kind]} {name} on site ({x}, {y})")
        return tuple(changed)


def _slices(doer: Box) -> tuple[slice, slice]:
    return slice(doer[2], doer[3]), slice(doer[0], doer[1])
