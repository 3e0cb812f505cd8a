"""One-op programs for the native engine: a Generic over any operands, a product of any types; and arrays as tensors
hold them.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from pavane.ir.expr import At, Expr, at, walk
from pavane.ir.program import (
    Carry,
    Compute,
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
    Span,
    Tensor,
    Tree,
)
from pavane.ir.quasi import quasi
from pavane.ir.types import row_bytes
from pavane.targets.descriptor import SpatialTarget
from tests.building import COL, ROW, one_section, rect, shape_of, take, whole, window, write

ONE_SITE = rect(0, 1, 0, 1)
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i32": np.int32}


def accepted(program: Program, target: SpatialTarget) -> None:
    """Stands in for the checker where a test is about running."""


def as_stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """An array as a tensor of that type holds it."""
    if dtype == "q8_0":
        return quantize(np.ascontiguousarray(values, np.float32), GGMLQuantizationType.Q8_0)
    return values.astype(NUMPY[dtype])


def as_numbers(stored: np.ndarray, dtype: str) -> np.ndarray:
    """What a stored array means, in float32."""
    return dequantize(stored, GGMLQuantizationType.Q8_0) if dtype == "q8_0" else stored.astype(np.float32)


def generic_program(
    target: SpatialTarget,
    expr: Expr,
    operands: Mapping[str, tuple[str, int, int]],
    rows: int,
    cols: int,
    dtype: str = "f32",
    guard: tuple[Span, ...] = (),
) -> Program:
    """y[r, c] = expr on one site; an operand is (dtype, rows, cols), an ALIAS slot of an INPUT of its name."""
    body = []
    for name, (_, height, width) in operands.items():
        body += take(name, name, window((0, height), (0, width), row=0))
    op = Generic(Ref("fY"), expr, whole(rows), whole(cols), guard)
    body += [Reserve("fY"), Compute(op), Push("fY"), *(Pop(name) for name in operands)]
    body += write("fY", "Y", window((0, rows), (0, cols), row=0))
    formals = [Formal(n, shape_of(h, w), d, "IN") for n, (d, h, w) in operands.items()]
    shape = Shape(
        name="generic",
        formals=(*formals, Formal("Y", shape_of(rows, cols), dtype, "OUT")),
        spec=(),
        items=Items(quasi(1), quasi(1), rows, cols),
        numerics=Numerics(),
        processes=(Process("core", ONE_SITE, "core", tuple(body)),),
        fifos=(
            *(Fifo(n, "ALIAS", h, w, d, 1) for n, (d, h, w) in operands.items()),
            Fifo("fY", "LOCAL", rows, cols, dtype, 1, 0),
        ),
    )
    tensors = [Tensor(n, shape_of(h, w), d, "INPUT") for n, (d, h, w) in operands.items()]
    outputs = (Tensor("Y", shape_of(rows, cols), dtype, "OUTPUT"),)
    return one_section(target, shape, (*tensors, *outputs), {f.name: f.name for f in shape.formals})


def product_program(
    target: SpatialTarget, a: str, b: str, m: int, n: int, k: int, tree: Tree, transposed: bool, initial: float = 0.0
) -> Program:
    """y = initial + A . B (or A . B^T) in one MatmulTiles on one site; B is a WEIGHT."""
    b_rows, b_cols = (n, k) if transposed else (k, n)
    body = [*take("A", "A", window((0, m), (0, k), row=0))]
    body += take("B", "B", window((0, b_rows), (0, b_cols), row=0))
    op = MatmulTiles(Ref("acc"), Ref("A"), Ref("B"), transposed, whole(m), whole(n), whole(k), tree)
    copy = Generic(Ref("fY"), at("acc", ROW, COL), whole(m), whole(n))
    body += [Init("acc"), Compute(op), Pop("A"), Pop("B"), Reserve("fY"), Compute(copy), Push("fY")]
    body += write("fY", "Y", window((0, m), (0, n), row=0))
    shape = Shape(
        name="product",
        formals=(
            Formal("A", shape_of(m, k), a, "IN"),
            Formal("B", shape_of(b_rows, b_cols), b, "IN"),
            Formal("Y", shape_of(m, n), "f32", "OUT"),
        ),
        spec=(),
        items=Items(quasi(1), quasi(1), m, n),
        numerics=Numerics(),
        processes=(Process("core", ONE_SITE, "core", tuple(body)),),
        fifos=(
            Fifo("A", "ALIAS", m, k, a, 1),
            Fifo("B", "ALIAS", b_rows, b_cols, b, 1),
            Fifo("fY", "LOCAL", m, n, "f32", 1, 0),
        ),
        carries=(Carry("acc", m, n, "f32", initial=initial, address=-(-m * row_bytes("f32", n) // 64) * 64),),
    )
    tensors = (
        Tensor("A", shape_of(m, k), a, "INPUT"),
        Tensor("B", shape_of(b_rows, b_cols), b, "WEIGHT"),
        Tensor("Y", shape_of(m, n), "f32", "OUTPUT"),
    )
    return one_section(target, shape, tensors, {"A": "A", "B": "B", "Y": "Y"})


def operand_names(expr: Expr) -> tuple[str, ...]:
    """The operands of an expression."""
    return tuple(dict.fromkeys(e.name for e in walk(expr) if isinstance(e, At)))
