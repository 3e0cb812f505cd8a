"""pack and forward: what becomes a wave, what lies on the sites, what neither may change, and what they record."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import pavane as pv
from pavane.ir.program import Program
from pavane.ir.types import Ints
from pavane.passes.arena import arena
from pavane.passes.forward import Forwarded, forward
from pavane.passes.pack import Packed, pack
from pavane.passes.planning import Planning
from pavane.passes.section import uses
from pavane.pipeline import compile_joined
from pavane.sim import Simulator
from pavane.sim.numbers import stored
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.targets.restrict import restricted

N150 = load_target("wormhole_n150")
TOY = load_target("toy")
FEW = Ints(-2, 2)


def chip(width: int, height: int, **noc) -> SpatialTarget:
    return replace(restricted(N150, width, height), noc=replace(N150.noc, **noc))


def siblings() -> pv.Source:
    """Three products of one input, which do not depend on each other, and one of two of their results."""
    graph = pv.Graph("siblings")
    x = graph.input("x", (24, 96), "f32", FEW)
    a, b, c = (graph.matmul(x, graph.weight(f"w{name}", (96, 64), "f32", FEW)) for name in "abc")
    graph.output("c", c)
    graph.output("y", graph.matmul(a, b, transposed=True))
    return pv.graph(graph)


def joined(target: SpatialTarget) -> tuple[Forwarded, Planning]:
    planning = Planning()
    return forward(pack(siblings().sections(target), target, planning), target, planning), planning


def on_sites(packed: Packed) -> dict[str, str]:
    """Roles by name of what lies on the sites."""
    return {t.name: t.role for section in packed.sections for t in section.tensors if t.home == "sites"}


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {"x": (24, 96), "wa": (96, 64), "wb": (96, 64), "wc": (96, 64)}
    return {name: rng.integers(-2, 3, shape).astype(np.float32) for name, shape in shapes.items()}


def simulated(program: Program, target: SpatialTarget) -> dict[str, np.ndarray]:
    dtypes = {t.name: t.dtype for t in program.tensors}
    taken = {name: stored(array, dtypes[name]) for name, array in arrays().items()}
    x = taken.pop("x")
    return Simulator(program, target, taken).launch({}, {"x": x}).outputs


# --- pack -------------------------------------------------------------------------------------------------------------


def test_independent_products_become_one_wave_on_disjoint_rectangles():
    packed = joined(chip(8, 8))[0].packed
    assert packed.waves == (0, 0, 0, 1)
    assert packed.shared_waves == (0, 0, 0, -1)
    assert packed.places[3] == (0, 0, 8, 8)
    for (x, y, w, h), (left, top, width, height) in combinations(packed.places[:3], 2):
        assert x + w <= left or left + width <= x or y + h <= top or top + height <= y
    assert sum(w * h for _, _, w, h in packed.places[:3]) == 64


@pytest.mark.parametrize("target", [chip(1, 1), load_target("host", 4)], ids=["1x1", "host"])
def test_nothing_is_packed_where_there_is_no_room_or_no_boundary_to_save(target):
    packed = joined(target)[0].packed
    assert packed.shared_waves == (-1,) * 4
    assert set(packed.places) == {(0, 0, target.grid.width, target.grid.height)}


def test_members_of_a_wave_touch_nothing_that_another_writes():
    packed = joined(chip(8, 8))[0].packed
    waves: dict[int, list[Program]] = {}
    for section, wave in zip(packed.sections, packed.waves, strict=True):
        waves.setdefault(wave, []).append(section)
    for members in waves.values():
        for one, other in combinations(members, 2):
            (_, written), (read, also_written) = (uses(s.shapes[0], s.instances[0]) for s in (one, other))
            assert not written & (read | also_written)


@pytest.mark.parametrize("post_cycles", [0, 1, 100, 10_000])
def test_the_cheaper_way_is_taken_and_both_costs_are_kept(post_cycles):
    """Boundaries that cost more make a wave worth more; whatever is taken costs no more than what is not."""
    target = replace(chip(4, 4), counters=replace(N150.counters, post_cycles=post_cycles))
    sections = joined(target)[0].packed.sections
    joins = [j for s in sections for j in s.shapes[0].joins if j.what.startswith("pack ")]
    assert len(joins) == 3
    assert all(join.cycles <= join.other_cycles for join in joins)


# --- forward ----------------------------------------------------------------------------------------------------------


def test_results_stay_on_the_chip_and_their_sections_leave_them_room():
    forwarded, _ = joined(chip(8, 8))
    roles = list(on_sites(forwarded.packed).values())
    assert roles.count("SCRATCH") == 2  # a and b; c and y are outputs
    weights = roles.count("WEIGHT")
    assert forwarded.target.memory.bytes == N150.memory.bytes - 2 * 24 * 64 * 4 - weights * 96 * 64 * 4
    formals = {f.home for s in forwarded.packed.sections for f in s.shapes[0].formals if f.role == "OUT"}
    assert formals == {"sites", "dram"}


def test_nothing_moves_where_it_has_no_room_or_engines_work_in_place():
    host = load_target("host", 4)
    assert on_sites(joined(host)[0].packed) == {}
    used = N150.memory.reserved_bytes + 10_000
    small = replace(chip(8, 8), memory=replace(N150.memory, bytes=used))
    assert on_sites(joined(small)[0].packed) == {}


def test_dearer_copies_stay_away():
    """On a network that needs a thousand cycles for a word the memory beside the chip is nearer."""
    forwarded, _ = joined(chip(8, 8, start_cycles=100_000))
    assert on_sites(forwarded.packed) == {}
    joins = [j for s in forwarded.packed.sections for j in s.shapes[0].joins if j.what.startswith("forward ")]
    assert joins
    assert all(join.taken == "beside the chip" and join.cycles <= join.other_cycles for join in joins)


@pytest.mark.parametrize("target", [chip(8, 8), chip(3, 5), chip(4, 2, multicast=False), TOY])
def test_no_tensor_by_itself_would_be_better_elsewhere(target):
    forwarded, _ = joined(target)
    joins = [j for s in forwarded.packed.sections for j in s.shapes[0].joins if j.what.startswith("forward ")]
    assert joins
    assert all(join.cycles <= join.other_cycles for join in joins if not join.taken.endswith("for want of room"))


def test_sections_at_once_wait_for_each_others_bytes():
    """Together never sooner than the slowest alone, and no sooner than the channels have moved all bytes."""
    target, planning = chip(8, 8), Planning()
    members = [(section, restricted(target, width=2)) for section in siblings().sections(target)[:3]]
    alone = [planning.predicted(*member) for member in members]
    together = planning.wave_cycles(members)
    assert together >= max(prediction.cycles for prediction in alone)
    rate = target.dram.channels * target.dram.bytes_per_cycle
    assert together >= sum(prediction.dram_bytes for prediction in alone) // rate
    assert planning.wave_cycles(members[:1]) == alone[0].cycles


# --- the program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [chip(1, 1), chip(2, 1), chip(3, 5), chip(8, 8), chip(4, 2, multicast=False), TOY],
    ids=["1x1", "2x1", "3x5", "8x8", "no multicast", "toy"],
)
def test_the_numbers_are_the_same_wherever_it_runs(target):
    program = pv.compile(siblings(), target)
    found, given_ = simulated(program, target), arrays()
    a, b, c = (given_["x"] @ given_[f"w{name}"] for name in "abc")
    np.testing.assert_array_equal(found["c"], c)
    np.testing.assert_array_equal(found["y"], a @ b.T)


def test_joined_costs_no_more_time_and_memory_traffic_than_apart():
    target = chip(8, 8)
    sections = siblings().sections(target)
    apart = Packed(sections, ((0, 0, 8, 8),) * 4, (0, 1, 2, 3))
    planning = Planning()
    plain = compile_joined("plain", Forwarded(apart, target), target, planning)
    program = pv.compile(siblings(), target)
    runs = [Simulator(p, target, functional=False).launch({}) for p in (program, plain)]
    moved = [sum(c.read_bytes + c.written_bytes for c in run.channels) for run in runs]
    assert runs[0].cycles < runs[1].cycles
    assert moved[0] < moved[1]


# --- arenas -----------------------------------------------------------------------------------------------------------

LIVES = st.dictionaries(
    st.sampled_from("abcdefgh"), st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(1, 300)), min_size=1
)


@given(LIVES, st.sampled_from([1, 16, 32]))
def test_what_lives_at_the_same_time_lies_apart(lives, alignment):
    spans = {name: (first, first + more) for name, (first, more, _) in lives.items()}
    sizes = {name: size for name, (*_, size) in lives.items()}
    found = arena(sizes, spans, alignment)
    ends = {name: found.offsets[name] + sizes[name] for name in sizes}
    assert all(offset % alignment == 0 for offset in found.offsets.values())
    assert max(ends.values()) <= found.bytes
    for one, other in combinations(sizes, 2):
        if spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]:
            assert ends[one] <= found.offsets[other] or ends[other] <= found.offsets[one]
