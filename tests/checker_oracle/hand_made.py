"""The nastiest small programs, made by hand against the checker's reasoning.

Each is wrong: the oracle says why, and the checker must refuse it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pavane.ir.digest import graph_digest
from pavane.ir.expr import Const, Expr, Reduce, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fifo,
    Formal,
    Generic,
    Init,
    Items,
    Loop,
    MatmulTiles,
    Node,
    Numerics,
    Pop,
    Post,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
    Tensor,
    Tree,
    Wait,
    Worker,
)
from pavane.ir.quasi import quasi
from pavane.targets.descriptor import SpatialTarget
from tests.building import COL, ROW, K, one_section, rect, shape_of, span, take, whole, window, write
from tests.checker_oracle.mutants import at as part
from tests.checker_oracle.mutants import put
from tests.checker_oracle.programs import Case, host, small, toy
from tests.examples import matmul_multicast, norm_product_host

N = 32
WHOLE = whole(N)
BOX = window((0, N), (0, N), row=0)
A, B, C = (Formal(name, shape_of(N, N), "f32", role) for name, role in (("A", "IN"), ("B", "IN"), ("C", "OUT")))
TENSORS = {
    "A": Tensor("a", shape_of(N, N), "f32", "INPUT"),
    "B": Tensor("b", shape_of(N, N), "f32", "WEIGHT"),
    "C": Tensor("c", shape_of(N, N), "f32", "OUTPUT"),
}
ALIAS_A, ALIAS_B = Fifo("fA", "ALIAS", N, N, "f32", 1), Fifo("fB", "ALIAS", N, N, "f32", 1)
SLOT_C = Fifo("fC", "LOCAL", N, N, "f32", 1, 0)
ACC = Carry("acc", N, N, "f32", address=4 * N * N)
IN_BODY = (0, "body", 0, "body", 0, "body")


def taken(fifo: str, formal: str) -> tuple[Node, ...]:
    return take(fifo, formal, BOX)


def stored(*filling: Node) -> tuple[Node, ...]:
    return (Reserve("fC"), *filling, Push("fC"), *write("fC", "C", BOX))


def assign(name: str, expr: Expr, rows=WHOLE, cols=WHOLE, row=0, col=0, guard=()) -> Compute:
    return Compute(Generic(Ref(name, quasi(row), quasi(col)), expr, rows, cols, guard))


def on_core(
    body: tuple[Node, ...], expr: Expr, fifos: tuple[Fifo, ...], carries: tuple[Carry, ...] = (), products: bool = False
) -> Case:
    """One process on one core that makes C from A (and B)."""
    formals = tuple(f for f in (A, B, C) if f.name == "C" or any(x.name == f"f{f.name}" for x in fifos))
    shape = Shape(
        name="section",
        formals=formals,
        spec=(Spec("C", shape_of(0, 0), shape_of(N, N), expr),),
        items=Items(quasi(1), quasi(1), N, N),
        numerics=Numerics(operands=(("A", "f32"), ("B", "f32")) if products else ()),
        processes=(Process("core", rect(0, 1, 0, 1), "core", body),),
        fifos=fifos,
        carries=carries,
    )
    tensors = tuple(TENSORS[f.name] for f in formals)
    return one_section(host(), shape, tensors, {f.name: TENSORS[f.name].name for f in formals}), host()


def _leader(change: Callable[[tuple[Node, ...]], tuple[Node, ...]], target: SpatialTarget | None = None) -> Case:
    """The multicast product with the steps of A's leader changed: reserve load fence wait send fence post push."""
    chip = target or toy()
    program = matmul_multicast(chip, 40, 70, 40)
    path = ("shapes", 0, "processes", 0, "body", *IN_BODY)
    return put(program, path, change(part(program, path))), chip


def send_before_the_load() -> Case:
    """The members get what the slot held before."""
    return _leader(lambda s: (s[0], s[3], s[4], s[5], s[1], s[2], s[6], s[7]))


def leader_computes_after_the_send() -> Case:
    """The leader doubles its own slot after the send; the spec says that all of A is doubled."""
    reader = next(e for e in toy().engines if e.name == "reader_a")
    able = replace(reader, roles=("reader", "compute"), generic_elements_per_cycle=8)
    chip = replace(toy(), engines=tuple(able if e is reader else e for e in toy().engines))
    rows, ks = span(64 * quasi("LV_ITEM_Y") + 32 * quasi("SITE_Y"), 32, 40), span(32 * K, 32, 70)
    double = assign("fA", fn("mul", at("fA", ROW, COL), 2.0), rows, ks)
    program, chip = _leader(lambda s: (*s[:6], double, *s[6:]), chip)
    product = fn("mul", fn("mul", at("A", "i0", "k0"), 2.0), at("B", "k0", "i1"))
    program = put(program, ("shapes", 0, "spec", 0, "expr"), Reduce("SUM", "k0", quasi(70), product))
    return put(program, ("shapes", 0, "numerics"), Numerics(operands=(("B", "bf16"),))), chip


