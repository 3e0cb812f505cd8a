"""The prover's schedule, and stages merged into the written order of an engine."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.program import Do, Fence, Front, Load, Loop, Pop, Process, Push, Reserve, Store, Turns
from pavane.ir.walk import leaves
from pavane.reject import ProgressRefused
from pavane.targets.load import load_target
from pavane.verify.schedule import find_schedule, merge_stages
from tests.building import rect
from tests.checker.editing import every, fifo, in_shape, swapped
from tests.examples import attention_host, matmul_multicast, norm_product_host

TOY, HOST = load_target("toy"), load_target("host", 2)


def _kept(body, keep):
    out = []
    for node in body:
        if isinstance(node, Loop):
            inner = _kept(node.body, keep)
            out.extend([replace(node, body=inner)] if inner else [])
        elif keep(node):
            out.append(node)
    return tuple(out)


def _stages(shape, stored: str):
    """A merged process taken apart into reader, compute and writer, in the order of the written steps."""
    process = shape.processes[0]
    reads = lambda n: isinstance(n, Reserve | Load | Push) and n.fifo != stored  # noqa: E731
    writes = lambda n: isinstance(n, Fence) or (isinstance(n, Front | Store | Pop) and n.fifo == stored)  # noqa: E731
    computes = lambda n: not reads(n) and not writes(n)  # noqa: E731
    parts = (("reader", reads), ("compute", computes), ("writer", writes))
    return [Process(name, process.rect, process.engine, _kept(process.body, keep)) for name, keep in parts]


@pytest.mark.parametrize(
    ("program", "stored"),
    [(norm_product_host(HOST), "fC"), (attention_host(HOST), "fO"), (attention_host(HOST, 9, 3), "fO")],
)
def test_stages_of_one_engine_come_back_in_their_natural_order(program, stored):
    shape = program.shapes[0]
    (merged,) = merge_stages(_stages(shape, stored), shape)
    assert merged.name == merged.engine == "core"
    assert [step for _, step in leaves(merged.body)] == [step for _, step in leaves(shape.processes[0].body)]


def test_stages_of_different_engines_keep_their_names_and_bodies():
    shape = matmul_multicast(TOY).shapes[0]
    assert {p.name: p for p in merge_stages(shape.processes, shape)} == {p.name: p for p in shape.processes}


def test_a_rectangle_is_cut_where_only_some_sites_run_a_stage():
    shape = norm_product_host(HOST).shapes[0]
    reader, compute, writer = _stages(shape, "fC")
    extra = Process("extra", rect(1, 2, 0, 1), "core", (Fence(),))
    merged = merge_stages([reader, compute, writer, extra], shape)
    assert [(p.name, p.rect.x0.const, p.rect.x1.const) for p in merged] == [("core.0", 0, 1), ("core.1", 1, 2)]
    columns = [next(s for _, s in leaves(p.body) if isinstance(s, Store)).window.start[1] for p in merged]
    assert [c.evaluate({"SITE_X": 0, "LV_ITEM_X": 0}) for c in columns] == [0, 32]


def test_a_schedule_has_each_step_once():
    shape = matmul_multicast(TOY).shapes[0]
    seen = []

    def walk(schedule):
        for item in schedule:
            if isinstance(item, Turns):
                walk(item.body)
            else:
                assert isinstance(item, Do)
                seen.extend((item.process, n) for n in range(item.first, item.last + 1))

    walk(find_schedule(shape))
    wanted = [(p, n) for p, process in enumerate(shape.processes) for n, _ in enumerate(leaves(process.body))]
    assert sorted(seen) == wanted


def test_equal_loops_that_do_not_belong_together_are_entered_apart():
    """Two loops of one variable and extent in a row, each with a reader of its own."""
    program = attention_host(HOST)
    shape = program.shapes[0]
    reader, compute, writer = _stages(shape, "fO")
    keys = Process("keys", reader.rect, "core", _kept(reader.body, lambda n: n.fifo in ("fQ", "fK")))
    values = Process("values", reader.rect, "core", _kept(reader.body, lambda n: n.fifo == "fV"))
    assert len(find_schedule(shape, [keys, values, compute, writer])) == 1


def test_a_circle_is_named():
    program = matmul_multicast(TOY)
    late = every(swapped("recvA", 1), fifo("fA", depth=1))(program)
    with pytest.raises(ProgressRefused) as caught:
        find_schedule(in_shape(late, lambda s: s).shapes[0])
    assert any("stands at the loop" in term or "waits" in term for term in caught.value.terms)
