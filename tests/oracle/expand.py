"""Workers as lists of steps: one task a worker and site, loops unrolled for given values of the symbols."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pavane.ir.program import Instance, Loop, Process, Program, Rect, Run, Shape, Step
from pavane.targets.descriptor import SpatialTarget
from tests.oracle.figures import counted
from tests.oracle.spaces import Fault

MOST_STEPS = 30_000
Site = tuple[int, int]


class TooLarge(Exception):
    """More steps than the oracle runs."""


@dataclass(frozen=True)
class Context:
    """Where a step stands: None for a turn of the worker itself."""

    index: int
    instance: Instance
    shape: Shape
    process: Process


@dataclass
class Action:
    """One step at one point of its loops. `touches`: what it accessed when it ran the first time."""

    step: Step | str
    env: dict[str, int]
    context: Context | None
    touches: list | None = field(default=None)


@dataclass
class Task:
    """One worker on one site."""

    name: str
    site: Site
    engine: str
    actions: list[Action]


def sites_of(rect: Rect, env: dict[str, int]) -> list[Site]:
    """The sites of a rectangle, row by row."""
    x0, x1, y0, y1 = (edge.evaluate(env) for edge in (rect.x0, rect.x1, rect.y0, rect.y1))
    return [(x, y) for y in range(y0, min(y1, y0 + 64)) for x in range(x0, min(x1, x0 + 64))]


def tasks_of(program: Program, target: SpatialTarget, symbols: dict[str, int], budget: int = MOST_STEPS) -> list[Task]:
    """Every worker on every site of its rectangle."""
    shapes = {shape.name: shape for shape in program.shapes}
    left = [budget]
    tasks = []
    for worker in program.workers:
        for site in sites_of(worker.rect, {}):
            if not (0 <= site[0] < target.grid.width and 0 <= site[1] < target.grid.height):
                raise Fault(f"misuse: {worker.name} stands outside the grid")
            origin = (worker.rect.x0.const, worker.rect.y0.const)
            own = {**symbols, "SITE_X": site[0] - origin[0], "SITE_Y": site[1] - origin[1]}
            actions: list[Action] = []
            for turn in worker.body:
                if isinstance(turn, Run):
                    actions += _run(program, shapes, turn, worker.engine, site, symbols, left)
                else:
                    actions.append(Action(turn, own, None))
            tasks.append(Task(f"{worker.name}{site}", site, worker.engine, actions))
    for task in tasks:
        if sum(t.site == task.site and t.engine == task.engine for t in tasks) > 1:
            raise Fault(f"misuse: two workers on engine {task.engine} of site {task.site}")
    return tasks


def _run(
    program: Program,
    shapes: dict[str, Shape],
    turn: Run,
    engine: str,
    site: Site,
    symbols: dict[str, int],
    left: list[int],
) -> list[Action]:
    if not 0 <= turn.instance < len(program.instances):
        raise Fault("misuse: a worker runs an instance that is not there")
    instance = program.instances[turn.instance]
    shape = shapes[instance.shape]
    process = next((p for p in shape.processes if p.name == turn.process), None)
    if process is None:
        raise Fault(f"misuse: no process {turn.process}")
    x0, x1, y0, y1 = (e.const for e in (process.rect.x0, process.rect.x1, process.rect.y0, process.rect.y1))
    if shape.sites:
        if site not in shape.sites:
            raise Fault(f"misuse: {turn.process} runs where it does not belong")
        site = (shape.sites.index(site), 0)
    if not (x0 <= site[0] < x1 and y0 <= site[1] < y1) or process.engine != engine:
        raise Fault(f"misuse: {turn.process} runs where it does not belong")
    env = {**symbols, "SITE_X": site[0] - x0, "SITE_Y": site[1] - y0}
    context = Context(turn.instance, instance, shape, process)
    actions = [Action("begin", env, context)]
    actions += [Action(step, point, context) for step, point in _unrolled(process.body, env, left)]
    actions.append(Action("end", env, context))
    return actions


def _unrolled(body: tuple, env: dict[str, int], left: list[int]) -> Iterator[tuple[Step, dict[str, int]]]:
    for node in body:
        if not isinstance(node, Loop):
            left[0] -= 1
            if left[0] < 0:
                raise TooLarge("too many steps")
            yield node, env
            continue
        for turn in range(counted(node.extent, env)):
            left[0] -= 1
            if left[0] < 0:
                raise TooLarge("too many turns")
            yield from _unrolled(node.body, {**env, node.var: turn}, left)
