"""Equal choreographies have equal digests, whatever things are called; different ones do not."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from pavane.ir.program import Program, Symbol
from pavane.ir.quasi import quasi
from pavane.passes.section_shape import anonymous, section_shape
from pavane.targets.descriptor import SpatialTarget
from tests.unit.passes.chains import each_pass
from tests.unit.passes.templates import CASES, matmul, norm_product

NAMES = {
    "A": "left",
    "B": "right",
    "C": "out",
    "fA": "q1",
    "fB": "q2",
    "fC": "q3",
    "acc": "sum",
    "all": "g",
}


def with_other_names(program: Program) -> Program:
    """Every name of matmul's shape replaced, wherever it stands."""

    def rename(value):
        if isinstance(value, dict):
            return {key: rename(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [rename(item) for item in value]
        return NAMES.get(value, value) if isinstance(value, str) else value

    other = msgspec.convert(rename(msgspec.to_builtins(program)), Program)
    return replace(other, name="mm", shapes=(replace(other.shapes[0], name="mm"),))


def test_names_are_forgotten(toy: SpatialTarget) -> None:
    program = matmul(toy).program
    other = with_other_names(program)
    assert other.shapes[0].formals[0].name == "left"
    assert section_shape(other) == section_shape(program)
    assert anonymous(other.shapes[0]) == anonymous(program.shapes[0])


@pytest.mark.parametrize("case_name", CASES)
def test_at_every_phase_and_stable(case_name: str, toy: SpatialTarget) -> None:
    program = CASES[case_name](toy).program
    found = [section_shape(program), *(section_shape(result) for _, result in each_pass(program, toy))]
    assert len(set(found)) >= 6  # each phase is another; fuse_generic may change nothing


def test_what_matters(toy: SpatialTarget, host: SpatialTarget) -> None:
    digests = [
        section_shape(matmul(toy, *extents).program) for extents in ((100, 70, 150), (100, 70, 151), (100, 71, 150))
    ]
    assert len(set(digests)) == 3
    assert section_shape(matmul(host).program) != section_shape(matmul(toy).program)


def test_tensors_and_unused_symbols_do_not(toy: SpatialTarget) -> None:
    program = norm_product(toy).program
    moved = replace(program, tensors=tuple(replace(t, home="elsewhere") for t in program.tensors))
    assert section_shape(moved) == section_shape(program)
    more = replace(program, symbols=(*program.symbols, Symbol("pos", 0, 9, 1)))
    assert section_shape(more) == section_shape(program)
    other = replace(program, symbols=(replace(program.symbols[0], hi=31),))
    assert section_shape(other) != section_shape(program)


def test_the_spec_belongs_to_it(toy: SpatialTarget) -> None:
    program = matmul(toy).program
    shape = program.shapes[0]
    other = replace(shape, spec=(replace(shape.spec[0], extents=(quasi(1), quasi(1))),))
    assert section_shape(replace(program, shapes=(other,))) != section_shape(program)
