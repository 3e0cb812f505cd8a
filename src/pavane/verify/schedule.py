"""One sequential order of every step of a section: evidence for progress, and the written order of merged stages.

`find_schedule(shape, processes)` is greedy list scheduling on abstract state: every process runs its steps as far as
it can, in the order given (producers first); when none can go on, all processes that stand at a loop of one variable
and extent, and whose FIFOs and counters have both their ends among them, enter that loop together, for one turn that
must leave the state as it found it. Deterministic. Raises ProgressRefused with the circle of who waits for what.

`merge_stages(stages, shape)` is for `persist`: give every stage as a `Process` of its own (its group's rectangle, its
engine, its body, a unique name; producers before consumers); it returns one process for every engine and rectangle,
rectangles of an engine disjoint, each the schedule restricted to that engine's stages. Where a stage's rectangle is
cut, SITE_X and SITE_Y of its steps are shifted, so that they count inside the new rectangle. A process of one stage
keeps the stage's name; one of several is named after its engine (`core`, or `core.0`, `core.1` where there are
several). It works in full registers where one of its stages does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec.structs import replace

from pavane.ir.program import (
    SITE_X,
    SITE_Y,
    Do,
    Front,
    Loop,
    Node,
    Pop,
    Post,
    Process,
    Push,
    Rect,
    Reserve,
    Shape,
    Step,
    Turns,
    Wait,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import Registers
from pavane.ir.walk import leaves, substituted
from pavane.reject import ProgressRefused
from pavane.verify.check.boxes import Box, box
from pavane.verify.check.section import named_by
from pavane.verify.check.site_state import SiteState

Schedule = tuple[Do | Turns, ...]


def find_schedule(shape: Shape, processes: Sequence[Process] | None = None) -> Schedule:
    """A schedule of the shape's processes (or of `processes`, with the shape's FIFOs and counters)."""
    chosen = tuple(shape.processes if processes is None else processes)
    search = _search(shape, chosen)
    found = _run(search, dict(enumerate(search.bodies)))
    if isinstance(found, _Stuck):
        raise _refusal(shape, search, found)
    return found


def merge_stages(stages: Sequence[Process], shape: Shape) -> tuple[Process, ...]:
    """One process per engine and rectangle, in the order of a schedule of all stages."""
    stages = tuple(stages)
    schedule = find_schedule(shape, stages)
    merged = []
    for engine in dict.fromkeys(stage.engine for stage in stages):
        members = tuple(i for i, stage in enumerate(stages) if stage.engine == engine)
        cells = _rectangles([box(stages[i].rect, stages[i].name) for i in members], members)
        shared = sum(len(inside) > 1 for _, inside in cells)
        for number, (cell, inside) in enumerate(cells):
            several = f"{engine}.{number}" if shared > 1 or len(cells) > 1 else engine
            once = sum(other == inside for _, other in cells) == 1
            name = stages[inside[0]].name if len(inside) == 1 and once else several
            rect = Rect(*(quasi(edge) for edge in cell))
            registers: Registers = "FULL" if any(stages[i].registers == "FULL" for i in inside) else "HALF"
            merged.append(Process(name, rect, engine, restrict(schedule, stages, inside, cell), registers))
    return tuple(merged)


def restrict(
    schedule: Schedule, processes: Sequence[Process], members: Sequence[int], cell: Box | None = None
) -> tuple[Node, ...]:
    """The steps of some processes as one body, in the schedule's order; SITE coordinates count inside `cell`."""
    steps = {i: tuple(step for _, step in leaves(_placed(processes[i], cell).body)) for i in members}
    return _restricted(schedule, steps)


def _restricted(schedule: Schedule, steps: dict[int, tuple[Step, ...]]) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for item in schedule:
        if isinstance(item, Turns):
            inner = _restricted(item.body, steps)
            nodes.extend([Loop(item.var, item.extent, inner)] if inner else [])
        else:
            nodes.extend(steps.get(item.process, ())[item.first : item.last + 1])
    return tuple(nodes)


def _placed(process: Process, cell: Box | None) -> Process:
    if cell is None:
        return process
    x0, _, y0, _ = box(process.rect, process.name)
    shift = {SITE_X: quasi(SITE_X) + (cell[0] - x0), SITE_Y: quasi(SITE_Y) + (cell[2] - y0)}
    return process if (cell[0], cell[2]) == (x0, y0) else replace(process, body=substituted(process.body, shift))


