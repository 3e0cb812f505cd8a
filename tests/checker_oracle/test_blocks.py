"""What the oracle knows of types in blocks: their numbers, their bytes, and programs that cut or misuse them."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.expr import At, at, fn
from pavane.ir.program import Compute, MatmulTiles, Numerics, Program, Ref, Tree
from pavane.ir.types import Ints, row_bytes
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.blocks import decode_blocks, encode_blocks
from tests.building import COL, ROW, whole
from tests.checker_oracle.mutants import put
from tests.checker_oracle.programs import refusal
from tests.evidence import edits
from tests.evidence.blocks import converted, kept, widened
from tests.evidence.hand import Case, Hand, signed
from tests.oracle import judge
from tests.oracle.cells import constants
from tests.oracle.rounding import rounded, summed
from tests.oracle.spaces import Box, Fault, Space

BITS = {"bfp8": 7, "bfp4": 3}
BLOCKS = ("bfp8", "bfp4", "q8_0")


def by_the_rule(block: list[float], bits: int) -> list[Fraction]:
    """docs/ir.md, in fractions: significands of 24 bits, shifted to the greatest exponent, rounded, halves to even."""
    exponent = max(
        Fraction(abs(x)).numerator.bit_length() - Fraction(abs(x)).denominator.bit_length() for x in block if x
    )
    while Fraction(2) ** exponent > max(abs(Fraction(x)) for x in block):
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= max(abs(Fraction(x)) for x in block):
        exponent += 1
    unit = Fraction(2) ** (exponent - bits + 1)
    found = []
    for x in map(Fraction, block):
        kept = int(abs(x) / unit * 2 ** (24 - bits))  # what falls out below is dropped
        magnitude = min(round(Fraction(kept, 2 ** (24 - bits))), 2**bits - 1)
        found.append(magnitude * unit * (-1 if x < 0 else 1))
    return found


def drawn(rng: np.random.Generator, rows: int = 4, cols: int = 64) -> np.ndarray:
    values = rng.standard_normal((rows, cols)) * 2.0 ** rng.integers(-9, 9, (rows, cols))
    return values.astype(np.float32).astype(float)


@pytest.mark.parametrize("dtype", sorted(BITS))
def test_block_floats_are_rounded_by_the_rule(dtype: str) -> None:
    values = drawn(np.random.default_rng(1)).reshape(-1, 16)
    found = rounded(values, dtype)
    assert [[Fraction(x) for x in row] for row in found] == [by_the_rule(list(row), BITS[dtype]) for row in values]


@pytest.mark.parametrize("dtype", BLOCKS)
def test_numbers_are_those_that_a_deployment_stores(dtype: str) -> None:
    """The oracle has a rule of its own; two that differ would be found here."""
    for seed in range(20):
        values = drawn(np.random.default_rng(seed))
        values[0, : 8 * (seed % 5)] = 0.0
        stored = decode_blocks(encode_blocks(values, dtype), dtype, np.float64)
        assert (rounded(values, dtype) == stored).all()


@pytest.mark.parametrize("dtype", sorted(BITS))
def test_what_is_rounded_is_not_rounded_again(dtype: str) -> None:
    once = rounded(drawn(np.random.default_rng(2)), dtype)
    assert (rounded(once, dtype) == once).all()
    assert (once != drawn(np.random.default_rng(2))).any()


def test_one_large_element_takes_the_bits_of_its_neighbours() -> None:
    block = np.array([[255.0, 3.0, 1.0, *([0.0] * 13)]])
    assert rounded(block, "bfp8")[0, :3].tolist() == [254.0, 4.0, 0.0]


def test_a_sum_is_rounded_as_its_tree_adds() -> None:
    """In one lane each 1 is lost beside 2**24; in two, both meet in the other lane first."""
    op = MatmulTiles(Ref("c"), Ref("a"), Ref("b"), False, whole(1), whole(1), whole(4), Tree(0, 1, True))
    a, b, before = np.array([[2.0**24, 1.0, 0.0, 1.0]]), np.ones((4, 1)), np.zeros((1, 1))
    assert summed(op, before, a, b)[0, 0] == 2.0**24
    lanes = replace(op, transposed=True, tree=Tree(0, 2, True))
    assert summed(lanes, before, a, b.T)[0, 0] == 2.0**24 + 2


# --- bytes ---


@pytest.mark.parametrize("dtype", BLOCKS)
def test_every_element_of_a_block_has_a_cell_of_its_own(dtype: str) -> None:
    space = Space("memory", 256, 1)
    box = Box(space, (0, 128), 0, 64, dtype)
    box.write(constants(np.arange(128.0).reshape(2, 64)))
    assert box.read("a test")["number"].tolist() == np.arange(128.0).reshape(2, 64).tolist()
    assert box.covered.tolist() == [*range(row_bytes(dtype, 64)), *range(128, 128 + row_bytes(dtype, 64))]


@pytest.mark.parametrize("dtype", BLOCKS)
def test_a_block_that_loses_a_byte_is_gone_whole_and_no_other(dtype: str) -> None:
    size = row_bytes(dtype, 32)
    for byte in (0, size // 2, size - 1):
        space = Space("memory", 256, 1)
        box = Box(space, (0,), 0, 64, dtype)
        box.write(constants(np.zeros((1, 64))))
        Box(space, (byte,), 0, 1, "i8").write(constants(0.0))
        lost = np.flatnonzero(~box.present()[0])
        block = {"q8_0": 32}.get(dtype, 16)
        first = byte // row_bytes(dtype, block) * block
        assert lost.tolist() == list(range(first, first + block))
        with pytest.raises(Fault, match="garbled"):
            box.read("a test")


@pytest.mark.parametrize(("col", "cols"), [(0, 8), (8, 16), (16, 40)])
def test_a_part_of_a_block_is_not_written(col: int, cols: int) -> None:
    box = Box(Space("memory", 256, 1), (0,), col, cols, "bfp4")
    with pytest.raises(Fault, match="a part of a block of bfp4"):
        box.write(constants(np.zeros((1, cols))))


# --- programs ---


def case(make, seed: int, **wanted) -> Case:
    """A careful draw, the first from a seed on that is as wanted."""
    for number in range(seed, seed + 200):
        program, target = make(Hand(random.Random(number), careless=0.0))
        (shape, *_) = program.shapes
        if all(any(f.dtype == dtype for f in shape.formals if f.role == role) for role, dtype in wanted.items()):
            return program, target
    raise LookupError("no such draw")


@pytest.mark.parametrize("make", [converted, widened, kept], ids=lambda make: make.__name__)
def test_programs_over_blocks_are_judged_and_safe(make) -> None:
    for number in range(12):
        program, target = make(Hand(random.Random(number), careless=0.0))
        if not any(s.numerics.exact for s in program.shapes):
            assert judge(program, target).safe, number


def test_an_engine_that_does_not_convert_is_a_fault() -> None:
    program, target = case(converted, 0, IN="bfp8")
    poor = replace(target, engines=tuple(replace(e, block_floats=("bfp4",)) for e in target.engines))
    assert "does not convert bfp8" in judge(program, poor).fault


def test_another_operand_type_than_the_engine_has_is_a_fault() -> None:
    program, target = case(widened, 0, IN="bfp8")
    numerics = replace(program.shapes[0].numerics, operands=(("A", "bfp8"), ("B", "bfp8")))
    assert "has no product" in judge(put(program, ("shapes", 0, "numerics"), numerics), target).fault


def claimed(program: Program, limit: int, add: float) -> Program:
    """The op adds a number to integers up to `limit`, and says that the result is exact."""
    (place,) = (p for p in edits.steps(program, Compute) if p.path[1] == 0)
    program = put(program, (*place.path, "op", "expr"), fn("add", at("fI", ROW, COL), add))
    program = put(program, ("shapes", 0, "spec", 0, "expr"), fn("add", at("I", "i0", "i1"), add))
    program = put(program, ("shapes", 0, "numerics"), Numerics(exact=True))
    fill = Ints(-limit, limit)
    program = put(program, ("shapes", 0, "formals", 0, "fill"), fill)
    return signed(put(program, ("tensors", 0, "fill"), fill))


def straight(seed: int = 0) -> tuple[Program, SpatialTarget]:
    """f32 -> bfp8 by one op."""
    for number in range(seed, seed + 2000):
        program, target = converted(Hand(random.Random(number), careless=0.0))
        types = tuple(f.dtype for f in program.shapes[0].formals)
        if types == ("f32", "bfp8") and len(list(edits.steps(program, Compute))) == 1:
            return program, target
    raise LookupError("no such draw")


@pytest.mark.parametrize(("limit", "holds"), [(126, True), (127, False), (200, False)])
def test_integers_below_the_magnitude_are_exact_and_no_more(limit: int, holds: bool) -> None:
    """126 + 1 fits seven bits; with 128 in a block its odd neighbours lose their last one."""
    program, target = straight()
    assert (judge(claimed(program, limit, 1.0), target).fault == "") == holds


def test_a_plain_copy_of_what_was_rounded_is_exact() -> None:
    """The section before it rounds into blocks, and claims nothing; what it left is copied to the bit."""
    found = 0
    for number in range(300):
        program, target = kept(Hand(random.Random(number), careless=0.0))
        last = program.shapes[-1]
        if isinstance(last.spec[0].expr, At) and last.formals[1].dtype == "f32" and len(last.carries) == 0:
            claimed_last = put(program, ("shapes", len(program.shapes) - 1, "numerics"), Numerics(exact=True))
            assert judge(claimed_last, target, interleavings=0).fault == ""
            assert refusal(claimed_last, target) is None
            found += 1
    assert found
