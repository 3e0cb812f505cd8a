"""The verdict on one program: some values of its symbols, two or more epochs each, several interleavings."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from pavane.ir.program import Program, Tensor
from pavane.ir.types import row_bytes
from pavane.targets.descriptor import SpatialTarget
from tests.oracle.chip import require_on_chip
from tests.oracle.compute import Effects
from tests.oracle.contract import require_contract, require_extents
from tests.oracle.data import Draw, Integers, fill, first_data, lay_weights_on_sites
from tests.oracle.expand import MOST_STEPS, Task, TooLarge, tasks_of
from tests.oracle.figures import Counting
from tests.oracle.homes import require_homes
from tests.oracle.laws import Laws
from tests.oracle.machine import Machine
from tests.oracle.meaning import expectations, extents
from tests.oracle.rounding import claims_exactness
from tests.oracle.spaces import Fault, Space

Symbols = dict[str, int]
INTEGERS: tuple[Integers, ...] = ("largest", "odd", "odd", "odd", "small")  # drawn for what is claimed exact


@dataclass(frozen=True)
class Verdict:
    """`fault` is empty where the program is safe. `judged` is False where it is too large to say."""

    fault: str
    judged: bool = True

    @property
    def safe(self) -> bool:
        return self.judged and not self.fault


def judge(
    program: Program,
    target: SpatialTarget,
    seed: int = 0,
    most_steps: int = MOST_STEPS,
    points: int = 3,
    interleavings: int = 10_000,
    meant: Program | None = None,
    epochs: int = 2,
) -> Verdict:
    """Run it. At most `interleavings` beside the first are tried, where there are counters, of the first epoch.

    `meant`: the program whose specs and bindings say what must come out, where that is another one.
    """
    try:
        require_contract(program, target)
        require_on_chip(program, target)
        require_homes(program, target)
        for symbols in _points(program, points):
            require_extents(program, symbols)
            _run(program, target, symbols, seed, most_steps, interleavings, meant or program, epochs)
            if claims_exactness(program):
                for number, integers in enumerate(INTEGERS):
                    _run(program, target, symbols, seed + number, most_steps, 0, meant or program, 1, integers)
    except Fault as fault:
        return Verdict(str(fault))
    except TooLarge as large:
        return Verdict(str(large), judged=False)
    except (KeyError, ValueError, IndexError, TypeError, StopIteration, AttributeError) as error:
        return Verdict(f"misuse: the program cannot be run: {type(error).__name__} {error}")
    return Verdict("")


def _points(program: Program, most: int) -> Iterator[Symbols]:
    """Corners of the symbols' box first, then its middle."""
    names = [s.name for s in program.symbols]
    corners = list(product(*(((s.hi, s.lo) if s.hi != s.lo else (s.lo,)) for s in program.symbols)))
    middle = tuple((s.lo + s.hi) // 2 for s in program.symbols)
    order = [corners[0], corners[-1], middle, *corners[1:-1]]
    for point in list(dict.fromkeys(order))[:most]:
        yield dict(zip(names, point, strict=True))


def _run(
    program: Program,
    target: SpatialTarget,
    symbols: Symbols,
    seed: int,
    most_steps: int,
    interleavings: int,
    meant: Program,
    epochs: int,
    integers: Integers = "mixed",
) -> None:
    tasks = tasks_of(program, target, symbols, most_steps)
    laws = Laws(seed)
    draw = Draw(np.random.default_rng(seed), laws, integers)
    machine = _machine(program, target, symbols, len(tasks), laws)
    data = first_data(program, symbols, draw)
    lay_weights_on_sites(program, machine, data, symbols)
    moves, now = random.Random(seed), symbols
    for epoch in range(epochs):
        now = now if epoch == 0 else _next(program, now, moves if epoch > 1 else None)
        tasks = tasks_of(program, target, now, most_steps)
        fill(program, machine.effects, data, now, draw)
        machine.forget_copies()
        machine.effects.expect(now, expectations(meant, data, now, laws, machine.effects.rounds))
        _require_counted(tasks, now)
        machine.launch(tasks, _rounds(), numbers=True)
        machine.effects.require_all_stored()
        _require_transitions(program, machine.effects, now)
        _require_outputs(program, machine.effects, now)
        if epoch == 0:
            first = tasks
    policies = list(_policies(program, first, random.Random(seed)))
    for policy in random.Random(seed).sample(policies, min(len(policies), interleavings)):
        again = _machine(program, target, symbols, len(first), laws)
        again.effects = machine.effects
        for task in first:
            for action in task.actions:
                if action.touches is not None:
                    action.touches = [(_same(again, space), *rest) for space, *rest in action.touches]
        again.launch(first, policy, numbers=False)
    if machine.early:
        raise Fault(machine.early)


def _require_counted(tasks: list[Task], symbols: Symbols) -> None:
    """No index that an engine counts passes 64 bits."""
    counting = Counting(symbols)
    for task in tasks:
        for action in task.actions:
            if not isinstance(action.step, str):
                counting.look(action.step, action.env)


def _same(machine: Machine, space: Space) -> Space:
    """A site's memory of this machine, for that of another."""
    for memories in (machine.memories, machine.flags):
        for site in list(memories):
            if memories[site].name == space.name:
                return memories[site]
    if space.name.startswith("memory of "):
        x, y = space.name.removeprefix("memory of (").removesuffix(")").split(", ")
        return machine.memory((int(x), int(y)))
    return space


# --- tensors ---


def _machine(program: Program, target: SpatialTarget, symbols: Symbols, tasks: int, laws: Laws) -> Machine:
    machine = Machine(program, target, Effects(program, {}, symbols, laws), tasks)
    most = {s.name: s.hi for s in program.symbols}
    beside = [t for t in program.tensors if t.role == "SCRATCH" and t.home == "dram"]
    arena = max([t.offset + _bytes(t, most) for t in beside], default=0)
    scratch = Space("SCRATCH", max(arena, 1), machine.threads)
    for tensor in program.tensors:
        if tensor.role == "SCRATCH" or tensor.home == "sites":
            if tensor.offset < 0:
                raise Fault(f"misuse: {tensor.name} has no place")
            place = scratch if tensor.home == "dram" else None
            machine.effects.tensors[tensor.name] = (place, tensor.offset)
        else:
            machine.effects.tensors[tensor.name] = (Space(tensor.name, _bytes(tensor, most), machine.threads), 0)
    return machine


def _bytes(tensor: Tensor, symbols: Symbols) -> int:
    shape = extents(tensor.shape, symbols)
    return prod(shape[:-1]) * row_bytes(tensor.dtype, shape[-1])


def _require_transitions(program: Program, effects: Effects, symbols: Symbols) -> None:
    """Of a STATE tensor exactly the rows of its transition were written."""
    for tensor in program.tensors:
        if tensor.role != "STATE":
            continue
        written = np.zeros(prod(extents(tensor.shape, symbols)), bool)
        for (index, formal), counts in effects.stored.items():
            if any(b.formal == formal and b.tensor == tensor.name for b in program.instances[index].bindings):
                written[: counts.size] |= counts.ravel() > 0
        wanted = np.zeros_like(written)
        if tensor.transition is not None:
            inner = prod(extents(tensor.shape, symbols)[1:])
            start, rows = tensor.transition.row.evaluate(symbols), tensor.transition.rows.evaluate(symbols)
            wanted[start * inner : (start + rows) * inner] = True
        if (written != wanted).any():
            raise Fault(f"wrong place: an epoch does not write the rows of {tensor.name} that its transition says")


def _require_outputs(program: Program, effects: Effects, symbols: Symbols) -> None:
    """Every element of every OUTPUT tensor was written in this epoch."""
    for tensor in program.tensors:
        if tensor.role == "OUTPUT":
            space, base = effects.tensors[tensor.name]
            shape = extents(tensor.shape, symbols)
            count = prod(shape[:-1]) * row_bytes(tensor.dtype, shape[-1])
            if (space.owner[base : base + count] < 0).any():
                raise Fault(f"lost write: OUTPUT {tensor.name} is not written whole")


def _next(program: Program, symbols: Symbols, moves: random.Random | None) -> Symbols:
    """The symbols of the next epoch: as far on as the launch allows, and fewer rows; or (`moves`) any that it allows,
    mostly on.
    """
    found = dict(symbols)
    for symbol in program.symbols:
        if symbol.name == "pos":
            most = min(symbols["pos"] + symbols.get("rows", 1), symbol.hi)
            back = moves is not None and moves.random() < 0.3
            found["pos"] = moves.randint(symbol.lo, most) if back else most
        elif symbol.name == "rows":
            fewer = max(symbol.lo, min(symbol.hi, (symbols["rows"] + 5) // 2))
            found["rows"] = fewer if moves is None else moves.randint(symbol.lo, symbol.hi)
    return found


# --- interleavings ---


def _rounds() -> Callable[[list[int]], int]:
    state = [0]

    def choose(ready: list[int]) -> int:
        state[0] = next((i for i in ready if i > state[0]), ready[0])
        return state[0]

    return choose


def _policies(program: Program, tasks: list[Task], rng: random.Random) -> Iterator[Callable[[list[int]], int]]:
    """Fixed priorities: each task last, each task first, some at random. Only where there are posts, whose order and
    whose number in flight can differ.
    """
    if not program.counters and not any(shape.counters for shape in program.shapes):
        return
    count = len(tasks)
    for i in range(count):
        yield _priorities([*(j for j in range(count) if j != i), i])
        yield _priorities([i, *(j for j in range(count) if j != i)])
    for _ in range(10):
        order = list(range(count))
        rng.shuffle(order)
        yield _priorities(order)
    for _ in range(6):
        yield rng.choice


def _priorities(order: list[int]) -> Callable[[list[int]], int]:
    place = {task: p for p, task in enumerate(order)}
    return lambda ready: min(ready, key=place.__getitem__)
