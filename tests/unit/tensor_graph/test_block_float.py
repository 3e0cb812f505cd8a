"""bfp8 and bfp4 against their definition in whole numbers, element by element."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pavane.ir.types import BFP_BLOCK, MAGNITUDE_BITS, block_elements, row_bytes
from pavane.reject import ArgumentReject
from pavane.sim.numbers import NUMPY, picked, values
from pavane.tensor_graph.block_float import decode_block_float, encode_block_float
from pavane.tensor_graph.bound import storing_error

KINDS = sorted(MAGNITUDE_BITS)
NORMAL = Fraction(1, 1 << 126)


def meaning(exponent: int, element: int, bits: int) -> Fraction:
    """+-m * 2**(E - 127 - bits + 1)."""
    magnitude = element & ((1 << bits) - 1)
    value = Fraction(magnitude) * Fraction(2) ** (exponent - 127 - bits + 1)
    return -value if element >> bits else value


def encoded_by_the_rule(block: np.ndarray, bits: int) -> tuple[int, list[int]]:
    """One block, in whole numbers."""
    exponents = [max(math.frexp(x)[1] + 126, 0) if x else 0 for x in map(float, block)]
    shared = max(exponents)
    elements = []
    for x, exponent in zip(map(float, block), exponents, strict=True):
        significand = int(abs(Fraction(x)) / Fraction(2) ** (exponent - 150)) if exponent > 0 else 0
        aligned = significand // 2 ** (shared - exponent)
        magnitude = min(round(Fraction(aligned, 1 << (24 - bits))), (1 << bits) - 1)  # Python rounds halves to even
        if meaning(shared, magnitude, bits) < NORMAL:
            magnitude = 0
        elements.append(magnitude | (1 << bits if magnitude and math.copysign(1, x) < 0 else 0))
    return shared, elements


def parts(data: np.ndarray, dtype: str) -> tuple[int, list[int]]:
    """Exponent and elements of one block's bytes."""
    rest = [int(b) for b in data[1:]]
    return int(data[0]), rest if dtype == "bfp8" else [half for b in rest for half in (b & 15, b >> 4)]


def block_bytes(exponent: int, elements: list[int], dtype: str) -> np.ndarray:
    if dtype == "bfp4":
        elements = [low | high << 4 for low, high in zip(elements[0::2], elements[1::2], strict=True)]
    return np.array([exponent, *elements], np.uint8)


@pytest.mark.parametrize(("dtype", "tile"), [("bfp8", 1088), ("bfp4", 576)])
def test_a_tile_of_the_chip_takes_as_many_bytes(dtype, tile):
    """64 exponents and 1024 elements."""
    assert 32 * row_bytes(dtype, 32) == tile
    assert encode_block_float(np.ones((32, 32), np.float32), dtype).nbytes == tile
    assert NUMPY[dtype].itemsize == row_bytes(dtype, block_elements(dtype))


@pytest.mark.parametrize("dtype", KINDS)
def test_every_element_under_every_exponent_decodes_to_its_meaning(dtype):
    bits = MAGNITUDE_BITS[dtype]
    for exponent in (*range(0, 12), *range(120, 136), *range(250, 255)):
        for first in range(0, 2 << bits, BFP_BLOCK):
            elements = list(range(first, first + BFP_BLOCK))
            found = decode_block_float(block_bytes(exponent, elements, dtype), dtype)
            for element, value in zip(elements, found, strict=True):
                if element == 1 << bits:
                    assert value == -np.inf  # a sign without magnitude
                else:
                    assert Fraction(float(value)) == meaning(exponent, element, bits)


@pytest.mark.parametrize("dtype", KINDS)
def test_whatever_decodes_to_normal_numbers_encodes_to_itself(dtype):
    """Every element beside one that gives the block its exponent."""
    bits = MAGNITUDE_BITS[dtype]
    for exponent in (1 + bits, 100, 127, 254):
        for first in range(0, 2 << bits, BFP_BLOCK - 1):
            rest = [e % (2 << bits) for e in range(first, first + BFP_BLOCK - 1)]
            elements = [1 << (bits - 1), *(0 if e == 1 << bits else e for e in rest)]
            stored = block_bytes(exponent, elements, dtype)
            again = encode_block_float(decode_block_float(stored, dtype), dtype)
            assert again.tolist() == stored.tolist()


