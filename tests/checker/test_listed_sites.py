"""Sections along a list of sites: what is accepted, and what must not be; the oracle says the same."""

from __future__ import annotations

from itertools import permutations

import pytest
from msgspec.structs import replace

from pavane.ir.digest import graph_digest
from pavane.ir.program import Counter, Fence, Fifo, Loop, Post, Process, Program, Run, Shape, Tensor, Worker
from pavane.ir.quasi import quasi
from pavane.ir.rects import constant_rect
from pavane.reject import CapacityRefused, OrderRefused, OutsideFragment
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.targets.load import load_target
from pavane.validate import violations
from tests.checker.editing import accepted, refusal
from tests.checker.two_sections import _instances, _parts, _shape
from tests.oracle.judge import judge

Sites = tuple[tuple[int, int], ...]
ROWS, COLS = 20, 150
EXTENTS = (quasi(ROWS), quasi(COLS))
CORNERS: Sites = ((1, 0), (0, 1), (1, 1), (0, 0))


def lone(width: int = 2, height: int = 2) -> SpatialTarget:
    """The toy with one engine a site, which does everything: sections follow each other without boundaries."""
    toy = load_target("toy")
    roles = ("reader", "compute", "writer")
    core = replace(next(e for e in toy.engines if e.name == "matrix"), name="core", roles=roles)
    return replace(toy, engines=(core,), grid=replace(toy.grid, width=width, height=height))


CHIP = lone()


def doubled(name: str, sites: Sites, line: int = 4) -> Shape:
    """O = 2 * I, block after block of columns, along the sites."""
    read, compute, write = _parts(ROWS, COLS, 32 * quasi("SITE_X") + 128 * quasi("LV_ITEM_X"))
    steps = (*read[:2], Fence(), read[2], *compute, *write)
    fifos = (Fifo("fI", "LOCAL", 32, 32, "f32", 1, 0), Fifo("fO", "LOCAL", 32, 32, "f32", 1, 4096))
    body = (Loop("LV_ITEM_Y", quasi(1), (Loop("LV_ITEM_X", quasi(2), steps),)),)
    process = Process("core", constant_rect(0, line, 0, 1), "core", body)
    return replace(_shape(name, ROWS, COLS, (process,), fifos), sites=sites)


def twice(first: Sites, second: Sites, target: SpatialTarget = CHIP) -> Program:
    """t = 2 * x along the first sites, y = 2 * t along the second, with nothing between."""
    shapes = tuple(dict.fromkeys((doubled("first", first), doubled("second", second))))
    places = [(x, y) for y in range(target.grid.height) for x in range(target.grid.width)]
    workers = tuple(
        Worker(f"core.{x}.{y}", constant_rect(x, x + 1, y, y + 1), "core", (Run(0, "core"), Run(1, "core")))
        for x, y in places
    )
    tensors = (
        Tensor("x", EXTENTS, "f32", "INPUT"),
        Tensor("t", EXTENTS, "f32", "SCRATCH", offset=0),
        Tensor("y", EXTENTS, "f32", "OUTPUT"),
    )
    program = Program(
        name="twice",
        phase="PERSISTENT",
        target=target.name,
        target_digest=target_digest(target),
        graph_digest="",
        symbols=(),
        tensors=tensors,
        shapes=shapes,
        instances=_instances("first", "second"),
        workers=workers,
    )
    return replace(program, graph_digest=graph_digest(program))


def with_first(program: Program, **changes: object) -> Program:
    first, *rest = program.shapes
    return replace(program, shapes=(replace(first, **changes), *rest))


def test_sections_along_one_list_of_sites_are_accepted_and_safe():
    """Each site reads what it has written itself, wherever it stands."""
    program = twice(CORNERS, CORNERS)
    assert not list(violations(program, CHIP))
    accepted(program, CHIP)
    assert judge(program, CHIP).safe


def test_sites_in_another_order_read_what_others_may_not_have_written():
    program = twice(CORNERS, CORNERS[1:] + CORNERS[:1])
    found = refusal(twice(CORNERS, CORNERS), CHIP, lambda _: program)
    assert isinstance(found, OrderRefused)
    assert "touches t while section 0" in str(found)
    assert not judge(program, CHIP).safe


def test_of_all_orders_only_the_same_one_is_accepted_and_safe():
    """Without a boundary; the oracle finds the harm in each of the others."""
    for order in permutations(CORNERS):
        program = twice(CORNERS, order)
        found = refusal(twice(CORNERS, CORNERS), CHIP, lambda _, program=program: program)
        assert (found is None) == (order == CORNERS), order
        assert judge(program, CHIP).safe == (order == CORNERS), order


def test_a_line_of_the_grid_is_not_a_list_that_counts_alike():
    """On a chip of one row the second stands on its rectangle: site n of both lines, but not the same site."""
    row = lone(4, 1)
    backwards: Sites = ((3, 0), (2, 0), (1, 0), (0, 0))
    program = twice(backwards, (), row)
    found = refusal(twice(backwards, backwards, row), row, lambda _: program)
    assert isinstance(found, OrderRefused)
    assert not judge(program, row).safe
    accepted(twice((), (), row), row)


@pytest.mark.parametrize(
    ("sites", "why"),
    [
        ((*CORNERS[:3], (2, 0)), "outside the grid"),
        ((*CORNERS[:3], (0, -1)), "outside the grid"),
        ((*CORNERS[:3], CORNERS[0]), "stands twice"),
        (CORNERS[:3], "beyond the section's list"),
    ],
)
def test_a_list_that_is_none_is_refused(sites, why):
    program = twice(CORNERS, CORNERS)
    bad = with_first(program, sites=sites)
    found = refusal(program, CHIP, lambda _: bad)
    assert isinstance(found, CapacityRefused)
    assert why in str(found)
    assert violations(bad, CHIP)
    assert judge(bad, CHIP).fault


def test_a_section_that_is_run_elsewhere_is_refused():
    """A list of fewer sites than are run: the fourth worker runs what does not stand there."""
    short = replace(doubled("first", CORNERS[:2], line=2), sites=CORNERS[:2])
    program = twice(CORNERS, CORNERS)
    bad = replace(program, shapes=(short, program.shapes[1]))
    found = refusal(program, CHIP, lambda _: bad)
    assert found is not None
    assert judge(bad, CHIP).fault


def test_a_step_that_names_sites_is_outside_the_fragment():
    program = twice(CORNERS, CORNERS)
    (process,) = program.shapes[0].processes
    body = (*process.body, Post("go", constant_rect(0, 1, 0, 1)))
    counter = Counter("go", constant_rect(0, 1, 0, 1), "core", bits=4, id=0)
    bad = with_first(program, processes=(replace(process, body=body),), counters=(counter,))
    found = refusal(program, CHIP, lambda _: bad)
    assert isinstance(found, OutsideFragment)
    assert judge(bad, CHIP).fault


def test_where_engines_work_in_place_there_is_no_list():
    alias = replace(CHIP, alias=True)
    program = twice(CORNERS, CORNERS, alias)
    found = refusal(program, alias, lambda p: p)
    assert isinstance(found, CapacityRefused)
    assert "engines move what they work on" in str(found)
