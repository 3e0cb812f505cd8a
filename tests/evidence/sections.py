"""Several sections composed by hand: chains and joins of tensors, boundaries, arenas, layouts over each other.

    sections     boundaries as docs/ir.md has them: writers meet, then let the other engines of their site go
    other_sync   the same order kept in another way: writers start every engine on every site, or only the own site is
                 waited for where no data cross sites
    products_in_sections   a product (sent along rows or columns, now and then) before an element-wise section
    side_by_side   sections on halves of the grid at one time, then one on all of it that reads what they made

`composed` makes the program of parts; other families use it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from pavane.ir.program import (
    Binding,
    Counter,
    Instance,
    Post,
    Process,
    Program,
    Rect,
    Run,
    Shape,
    Symbol,
    Tensor,
    Turn,
    Wait,
    Worker,
)
from pavane.ir.rects import rectangles, site_in
from pavane.targets.descriptor import Grid, SpatialTarget, target_digest
from tests.building import SX, SY, rect, shape_of
from tests.evidence.hand import Case, Hand, chip, counter, everywhere, host_chip, pointwise, signed
from tests.evidence.pipelines import pointwise_shape
from tests.evidence.products import multicast, product

Sync = Literal["meet", "lines", "start all", "own site"]
Site = tuple[int, int]


@dataclass(frozen=True)
class Part:
    """One section: its shape, its bindings, and whether a boundary stands before it."""

    shape: Shape
    bindings: tuple[tuple[str, str], ...]
    boundary: bool = True


def sections(hand: Hand) -> Case:
    target = host_chip(hand) if hand.chance(0.35) else chip(hand)
    return chain(hand, target, hand.pick(("meet", "meet", "lines"))), target


def other_sync(hand: Hand) -> Case:
    target = host_chip(hand) if hand.chance(0.35) else chip(hand)
    return chain(hand, target, hand.pick(("start all", "own site"))), target


def products_in_sections(hand: Hand) -> Case:
    """x -> product -> t -> pointwise -> y, on the product's own chip."""
    return followed(hand, *(multicast if hand.chance(0.5) else product)(hand))


def followed(hand: Hand, made: Program, target: SpatialTarget) -> Case:
    """A program of one section, whose output a pointwise section reads."""
    (first,) = made.shapes
    (output,) = (t for t in made.tensors if t.role == "OUTPUT")
    m, n = output.shape
    ends = [f.address + f.depth * f.rows * f.cols * 4 for f in first.fifos] + [
        c.address + c.rows * c.cols * 4 for c in first.carries
    ]
    start = 0 if hand.chance(0.7) else max(ends)
    last, _ = pointwise_shape(hand, target, "after", m.const, n.const, ("I",), hand.chance(0.5) and target.alias, start)
    tensors = tuple(replace(t, role="SCRATCH", offset=0) if t is output else t for t in made.tensors)
    tensors = (*tensors, Tensor("y", shape_of(m, n), "f32", "OUTPUT"))
    (instance,) = made.instances
    parts = (
        Part(first, tuple((b.formal, b.tensor) for b in instance.bindings)),
        Part(last, (("I", output.name), ("O", "y")), boundary=not hand.slip()),
    )
    return composed(hand, target, parts, tensors, "meet"), target


def side_by_side(hand: Hand) -> Case:
    """Two independent sections on disjoint halves, in any order and without a boundary; a third joins them."""
    target = replace(chip(hand), grid=Grid(width=hand.pick((2, 3)), height=hand.pick((1, 2))))
    rows, cols, w, h = hand.between(1, 20), hand.between(1, 30), target.grid.width, target.grid.height
    halves = (
        [rect(0, 1, 0, h), rect(1, w, 0, h)] if h == 1 or hand.chance(0.5) else [rect(0, w, 0, 1), rect(0, w, 1, h)]
    )
    if hand.slip():
        halves[0] = everywhere(target)
    parts = []
    for number, half in enumerate(halves):
        shape, _ = pointwise_shape(hand, target, f"half{number}", rows, cols, ("I",), where=half)
        parts.append(Part(shape, (("I", "x"), ("O", f"t{number}")), boundary=False))
    joined, _ = pointwise_shape(hand, target, "joined", rows, cols, ("I", "J"))
    parts.append(Part(joined, (("I", "t0"), ("J", "t1"), ("O", "y")), boundary=not hand.slip()))
    tensors = _tensors(hand, target, 3, rows, cols, parts)
    return composed(hand, target, tuple(parts), tensors), target