@pytest.mark.parametrize(("dtype", "most"), [("bfp8", 127), ("bfp4", 7)])
def test_a_block_holds_every_integer_below_two_to_its_bits(dtype, most):
    numbers = np.arange(-most, most + 1, dtype=np.float32)
    for largest in numbers:
        below = numbers[np.abs(numbers) <= abs(largest)]
        row = np.concatenate((below, np.full(-len(below) % BFP_BLOCK, largest, np.float32)))
        assert (decode_block_float(encode_block_float(row, dtype), dtype) == row).all()


@pytest.mark.parametrize(
    ("dtype", "numbers", "exponent", "elements"),
    [
        ("bfp8", [1.0, -1.0, 1.984375, 0.015625], 127, [64, 128 + 64, 127, 1]),
        ("bfp8", [1.0, 0.0078125, 0.0234375, -0.0078125], 127, [64, 0, 2, 0]),  # halves to even, no sign without size
        ("bfp8", [1.999, -(2.0**-126)], 127, [127, 0]),  # not above all ones
        ("bfp4", [-4.0, 3.5, 1.5, 0.5], 129, [12, 4, 2, 0]),
        ("bfp4", [7.0, 6.0, -5.0, 7.9], 129, [7, 6, 13, 7]),
        ("bfp8", [2.0**-126, 2.0**-127, -(2.0**-130)], 1, [64, 0, 0]),  # nothing below the normal numbers
    ],
)
def test_blocks_by_hand(dtype, numbers, exponent, elements):
    block = np.array(numbers + [0.0] * (BFP_BLOCK - len(numbers)), np.float32)
    assert parts(encode_block_float(block, dtype), dtype) == (exponent, elements + [0] * (BFP_BLOCK - len(elements)))


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
close = st.floats(-8, 8, width=32)
blocks = arrays.arrays(np.float32, (BFP_BLOCK,), elements=st.one_of(floats, close))


@pytest.mark.parametrize("dtype", KINDS)
@given(block=blocks)
def test_encoding_follows_the_rule_and_errs_by_a_step_at_most(dtype, block):
    bits = MAGNITUDE_BITS[dtype]
    data = encode_block_float(block, dtype)
    assert parts(data, dtype) == encoded_by_the_rule(block, bits)
    found = decode_block_float(data, dtype, np.float64)
    step = Fraction(2) ** (int(data[0]) - 127 - bits + 1)
    for value, number in zip(found, block, strict=True):
        error, size = abs(Fraction(float(value)) - Fraction(float(number))), abs(Fraction(float(number)))
        nearest = step / 2 + step / 2**16
        assert error <= (step if size > ((1 << bits) - Fraction(1, 2)) * step else nearest) or error < NORMAL


@pytest.mark.parametrize("dtype", KINDS)
@given(block=blocks, error=st.floats(0, 4, width=32))
def test_the_stated_bound_of_storing_holds_for_whatever_the_engine_may_have(dtype, block, error):
    """A value known up to an error: stored from either end of it."""
    known = block.astype(np.float64)
    bound = error + storing_error(dtype, known, np.full_like(known, error))
    for side in (-1.0, 0.0, 1.0):
        held = np.clip(known + side * error, -3.4e38, 3.4e38).astype(np.float32)
        stored = decode_block_float(encode_block_float(held, dtype), dtype, np.float64)
        assert (np.abs(stored - known) <= bound + np.abs(known) * 2.0**-24).all()


@pytest.mark.parametrize("dtype", KINDS)
def test_rows_are_encoded_block_by_block_and_read_element_by_element(dtype):
    numbers = np.random.default_rng(0).standard_normal((3, 5, 48)).astype(np.float32)
    numbers[1] *= 2.0 ** np.arange(48)
    data = encode_block_float(numbers, dtype)
    assert data.shape == (3, 5, row_bytes(dtype, 48))
    whole = decode_block_float(data, dtype)
    single = [decode_block_float(encode_block_float(numbers[1, 2, i : i + 16], dtype), dtype) for i in (0, 16, 32)]
    assert whole.shape == numbers.shape
    assert (whole[1, 2] == np.concatenate(single)).all()
    stored = data.view(NUMPY[dtype])
    assert (values(stored, dtype) == whole).all()
    columns = np.array([0, 1, 15, 16, 31, 47, 2])
    assert (picked(stored[..., columns // 16], columns % 16, dtype) == whole[..., columns]).all()


def test_a_row_that_ends_inside_a_block_is_refused():
    with pytest.raises(ArgumentReject, match="bfp8 holds whole blocks"):
        encode_block_float(np.zeros((2, 100), np.float32), "bfp8")
