"""A weight that a product reads, and whose slot is stored too: the store finds the tensor's bytes, not packed ones."""

from __future__ import annotations

import numpy as np
import pytest

from pavane import native
from pavane.ir.expr import Reduce, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fence,
    Fifo,
    Formal,
    Generic,
    Init,
    Items,
    MatmulTiles,
    Numerics,
    Pop,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
    Store,
    Tree,
)
from pavane.ir.quasi import quasi
from pavane.ir.types import DType
from pavane.targets.load import load_target
from tests.building import COL, ROW, program_of, rect, shape_of, take, whole, window, write
from tests.checker import editing as e
from tests.engines.native_programs import as_stored

HOST = load_target("host", 1)
N, K = 16, 64
ROWS = {"q8_0": 1, "bf16": 8}


def product_and_copy(dtype: DType) -> Program:
    """O = X . W (W transposed in blocks), and P = W out of the slot that the product reads."""
    rows, transposed = ROWS[dtype], dtype == "q8_0"
    weight = (N, K) if transposed else (K, N)
    slots = {"X": (rows, K), "W": weight, "O": (rows, N)}
    places = {name: window(*((0, side) for side in sides), row=0) for name, sides in slots.items()}
    tree = Tree(0, 1, True)
    product = MatmulTiles(Ref("A"), Ref("fX"), Ref("fW"), transposed, whole(rows), whole(N), whole(K), tree)
    body = (
        *take("fX", "X", places["X"]), *take("fW", "W", places["W"]), Init("A"), Compute(product), Reserve("fO"),
        Compute(Generic(Ref("fO"), at("A", ROW, COL), whole(rows), whole(N))), Push("fO"),
        *write("fO", "O", places["O"]), Store("fW", "P", places["W"]), Fence(), Pop("fW"), Pop("fX"),
    )  # fmt: skip
    types = {"X": dtype, "W": dtype, "O": "f32", "P": dtype}
    sides = {**slots, "P": weight}
    formals = tuple(
        Formal(name, shape_of(*sides[name]), types[name], "IN" if name in "XW" else "OUT") for name in "XWOP"
    )
    element = at("W", "i1", "k0") if transposed else at("W", "k0", "i1")
    total = Reduce("SUM", "k0", quasi(K), fn("mul", at("X", "i0", "k0"), element))
    specs = (
        Spec("O", shape_of(0, 0), shape_of(rows, N), total),
        Spec("P", shape_of(0, 0), shape_of(*weight), at("W", "i0", "i1")),
    )
    shape = Shape(
        "both", formals, specs, Items(quasi(1), quasi(1), rows, N),
        Numerics(
            contract="INT8_ACTIVATIONS" if transposed else "FLOAT",
            operands=(("X", "q8_0" if transposed else "f32"), ("W", dtype)),
        ),
        processes=(Process("core", rect(0, 1, 0, 1), "core", body),),
        fifos=(
            Fifo("fX", "ALIAS", *slots["X"], dtype, 1), Fifo("fW", "ALIAS", *weight, dtype, 1),
            Fifo("fO", "LOCAL", rows, N, "f32", 1, 0),
        ),
        carries=(Carry("A", rows, N, "f32", address=4096),),
    )  # fmt: skip
    return e.signed(program_of(HOST, shape, weights=("W",)), HOST)


@pytest.mark.parametrize("dtype", ["q8_0", "bf16"])
def test_the_copy_is_the_weight(dtype):
    made, draw = product_and_copy(dtype), np.random.default_rng(3)
    e.accepted(made, HOST)
    weight = draw.standard_normal((N, K) if dtype == "q8_0" else (K, N)).astype(np.float32)
    x = draw.standard_normal((ROWS[dtype], K)).astype(np.float32)
    stored, given = (as_stored(values, dtype) for values in (weight, x))
    with native.load(made, HOST, weights={"w": stored}) as ready:
        ready.launch({}, {"x": given})
        assert np.array_equal(ready.tensor("p"), stored)
        wanted = x @ (weight.T if dtype == "q8_0" else weight)
        assert np.allclose(ready.tensor("o"), wanted, atol=0.5)
