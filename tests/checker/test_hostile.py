"""Whatever a file holds, the checker answers in bounded time with an acceptance or a NotProven."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pavane.ir.digest import canonical_bytes, program_digest
from pavane.ir.expr import Const, Expr, Fn, Reduce, at, fn
from pavane.ir.program import (
    Certificate,
    Counter,
    Do,
    Fence,
    Fifo,
    Front,
    Load,
    Loop,
    Pop,
    Post,
    Process,
    Push,
    Rect,
    Ref,
    Reserve,
    Send,
    ShapeSchedule,
    Symbol,
    Turns,
    Wait,
)
from pavane.ir.quasi import Domain, quasi, upper
from pavane.reject import CapacityRefused, NotProven, OutsideFragment
from pavane.targets.load import load_target
from pavane.verify.check import check, examine
from tests.building import COL, ROW, rect, shape_of, span, window
from tests.checker import editing as e
from tests.checker.two_sections import twice_on_toy
from tests.examples import matmul_multicast, norm_product_host
from tests.strategies import edited

TOY, HOST = load_target("toy"), load_target("host", 2)
MATMUL, NORM = matmul_multicast(TOY), norm_product_host(HOST)
HUGE, LARGEST = 1 << 50, 1 << 40
SYMBOL = quasi("s")


def _nested(depth: int):
    expr = Const(1.0)
    for _ in range(depth):
        expr = Fn("abs", (expr,))
    return expr


def _loops(depth: int):
    def change(body):
        for _ in range(depth):
            body = (Loop("LV_SUB_W", quasi(1), body),)
        return body

    return change


def _sum(var: str):
    return Reduce("SUM", var, quasi(32), at("acc", ROW, var))


def _twin(items):
    return (*items, items[0])


HOSTILE = {
    "a huge extent": e.loop_extent("write", "LV_ITEM_X", quasi(HUGE)),
    "a huge coefficient": e.with_op("compute", 7, cols=span(quasi("LV_ITEM_X") * HUGE, 32, 150)),
    "a huge depth": e.fifo("fA", depth=HUGE),
    "a negative depth": e.fifo("fA", depth=-1),
    "a huge carry": e.carry("acc", rows=HUGE),
    "a huge slot": e.fifo("fC", rows=1 << 23, cols=1 << 23),
    "a huge tensor": e.every(e.tensor("a", shape=shape_of(HUGE, 70)), e.formal("A", shape=shape_of(HUGE, 70))),
    "an extent of nothing": e.loop_extent("write", "LV_ITEM_X", quasi(0)),
    "an extent that depends on a loop": e.loop_extent("write", "LV_ITEM_X", quasi("LV_ITEM_Y") + 1),
    "an extent of an unknown variable": e.loop_extent("write", "LV_ITEM_X", quasi("elsewhere")),
    "a deep expression": e.with_op("compute", 7, expr=_nested(300)),
    "an infinite constant": e.with_op("compute", 7, expr=Const(float("inf"))),
    "deep loops": e.in_process("write", _loops(40)),
    "an unknown FIFO": e.with_fields("write", 0, fifo="nowhere"),
    "an unknown formal": e.with_fields("write", 1, tensor="nowhere"),
    "an unknown counter": e.with_fields("leadA", 3, counter="nowhere"),
    "an unknown operand": e.with_op("compute", 7, expr=at("nowhere", ROW, COL)),
    "an operand of one dimension": e.with_op("compute", 7, expr=at("acc", ROW)),
    "two reductions": e.with_op("compute", 7, expr=fn("add", _sum("LV_GEN_K"), _sum("LV_GEN_K"))),
    "two FIFOs of one name": lambda p: e.in_shape(p, lambda s: replace(s, fifos=_twin(s.fifos))),
    "two processes of one name": lambda p: e.in_shape(p, lambda s: replace(s, processes=_twin(s.processes))),
    "two shapes of one name": lambda p: replace(p, shapes=_twin(p.shapes)),
    "two tensors of one name": lambda p: replace(p, tensors=_twin(p.tensors)),
    "no processes": lambda p: e.in_shape(p, lambda s: replace(s, processes=())),
    "an empty body": e.in_process("write", lambda body: ()),
    "an empty loop": e.in_process("write", lambda body: (Loop("LV_ITEM_Y", quasi(2), ()),)),
    "no sections": lambda p: replace(p, instances=()),
    "an unknown shape": lambda p: replace(p, instances=(replace(p.instances[0], shape="nowhere"),)),
    "an unknown tensor": lambda p: replace(
        p,
        instances=(
            replace(
                p.instances[0],
                bindings=(replace(p.instances[0].bindings[0], tensor="nowhere"), *p.instances[0].bindings[1:]),
            ),
        ),
    ),
    "a formal bound twice": lambda p: replace(
        p, instances=(replace(p.instances[0], bindings=_twin(p.instances[0].bindings)),)
    ),
    "a worker of an unknown section": lambda p: replace(
        p, workers=(replace(p.workers[0], body=(replace(p.workers[0].body[0], instance=9),)), *p.workers[1:])
    ),
    "a symbol of no value": lambda p: replace(p, symbols=(Symbol("n", 3, 2, 3),)),
    "a symbol named like a loop": lambda p: replace(p, symbols=(Symbol("LV_ITEM_X", 0, 9, 3),)),
    "a name of control characters": lambda p: e.in_shape(p, lambda s: replace(s, name="f\x00\n")),
    "a program's name of control characters": lambda p: replace(p, name="f\n"),
    "a program's name without end": lambda p: replace(p, name="f" * (1 << 22)),
    "a section's name without end": lambda p: replace(p, instances=(replace(p.instances[0], name="f" * (1 << 22)),)),
    "an engine's name without end": e.process("write", engine="f" * (1 << 22)),
    "a list of sites without end": lambda p: e.in_shape(p, lambda s: replace(s, sites=((0, 0),) * (1 << 16))),
    "a rectangle that moves": e.process("write", rect=Rect(quasi("SITE_X"), quasi(2), quasi(0), quasi(2))),
    "an old format": lambda p: replace(p, version=0),
    "a counter of many bits": lambda p: e.in_shape(
        p, lambda s: replace(s, counters=(replace(s.counters[0], bits=1 << 36), *s.counters[1:]))
    ),
    "an extent whose bounds are too large to compute": lambda p: replace(
        e.tensor("a", shape=((SYMBOL * (LARGEST - 1) + 7) // LARGEST + SYMBOL * LARGEST + 100, quasi(70)))(p),
        symbols=(Symbol("s", 0, 3, 1),),
    ),
}


@pytest.mark.parametrize("what", sorted(HOSTILE))
def test_hostile(what):
    refused = e.refusal(MATMUL, TOY, HOSTILE[what])
    assert isinstance(refused, OutsideFragment | CapacityRefused), f"{type(refused).__name__}: {refused}"
    assert len(str(refused)) < 1000


@pytest.mark.parametrize(
    "edges", [(0, 1 << 20, 0, 1 << 20), (-1, 2, 0, 2), (1, 1, 0, 2), (0, 3, 0, 2), (1 << 40, (1 << 40) + 1, 0, 1)]
)
def test_rectangles_outside_the_grid(edges):
    started = time.perf_counter()
    assert isinstance(e.refusal(MATMUL, TOY, e.process("write", rect=rect(*edges))), NotProven)
    assert time.perf_counter() - started < 5


def test_leaders_of_more_sites_than_there_are():
    """Who posts to whom is asked site by site: no array is made for sites that no chip has."""
    for height in (1 << 26, 1 << 40):
        edges = (("leadA", rect(0, 1, 0, height)), ("recvA", rect(1, 2, 0, height)))
        started = time.perf_counter()
        refused = e.refusal(MATMUL, TOY, e.every(*(e.process(name, rect=to) for name, to in edges)))
        assert isinstance(refused, OutsideFragment)
        assert "too many sites" in str(refused)
        assert time.perf_counter() - started < 5


def _many_pairs(slots: int, pairs: int):
    """So many slots sent in one turn, under so many credits and valids, any of which order any send."""
    fifos = tuple(f"f{n}" for n in range(slots))
    credits, valids = (tuple(f"{kind}{n}" for n in range(pairs)) for kind in "cv")
    members, leader = rect(1, 2, 0, 1), rect(0, 1, 0, 1)
    lead = (
        *map(Reserve, fifos), *(Load(f, "A", window((0, 1), (0, 8))) for f in fifos), Fence(), *map(Wait, credits),
        *(Send(f, members) for f in fifos), Fence(), *(Post(v, members) for v in valids), *map(Push, fifos),
    )  # fmt: skip
    take = (*map(Reserve, fifos), *(Post(c, leader) for c in credits), *map(Wait, valids), *map(Push, fifos))
    let_go = tuple(step for f in fifos for step in (Front(f), Pop(f)))
    at = (("lead", leader, "reader_a", lead), ("take", members, "reader_a", take))

    def change(shape):
        return replace(
            shape,
            processes=(*(Process(*each) for each in at), Process("let_go", rect(0, 2, 0, 1), "writer", let_go)),
            fifos=tuple(Fifo(f, "MULTICAST_ROW", 1, 8, "bf16", 1, 16 * n) for n, f in enumerate(fifos)),
            carries=(),
            counters=tuple(
                Counter(name, where, "reader_a", bits=4, id=n % 16)
                for n in range(pairs)
                for name, where in ((credits[n], leader), (valids[n], members))
            ),
        )

    return lambda program: e.in_shape(program, change)


def test_many_pairs_of_counters():
    """Each counter is asked once a FIFO, not each pair of them."""
    made = e.signed(_many_pairs(128, 64)(MATMUL), TOY)
    started = time.perf_counter()
    report = examine(made, TOY)
    assert time.perf_counter() - started < 10
    codes = {refusal.code for refusal in report.refusals}
    assert codes == {"capacity", "coverage"}, report.refusals  # not `multicast`: the protocol is kept


def test_many_loops_on_many_sites():
    """A turn is compared with what was before it in what it has changed, not in every buffer on every site."""
    fifos = tuple(f"f{n}" for n in range(128))
    once = tuple(step for f in fifos for step in (Reserve(f), Push(f), Front(f), Pop(f)))
    loops = tuple(Loop("LV_ITEM_X", quasi(9), (Fence(),)) for _ in range(3000))

    def change(shape):
        slots = tuple(Fifo(f, "LOCAL", 1, 8, "bf16", 1, 16 * n) for n, f in enumerate(fifos))
        everywhere = Process("all", rect(0, 128, 0, 128), "reader_a", (*once, *loops))
        return replace(shape, processes=(everywhere,), fifos=slots, carries=(), counters=())

    made = e.in_shape(MATMUL, change)
    steps = tuple(Do(0, n, n) for n in range(512))
    turns = tuple(Turns("LV_ITEM_X", quasi(9), (Do(0, n, n),)) for n in range(512, 3512))
    honest = Certificate(program_digest(made), made.target_digest, (ShapeSchedule("matmul", (*steps, *turns)),))
    started = time.perf_counter()
    report = examine(replace(made, certificate=honest), TOY)
    assert time.perf_counter() - started < 10
    assert ("progress", "matmul") in {(fact.obligation, fact.of) for fact in report.facts}


def _again(place: int, name: str, expr: Expr, times: int) -> e.Edit:
    """The op at a step, then so often another on what it made."""

    def change(step):
        op = replace(step.op, dst=Ref(name), expr=expr)
        return (step, *(e.Compute(op) for _ in range(times)))

    return e.at_step("core", place, change)


def _index_of_index(step):
    """panel = acc[.., f(COL)], acc = panel[.., f(COL)], six times: f of f of f ..., four floors each."""
    col = quasi(COL) // 2 + quasi(COL) // 3 - quasi(COL) // 5 - quasi(COL) // 7
    pair = (("acc", "panel"), ("panel", "acc"))
    ops = (replace(step.op, dst=Ref(to), expr=at(of, ROW, col)) for to, of in pair * 6)
    return (step, *(e.Compute(op) for op in ops))


def _doubled_then_copied(step):
    """A value of many nodes, copied hundreds of times."""
    twice = replace(step.op, expr=fn("add", at("panel", ROW, COL), at("panel", ROW, COL)))
    copy = replace(step.op, expr=at("panel", ROW, COL))
    return (step, *(e.Compute(twice) for _ in range(6)), *(e.Compute(copy) for _ in range(300)))


GROWING = {
    # x = x * x, 40 times: 2**40 nodes if it were written out
    "a value that doubles": _again(8, "ss", fn("mul", at("ss", ROW, COL), at("ss", ROW, COL)), 40),
    "an index of an index": e.at_step("core", 9, _index_of_index),
    "a large value copied often": e.at_step("core", 9, _doubled_then_copied),
}


@pytest.mark.parametrize("what", GROWING)
def test_values_that_grow(what):
    started = time.perf_counter()
    refused = e.refusal(NORM, HOST, GROWING[what])
    assert isinstance(refused, OutsideFragment)
    assert "large" in str(refused)
    assert time.perf_counter() - started < 20


def test_an_index_of_many_floors_is_bounded_in_time():
    """Each of n floors can be relaxed or not: 2**n bounds, if all were tried."""
    floors = sum(((quasi("x") * (n + 2) + quasi("y") * (n + 3)) // (2 * n + 3) for n in range(20)), quasi(0))
    started = time.perf_counter()
    assert upper(floors, Domain((("x", 0, 1000), ("y", 0, 999)))) >= floors.evaluate({"x": 1000, "y": 999})
    assert time.perf_counter() - started < 5


def test_a_place_beside_the_chip_is_for_scratch():
    refused = e.refusal(MATMUL, TOY, e.tensor("a", offset=0))
    assert isinstance(refused, OutsideFragment)
    assert "has a place of its own" in str(refused)


def test_an_early_phase():
    with pytest.raises(OutsideFragment):
        check(replace(e.signed(MATMUL, TOY), phase="SIZED"), TOY)


def test_values_of_wrong_types():
    with pytest.raises(OutsideFragment):
        check(replace(MATMUL, shapes=(replace(MATMUL.shapes[0], items="none"),)), TOY)


@given(st.sampled_from([MATMUL, NORM, twice_on_toy(TOY)]).flatmap(edited))
def test_random_edits_end_in_an_answer(program):
    if program is None:
        return
    target = TOY if program.target == TOY.name else HOST
    try:
        check(e.signed(program, target), target)
    except NotProven:
        return


def test_works_without_the_passes():
    """The checker and its evidence import nothing that it judges."""
    script = """
        import sys
        from importlib.abc import MetaPathFinder

        class Wall(MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[1:2] in (["passes"], ["pipeline"], ["cost"], ["tensor_graph"]):
                    raise ImportError(f"{name} stands behind the wall")

        sys.meta_path.insert(0, Wall())
        import msgspec
        from pavane.ir.program import Program
        from pavane.targets.load import load_target
        from pavane.verify.check import check, examine
        program = msgspec.json.decode(sys.stdin.buffer.read(), type=Program)
        print(check(program, load_target("toy")).program)
        """
    program = e.signed(MATMUL, TOY)
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        input=canonical_bytes(program),
        capture_output=True,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p), "PATH": ""},
        check=False,
    )
    assert run.stdout.decode().strip() == "matmul", run.stderr.decode()
