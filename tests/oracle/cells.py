"""Cells: what an element of memory holds, a number and the term that it is the number of.

A term (residues.py) is an expression over what stood in the tensors at launch, or before the epochs that wrote it. The
number is the term's value for the data of one run, in double precision; where exactness is claimed, as the types round.
"""

from __future__ import annotations

import numpy as np

from tests.oracle import residues

CELL = np.dtype([("number", np.float64), ("term", np.uint64)])
Cells = np.ndarray


def cells(numbers: np.ndarray, terms: np.ndarray) -> Cells:
    made = np.empty(np.broadcast_shapes(np.shape(numbers), np.shape(terms)), CELL)
    made["number"], made["term"] = numbers, terms
    return made


def constants(numbers: np.ndarray | float) -> Cells:
    """Cells whose terms are these numbers."""
    return cells(np.asarray(numbers, float), residues.of_number(np.asarray(numbers, float)))


def unwritten(shape: tuple[int, ...] | int) -> Cells:
    """Cells that hold nothing: no number."""
    return cells(np.full(shape, np.nan), np.zeros(shape, np.uint64))


def is_constant(some: Cells) -> np.ndarray:
    """Where the term is the number itself, whatever the data."""
    return some["term"] == residues.of_number(some["number"])
