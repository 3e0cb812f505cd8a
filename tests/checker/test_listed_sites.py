"""Sections along a list of sites: what is accepted, and what must not be; the oracle says the same."""

from __future__ import annotations

from itertools import permutations

import pytest
from msgspec.structs import replace

from pavane.ir.program import Counter, Post, Program, Run, Shape, Worker
from pavane.reject import CapacityRefused, OrderRefused, OutsideFragment
from pavane.targets.descriptor import SpatialTarget
from pavane.validate import violations
from tests.building import SX, X, rect, site
from tests.checker.editing import accepted, refusal
from tests.checker.two_sections import double_on_cores, lone, twice
from tests.oracle.judge import judge

Sites = tuple[tuple[int, int], ...]
CORNERS: Sites = ((1, 0), (0, 1), (1, 1), (0, 0))
CHIP = lone()


def doubled(name: str, sites: Sites, line: int = 4) -> Shape:
    """O = 2 * I, block after block of columns, along the sites."""
    return replace(double_on_cores(name, rect(0, line, 0, 1), 32 * SX + 128 * X, 2), sites=sites)


def doubled_by_one(name: str, sites: Sites) -> Shape:
    """The same, all of it on the first of the sites."""
    return replace(double_on_cores(name, rect(0, 4, 0, 1), 160 * SX + 32 * X, 5), sites=sites)


def along(first: Sites, second: Sites, target: SpatialTarget = CHIP) -> Program:
    """t = 2 * x along the first sites, y = 2 * t along the second, with nothing between."""
    return twice(target, (doubled("first", first), doubled("second", second)), everywhere(target))


def everywhere(target: SpatialTarget) -> tuple[Worker, ...]:
    return tuple(
        Worker(f"core.{x}.{y}", rect(x, x + 1, y, y + 1), "core", (Run(0, "core"), Run(1, "core")))
        for y in range(target.grid.height)
        for x in range(target.grid.width)
    )


def with_first(program: Program, **changes: object) -> Program:
    first, *rest = program.shapes
    return replace(program, shapes=(replace(first, **changes), *rest))


def test_sections_along_one_list_of_sites_are_accepted_and_safe():
    """Each site reads what it has written itself, wherever it stands."""
    program = along(CORNERS, CORNERS)
    assert not list(violations(program, CHIP))
    accepted(program, CHIP)
    assert judge(program, CHIP).safe


def test_sites_in_another_order_read_what_others_may_not_have_written():
    program = along(CORNERS, CORNERS[1:] + CORNERS[:1])
    found = refusal(along(CORNERS, CORNERS), CHIP, lambda _: program)
    assert isinstance(found, OrderRefused)
    assert "touches t while section 0" in str(found)
    assert not judge(program, CHIP).safe


def test_of_all_orders_only_the_same_one_is_accepted_and_safe():
    """Without a boundary; the oracle finds the harm in each of the others."""
    for order in permutations(CORNERS):
        program = along(CORNERS, order)
        found = refusal(along(CORNERS, CORNERS), CHIP, lambda _, program=program: program)
        assert (found is None) == (order == CORNERS), order
        assert judge(program, CHIP).safe == (order == CORNERS), order


def test_only_the_sites_of_a_list_that_have_work_count():
    """Two lists that begin with one site, which does everything; two that begin with others."""
    for order in permutations(CORNERS):
        shapes = doubled_by_one("first", CORNERS), doubled_by_one("second", order)
        program = twice(CHIP, shapes, everywhere(CHIP))
        found = refusal(along(CORNERS, CORNERS), CHIP, lambda _, program=program: program)
        assert (found is None) == (order[0] == CORNERS[0]), order
        assert judge(program, CHIP).safe == (order[0] == CORNERS[0]), order


def test_a_line_of_the_grid_is_not_a_list_that_counts_alike():
    """On a chip of one row the second stands on its rectangle: site n of both lines, but not the same site."""
    row = lone(4, 1)
    backwards: Sites = ((3, 0), (2, 0), (1, 0), (0, 0))
    program = along(backwards, (), row)
    found = refusal(along(backwards, backwards, row), row, lambda _: program)
    assert isinstance(found, OrderRefused)
    assert not judge(program, row).safe
    accepted(along((), (), row), row)


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
    program = along(CORNERS, CORNERS)
    bad = with_first(program, sites=sites)
    found = refusal(program, CHIP, lambda _: bad)
    assert isinstance(found, CapacityRefused)
    assert why in str(found)
    assert violations(bad, CHIP)
    assert judge(bad, CHIP).fault


def test_a_section_that_is_run_elsewhere_is_refused():
    """A list of fewer sites than are run: the fourth worker runs what does not stand there."""
    short = replace(doubled("first", CORNERS[:2], line=2), sites=CORNERS[:2])
    program = along(CORNERS, CORNERS)
    bad = replace(program, shapes=(short, program.shapes[1]))
    found = refusal(program, CHIP, lambda _: bad)
    assert found is not None
    assert judge(bad, CHIP).fault


def test_a_step_that_names_sites_is_outside_the_fragment():
    program = along(CORNERS, CORNERS)
    (process,) = program.shapes[0].processes
    body = (*process.body, Post("go", site(0, 0)))
    counter = Counter("go", site(0, 0), "core", bits=4, id=0)
    bad = with_first(program, processes=(replace(process, body=body),), counters=(counter,))
    found = refusal(program, CHIP, lambda _: bad)
    assert isinstance(found, OutsideFragment)
    assert judge(bad, CHIP).fault


def test_where_engines_work_in_place_there_is_no_list():
    alias = replace(CHIP, alias=True)
    program = along(CORNERS, CORNERS, alias)
    found = refusal(program, alias, lambda p: p)
    assert isinstance(found, CapacityRefused)
    assert "engines move what they work on" in str(found)
