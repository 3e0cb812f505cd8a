"""Tensors that lie on the chip: what is accepted, and what must not be. `t` of the two hand-made sections lies on the
sites; a weight lies there too, or is sharded, and so is a cache.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.program import Program
from pavane.reject import CapacityRefused, OrderRefused
from pavane.targets.load import load_target
from pavane.validate import violations
from tests.checker.editing import accepted, refusal, signed
from tests.checker.two_sections import twice_on_host, twice_on_toy
from tests.oracle.judge import judge

TOY = load_target("toy")
FREE = 4 * 8192  # of the toy's 64 KiB the sections' two FIFOs take 16 KiB, at 0


def on_sites(program: Program, offset: int = FREE) -> Program:
    """The tensor between the sections on every site, and the formals that are bound to it."""
    tensors = tuple(replace(t, home="sites", offset=offset) if t.name == "t" else t for t in program.tensors)
    first, second = program.shapes
    out = tuple(replace(f, home="sites") if f.name == "O" else f for f in first.formals)
    back = tuple(replace(f, home="sites") if f.name == "I" else f for f in second.formals)
    return replace(program, tensors=tensors, shapes=(replace(first, formals=out), replace(second, formals=back)))


def with_tensor(program: Program, name: str, **changes) -> Program:
    return replace(program, tensors=tuple(replace(t, **changes) if t.name == name else t for t in program.tensors))


def test_a_copy_on_every_site_is_accepted_and_safe():
    program = on_sites(twice_on_toy(TOY))
    assert not list(violations(program, TOY))
    report = accepted(program, TOY)
    assert any(fact.what == "1 tensors on the sites" for fact in report.facts)
    assert judge(program, TOY).safe


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        (8192, "shares bytes with"),  # where a section has its FIFO
        (16384 - 32, "shares bytes with"),
        (65536 - 32, "bytes a site"),  # past the end
        (FREE + 1, "a SCRATCH tensor stands at"),
        (-1, "a SCRATCH tensor stands at"),
    ],
)
def test_a_place_that_is_taken_or_missing_is_refused(offset, why):
    program = on_sites(twice_on_toy(TOY), offset)
    found = refusal(twice_on_toy(TOY), TOY, lambda _: program)
    assert isinstance(found, CapacityRefused)
    assert why in str(found)
    assert judge(program, TOY).fault


def test_the_last_place_that_fits_is_accepted():
    size = 20 * 150 * 4
    last = (65536 - size) // 32 * 32
    accepted(on_sites(twice_on_toy(TOY), last), TOY)


@pytest.mark.parametrize(("shape", "formal"), [(0, "O"), (1, "I")])
def test_a_section_that_looks_elsewhere_is_refused(shape, formal):
    program = on_sites(twice_on_toy(TOY))
    shapes = list(program.shapes)
    formals = tuple(replace(f, home="dram") if f.name == formal else f for f in shapes[shape].formals)
    shapes[shape] = replace(shapes[shape], formals=formals)
    found = refusal(twice_on_toy(TOY), TOY, lambda _: replace(program, shapes=tuple(shapes)))
    assert isinstance(found, CapacityRefused)
    assert "lies in sites" in str(found)


@pytest.mark.parametrize(("name", "formal", "number"), [("x", "I", 0), ("y", "O", 1)])
def test_only_scratch_lies_on_the_sites(name, formal, number):
    program = with_tensor(on_sites(twice_on_toy(TOY)), name, home="sites", offset=-1)
    shapes = list(program.shapes)
    formals = tuple(replace(f, home="sites") if f.name == formal else f for f in shapes[number].formals)
    shapes[number] = replace(shapes[number], formals=formals)
    program = replace(program, shapes=tuple(shapes))
    assert "SCRATCH" in str(refusal(twice_on_toy(TOY), TOY, lambda _: program))
    assert any("only SCRATCH and WEIGHT" in violation.message for violation in violations(program, TOY))


def test_nothing_lies_on_sites_whose_engines_work_in_place():
    host = load_target("host", 2)
    program = twice_on_host(host)
    shape = program.shapes[0]
    formals = tuple(replace(f, home="sites") for f in shape.formals)
    moved = replace(program, shapes=(replace(shape, formals=formals),))
    moved = replace(moved, tensors=tuple(replace(t, home="sites", offset=0) for t in moved.tensors))
    assert isinstance(refusal(program, host, lambda _: moved), CapacityRefused)


def test_the_boundary_is_still_needed():
    """Without the wait for all writers a site might read its copy before the last has written it."""
    program = on_sites(twice_on_toy(TOY))
    workers = []
    for worker in program.workers:
        body = tuple(replace(t, n=1) if getattr(t, "n", 0) == 4 else t for t in worker.body)
        workers.append(replace(worker, body=body))
    hasty = replace(program, workers=tuple(workers))
    assert judge(hasty, TOY).fault
    assert refusal(program, TOY, lambda _: hasty) is not None


def test_two_tensors_on_the_same_bytes_conflict():
    program = on_sites(twice_on_toy(TOY))
    t = next(t for t in program.tensors if t.name == "t")
    again = replace(program, tensors=(*program.tensors, replace(t, name="u")))
    second = program.instances[1]
    bindings = tuple(replace(b, tensor="u") if b.formal == "I" else b for b in second.bindings)
    reads_u = replace(again, instances=(program.instances[0], replace(second, bindings=bindings)))
    assert isinstance(refusal(program, TOY, lambda _: reads_u), OrderRefused)
    assert judge(signed(reads_u, TOY), TOY).fault


# --- weights ----------------------------------------------------------------------------------------------------------


def with_weight(program: Program, offset: int) -> Program:
    """The first section reads a weight that lies on the sites in place of the input."""
    x = next(t for t in program.tensors if t.name == "x")
    w = replace(x, name="w", role="WEIGHT", home="sites", offset=offset)
    first, second = program.shapes
    formals = tuple(replace(f, home="sites") if f.name == "I" else f for f in first.formals)
    bindings = tuple(replace(b, tensor="w") if b.formal == "I" else b for b in program.instances[0].bindings)
    return replace(
        program,
        tensors=(*program.tensors, w),
        shapes=(replace(first, formals=formals), second),
        instances=(replace(program.instances[0], bindings=bindings), program.instances[1]),
    )


def test_a_weight_on_the_sites_is_accepted_and_safe():
    program = with_weight(on_sites(twice_on_toy(TOY)), FREE + 12032)
    assert not list(violations(program, TOY))
    accepted(program, TOY)
    assert judge(program, TOY).safe


def test_nothing_is_laid_over_a_weight():
    """In one epoch the weight is read before the result is written over it; in the next it is gone."""
    program = with_weight(on_sites(twice_on_toy(TOY)), FREE + 32)
    found = refusal(twice_on_toy(TOY), TOY, lambda _: program)
    assert isinstance(found, CapacityRefused)
    assert "w shares bytes with t" in str(found)
    assert judge(program, TOY).fault


@pytest.mark.parametrize("shard_bytes", [7, -7, 600])
def test_only_what_is_sharded_has_blocks(shard_bytes):
    """Whoever asks for the size of a block to see whether a tensor is sharded would deal it out, or never end."""
    program = with_tensor(twice_on_toy(TOY), "x", shard_bytes=shard_bytes)
    first, second = program.shapes
    formals = tuple(replace(f, shard_bytes=shard_bytes) if f.name == "I" else f for f in first.formals)
    found = refusal(
        twice_on_toy(TOY), TOY, lambda _: replace(program, shapes=(replace(first, formals=formals), second))
    )
    assert isinstance(found, CapacityRefused)
    assert "has blocks of shares" in str(found)


# --- what is sharded --------------------------------------------------------------------------------------------------

ROW_BYTES = 150 * 4
SHARD_BYTES = 2 * ROW_BYTES  # 20 rows: 10 blocks on 4 sites, so 3 blocks on two of them
SHARE_BYTES = 3 * SHARD_BYTES
PLACE = FREE + 12032  # behind the copies of `t`


def with_shards(program: Program, offset: int = PLACE, shard_bytes: int = SHARD_BYTES) -> Program:
    """The first section reads a sharded weight in place of the input."""
    weighted = with_weight(program, offset)
    first, second = weighted.shapes
    formals = tuple(replace(f, home="sharded", shard_bytes=shard_bytes) if f.name == "I" else f for f in first.formals)
    moved = replace(weighted, shapes=(replace(first, formals=formals), second))
    return with_tensor(moved, "w", home="sharded", shard_bytes=shard_bytes)


def refused(program: Program) -> CapacityRefused:
    found = refusal(twice_on_toy(TOY), TOY, lambda _: program)
    assert isinstance(found, CapacityRefused)
    assert judge(signed(program, TOY), TOY).fault
    return found


def test_a_sharded_weight_is_accepted_and_safe():
    program = with_shards(on_sites(twice_on_toy(TOY)))
    assert not list(violations(program, TOY))
    report = accepted(program, TOY)
    assert any(fact.what == "1 tensors on the sites, 1 sharded" for fact in report.facts)
    assert judge(program, TOY).safe


def test_a_share_is_as_large_as_the_largest():
    """Ten blocks on four sites: the last place that fits has room for three, not for two and a half."""
    last = (65536 - SHARE_BYTES) // 32 * 32
    accepted(with_shards(on_sites(twice_on_toy(TOY)), last), TOY)
    assert "bytes a site" in str(refused(with_shards(on_sites(twice_on_toy(TOY)), last + 32)))


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        (0, "w shares bytes with fI of"),
        (16384 - 32, "w shares bytes with fO of"),
        (FREE, "w shares bytes with t"),
        (FREE + 12032 - 32 * 2, "w shares bytes with t"),
        (PLACE + 1, "a multiple of 32"),
        (-1, "a multiple of 32"),
    ],
)
def test_a_share_that_stands_on_other_bytes_is_refused(offset, why):
    assert why in str(refused(with_shards(on_sites(twice_on_toy(TOY)), offset)))


def test_two_shares_on_the_same_bytes_are_refused():
    """Nobody reads the other weight; what is placed for good would still be overwritten when it is loaded."""
    program = with_shards(on_sites(twice_on_toy(TOY)))
    w = next(t for t in program.tensors if t.name == "w")
    again = replace(program, tensors=(*program.tensors, replace(w, name="v", offset=PLACE + 2400)))
    assert "shares bytes with" in str(refused(again))


@pytest.mark.parametrize("shard_bytes", [0, -SHARD_BYTES, ROW_BYTES + 4, 4])
def test_blocks_are_whole_rows(shard_bytes):
    program = with_shards(on_sites(twice_on_toy(TOY)), shard_bytes=shard_bytes)
    assert "whole rows" in str(refused(program))
    assert list(violations(program, TOY))


@pytest.mark.parametrize(
    "seen", [{"home": "dram", "shard_bytes": 0}, {"home": "sites", "shard_bytes": 0}, {"shard_bytes": ROW_BYTES}]
)
def test_a_section_that_looks_for_other_blocks_is_refused(seen):
    program = with_shards(on_sites(twice_on_toy(TOY)))
    first, second = program.shapes
    formals = tuple(replace(f, **seen) if f.name == "I" else f for f in first.formals)
    program = replace(program, shapes=(replace(first, formals=formals), second))
    assert "w lies in sharded in blocks of 1200 bytes" in str(refused(program))
    assert list(violations(program, TOY))


@pytest.mark.parametrize("role", ["SCRATCH", "INPUT"])
def test_only_what_lasts_is_sharded(role):
    program = with_tensor(with_shards(on_sites(twice_on_toy(TOY))), "w", role=role)
    assert "WEIGHT or STATE" in str(refused(program))
    assert any("only WEIGHT and STATE" in violation.message for violation in violations(program, TOY))
