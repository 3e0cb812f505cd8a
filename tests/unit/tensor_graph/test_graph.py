"""The builder refuses at once what is wrong, and knows the integers that values hold."""

from __future__ import annotations

import pytest

from pavane.ir.types import Const, Fill, Floats, Ints
from pavane.reject import ArgumentReject
from pavane.tensor_graph.fills import held
from pavane.tensor_graph.graph import Graph, Value


def fill_of(graph: Graph, value: Value) -> Fill:
    return graph._nodes[value.number].fill


def test_fills_of_integers() -> None:
    g = Graph()
    a = g.input("a", (3, 5), fill=Ints(-4, 2))
    b = g.weight("b", (5, 7), fill=Ints(0, 3))
    assert fill_of(g, g.matmul(a, b)) == Ints(-60, 30)
    assert fill_of(g, g.apply("sub", a, 1.0)) == Ints(-5, 1)
    assert fill_of(g, g.apply("mul", a, a)) == Ints(-8, 16)
    assert fill_of(g, g.apply("abs", a)) == Ints(0, 4)
    assert fill_of(g, g.apply("select", g.apply("lt", a, 0.0), 9.0, a)) == Ints(-4, 9)
    assert fill_of(g, g.apply("cast", g.apply("mul", a, 100.0), dtype="i8")) == Ints(-128, 127)
    assert fill_of(g, g.apply("div", a, 2.0)) == Floats()
    assert fill_of(g, g.reduce("SUM", a)) == Ints(-20, 10)
    assert fill_of(g, g.reduce("MAX", a)) == Ints(-4, 2)
    assert fill_of(g, g.apply("add", a, 0.5)) == Floats()


def test_a_range_ends_where_f32_does() -> None:
    g = Graph()
    a = g.input("a", (1, 4), fill=Ints(0, 1 << 22))
    assert fill_of(g, g.reduce("SUM", a)) == Ints(0, 1 << 24)
    assert fill_of(g, g.apply("add", g.reduce("SUM", a), 1.0)) == Floats()
    assert held(Ints(0, 256), "bf16") == Ints(0, 256)
    assert held(Ints(0, 257), "bf16") == Floats()
    assert held(Ints(0, 1 << 30), "i32") == Ints(0, 1 << 30)
    assert held(Const(0.5), "f32") == Floats()


def test_what_an_output_cannot_store() -> None:
    """Whole blocks of q8_0, and integers of its range where an integer type is asked for."""
    g = Graph()
    x, table = g.input("x", (4, 3)), g.weight("t", (8, 3), "i32", Ints(0, 7))
    rows = g.gather(table, g.input("ids", (2,), "i32", Ints(0, 7)))
    for value, dtype, words in (
        (g.apply("mul", x, 2.0), "q8_0", "a multiple of 32 columns, available 3"),
        (g.apply("exp", x), "i8", "i8 holds integers from -128 to 127"),
        (g.apply("round", x), "i32", "g.apply('cast', g.apply('round', x), dtype='i32')"),
        (g.apply("cast", x, dtype="i32"), "i8", "available integers from -2147483648 to 2147483647"),
        (rows, "i8", "a table of i8, available i32"),
    ):
        with pytest.raises(ArgumentReject) as caught:
            g.output("y", value, dtype)
        assert caught.value.exit_code == 2
        assert words in str(caught.value)
    assert g._outputs == []


def test_what_an_output_stores() -> None:
    g = Graph()
    x, known = g.input("x", (4, 32)), g.input("n", (4, 3), "f32", Ints(-3, 3))
    table = g.weight("t", (8, 3), "i8")
    stored = (
        (g.apply("mul", x, 2.0), "q8_0"),
        (g.apply("cast", g.apply("exp", x), dtype="i8"), None),
        (g.apply("cast", g.apply("abs", x), dtype="i8"), "i32"),
        (g.apply("mul", known, 2.0), "i8"),
        (g.apply("lt", x, 1.0), "i8"),
        (g.gather(table, g.input("ids", (2,), "i32", Ints(0, 7))), "i8"),
        (g.gather(table, g.input("more", (3,), "i32", Ints(0, 7))), "f16"),
    )
    for number, (value, dtype) in enumerate(stored):
        g.output(f"y{number}", value, dtype)
    assert [o[2] for o in g.freeze().outputs] == ["q8_0", "i8", "i32", "i8", "i8", "i8", "f16"]


def test_shapes_broadcast_as_in_numpy() -> None:
    g = Graph()
    x, row = g.input("x", (4, 1, 5)), g.weight("row", (3, 1))
    assert [str(e) for e in g.apply("add", x, row).shape] == ["4", "3", "5"]
    rows = g.symbol("rows", 1, 8)
    y = g.input("y", (rows, 5))
    assert [str(e) for e in g.softmax(y).shape] == ["rows", "5"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda g, a: g.matmul(a, a), "contracted extents differ"),
        (lambda g, a: g.apply("add", a), "add takes 2 operands"),
        (lambda g, a: g.apply("add", a, g.input("b", (4, 3))), "do not broadcast"),
        (lambda g, a: g.apply("add", a, 1.0, dtype="i8"), "only cast"),
        (lambda g, a: g.apply("add", 1.0, 1.0), "no tensor"),
        (lambda g, a: g.input("a", (2,)), "is taken"),
        (lambda g, a: g.input("b", (0,)), "no elements"),
        (lambda g, a: g.input("b", (2, g.symbol("n", 1, 4))), "only the first dimension"),
        (lambda g, a: g.input("b", (2, 33), dtype="q8_0"), "whole blocks"),
        (lambda g, a: g.input("b", (2,), dtype="f64"), "no element type is named 'f64'"),
        (lambda g, a: g.input("b", (2,), dtype=["f32"]), "no element type is named"),
        (lambda g, a: g.apply(["add"], a, a), "this is not a name"),
        (lambda g, a: g.rmsnorm(3), "not a value of this graph"),
        (lambda g, a: g.input("b", (2,), fill=Ints(3, 2)), "empty range"),
        (lambda g, a: g.input("b", (2,), dtype="i8", fill=Ints(0, 300)), "does not hold"),
        (lambda g, a: g.gather(a, g.input("i", (2,), dtype="i32")), "known to lie in the table"),
        (lambda g, a: g.attention(a, a, a), "attention takes"),
        (lambda g, a: g.reduce("MEAN", a), "SUM or MAX"),
        (lambda g, a: g.freeze(), "no output"),
        (lambda g, a: g.symbol("n", 3, 2), "no such range"),
    ],
)
def test_what_is_wrong_is_refused(call, says: str) -> None:
    g = Graph()
    with pytest.raises(ArgumentReject, match=says):
        call(g, g.input("a", (3, 5)))
