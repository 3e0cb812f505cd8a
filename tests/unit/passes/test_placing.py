"""fuse_readers, place, synthesize_handshakes and persist: who runs what on which site."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.program import Load, Post, Push, Run, Send, Wait
from pavane.ir.quasi import quasi
from pavane.ir.walk import leaves
from pavane.passes import fuse_readers, persist, place, synthesize_handshakes
from pavane.reject import OutOfCounters, TooFewSites
from pavane.targets.descriptor import SpatialTarget
from tests.building import SX, SY, X, rect, site
from tests.unit.passes.chains import after, each_pass, require_right_answer
from tests.unit.passes.templates import chain, matmul, norm_product


def grid(target: SpatialTarget, width: int, height: int) -> SpatialTarget:
    return replace(target, grid=replace(target.grid, width=width, height=height))


def kinds(program) -> dict[str, str]:
    return {fifo.name: fifo.kind for fifo in program.shapes[0].fifos}


def test_a_product_is_read_once_a_row_and_once_a_column(toy: SpatialTarget) -> None:
    program = after("fuse_readers", matmul(toy).program, toy)
    assert kinds(program) == {"fA": "MULTICAST_ROW", "fB": "MULTICAST_COLUMN", "fC": "LOCAL"}
    shape = program.shapes[0]
    assert [group.name for group in shape.groups] == ["lead_fA", "lead_fB", "all"]
    assert [(j.what, j.taken, j.other) for j in shape.joins] == [
        ("reader of fA", "multicast row", "local"),
        ("reader of fB", "multicast column", "local"),
    ]
    assert all(join.cycles < join.other_cycles for join in shape.joins)
    assert shape.joins[-1].cycles == shape.plan.cycles  # what `tile` predicted is what was done


def test_a_chain_has_nothing_to_share(toy: SpatialTarget) -> None:
    program = after("fuse_readers", chain(toy).program, toy)
    assert set(kinds(program).values()) == {"LOCAL"}
    assert program.shapes[0].joins == ()


@pytest.mark.parametrize("change", ["no multicast", "no counters", "one site"])
def test_no_multicast_where_the_chip_cannot(change: str, toy: SpatialTarget) -> None:
    target = {
        "no multicast": replace(toy, noc=replace(toy.noc, multicast=False)),
        "no counters": replace(toy, counters=replace(toy.counters, per_site=1)),
        "one site": grid(toy, 1, 1),
    }[change]
    assert set(kinds(after("fuse_readers", matmul(target).program, target)).values()) == {"LOCAL"}


def test_free_dram_makes_multicast_not_worth_it(toy: SpatialTarget) -> None:
    target = replace(toy, dram=replace(toy.dram, channels=64, bytes_per_cycle=64))
    program = after("fuse_readers", matmul(target).program, target)
    assert set(kinds(program).values()) == {"LOCAL"}
    assert all(join.taken == "local" and join.cycles <= join.other_cycles for join in program.shapes[0].joins)


@pytest.mark.parametrize("size", [(3, 1), (1, 3), (4, 2), (3, 3)])
def test_multicast_on_longer_lines(size: tuple[int, int], toy: SpatialTarget) -> None:
    target = grid(replace(toy, dram=replace(toy.dram, bytes_per_cycle=1)), *size)
    case = matmul(target, 170, 40, 190)
    for _, program in each_pass(case.program, target):
        require_right_answer(program, case)
    assert any(kind.startswith("MULTICAST") for kind in kinds(program).values())


def test_items_are_cyclic_and_ghosts_equal(toy: SpatialTarget) -> None:
    program = after("place", norm_product(toy, 64, 96 + 64).program, toy)
    (group,) = program.shapes[0].groups
    (load,) = [step for _, step in leaves(group.stages[1].body) if isinstance(step, Load)]
    block = load.window.size[0]
    assert load.window.start[0] == block * (SX + 2 * SY + 4 * X)  # one row of items goes over all four sites
    assert group.rect == rect(0, 2, 0, 2)
    loops = {
        nest[-1].extent for stage in group.stages for nest, step in leaves(stage.body) if nest[-1].var == "LV_ITEM_X"
    }
    assert loops == {program.shapes[0].items.x.ceil(4)}


def test_multicast_on_one_column_has_nobody_to_send_to(toy: SpatialTarget) -> None:
    fused = after("fuse_generic", matmul(toy).program, toy)
    with pytest.raises(TooFewSites) as caught:
        place(fused, grid(toy, 1, 1))
    assert caught.value.needed == "2 columns of sites"


def test_handshakes_of_a_multicast(toy: SpatialTarget) -> None:
    shape = after("synthesize_handshakes", matmul(toy).program, toy).shapes[0]
    assert [(c.name, c.rect, c.id, c.bits, c.ahead) for c in shape.counters] == [
        ("credit_fA", rect(0, 1, 0, 2), 0, 4, 0),
        ("valid_fA", rect(1, 2, 0, 2), 1, 4, 0),
        ("credit_fB", rect(0, 2, 0, 1), 2, 4, 0),
        ("valid_fB", rect(0, 2, 1, 2), 3, 4, 0),
    ]
    groups = {group.name: group for group in shape.groups}
    lead = [step for _, step in leaves(groups["lead_fA"].stages[0].body)]
    to = site(1, quasi("SITE_Y"))
    assert [type(step).__name__ for step in lead] == [
        "Reserve",
        "Load",
        "Fence",
        "Wait",
        "Send",
        "Fence",
        "Post",
        "Push",
    ]
    assert lead[3:] == [Wait("credit_fA", 1), Send("fA", to), lead[2], Post("valid_fA", to), Push("fA")]
    receive = [step for _, step in leaves(groups["receive_fA"].stages[0].body)]
    assert [type(step).__name__ for step in receive] == ["Reserve", "Post", "Wait", "Push"]


def test_out_of_counters(toy: SpatialTarget) -> None:
    sized = after("size_buffers", matmul(toy).program, toy)
    with pytest.raises(OutOfCounters) as caught:
        synthesize_handshakes(sized, replace(toy, counters=replace(toy.counters, per_site=3)))
    assert (caught.value.needed, caught.value.available) == ("4 counters", "3 on a site of toy")
    assert caught.value.terms == ("fA: credit and valid", "fB: credit and valid")


def test_too_few_bits_for_a_long_line(toy: SpatialTarget) -> None:
    wide = grid(replace(toy, dram=replace(toy.dram, bytes_per_cycle=1)), 4, 1)
    sized = after("size_buffers", matmul(wide, 170, 40, 190).program, wide)
    with pytest.raises(OutOfCounters, match="3 posts in flight"):
        synthesize_handshakes(sized, replace(wide, counters=replace(wide.counters, bits=2)))
    narrow = replace(wide, counters=replace(wide.counters, bits=2))
    counters = after("persist", matmul(narrow, 170, 40, 190).program, narrow).shapes[0].counters
    assert all((c.rect.x1 - c.rect.x0).const <= 2 for c in counters)  # as many members as two bits tell apart


def test_one_process_an_engine_and_rectangle(toy: SpatialTarget, host: SpatialTarget) -> None:
    program = after("persist", matmul(toy).program, toy)
    found = [(p.name, p.engine, p.rect) for p in program.shapes[0].processes]
    assert found == [
        ("lead_fA", "reader_a", rect(0, 1, 0, 2)),
        ("receive_fA", "reader_a", rect(1, 2, 0, 2)),
        ("lead_fB", "reader_b", rect(0, 2, 0, 1)),
        ("receive_fB", "reader_b", rect(0, 2, 1, 2)),
        ("compute", "matrix", rect(0, 2, 0, 2)),
        ("writer", "writer", rect(0, 2, 0, 2)),
    ]
    assert [worker.body for worker in program.workers] == [(Run(0, name),) for name, _, _ in found]
    merged = after("persist", matmul(host).program, host)
    assert [(p.name, p.rect) for p in merged.shapes[0].processes] == [("core", rect(0, 2, 0, 1))]


def test_a_process_works_in_full_sync_where_a_stage_of_it_does(host: SpatialTarget) -> None:
    program = after("synthesize_handshakes", chain(host).program, host)
    (shape,) = program.shapes
    (group,) = shape.groups
    stages = tuple(replace(s, registers="FULL") if s.name == "compute" else s for s in group.stages)
    full = replace(program, shapes=(replace(shape, groups=(replace(group, stages=stages),)),))
    assert [p.registers for p in persist(program, host).shapes[0].processes] == ["HALF"]
    assert [p.registers for p in persist(full, host).shapes[0].processes] == ["FULL"]


def test_fuse_readers_is_a_function_of_the_program(toy: SpatialTarget) -> None:
    tiled = after("tile", matmul(toy).program, toy)
    assert fuse_readers(tiled, toy) == fuse_readers(tiled, toy)
