"""What the grammar and docs/ir.md call illegal, whatever the steps would do: a fault even where no run shows harm.

Names, rectangles, loops, extents, fills, bindings, layouts, indices, and who runs what. Every rule looks at the program
as it is written, for given values of the symbols where it needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from pavane.ir.expr import At, Indirect, walk
from pavane.ir.program import (
    LOOP_VARIABLES,
    Compute,
    Counter,
    Formal,
    Generic,
    Instance,
    Load,
    Loop,
    MatmulTiles,
    Post,
    Process,
    Program,
    Rect,
    Run,
    Send,
    Shape,
    Step,
    Tensor,
    Wait,
)  # fmt: skip
from pavane.ir.quasi import Quasi
from pavane.ir.types import Const, Fill, Floats, Ints, block_elements, row_bytes
from pavane.targets.descriptor import SpatialTarget
from tests.oracle.chip import steps_of
from tests.oracle.figures import counted
from tests.oracle.spaces import Fault

Site = tuple[int, int]


def require_contract(program: Program, target: SpatialTarget) -> None:
    """Raise a Fault for the first thing that no program may say."""
    _names(program)
    _rectangles(program, target)
    for shape in program.shapes:
        _shape(shape, target)
    for instance in program.instances:
        _bindings(program, instance)
    _runs(program)
    _own_ids(program)
    for counter in program.counters:
        _misuse(counter.ahead == 0, f"{counter.name} starts ahead: its waits do not take whole rounds")
        _waiters(counter, ((w.engine, w.rect) for w in program.workers if _waits(w.body, counter.name)), exactly=False)


def require_extents(program: Program, symbols: dict[str, int]) -> None:
    """Every tensor and formal has an element; what lasts from launch to launch keeps its extents."""
    for thing in (*program.tensors, *(f for s in program.shapes for f in s.formals)):
        sizes = [counted(e, symbols) for e in thing.shape]
        if not sizes or min(sizes) < 1:
            raise Fault(f"misuse: {thing.name} is {sizes} large")
        if sizes[-1] % block_elements(thing.dtype):
            raise Fault(f"misuse: the last extent of {thing.name} cuts a block")
    for tensor in program.tensors:
        if tensor.role in ("WEIGHT", "STATE") and not all(e.is_const for e in tensor.shape):
            raise Fault(f"misuse: the extents of {tensor.role} {tensor.name} change from launch to launch")
        if (tensor.role == "STATE") != (tensor.transition is not None):
            raise Fault(f"misuse: {tensor.name} is {tensor.role} and its transition is {tensor.transition}")


def _misuse(holds: bool, text: str) -> None:
    if not holds:
        raise Fault(f"misuse: {text}")


# --- names and rectangles ---


def _names(program: Program) -> None:
    kinds = [program.symbols, program.tensors, program.shapes, program.counters, program.workers]
    for shape in program.shapes:
        kinds += [shape.formals, (*shape.fifos, *shape.carries), shape.counters, shape.processes]
    for things in kinds:
        names = [thing.name for thing in things]
        _misuse(len(set(names)) == len(names), f"a name stands twice among {names}")


def _rectangles(program: Program, target: SpatialTarget) -> None:
    grid = (target.grid.width, target.grid.height)
    things = [(thing, grid) for thing in (*program.workers, *program.counters)]
    for shape in program.shapes:
        _listed(shape, target)
        room = (len(shape.sites), 1) if shape.sites else grid
        things += [(thing, room) for thing in (*shape.processes, *shape.counters)]
    for thing, (width, height) in things:
        edges = (thing.rect.x0, thing.rect.x1, thing.rect.y0, thing.rect.y1)
        _misuse(all(edge.is_const for edge in edges), f"the rectangle of {thing.name} is not constant")
        x0, x1, y0, y1 = (edge.const for edge in edges)
        inside = 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
        _misuse(inside, f"the rectangle of {thing.name} is no part of the grid")


def _listed(shape: Shape, target: SpatialTarget) -> None:
    """A list of sites: different ones of the grid, and steps that name none."""
    if not shape.sites:
        return
    inside = all(0 <= x < target.grid.width and 0 <= y < target.grid.height for x, y in shape.sites)
    _misuse(inside and len(set(shape.sites)) == len(shape.sites), f"{shape.sites} are no different sites of the grid")
    named = (step for process in shape.processes for step in steps_of(process.body))
    silent = not shape.counters and not any(isinstance(step, Post | Wait | Send) for step in named)
    _misuse(silent and not target.alias, f"{shape.name} stands along a list of sites and names some")


def _sites(rect: Rect) -> set[Site]:
    return {(x, y) for x in range(rect.x0.const, rect.x1.const) for y in range(rect.y0.const, rect.y1.const)}


# --- shapes ---


def _shape(shape: Shape, target: SpatialTarget) -> None:
    formals = {f.name: f for f in shape.formals}
    outs = [spec.out for spec in shape.spec]
    _misuse(len(set(outs)) == len(outs), "two specs of one formal")
    for formal in shape.formals:
        _misuse(_is_fill(formal.fill), f"{formal.fill} is no fill")
    for spec in shape.spec:
        for node in walk(spec.expr):
            old = not isinstance(node, At) or not node.next or formals[node.name].role == "STATE"
            _misuse(old, "`next` of an operand that has no transition")
    for buffer in (*shape.fifos, *shape.carries):
        _misuse(buffer.cols % block_elements(buffer.dtype) == 0, f"the columns of {buffer.name} cut a block")
    for process in shape.processes:
        _loops(process.body, ())
        for step in steps_of(process.body):
            _step(step, formals)
    _layout(shape, target)
    _operands(shape)
    for counter in shape.counters:
        waiters = ((p.engine, p.rect) for p in shape.processes if _waits(tuple(steps_of(p.body)), counter.name))
        _waiters(counter, waiters, exactly=True)


def _operands(shape: Shape) -> None:
    """Types of operands are stated once: of formals that are loaded, of all that a product reads as they are."""
    stated = [name for name, _ in shape.numerics.operands]
    steps = [step for process in shape.processes for step in steps_of(process.body)]
    ops = [step.op for step in steps if isinstance(step, Compute)]
    loads = {(step.fifo, step.tensor) for step in steps if isinstance(step, Load)}
    multiplied = {ref.name for op in ops if isinstance(op, MatmulTiles) for ref in (op.a, op.b)}
    wanted = {name for fifo, name in loads if fifo in multiplied - {op.dst.name for op in ops}}
    known = wanted <= set(stated) <= {name for _, name in loads} and (not stated or multiplied)
    _misuse(known and len(set(stated)) == len(stated), f"{stated} are stated as operands of products")


def _is_fill(fill: Fill) -> bool:
    return not isinstance(fill, Ints) or fill.lo <= fill.hi


def _loops(body: tuple, around: tuple[str, ...]) -> None:
    for node in body:
        if isinstance(node, Loop):
            sound = node.var in LOOP_VARIABLES and node.var not in around
            _misuse(sound, f"a loop over {node.var} inside loops over {around}")
            _loops(node.body, (*around, node.var))


def _step(step: Step, formals: dict[str, Formal]) -> None:
    if isinstance(step, Compute) and isinstance(step.op, Generic):
        later = any(isinstance(node, At) and node.next for node in walk(step.op.expr))
        _misuse(not later, "`next` outside a spec")
    if isinstance(step, Load):
        for dimension, start in enumerate(step.window.start):
            if isinstance(start, Indirect):
                _index(start, formals[start.tensor], formals[step.tensor].shape[dimension])


def _index(index: Indirect, ids: Formal, extent: Quasi) -> None:
    """A shape stands by itself: what it says of its ids keeps every index inside."""
    held = isinstance(ids.fill, Ints) and index.lo <= ids.fill.lo and ids.fill.hi < index.hi
    inside = 0 <= index.lo < index.hi and (not extent.is_const or index.hi <= extent.const)
    _misuse(ids.dtype == "i32" and held and inside, f"indices of {ids.name} in [{index.lo}, {index.hi})")


def _layout(shape: Shape, target: SpatialTarget) -> None:
    """Buffers stand at aligned places that are theirs alone."""
    places = []
    for buffer in (*shape.fifos, *shape.carries):
        if getattr(buffer, "kind", "") == "ALIAS":
            continue
        slots = getattr(buffer, "depth", 1)
        places.append((buffer.address, buffer.address + slots * buffer.rows * row_bytes(buffer.dtype, buffer.cols)))
        _misuse(buffer.address % target.memory.alignment_bytes == 0, f"{buffer.name} is not aligned")
    for (low, high), (start, end) in combinations(places, 2):
        _misuse(high <= start or end <= low, f"buffers of {shape.name} overlap")


# --- bindings ---


def _bindings(program: Program, instance: Instance) -> None:
    shape = next(s for s in program.shapes if s.name == instance.shape)
    tensors = {t.name: t for t in program.tensors}
    bound = sorted(b.formal for b in instance.bindings)
    _misuse(bound == sorted(f.name for f in shape.formals), f"formals {bound} are bound")
    stored = {spec.out for spec in shape.spec}
    for binding in instance.bindings:
        formal = next(f for f in shape.formals if f.name == binding.formal)
        _view(formal, tensors[binding.tensor], formal.name in stored)
    for out in stored:
        place = next(b.tensor for b in instance.bindings if b.formal == out)
        twice = [b.formal for b in instance.bindings if b.formal != out and _share(tensors[place], tensors[b.tensor])]
        _misuse(not twice, f"{out} is written and shares bytes with {twice}")


def _view(formal: Formal, tensor: Tensor, written: bool) -> None:
    what = f"{formal.name} is bound to {tensor.name}"
    _misuse(formal.dtype == tensor.dtype, f"{what} of another type")
    _misuse(formal.home == tensor.home, f"{what} of another home")
    _misuse(not written or tensor.role not in ("INPUT", "WEIGHT"), f"{what}, which no section may write")
    promised = tensor.fill if tensor.role in ("INPUT", "WEIGHT") else Floats()
    _misuse(written or _implied(promised, formal.fill), f"{what}, which does not promise {formal.fill}")
    if formal.shape != tensor.shape:
        inner = all(e.is_const for e in formal.shape[1:])
        blocks = block_elements(formal.dtype) == 1 or formal.shape[-1] == tensor.shape[-1]
        _misuse(inner and blocks, f"{what}, and is no view of it")


def _implied(given: Fill, stated: Fill) -> bool:
    if isinstance(stated, Ints):
        low, high = (given.value, given.value) if isinstance(given, Const) else (getattr(given, "lo", None), 0)
        if isinstance(given, Ints):
            high = given.hi
        return low is not None and float(low).is_integer() and stated.lo <= low and high <= stated.hi
    return isinstance(stated, Floats) or stated == given


def _share(one: Tensor, other: Tensor) -> bool:
    """Scratch is compared by its places, for the greatest extents; anything else is its own place."""
    if one.name == other.name:
        return True
    if not one.role == other.role == "SCRATCH" or one.home != other.home:
        return False
    if not all(e.is_const for t in (one, other) for e in t.shape):
        return False
    low, high = ((t.offset, t.offset + _bytes(t)) for t in (one, other))
    return low[0] < high[1] and high[0] < low[1]


def _bytes(tensor: Tensor) -> int:
    rows = 1
    for extent in tensor.shape[:-1]:
        rows *= extent.const
    return rows * row_bytes(tensor.dtype, tensor.shape[-1].const)


# --- workers and counters ---


def _runs(program: Program) -> None:
    """Every process of every instance runs once on each of its sites; a worker takes sections in their order."""
    ran: dict[tuple[int, str], list[Site]] = {}
    for worker in program.workers:
        order = [turn.instance for turn in worker.body if isinstance(turn, Run)]
        _misuse(order == sorted(order), f"{worker.name} runs sections out of order")
        for turn in worker.body:
            if isinstance(turn, Run):
                ran.setdefault((turn.instance, turn.process), []).extend(sorted(_sites(worker.rect)))
    shapes = {s.name: s for s in program.shapes}
    placed = [(number, shapes[instance.shape]) for number, instance in enumerate(program.instances)]
    wanted = {(number, p.name): (shape, p) for number, shape in placed for p in shape.processes}
    for key, (shape, process) in wanted.items():
        _once(shape, process, ran.pop(key, []))
    _misuse(not ran, f"{sorted(ran)} are run and are not there")


def _once(shape: Shape, process: Process, sites: list[Site]) -> None:
    own = sorted(shape.sites[x] for x, _ in _sites(process.rect)) if shape.sites else sorted(_sites(process.rect))
    _misuse(sorted(sites) == own, f"{process.name} is not run once on each of its sites")


def _own_ids(program: Program) -> None:
    """The program's own counters live as long as it does: no other has their number on their sites."""
    others = [c for shape in program.shapes for c in shape.counters]
    for i, counter in enumerate(program.counters):
        for other in (*program.counters[i + 1 :], *others):
            apart = counter.id != other.id or not _sites(counter.rect) & _sites(other.rect)
            _misuse(apart, f"{counter.name} and {other.name} are one counter of the chip")


def _waits(body: Iterable, counter: str) -> bool:
    return any(isinstance(turn, Wait) and turn.counter == counter for turn in body)


def _waiters(counter: Counter, waiters: Iterator[tuple[str, Rect]], exactly: bool) -> None:
    """`Counter.rect` are the sites that wait, `Counter.engine` is who does (of a program's own: some of the sites)."""
    sites: set[Site] = set()
    for engine, rect in waiters:
        _misuse(engine == counter.engine, f"engine {engine} waits for {counter.name} of {counter.engine}")
        sites |= _sites(rect)
    right = sites == _sites(counter.rect) if exactly else sites <= _sites(counter.rect)
    _misuse(right, f"{counter.name} does not stand where it is waited for")
