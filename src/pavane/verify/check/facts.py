"""What happens before what inside one run of a section, on one site: between the begins, accesses and ends of its
processes.

Points of a process, in the order of its steps: its begin; its first access to tensors, its first to local memory, and
its first to each buffer; the end of all its accesses (a load, store or send ends at its fence); its end. A FIFO orders
points of two processes on one site: what comes before the first push comes before what follows the first front, and
what comes before the last push before what follows the last front. Loops have at least one turn, so first and last
occurrences of steps stand in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, permutations

from pavane.ir.program import Compute, Fence, Front, Init, Load, Push, Reserve, Send, Store
from pavane.verify.check.section import Actor, Leaf, Section

Point = tuple[int, str]
BEGIN, TENSORS, LOCAL, DONE, END = "begin", "tensors", "local", "done", "end"
Facts = dict[Point, frozenset[Point]]


def facts(section: Section, present: frozenset[int]) -> Facts:
    """By point of a process that is present on a site: the begins and ends of accesses that happen before it."""
    after: dict[tuple, set[tuple]] = {}
    actors = [a for a in section.actors if a.number in present]
    for actor in actors:
        for line in _lines(section, actor):
            for first, second in pairwise(line):
                after.setdefault(first, set()).add(second)
    for name in section.fifos:
        _handovers(name, actors, after)
    asked = [(a.number, point) for a in actors for point in (TENSORS, LOCAL, END, *map(first_access, a.buffers))]
    told = [(a.number, point) for a in actors for point in (BEGIN, DONE)]
    before = _before(told, after)
    return {point: frozenset(one for n, one in enumerate(told) if before.get(point, 0) >> n & 1) for point in asked}


def first_access(name: str) -> str:
    """The point of a process at which it first touches a buffer."""
    return f"first access to {name}"


def _lines(section: Section, actor: Actor) -> Iterator[list[tuple]]:
    """Chains of points of a process: by first and by last occurrence, and from the one to the other."""
    number = actor.number
    handovers = [leaf.index for leaf in actor.leaves if isinstance(leaf.step, Push | Front)]
    firsts: list[tuple[int, tuple]] = [(index * 2 + 1, (number, "first", index)) for index in handovers]
    firsts.append((_first_tensor(section, actor), (number, TENSORS)))
    firsts.append((_first_local(actor, ""), (number, LOCAL)))
    firsts += [(_first_local(actor, name), (number, first_access(name))) for name in actor.buffers]
    lasts: list[tuple[int, tuple]] = [(index * 2, (number, "last", index)) for index in handovers]
    lasts.append((_done(section, actor) * 2 + 1, (number, DONE)))
    for points in (firsts, lasts):
        ordered = [point for _, point in sorted(points, key=lambda item: item[0])]
        yield [(number, BEGIN), *ordered, (number, END)]
    yield [(number, TENSORS), (number, DONE)]
    yield [(number, LOCAL), (number, DONE)]
    yield from ([(number, "first", index), (number, "last", index)] for index in handovers)


def _handovers(name: str, actors: list[Actor], after: dict[tuple, set[tuple]]) -> None:
    for pusher, popper in permutations(actors, 2):
        for push, front in zip(pusher.uses(Push, name), popper.uses(Front, name), strict=False):
            for which in ("first", "last"):
                source = (pusher.number, which, push.index)
                after.setdefault(source, set()).add((popper.number, which, front.index))


def _first_tensor(section: Section, actor: Actor) -> int:
    """Place of the first access to a tensor: a load or a store, or what follows the front of an alias."""
    moves = [leaf.index * 2 for leaf in actor.leaves if isinstance(leaf.step, Load | Store)]
    fronts = (leaf for leaf in actor.leaves if isinstance(leaf.step, Front))
    aliases = [leaf.index * 2 + 2 for leaf in fronts if section.fifos[leaf.step.fifo].kind == "ALIAS"]  # type: ignore[union-attr]
    return min((*moves, *aliases), default=len(actor.leaves) * 2)


def _first_local(actor: Actor, name: str) -> int:
    """Place of the first access to a buffer, or to any; a slot that another site fills is in use from its reserve."""
    for leaf in actor.leaves:
        filled_elsewhere = isinstance(leaf.step, Reserve) and not actor.fills(leaf.step.fifo)
        access = filled_elsewhere or isinstance(leaf.step, Load | Send | Store | Compute | Init)
        if access and (not name or name in leaf.buffers):
            return leaf.index * 2
    return len(actor.leaves) * 2


def _done(section: Section, actor: Actor) -> int:
    """The number of the step at which the last access has ended; a slot is in use until it is pushed, whoever fills it
    and whatever is left in the rest of it.
    """
    fences = [leaf.index for leaf in actor.leaves if isinstance(leaf.step, Fence)]
    end = -1
    for leaf in actor.leaves:
        if isinstance(leaf.step, Load | Store | Send):
            alias = isinstance(leaf.step, Load) and section.fifos[leaf.step.fifo].kind == "ALIAS"
            later = leaf.index if alias else min((f for f in fences if f > leaf.index), default=len(actor.leaves))
            end = max(end, later)
        elif isinstance(leaf.step, Compute | Init | Front):
            end = max(end, leaf.index)
        elif isinstance(leaf.step, Reserve) and section.fifos[leaf.step.fifo].kind != "ALIAS":
            end = max(end, *(p.index - 1 for p in actor.uses(Push, leaf.step.fifo)))
    return end


def _before(told: list[Point], after: dict[tuple, set[tuple]]) -> dict[tuple, int]:
    """By point: which of `told` come before it, a bit each."""
    found: dict[tuple, int] = {}
    stack: list[tuple] = []
    for number, point in enumerate(told):
        found[point] = found.get(point, 0) | 1 << number
        stack.append(point)
    while stack:
        point = stack.pop()
        for later in after.get(point, ()):
            known = found.get(later, 0)
            if found[point] & ~known:
                found[later] = known | found[point]
                stack.append(later)
    return found


def touching(section: Section, actor: Actor) -> Iterator[tuple[Actor, Leaf]]:
    """The loads and stores through which a process touches tensors: its own, and those of aliases that it has in front,
    each with the process whose step it is.
    """
    for other in section.actors:
        for leaf in other.leaves:
            if isinstance(leaf.step, Load) and section.fifos[leaf.step.fifo].kind == "ALIAS":
                touches = other is actor or bool(actor.uses(Front, leaf.step.fifo))
            else:
                touches = other is actor and isinstance(leaf.step, Load | Store)
            if touches:
                yield other, leaf
