"""The memory of a site as `explain` says it: the checker's own totals, every buffer, and what lies on the sites."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from pavane import api
from pavane.passes.verify import verify
from pavane.reject import ProgramReject
from pavane.report.explain import explain
from pavane.report.memory import memory_lines, memory_summary
from pavane.targets.load import load_target
from pavane.verify.check import examine
from tests import examples

TOY, HOST = load_target("toy"), load_target("host", cores=2)
RESERVING = replace(TOY, name="reserving", memory=replace(TOY.memory, bytes=1 << 17, reserved_bytes=4096))


def programs():
    yield verify(examples.matmul_multicast(TOY), TOY), TOY
    yield verify(examples.norm_product_host(HOST), HOST), HOST
    yield verify(examples.attention_host(HOST), HOST), HOST
    yield api.compile(api.op("matmul:100,70,150"), RESERVING), RESERVING


@pytest.mark.parametrize(("program", "target"), list(programs()), ids=lambda p: getattr(p, "name", ""))
def test_it_counts_as_the_checker_does(program, target):
    (shape,) = program.shapes
    facts = [f.what for f in examine(program, target).facts if f.obligation == "capacity" and "buffers" in f.what]
    buffers, taken, of = map(int, re.findall(r"\d+", facts[0]))
    lines = list(memory_lines(program, shape, program.instances[0], target))
    assert lines[0].startswith(f"memory: {taken:,} of {of:,} bytes a site")
    assert len(lines) == 1 + buffers
    found = [re.search(r": ([\d,]+) bytes at ([\d,]+)$", line) for line in lines[1:]]
    ends = [sum(int(figure.replace(",", "")) for figure in each.groups()) for each in found if each]
    assert max(ends) == taken


def test_reserved_bytes_are_part_of_it():
    program = api.compile(api.op("matmul:100,70,150"), RESERVING)
    first = next(iter(memory_lines(program, program.shapes[0], None, RESERVING)))
    assert first.endswith(" bytes a site, 4,096 of them reserved")
    assert int(re.findall(r"[\d,]+", first)[0].replace(",", "")) > 4096


def with_copies(*names: str):
    """The product with copies of `b` (70 x 150 bf16) on the sites, under these names, and a place that uses each."""
    program = examples.matmul_multicast(TOY)
    (tensor,) = [t for t in program.tensors if t.name == "b"]
    copies = [replace(tensor, name=n, home="sites", offset=0x6000 * (2 + i)) for i, n in enumerate(names)]
    first = program.instances[0]
    places = [
        replace(first, bindings=tuple(replace(b, tensor=n) if b.tensor == "b" else b for b in first.bindings))
        for n in names
    ]
    others = [t for t in program.tensors if t is not tensor]
    return replace(program, tensors=(*others, *copies), instances=tuple(places))


def test_copies_on_every_site_are_listed():
    program = with_copies("b")
    lines = list(memory_lines(program, program.shapes[0], program.instances[0], TOY))
    assert lines == [
        "memory: 20,480 of 65,536 bytes a site",
        "  fA: 4,096 bytes at 0",
        "  fB: 4,096 bytes at 4,096",
        "  fC: 8,192 bytes at 8,192",
        "  acc: 4,096 bytes at 16,384",
        "copies on every site: 1 tensor in bytes 49,152 to 70,152; 1 of them used here",
        "  b: 21,000 bytes at 49,152",
    ]


def test_a_place_lists_what_it_uses_itself():
    program = with_copies("b", "b2")
    for place, line in zip(program.instances, ("b: 21,000 bytes at 49,152", "b2: 21,000 bytes at 73,728"), strict=True):
        found = list(memory_lines(program, program.shapes[0], place, TOY))
        assert found[-2:] == [
            "copies on every site: 2 tensors in bytes 49,152 to 94,728; 1 of them used here",
            f"  {line}",
        ]
    assert list(memory_summary(program, TOY)) == [
        "memory: 20,480 of 65,536 bytes a site",
        "copies on every site: 2 tensors in bytes 49,152 to 94,728",
    ]


@pytest.mark.parametrize(
    ("shard_rows", "dealt"),
    [
        (18, "5,400 bytes at 40,000 of every site, its 21,000 bytes in 4 blocks of 5,400, 1 to each"),
        (
            16,
            "9,600 bytes at 40,000 of every site, its 21,000 bytes in 5 blocks of 4,800, "
            "2 to the first site, 1 to the others",
        ),
        (
            32,
            "9,600 bytes at 40,000 of every site, its 21,000 bytes in 3 blocks of 9,600, "
            "1 to each of the first 3 of 4 sites",
        ),
        (6, "5,400 bytes at 40,000 of every site, its 21,000 bytes in 12 blocks of 1,800, 3 to each"),
    ],
)
def test_how_a_sharded_tensor_is_dealt(shard_rows, dealt):
    """70 rows of 300 bytes over four sites."""
    program = examples.matmul_multicast(TOY)
    sharded = tuple(
        replace(t, home="sharded", offset=40_000, shard_bytes=300 * shard_rows) if t.name == "b" else t
        for t in program.tensors
    )
    program = replace(program, tensors=sharded)
    lines = list(memory_lines(program, program.shapes[0], program.instances[0], TOY))
    assert lines[-1] == f"  b: {dealt}"
    assert lines[-2].endswith(" of every site; 1 of them used here")
    elsewhere = list(memory_lines(program, program.shapes[0], None, TOY))
    assert elsewhere[-1].endswith(" of every site; 0 of them used here")


def test_explain_has_it_of_all_sections_and_of_one():
    program = examples.matmul_multicast(TOY)
    assert explain(program, TOY).splitlines()[-1] == "  memory: 20,480 of 65,536 bytes a site"
    assert explain(program, TOY, "matmul").splitlines()[-5:] == [
        f"  {line}" for line in memory_lines(program, program.shapes[0], None, TOY)
    ]


def test_what_lies_on_the_sites_is_not_moved_from_beside_the_chip():
    """The bound of the channels: A and C, 100 x 70 x 2 + 100 x 150 x 4 bytes at 32 a cycle, without B."""
    program = with_copies("b")
    formals = tuple(replace(f, home="sites") if f.name == "B" else f for f in program.shapes[0].formals)
    moved = replace(program, shapes=(replace(program.shapes[0], formals=formals),))
    assert "  bound: 2,313 cycles to move 74,000 bytes once" in explain(moved, TOY, "matmul").splitlines()


def test_a_program_that_is_not_well_formed_is_refused():
    program = examples.matmul_multicast(TOY)
    for wrong in (replace(program, shapes=()), replace(program, instances=(replace(program.instances[0], shape="x"),))):
        with pytest.raises(ProgramReject):
            explain(wrong, TOY)


def test_before_buffers_have_addresses_their_sizes_are_summed():
    (program,) = api.op("matmul:100,70,150").sections(TOY)
    shape = program.shapes[0]
    lines = list(memory_lines(program, shape, None, TOY))
    sizes = [int(re.search(r"([\d,]+) bytes$", line)[1].replace(",", "")) for line in lines[1:]]
    assert lines[0] == f"memory: {sum(sizes):,} of 65,536 bytes a site"
