"""Replaying the certificate's schedule of a section on abstract state: each loop one turn.

The schedule must contain, restricted to each process, exactly that process's steps in its own order, with its own
loops. Where every blocking step is enabled when its turn comes, where every loop's turn leaves the state as it found
it, and where the end is the beginning, then the schedule with all turns written out is one complete execution for
every value of the symbols: `blocked`, `unbalanced` and `left_over` say where it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pavane.ir.program import Do, Loop, Node, ShapeSchedule, Turns
from pavane.reject import CertificateMismatch
from pavane.verify.check.fragment_shape import MAX_NEST
from pavane.verify.check.section import Section
from pavane.verify.check.site_state import SiteState


@dataclass
class AbstractRun:
    """What one pass over a schedule found; all three lists empty when it is an execution that can repeat."""

    section: Section
    state: SiteState
    steps: int = 0
    turns: int = 0
    blocked: list[str] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)


@dataclass
class _Cursor:
    """How far a process has come on one level of its loops."""

    body: tuple[Node, ...]
    first: int
    at: int = 0

    def leaf(self) -> int | None:
        """The number of the step it stands at, when it stands at one."""
        if self.at < len(self.body) and not isinstance(self.body[self.at], Loop):
            return self.first
        return None


def abstract_run(section: Section, certificate: ShapeSchedule) -> AbstractRun:
    """Replay a schedule; CertificateMismatch when it is no schedule of this section's processes."""
    state = SiteState((a.box for a in section.actors), section.shape.fifos, section.shape.counters)
    run = AbstractRun(section, state)
    cursors = {a.number: _Cursor(a.body, 0) for a in section.actors}
    before = state.snapshot()
    _replay(run, certificate.schedule, cursors, 0)
    for number, cursor in cursors.items():
        if cursor.at != len(cursor.body):
            raise _mismatch(section, f"process {section.actors[number].name} does not end")
    run.left_over.extend(state.differences(before))
    return run


def _replay(run: AbstractRun, schedule: tuple[Do | Turns, ...], cursors: dict[int, _Cursor], depth: int) -> None:
    if depth > MAX_NEST:
        raise _mismatch(run.section, "its loops are nested too deep")
    for item in schedule:
        if isinstance(item, Turns):
            _turn(run, item, cursors, depth)
        elif item.process not in cursors or not 0 <= item.first <= item.last:
            raise _mismatch(run.section, f"process {item.process} has no steps {item.first} .. {item.last} here")
        else:
            for index in range(item.first, item.last + 1):
                _do(run, item.process, index, cursors[item.process])


def _do(run: AbstractRun, process: int, index: int, cursor: _Cursor) -> None:
    actor = run.section.actors[process]
    if cursor.leaf() != index:
        raise _mismatch(run.section, f"process {actor.name} is not at step {index}")
    step = actor.leaves[index].step
    wanted = run.state.blocked(step, actor.box)
    if wanted:
        run.blocked.append(f"{actor.name} stands at step {index} and waits for {wanted}")
    run.state.do(step, actor.box, actor.where)
    cursor.at, cursor.first = cursor.at + 1, cursor.first + 1
    run.steps += 1


def _turn(run: AbstractRun, item: Turns, cursors: dict[int, _Cursor], depth: int) -> None:
    """One turn of a loop that every process with a step inside it stands at."""
    members = sorted(set(_members(item.body, 0)))
    inside = {}
    for process in members:
        cursor = cursors.get(process)
        node = cursor.body[cursor.at] if cursor is not None and cursor.at < len(cursor.body) else None
        if cursor is None or not isinstance(node, Loop) or (node.var, node.extent) != (item.var, item.extent):
            raise _mismatch(run.section, f"process {process} does not stand at a loop over {item.var} < {item.extent}")
        inside[process] = _Cursor(node.body, cursor.first)
    if not inside:
        raise _mismatch(run.section, f"a loop over {item.var} without steps")
    before = run.state.snapshot()
    _replay(run, item.body, inside, depth + 1)
    for process in members:
        if inside[process].at != len(inside[process].body):
            raise _mismatch(
                run.section, f"process {run.section.actors[process].name} does not end its turn of {item.var}"
            )
        cursors[process].at, cursors[process].first = cursors[process].at + 1, inside[process].first
    run.turns += 1
    run.unbalanced.extend(f"a turn of the loop over {item.var}: {change}" for change in run.state.differences(before))


def _members(schedule: tuple[Do | Turns, ...], depth: int) -> Iterator[int]:
    if depth > MAX_NEST:
        return
    for item in schedule:
        if isinstance(item, Turns):
            yield from _members(item.body, depth + 1)
        else:
            yield item.process


def _mismatch(section: Section, why: str) -> CertificateMismatch:
    return CertificateMismatch(
        f"the certificate's schedule is not one of this section: {why}",
        where=section.where,
        remedy="run `verify` on the program again",
    )
