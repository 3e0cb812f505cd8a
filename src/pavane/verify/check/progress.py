"""Progress: no process waits forever, for any value of the symbols and in any interleaving.

The certificate's schedule is replayed (`abstract_run`): every `Reserve`, `Front` and `Wait` finds what it waits for.
One complete execution is enough. Each FIFO has one pushing and one popping process a site and each counter one waiting
process (`balance`), so no step that is enabled is ever disabled by another process; extents and counts depend on no
data. Hence any execution that stops early could be continued, and all complete (the diamond argument for Kahn networks
with bounded queues).
"""

from __future__ import annotations

from pavane.reject import ProgressRefused
from pavane.verify.check.abstract_run import AbstractRun
from pavane.verify.check.section import Section


def progress(section: Section, run: AbstractRun) -> str:
    """Refuse where the schedule meets a step that is not enabled."""
    if run.blocked:
        what = "a step waits for something that no step before it has done"
        remedy = "order the steps so that each hand-over and each post comes before the step that waits for it"
        raise ProgressRefused(what, where=section.where, terms=run.blocked[:4], remedy=remedy)
    return f"{run.steps} steps in one order"