def _rectangles(boxes: Sequence[Box], members: Sequence[int]) -> tuple[tuple[Box, tuple[int, ...]], ...]:
    """Disjoint rectangles, each with the members that cover it; as few as one where the covered sites form one."""
    xs = sorted({edge for b in boxes for edge in b[:2]})
    ys = sorted({edge for b in boxes for edge in b[2:]})
    groups: dict[tuple[int, ...], list[Box]] = {}
    for y0, y1 in pairwise(ys):
        for x0, x1 in pairwise(xs):
            inside = tuple(
                m
                for m, b in zip(members, boxes, strict=True)
                if b[0] <= x0 and x1 <= b[1] and b[2] <= y0 and y1 <= b[3]
            )
            if inside:
                groups.setdefault(inside, []).append((x0, x1, y0, y1))
    return tuple((cell, inside) for inside, cells in groups.items() for cell in _joined(cells))


def _joined(cells: list[Box]) -> list[Box]:
    whole = (min(c[0] for c in cells), max(c[1] for c in cells), min(c[2] for c in cells), max(c[3] for c in cells))
    area = sum((c[1] - c[0]) * (c[3] - c[2]) for c in cells)
    return [whole] if area == (whole[1] - whole[0]) * (whole[3] - whole[2]) else cells


# --- the search -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Leaf:
    index: int
    step: Step


@dataclass(frozen=True)
class _Block:
    """A loop, with the FIFO and counter ends that its leaves use, each with its nest inside the loop."""

    var: str
    extent: Quasi
    body: tuple[_Leaf | _Block, ...]
    ends: frozenset[tuple[str, str, tuple]]


_Body = tuple[_Leaf | _Block, ...]


@dataclass(frozen=True)
class _Search:
    processes: tuple[Process, ...]
    boxes: tuple[Box, ...]
    bodies: tuple[_Body, ...]
    state: SiteState
    waiters: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class _Stuck:
    """Where each unfinished process of a level stands."""

    at: tuple[tuple[int, _Leaf | _Block], ...]


def _search(shape: Shape, processes: tuple[Process, ...]) -> _Search:
    boxes = tuple(box(p.rect, f"{shape.name}, process {p.name}") for p in processes)
    users: dict[str, list[int]] = {}
    bodies = tuple(_numbered(p.body, [0]) for p in processes)
    for number, body in enumerate(bodies):
        for name in sorted({name for name, _, _ in _ends(body, ())}):
            users.setdefault(name, []).append(number)
    waiters = {name: tuple(numbers) for name, numbers in users.items()}
    return _Search(processes, boxes, bodies, SiteState(boxes, shape.fifos, shape.counters), waiters)


def _numbered(body: tuple[Node, ...], count: list[int]) -> _Body:
    nodes: list[_Leaf | _Block] = []
    for node in body:
        if isinstance(node, Loop):
            inner = _numbered(node.body, count)
            nodes.append(_Block(node.var, node.extent, inner, frozenset(_ends(inner, ()))))
        else:
            nodes.append(_Leaf(count[0], node))
            count[0] += 1
    return tuple(nodes)


_END = {Reserve: "pusher", Push: "pusher", Front: "popper", Pop: "popper", Post: "poster", Wait: "waiter"}
_OTHER = {"pusher": "popper", "popper": "pusher", "poster": "waiter", "waiter": "poster"}


def _ends(body: _Body, nest: tuple) -> list[tuple[str, str, tuple]]:
    found: list[tuple[str, str, tuple]] = []
    for node in body:
        if isinstance(node, _Block):
            found.extend((name, end, (node.var, node.extent, *inner)) for name, end, inner in node.ends)
        elif type(node.step) in _END:
            step = node.step
            found.append((named_by(step), _END[type(step)], nest))
    return found


def _run(search: _Search, level: dict[int, _Body]) -> Schedule | _Stuck:
    """Schedule one level: the bodies of the processes that are inside the same turn of the same loops."""
    position = dict.fromkeys(level, 0)
    out: list[Do | Turns] = []
    while True:
        while _advance(search, level, position, out):
            pass
        standing = {p: level[p][i] for p, i in position.items() if i < len(level[p])}
        if not standing:
            return tuple(out)
        turn, entered = _enter(search, standing)
        if turn is None:
            return _deepest(search, standing)
        out.append(turn)
        for process in entered:
            position[process] += 1


