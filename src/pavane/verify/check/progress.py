"""Progress: no process waits forever, for any value of the symbols and in any interleaving.

The certificate's schedule is replayed (`abstract_run`): every `Reserve`, `Front` and `Wait` finds what it waits for.
With the premises of `balance` (one pusher, one popper, one waiter a site; no control depends on data) one complete
execution means that all are.
"""

from __future__ import annotations

from pavane.reject import ProgressRefused
from pavane.verify.check.abstract_run import AbstractRun
from pavane.verify.check.section import Section


def progress(section: Section, run: AbstractRun) -> str:
    """Refuse where the schedule meets a step that is not enabled."""
    if run.blocked:
        raise ProgressRefused(
            "a step waits for something that no step before it has done",
            where=section.where,
            terms=run.blocked[:4],
            remedy="order the steps so that each hand-over and each post comes before the step that waits for it",
        )
    return f"{run.steps} steps in one order"