def product_reads_its_destination() -> Case:
    """acc += acc . B: elements are overwritten while others still need them."""
    product = MatmulTiles(Ref("acc"), Ref("acc"), Ref("fB"), False, WHOLE, WHOLE, WHOLE, Tree(0, 1, True))
    meant = Reduce("SUM", "k0", quasi(N), fn("mul", at("A", "i0", "k0"), at("B", "k0", "i1")))
    body = (
        *taken("fA", "A"), *taken("fB", "B"), assign("acc", at("fA", ROW, COL)), Compute(product), Pop("fA"), Pop("fB"),
        *stored(assign("fC", at("acc", ROW, COL))),
    )  # fmt: skip
    return on_core(body, fn("add", at("A", "i0", "i1"), meant), (ALIAS_A, ALIAS_B, SLOT_C), (ACC,), products=True)


def turns_wipe_a_carry() -> Case:
    """Each turn sets the whole carry, then one half of it: only the last half survives."""
    half = assign("acc", at("fA", ROW, quasi(COL) + 16 * K), cols=whole(16), col=16 * K)
    body = (
        *taken("fA", "A"),
        Loop("LV_KBLOCK", quasi(2), (Init("acc"), half)),
        Pop("fA"),
        *stored(assign("fC", at("acc", ROW, COL))),
    )
    return on_core(body, at("A", "i0", "i1"), (ALIAS_A, SLOT_C), (ACC,))


def turns_wipe_a_slot() -> Case:
    """The same in a slot that is being filled."""
    half = assign("fC", at("fA", ROW, quasi(COL) + 16 * K), cols=whole(16), col=16 * K)
    wipe = assign("fC", Const(0.0))
    body = (*taken("fA", "A"), *stored(Loop("LV_KBLOCK", quasi(2), (wipe, half))), Pop("fA"))
    return on_core(body, at("A", "i0", "i1"), (ALIAS_A, SLOT_C))


def gather_through_an_alias() -> Case:
    """Rows from anywhere are no window: an alias has one address."""
    program, target = small("gather_host")
    fifos = program.shapes[0].fifos
    rows = next(i for i, f in enumerate(fifos) if f.kind == "LOCAL" and f.rows > 1 and "E" in f.name)
    return put(program, ("shapes", 0, "fifos", rows, "kind"), "ALIAS"), target


def a_worker_beside_the_grid() -> Case:
    """A poster that no chip has: its post never comes."""
    program, target = small("chain_toy")
    post = next(t for w in program.workers for t in w.body if isinstance(t, Post) and t.to.x0.is_const)
    posters = sum(1 for w in program.workers for _ in range(1) if post in w.body)
    more = lambda t: replace(t, n=t.n + 1) if isinstance(t, Wait) and t.counter == post.counter else t  # noqa: E731
    workers = tuple(replace(w, body=tuple(more(t) for t in w.body)) for w in program.workers)
    if not posters:
        raise LookupError("the program has no boundary")
    ghost = Worker("ghost", rect(7, 8, 0, 1), "writer", (post,))
    return replace(program, workers=(*workers, ghost)), target


def posts_that_nobody_takes() -> Case:
    """A counter of a site is posted to in every epoch and never waited for."""
    program, target = small("chain_toy")
    own = next(t for w in program.workers for t in w.body if isinstance(t, Post) and not t.to.x0.is_const)
    counter = next(c for c in program.counters if c.name == own.counter)
    twice = lambda t: (t, replace(t, counter="extra")) if t == own else (t,)  # noqa: E731
    workers = tuple(replace(w, body=tuple(x for t in w.body for x in twice(t))) for w in program.workers)
    return replace(
        program, counters=(*program.counters, replace(counter, name="extra", id=15)), workers=workers
    ), target


def an_output_that_nobody_writes() -> Case:
    """Two symbolic extents: no count of its elements is quasi-affine."""
    program = norm_product_host(host())
    rows = quasi("rows")
    return replace(program, tensors=(*program.tensors, Tensor("z", shape_of(rows, rows), "f32", "OUTPUT"))), host()


def an_engine_without_the_role() -> Case:
    """The engine named `writer` only reads."""
    swapped = {"writer": ("reader",), "reader_b": ("reader", "writer")}
    chip = replace(toy(), engines=tuple(replace(e, roles=swapped.get(e.name, e.roles)) for e in toy().engines))
    return matmul_multicast(chip, 40, 70, 40), chip


PROGRAMS: tuple[Callable[[], Case], ...] = (
    send_before_the_load, leader_computes_after_the_send, product_reads_its_destination, turns_wipe_a_carry,
    turns_wipe_a_slot,
    gather_through_an_alias, a_worker_beside_the_grid, posts_that_nobody_takes, an_output_that_nobody_writes,
    an_engine_without_the_role,
)  # fmt: skip


def signed(program: Program) -> Program:
    """With the digest of what it says it means."""
    return replace(program, graph_digest=graph_digest(program), certificate=None)