def chain(hand: Hand, target: SpatialTarget, sync: Sync, most: int = 40) -> Program:
    """2 to 4 sections; each reads one or two tensors made before it. `most`: columns."""
    count, rows, cols = hand.between(2, 4), hand.between(1, min(24, most)), hand.between(1, most)
    alias = target.alias and hand.chance(0.5)
    made, parts, start = ["x"], [], 0
    shapes: list[Shape] = []
    kind = pointwise(hand, ("I",))
    same_site = sync == "own site"
    for number in range(count):
        old = [s for s in shapes if len(s.formals) == 2]
        if old and (same_site or hand.chance(0.5)):
            shape = old[0] if same_site else hand.pick(old)
        else:
            inputs = ("I",) if same_site or len(made) < 2 or hand.chance(0.6) else ("I", "J")
            shape, end = pointwise_shape(
                hand, target, f"s{number}", rows, cols, inputs, alias, start, kind if inputs == ("I",) else None
            )
            start = end if hand.chance(0.4) and end < target.memory.bytes // 2 else start
            shapes.append(shape)
        reads = [made[-1]] + [hand.pick(made)] * (len(shape.formals) - 2)
        hand.rng.shuffle(reads)
        out = "y" if number == count - 1 else f"t{number}"
        names = [f.name for f in shape.formals if f.role == "IN"]
        bindings = (*zip(names, reads, strict=True), ("O", out))
        parts.append(Part(shape, bindings, boundary=not hand.slip()))
        made.append(out)
    tensors = _tensors(hand, target, count, rows, cols, parts)
    return composed(hand, target, tuple(parts), tensors, sync)


