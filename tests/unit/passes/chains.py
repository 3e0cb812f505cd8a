"""The passes between TEMPLATE and VERIFIED in their order, for tests that look at every step of the way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pavane.ir.program import Program
from pavane.passes import (
    fuse_generic,
    fuse_readers,
    persist,
    place,
    size_buffers,
    synthesize_handshakes,
    tile,
)
from pavane.targets.descriptor import SpatialTarget
from tests.unit.passes.interpreter import run
from tests.unit.passes.templates import Case

PASSES = {
    "tile": (tile, "TILED"),
    "fuse_readers": (fuse_readers, "FUSED"),
    "fuse_generic": (fuse_generic, "FUSED"),
    "place": (place, "PLACED"),
    "size_buffers": (size_buffers, "SIZED"),
    "synthesize_handshakes": (synthesize_handshakes, "SYNCHRONIZED"),
    "persist": (persist, "PERSISTENT"),
}


def each_pass(program: Program, target: SpatialTarget) -> Iterator[tuple[str, Program]]:
    """The name of every pass with what it gave."""
    for name, (function, _) in PASSES.items():
        program = function(program, target)
        yield name, program


def after(name: str, program: Program, target: SpatialTarget) -> Program:
    """What the pass of that name gave."""
    return next(result for done, result in each_pass(program, target) if done == name)


def require_right_answer(program: Program, case: Case) -> None:
    """Run it: the outputs are the case's, and every element of them is stored once."""
    tensors = {name: array.copy() for name, array in case.tensors.items()}
    answers = case.expected(case.tensors)
    for name in answers:
        tensors[name][:] = np.nan
    run(program, tensors, case.symbols)
    for name, answer in answers.items():
        np.testing.assert_allclose(tensors[name], answer, rtol=1e-9, atol=1e-12)
