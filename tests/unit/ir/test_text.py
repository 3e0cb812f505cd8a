"""The printed form: what people read in `pavane show` and in golden files."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.expr import Indirect, Reduce, Var, at, fn
from pavane.ir.program import Window
from pavane.ir.quasi import quasi
from pavane.ir.text import show, show_difference, show_section
from pavane.ir.text_steps import Words
from pavane.targets.load import load_target
from tests import examples

TOY, HOST = load_target("toy"), load_target("host", cores=2)
MATMUL = examples.matmul_multicast(TOY)
ATTENTION = examples.attention_host(HOST)


def test_a_process_reads_like_the_page():
    text = show(MATMUL)
    assert (
        "  process leadA <0, 0..1> on reader_a\n"
        "    for y<2 for x<3 for k<3:\n"
        "      reserve fA; load fA <- A[64*y+32*Y+:32|100, 32*k+:32|70]; fence; wait creditA 1; "
        "send fA -> <1, Y>; fence; post validA -> <1, Y>; push fA\n"
    ) in text


def test_a_section_says_all_that_was_chosen():
    text = show_section(MATMUL, "matmul")
    assert "section matmul(A: bf16[100,70] ints -4..4, B: bf16[70,150] ints -4..4) -> C: f32[100,150]\n" in text
    assert "  spec    C[i0,i1] = SUM(k0<70) A[i0,k0] * B[k0,i1] for i < 100,150\n" in text
    assert "  fifo    fA: multicast row 32x32 bf16 depth 2 at 0x0000 (4,096 B)\n" in text
    assert "  carry   acc: 32x32 f32 = 0 at 0x4000 (4,096 B)\n" in text
    assert "  counter validA: monotone, 4 bits, on <1, 0..1>, waited for by reader_a, number 1\n" in text
    assert "acc += fA . fB over 64*y+32*Y+:32|100 x 64*x+32*X+:32|150 x 32*k+:32|70" in text


def test_guards_symbols_and_transposition():
    text = show(ATTENTION)
    assert "  symbol  pos in 0..32, expected 32\n" in text
    assert "fQ . fK^T" in text
    assert " if 2*x+X<3 and floor(2*x+X, 3)<1" in text
    assert "mx[r,c] = MAX(j<pos+rows) select(j <= (r+pos), S[r,j] * 0.25, -3e+38)" in text


def test_an_unknown_section_is_a_key_error():
    with pytest.raises(KeyError):
        show_section(MATMUL, "nothing")


def test_equal_programs_have_no_difference():
    assert show_difference(MATMUL, examples.matmul_multicast(TOY)) == ""


def test_a_difference_shows_what_went_and_what_came():
    fifos = tuple(replace(fifo, depth=3) for fifo in MATMUL.shapes[0].fifos)
    after = replace(MATMUL, shapes=(replace(MATMUL.shapes[0], fifos=fifos),))
    lines = show_difference(MATMUL, after, ("size_buffers", "again")).splitlines()
    assert lines[:2] == ["--- size_buffers", "+++ again"]
    assert "-  fifo    fA: multicast row 32x32 bf16 depth 2 at 0x0000 (4,096 B)" in lines
    assert "+  fifo    fA: multicast row 32x32 bf16 depth 3 at 0x0000 (6,144 B)" in lines


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (fn("mul", fn("add", at("A", 0, 0), 1.0), 2.0), "(A[0,0] + 1) * 2"),
        (fn("sub", at("A", 0, 0), fn("sub", at("B", 0, 0), 1.0)), "A[0,0] - (B[0,0] - 1)"),
        (fn("div", 1.0, fn("sqrt", at("A", 0, 0))), "1 / sqrt(A[0,0])"),
        (fn("select", fn("lt", Var(quasi("LV_GEN_ROW")), 3.0), 1.0, 0.1), "select(r < 3, 1, 0.1)"),
        (fn("cast", at("A", 0, 0), dtype="i8"), "cast_i8(A[0,0])"),
        (fn("add", Reduce("SUM", "k0", quasi(7), at("A", "k0")), 1.0), "(SUM(k0<7) A[k0]) + 1"),
        (Reduce("MAX", "k0", quasi("n"), fn("add", at("A", "k0"), 1.0)), "MAX(k0<n) (A[k0] + 1)"),
        (at("K", "i0", next=True), "K'[i0]"),
        (at("E", Indirect("ids", (quasi("i0"),), 0, 9), "i1"), "E[ids[i0] in 0..8,i1]"),
        (fn("mul", at("A", 0), 0.1 + 0.2), "A[0] * 0.30000000000000004"),
    ],
)
def test_expressions_have_the_parentheses_that_they_need(expr, text):
    assert Words().expr(expr) == text


def test_a_symbol_named_like_an_abbreviation_keeps_its_name():
    assert Words(("k",)).index(quasi("LV_KBLOCK") + quasi("k")) == "LV_KBLOCK+k"


def test_a_window_says_where_its_rows_come_from_when_that_is_not_plain():
    extents = {"T": (quasi(4), quasi(5), quasi(6))}
    starts = (quasi(0), quasi("LV_ITEM_X"), quasi(0))
    words = Words((), extents)
    assert words.window("T", Window(starts, (4, 1, 6), 0)) == "T[0+:4|4, x+:1|5, 0+:6|6]"
    assert words.window("T", Window(starts, (1, 1, 6), 1)) == "T[0+:1|4, x+:1|5, 0+:6|6] rows from dimension 1"
    assert words.window("T", Window(starts, (1, 1, 6), 0)) == "T[0+:1|4, x+:1|5, 0+:6|6] rows from dimension 0"


def test_long_bodies_break_between_steps():
    assert all(len(line) < 240 for line in show(ATTENTION).splitlines() if "spec" not in line)