def _tensors(
    hand: Hand, target: SpatialTarget, count: int, rows: int, cols: int, parts: list[Part]
) -> tuple[Tensor, ...]:
    """SCRATCH one behind the other, or in the place of one that is no longer read."""
    align = target.dram.alignment_bytes
    size = -(-rows * cols * 4 // align) * align
    places: dict[str, int] = {}
    tensors = [Tensor("x", shape_of(rows, cols), "f32", "INPUT")]
    for number in range(count - 1):
        last_use = {t: max(i for i, p in enumerate(parts) if t in dict(p.bindings).values()) for t in places}
        live = {offset for t, offset in places.items() if last_use[t] >= number}
        free = [offset for offset in places.values() if offset not in live or hand.slip()]
        beyond = max(places.values()) + size if places else 0
        offset = hand.pick(free) if free and hand.chance(0.6) else beyond
        places[f"t{number}"] = offset
        tensors.append(Tensor(f"t{number}", shape_of(rows, cols), "f32", "SCRATCH", offset=offset))
    return (*tensors, Tensor("y", shape_of(rows, cols), "f32", "OUTPUT"))


# --- composing ---


def composed(
    hand: Hand,
    target: SpatialTarget,
    parts: tuple[Part, ...],
    tensors: tuple[Tensor, ...],
    sync: Sync = "meet",
    symbols: tuple[Symbol, ...] = (),
) -> Program:
    """One worker an engine and rectangle of sites that do the same; `sync` where a part has a boundary before it."""
    engines = list(dict.fromkeys(p.engine for part in parts for p in part.shape.processes))
    poster = next(p.engine for p in parts[0].shape.processes if _stores(p.body))
    engines = [poster, *(e for e in engines if e != poster)]
    workers = []
    for engine in engines:
        for rect_, runs in _cells(target, parts, engine):
            body: list[Turn] = []
            for number, part in enumerate(parts):
                if number and part.boundary:
                    body += _boundary(hand, target, parts, number, engine, poster, rect_, sync)
                body += [Run(number, name) for n, name in runs if n == number]
            name = engine if len(_cells(target, parts, engine)) == 1 else f"{engine}.{len(workers)}"
            workers.append(Worker(name, rect_, engine, tuple(body)))
    shapes = tuple({p.shape.name: p.shape for p in parts}.values())
    used = max((c.id + 1 for s in shapes for c in s.counters), default=0)
    names = list(dict.fromkeys(t.counter for w in workers for t in w.body if not isinstance(t, Run)))
    counters: list[Counter] = []
    for number, name in enumerate(names):
        owner = name.split(".", 1)[1]
        ahead = 1 if hand.slip() and hand.slip() else 0
        counters.append(counter(target, name, everywhere(target), owner, used + number, ahead))
    instances = tuple(
        Instance(p.shape.name, tuple(Binding(f, t) for f, t in p.bindings), name=f"n{i}") for i, p in enumerate(parts)
    )
    program = Program(
        name="by_hand", phase="PERSISTENT", target=target.name, target_digest=target_digest(target), graph_digest="",
        symbols=symbols, tensors=tensors, shapes=shapes, instances=instances, counters=tuple(counters),
        workers=tuple(workers),
    )  # fmt: skip
    return signed(program)


def _stores(body: tuple) -> bool:
    return any(_stores(n.body) if hasattr(n, "body") else type(n).__name__ == "Store" for n in body)


def _cells(
    target: SpatialTarget, parts: tuple[Part, ...], engine: str
) -> list[tuple[Rect, tuple[tuple[int, str], ...]]]:
    """Rectangles of sites on which the engine runs the same processes."""
    runs: dict[tuple[tuple[int, str], ...], list[Site]] = {}
    for y in range(target.grid.height):
        for x in range(target.grid.width):
            mine = tuple(
                (n, p.name) for n, part in enumerate(parts) for p in part.shape.processes
                if p.engine == engine and _stands_on(part.shape, p, (x, y))
            )  # fmt: skip
            runs.setdefault(mine, []).append((x, y))
    return [(r, mine) for mine, sites in runs.items() if mine for r in rectangles(sites)]


def _stands_on(shape: Shape, process: Process, site: Site) -> bool:
    """On the grid, or at a place of the shape's list of sites."""
    if not shape.sites:
        return site_in(process.rect, site)
    return site in shape.sites and site_in(process.rect, (shape.sites.index(site), 0))


def meeting(target: SpatialTarget) -> Sync:
    """How all sites meet: at once, where counters hold two rounds of posts; else by rows, then by columns."""
    return "meet" if 2 * target.sites <= 1 << (target.counters.bits - 1) else "lines"


def _boundary(
    hand: Hand,
    target: SpatialTarget,
    parts: tuple[Part, ...],
    number: int,
    engine: str,
    poster: str,
    where: Rect,
    sync: Sync,
) -> list[Turn]:
    """What a worker of an engine does at the boundary before section `number`."""
    own = Rect(SX + where.x0, SX + where.x0 + 1, SY + where.y0, SY + where.y0 + 1)
    grid, sites = everywhere(target), target.sites
    until = next((n for n in range(number + 1, len(parts)) if parts[n].boundary), len(parts))
    working = {p.engine for part in parts[number:until] for p in part.shape.processes}
    others = sorted(working - {poster})
    if hand.slip():
        others = others[1:]
    if sync == "own site":
        to, sites = own, 1
    else:
        to = grid
    if hand.slip():
        to = own
    if engine != poster:
        if engine not in working:
            return []
        return [Wait(f"start.{engine}", sites if sync == "start all" else 1)]
    if sync == "start all":
        return [*(Post(f"start.{e}", to) for e in others), Post(f"go.{engine}", to), Wait(f"go.{engine}", sites)]
    meet: list[Turn] = [Post(f"go.{engine}", to), Wait(f"go.{engine}", hand.off(sites) or 1)]
    if sync == "lines":
        line, column = replace(to, y0=own.y0, y1=own.y1), replace(to, x0=own.x0, x1=own.x1)
        width, height = target.grid.width, target.grid.height
        meet = [
            Post(f"row.{engine}", line),
            Wait(f"row.{engine}", width),
            Post(f"go.{engine}", column),
            Wait(f"go.{engine}", height),
        ]
    if hand.slip():
        meet.reverse()
    return [*meet, *(Post(f"start.{e}", own) for e in others)]
