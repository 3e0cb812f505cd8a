"""Replay: an epoch ends where it began, so the program can run forever.

After the schedule every FIFO is empty and every counter equals its waiter's register (plus `ahead`); `ownership` adds
that no process ends with a slot or with a load, store or send on its way. Counters are compared modularly and never
reset, so their absolute values do not matter.
"""

from __future__ import annotations

from pavane.reject import ReplayRefused
from pavane.verify.check.abstract_run import AbstractRun
from pavane.verify.check.section import Section


def replay(section: Section, run: AbstractRun) -> str:
    """Refuse when the end of an epoch differs from its beginning."""
    if run.left_over:
        what = "the section does not end as it began, so the next epoch would not start from the same state"
        raise ReplayRefused(what, where=section.where, terms=run.left_over[:4])
    return f"{len(section.fifos)} FIFOs and {len(section.counters)} counters return"
