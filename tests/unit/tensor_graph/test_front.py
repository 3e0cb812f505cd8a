"""Which nodes become one section, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from pavane.ir.types import Ints
from pavane.reject import OutsideAlgebra
from pavane.tensor_graph.front import recognize_stages
from pavane.tensor_graph.graph import Graph
from pavane.tensor_graph.recognised import AttentionOp, GatherOp, ProductOp, RecognisedOp, RowsOp


def test_a_product_takes_its_epilogue() -> None:
    g = Graph()
    y = g.matmul(g.input("a", (3, 5)), g.weight("b", (5, 7)))
    g.output("y", g.apply("max", g.apply("add", y, g.weight("bias", (7,))), 0.0))
    (op,) = recognize_stages(g)
    assert isinstance(op, ProductOp)
    assert [(i.formal, i.tensor.name, i.spread) for i in op.epilogue_inputs] == [("E0", "bias", "per_column")]
    assert len(op.epilogue) == 1
    assert (op.rows.const, op.k, op.cols) == (3, 5, 7)
    assert op.output.name == "y"


def test_a_transposed_product_takes_its_norm() -> None:
    g = Graph()
    x, w = g.input("x", (3, 32)), g.weight("w", (7, 32), dtype="q8_0")
    g.output("y", g.matmul(g.rmsnorm(x, g.weight("g", (32,))), w, transposed=True))
    (op,) = recognize_stages(g)
    assert isinstance(op, ProductOp)
    assert [link.per_row for link in op.prologue] == [True, False]
    assert op.a.tensor.name == "x"
    assert [i.tensor.name for i in op.prologue_inputs] == ["g"]


def test_a_streamed_product_does_not() -> None:
    g = Graph()
    x, w = g.input("x", (3, 32)), g.weight("w", (32, 7))
    g.output("y", g.matmul(g.rmsnorm(x), w))
    first, second = recognize_stages(g)
    assert isinstance(first, RowsOp)
    assert isinstance(second, ProductOp)
    assert first.output.role == "SCRATCH"
    assert second.a.tensor == first.output


def test_softmax_is_one_section_of_whole_rows() -> None:
    g = Graph()
    g.output("y", g.softmax(g.input("x", (3, 5))))
    (op,) = recognize_stages(g)
    assert isinstance(op, RowsOp)
    assert op.whole_rows
    assert [link.per_row for link in op.links] == [True, False, True, False]
    assert not any(link.cut for link in op.links)


def test_a_value_that_two_sections_need_is_a_tensor() -> None:
    g = Graph()
    x = g.apply("exp", g.input("x", (4, 4)))
    g.output("y", g.matmul(x, x))
    ops = recognize_stages(g)
    assert [type(op) for op in ops] == [RowsOp, ProductOp]


def test_two_products_are_two_sections_and_fills_travel() -> None:
    g = Graph()
    a = g.input("a", (3, 4), fill=Ints(-1, 1))
    g.output("y", g.matmul(g.matmul(a, g.weight("b", (4, 5), fill=Ints(0, 2))), g.weight("c", (5, 2))))
    first, second = recognize_stages(g)
    assert first.output.fill == Ints(-8, 8)
    assert second.a.tensor.fill == Ints(-8, 8)


def test_repeated_values_do_not_grow_the_expression() -> None:
    g = Graph()
    x = g.input("x", (2, 2))
    for _ in range(30):
        x = g.apply("add", x, x)
    g.output("y", x)
    (op,) = recognize_stages(g)
    assert len(op.links) == 30
    assert all(link.cut for link in op.links[:-1])


def test_what_nothing_needs_is_left_out() -> None:
    g = Graph()
    x = g.input("x", (2, 2))
    g.apply("exp", x)
    g.output("y", g.apply("abs", x))
    assert len(recognize_stages(g)) == 1


def test_attention_and_gather() -> None:
    g = Graph()
    q, k = g.input("q", (3, 4, 8)), g.input("k", (9, 2, 8))
    g.output("o", g.attention(q, k, g.input("v", (9, 2, 8))))
    g.output("e", g.gather(g.weight("t", (5, 6)), g.input("ids", (3,), dtype="i32", fill=Ints(0, 4))))
    ops = recognize_stages(g)
    assert [type(op) for op in ops] == [AttentionOp, GatherOp]
    assert all(msgspec.json.decode(msgspec.json.encode(op), type=RecognisedOp) == op for op in ops)


def test_everything_outside_the_algebra_is_named_at_once() -> None:
    g = Graph()
    x = g.apply("relu", g.input("x", (2, 2)))
    g.output("y", g.apply("frobnicate", x))
    with pytest.raises(OutsideAlgebra) as caught:
        recognize_stages(g)
    assert caught.value.terms == (
        "v1 = relu: max(x, 0)",
        "v2 = frobnicate: no composition of the closed list is known",
    )


def test_broadcasting_inside_the_rows_is_refused() -> None:
    g = Graph()
    g.output("y", g.apply("add", g.input("x", (2, 3, 4)), g.input("z", (1, 3, 4))))
    with pytest.raises(OutsideAlgebra, match="leading dimensions"):
        recognize_stages(g)