def _advance(search: _Search, level: dict[int, _Body], position: dict[int, int], out: list[Do | Turns]) -> bool:
    """Run every process as far as its steps are enabled; True when any ran."""
    moved = False
    for process, body in level.items():
        while position[process] < len(body):
            node = body[position[process]]
            if isinstance(node, _Block) or search.state.blocked(node.step, search.boxes[process]):
                break
            search.state.do(node.step, search.boxes[process], search.processes[process].name)
            _emit(out, process, node.index)
            position[process] += 1
            moved = True
    return moved


def _emit(out: list[Do | Turns], process: int, index: int) -> None:
    last = out[-1] if out else None
    if isinstance(last, Do) and last.process == process and last.last == index - 1:
        out[-1] = Do(process, last.first, index)
    else:
        out.append(Do(process, index, index))


def _enter(search: _Search, standing: dict[int, _Leaf | _Block]) -> tuple[Turns | None, tuple[int, ...]]:
    """The first loop that a closed set of processes can do one turn of."""
    heads = dict.fromkeys((node.var, node.extent) for node in standing.values() if isinstance(node, _Block))
    for var, extent in heads:
        group = {p: n for p, n in standing.items() if isinstance(n, _Block) and (n.var, n.extent) == (var, extent)}
        for members in _closed(search, group):
            before = search.state.snapshot()
            body = _run(search, {p: members[p].body for p in members})
            if not isinstance(body, _Stuck) and not search.state.differences(before):
                return Turns(var, extent, body), tuple(members)
            search.state.restore(before)
    return None, ()


def _closed(search: _Search, group: dict[int, _Block]) -> list[dict[int, _Block]]:
    """The greatest set whose FIFOs and counters have both ends inside it at equal nests, split into connected parts."""
    group = dict(group)
    while True:
        ends = {end for node in group.values() for end in node.ends}
        open_ = [
            p
            for p, node in group.items()
            if any((name, _OTHER[end], nest) not in ends for name, end, nest in node.ends)
        ]
        if not open_:
            return _parts(group)
        for process in open_:
            del group[process]


def _parts(group: dict[int, _Block]) -> list[dict[int, _Block]]:
    """The whole set first; then, for when it is unbalanced, the sets that share no FIFO or counter."""
    if not group:
        return []
    parts: list[tuple[set[str], list[int]]] = []
    for process, node in group.items():
        names = {name for name, _, _ in node.ends}
        touching = [part for part in parts if part[0] & names]
        joined = (
            names.union(*(part[0] for part in touching)),
            sorted([process, *(p for part in touching for p in part[1])]),
        )
        parts = [part for part in parts if part not in touching] + [joined]
    whole = [group]
    return whole if len(parts) == 1 else whole + [{p: group[p] for p in part[1]} for part in parts]


# --- the refusal ------------------------------------------------------------------------------------------------------


def _deepest(search: _Search, standing: dict[int, _Leaf | _Block]) -> _Stuck:
    return _Stuck(tuple(sorted(standing.items(), key=lambda item: item[0])))


def _refusal(shape: Shape, search: _Search, stuck: _Stuck) -> ProgressRefused:
    """Name for every process that stands still the step, what it waits for, and who would do it."""
    terms = []
    for process, node in stuck.at:
        name = search.processes[process].name
        if isinstance(node, _Block):
            terms.append(
                f"{name} stands at the loop over {node.var} < {node.extent}, which no set of processes can do a turn of"
            )
            continue
        wanted = search.state.blocked(node.step, search.boxes[process])
        terms.append(
            f"{name} waits at step {node.index} for {wanted}, which {_who(search, node.step, process)} would give"
        )
    return ProgressRefused(
        "no order of the steps completes: the processes wait for each other",
        where=f"section {shape.name}",
        terms=terms,
        remedy="give the FIFOs more depth, or order the steps so that each is done before it is waited for",
    )


def _who(search: _Search, step: Step, process: int) -> str:
    name = named_by(step)
    others = [search.processes[p].name for p in search.waiters.get(name, ()) if p != process]
    return " or ".join(others) or "no process"
