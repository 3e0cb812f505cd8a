"""Programs of several sections, made of the small ones by an edit that does harm or none, as its argument says."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pavane.ir.digest import graph_digest
from pavane.ir.expr import at, fn
from pavane.ir.program import (
    Binding,
    Compute,
    Fifo,
    Front,
    Generic,
    Node,
    Pop,
    Post,
    Process,
    Program,
    Push,
    Rect,
    Ref,
    Reserve,
    Run,
    Shape,
    Wait,
    Worker,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.walk import substituted
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from tests.building import COL, ROW, Body, X, read, rect, whole, window, write
from tests.checker import editing as e
from tests.checker.two_sections import double_shape, twice, twice_on_host, twice_on_toy
from tests.evidence import bases

TOY, HOST = load_target("toy"), load_target("host", 2)
ONE_SITE = rect(0, 1, 0, 1)
Case = tuple[Program, SpatialTarget]


def at_once(cols: int) -> Case:
    """The second section follows without a boundary; the columns of its blocks belong to other cores."""
    made = twice_on_host(HOST, cols=cols, crossed=True)
    worker = replace(made.workers[0], body=(Run(0, "core"), Run(1, "core")))
    return replace(made, workers=(worker,), counters=()), HOST


def meeting_in_columns(axis: str) -> Case:
    """Writers meet those of their column; the second section reads what another site along an axis has written."""
    made = _with_sites(twice_on_toy(TOY), {axis: 1 - quasi(axis)})
    column = Rect(quasi("SITE_X"), quasi("SITE_X") + 1, quasi(0), quasi(2))
    *others, writer = made.workers
    body = (writer.body[0], Post("go.writer", column), Wait("go.writer", 2), *writer.body[3:])
    return replace(made, workers=(*others, replace(writer, body=body))), TOY


def _with_sites(made: Program, other: dict[str, Quasi]) -> Program:
    """The second section's items go to other sites."""
    return e.in_shape(
        made, lambda s: replace(s, processes=tuple(replace(p, body=substituted(p.body, other)) for p in s.processes)), 1
    )


def running_ahead(other_core: bool) -> Case:
    """The second of three cores, which has no work, posts two rounds at once; the last reads what the first wrote."""
    host = load_target("host", 3)
    made = twice_on_host(host, cols=32, crossed=True)
    if other_core:
        made = _with_sites(made, {"SITE_X": 2 - quasi("SITE_X")})
    first, post, wait, second = made.workers[0].body
    bodies = {
        0: (first, post, wait, second, post, wait), 1: (first, post, post, wait, second, wait),
        2: (first, post, wait, second, post, wait),
    }  # fmt: skip
    workers = (Worker(f"core.{x}", rect(x, x + 1, 0, 1), "core", body) for x, body in bodies.items())
    return replace(made, workers=tuple(workers)), host


def compute_without_start(early: bool, cols: int = 150, second: int = 0) -> Case:
    """Compute reserves its first slot, or sets it too, before one is in front that comes from behind the boundary.

    `second`: where the second section's buffers begin.
    """

    def change(shape: Shape) -> Shape:
        read_, compute, write_ = shape.processes
        return replace(shape, processes=(read_, replace(compute, body=_in_items(compute.body, reserved)), write_))

    def reserved(front: Node, reserve: Node, op: Compute, *rest: Node) -> Body:
        zero = Compute(replace(op.op, expr=fn("exp", 0.0)))
        return (reserve, zero, front, op, *rest) if early else (reserve, front, op, *rest)

    made = e.in_shape(e.in_shape(twice_on_toy(TOY, cols=cols, second_address=second), change, 0), change, 1)
    workers = (
        replace(w, body=tuple(t for t in w.body if getattr(t, "counter", "") != "start.matrix")) for w in made.workers
    )
    counters = tuple(c for c in made.counters if c.name != "start.matrix")
    return replace(made, workers=tuple(workers), counters=counters), TOY


def handed_over(late: bool) -> Case:
    """The first section's compute hands its result over before or after a slot for reader_b, whose first buffer of the
    second section lies over the row of the result that nothing is put into.
    """
    place, double = window((0, 1), (0, 16), row=0), fn("mul", at("fI", ROW, COL), 2.0)
    fill = lambda fifo: (Reserve(fifo), Compute(Generic(Ref(fifo), double, whole(1), whole(16))))  # noqa: E731
    told = (Push("fP"), Push("fO")) if late else (Push("fO"), Push("fP"))
    bodies = {
        "reader_a": read("fI", "I", place),
        "reader_b": (Front("fP"), Pop("fP")),
        "writer": write("fO", "O", place),
    }
    bodies |= {"matrix": (Front("fI"), *fill("fO"), *fill("fP"), Pop("fI"), *told)}
    second = {"reader_b": bodies["reader_a"], "matrix": (Front("fI"), *fill("fO"), Pop("fI"), Push("fO"))}
    second |= {"writer": bodies["writer"]}
    slots = (("fI", 1, 0), ("fP", 1, 64), ("fO", 2, 128)), (("fI", 1, 192), ("fO", 1, 512))
    shapes = tuple(
        double_shape(
            f"double{n}", 1, 16, tuple(Process(engine, ONE_SITE, engine, body) for engine, body in steps.items()),
            tuple(Fifo(name, "LOCAL", rows, 16, "f32", 1, address) for name, rows, address in slots[n]),
        ) for n, steps in enumerate((bodies, second))
    )  # fmt: skip
    runs = {engine: tuple(Run(n, engine) for n, s in enumerate((bodies, second)) if engine in s) for engine in bodies}
    workers = tuple(Worker(engine, ONE_SITE, engine, turns) for engine, turns in runs.items())
    return _apart(twice(TOY, shapes, workers, rows=1, cols=16)), TOY


def _apart(made: Program) -> Program:
    """Both sections double x, each into an output of its own."""
    x, between, y = made.tensors
    first, second = made.instances
    second = replace(second, bindings=(first.bindings[0], second.bindings[1]))
    made = replace(made, tensors=(x, replace(between, role="OUTPUT", offset=-1), y), instances=(first, second))
    return replace(made, graph_digest=graph_digest(made))


def behind_its_fifos(depth: int) -> Case:
    """One shape twice, without a boundary: two items a site, and FIFOs of `depth` and of one slot."""
    made = twice_on_toy(TOY, cols=256)
    made = e.every(e.fifo("fI", depth=depth), e.fifo("fO", depth=1))(made)
    shape, second = made.shapes[0], replace(made.instances[1], shape=made.shapes[0].name)
    workers = tuple(replace(w, body=tuple(t for t in w.body if isinstance(t, Run))) for w in made.workers)
    made = replace(made, shapes=(shape,), instances=(made.instances[0], second), workers=workers, counters=())
    return replace(made, graph_digest=graph_digest(made)), TOY


def on_one_row(cols: int) -> Case:
    """As before, early, but the second section is on the second row of sites only."""
    made, target = compute_without_start(True, cols)
    rows = rect(0, 2, 0, 1), rect(0, 2, 1, 2)
    there = lambda *steps: substituted(steps, {"SITE_Y": X, "LV_ITEM_X": quasi(0)})  # noqa: E731
    second = tuple(replace(p, rect=rows[1], body=_in_items(p.body, there)) for p in made.shapes[1].processes)
    workers = []
    for worker in made.workers:
        meet = worker.body if worker.engine == "writer" else worker.body[:1]
        idle = tuple(t for t in meet if t != Run(1, "write") and getattr(t, "counter", "") != "start.reader_a")
        workers += [replace(worker, name=f"{worker.name}.0", rect=rows[0], body=idle)]
        workers += [replace(worker, name=f"{worker.name}.1", rect=rows[1], body=_in_row(worker.body, quasi(1)))]
    made = replace(made, shapes=(made.shapes[0], replace(made.shapes[1], processes=second)), workers=tuple(workers))
    return made, target


def _in_row(turns: Body, row: Quasi) -> Body:
    """Posts to the own site, from workers that begin in a row."""
    return tuple(
        replace(t, to=substituted(t.to, {"SITE_Y": quasi("SITE_Y") + row})) if isinstance(t, Post) else t for t in turns
    )


def every_other_item(cols: int) -> Case:
    def change(shape: Shape) -> Shape:
        doubled = lambda *steps: substituted(steps, {"LV_ITEM_X": 2 * X})  # noqa: E731
        return replace(shape, processes=tuple(replace(p, body=_in_items(p.body, doubled)) for p in shape.processes))

    return e.in_shape(twice_on_toy(TOY, cols=cols), change, 1), TOY


def _in_items(body: Body, change: Callable[..., Body]) -> Body:
    """The steps inside the loops over items, changed."""
    (outer,) = body
    (inner,) = outer.body
    return (replace(outer, body=(replace(inner, body=change(*inner.body)),)),)


def both_from_the_cache(wide: bool) -> Case:
    """The weights of rows are taken from the cache too: as many elements as they have, from its first on."""
    for name in (n for n in bases.names() if n.startswith("cache.")):
        made, target = bases.base(name)
        context, cols = (e.const for e in made.tensors[1].shape)
        if any(s.name == "weighted" for s in made.shapes) and made.symbols[1].hi > 1 and (cols >= context) == wide:
            second = made.instances[1]
            bound = tuple(Binding("P", "cache") if b.formal == "P" else b for b in second.bindings)
            made = replace(made, instances=(made.instances[0], replace(second, bindings=bound)))
            return replace(made, graph_digest=graph_digest(made)), target
    raise LookupError("no such base")


def at_once_from_the_cache(new_rows: Quasi) -> Case:
    """A section reads the rows below pos, and so many new ones, without a boundary after the one that appends."""
    name = next(n for n in bases.names() if n.startswith("cache.") and _copies_on_a_chip(*bases.base(n)))
    made, target = bases.base(name)
    first, second = made.shapes
    apart = tuple(replace(f, address=f.address + 4096) for f in second.fifos)
    second = substituted(replace(second, fifos=apart), {"rows": new_rows})
    *others, out = made.tensors
    tensors = (*others, replace(out, shape=second.formals[1].shape))
    workers = tuple(replace(w, body=tuple(t for t in w.body if isinstance(t, Run))) for w in made.workers)
    made = replace(made, shapes=(first, second), tensors=tensors, workers=workers, counters=())
    return replace(made, graph_digest=graph_digest(made)), target


def _copies_on_a_chip(made: Program, target: SpatialTarget) -> bool:
    return made.shapes[-1].name == "copied" and not target.alias
