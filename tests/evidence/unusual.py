"""Right programs in forms that no pass makes: what a careful engineer might also write.

    unusual    one of: a reader with one flat loop; one unrolled by two; a first item before the loop; all of one input
               before the other through a deep FIFO; a slot filled by two loads; an op in two halves; the blocks in
               descending order

Most lie outside the fragment (docs/certificate.md). They are counted as false rejects where they are refused.
"""

from __future__ import annotations

from pavane.ir.expr import at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Items,
    Load,
    Loop,
    Node,
    Numerics,
    Pop,
    Process,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
    Tensor,
)
from pavane.ir.quasi import Quasi, quasi
from tests.building import COL, ROW, SX, SY, X, one_section, read, shape_of, span, window, write
from tests.evidence.hand import Case, Hand, chip, everywhere, laid_out

FORMS = ("flat", "unrolled", "first apart", "one input after the other", "two loads", "two ops", "reordered")


def unusual(hand: Hand) -> Case:
    """O = A + B (or 2 A), one block of rows a site, `turns` blocks of columns."""
    target, form = chip(hand), hand.pick(FORMS)
    both = form == "one input after the other"
    turns = hand.pick((2, 4)) if form != "first apart" else hand.pick((2, 3))
    block, step = hand.pick((4, 8)), hand.pick((8, 16))
    rows, cols = block * target.sites - hand.between(0, block - 1), step * turns - hand.between(0, step - 1)
    row = block * (SX + SY * target.grid.width)
    place = lambda x: window((row, block), (step * x, step), row=0)  # noqa: E731
    inputs = ("A", "B") if both else ("A",)
    meant = fn("add", at("A", "i0", "i1"), at("B", "i0", "i1")) if both else fn("mul", at("A", "i0", "i1"), 2.0)
    r = span(row, block, rows)

    def fill(name: str, x: Quasi) -> tuple[Node, ...]:
        return read(f"f{name}", name, place(x))

    def loop(*steps: Node, extent: int = turns) -> tuple[Node, ...]:
        return (Loop("LV_ITEM_X", quasi(extent), steps),)

    def op(to: str, expr, x: Quasi = X, first: int = 0, size: int = step) -> Compute:
        return Compute(Generic(Ref(to, quasi(0), quasi(first)), expr, r, span(step * x + first, size, cols)))

    twice = lambda first=0: fn("mul", at("fA", ROW, quasi(COL) + first), 2.0)  # noqa: E731
    load = loop(*(s for n in inputs for s in fill(n, X)))
    compute = loop(Front("fA"), Reserve("fO"), op("fO", twice()), Push("fO"), Pop("fA"))
    store = loop(*write("fO", "O", place(X)))
    carries: tuple[Carry, ...] = ()
    depth, half = hand.between(1, 2), step // 2
    if form == "flat":
        flat = quasi("LV_ITEM")
        load = (Loop("LV_ITEM", quasi(turns), fill("A", flat)),)
    elif form == "unrolled":
        load = loop(*fill("A", 2 * X), *fill("A", 2 * X + 1), extent=turns // 2)
    elif form == "first apart":
        load = (*fill("A", quasi(0)), *loop(*fill("A", X + 1), extent=turns - 1))
    elif form == "two loads":
        top = Load("fA", "A", window((row, block // 2), (step * X, step), row=0))
        low = Load("fA", "A", window((row + block // 2, block // 2), (step * X, step), row=0), row=quasi(block // 2))
        load = loop(Reserve("fA"), top, low, Fence(), Push("fA"))
    elif form == "two ops":
        parts = (op("fO", twice(), size=half), op("fO", twice(half), first=half, size=half))
        compute = loop(Front("fA"), Reserve("fO"), *parts, Push("fO"), Pop("fA"))
    elif form == "reordered":
        backwards = turns - 1 - X
        load = loop(*fill("A", backwards))
        compute = loop(Front("fA"), Reserve("fO"), op("fO", twice(), backwards), Push("fO"), Pop("fA"))
        store = loop(*write("fO", "O", place(backwards)))
    elif both:
        depth = turns if not hand.slip() else turns - 1
        carries = (Carry("row", block, step * turns, "f32"),)
        keep = Compute(Generic(Ref("row", quasi(0), step * X), at("fA", ROW, COL), r, span(step * X, step, cols)))
        added = fn("add", at("row", ROW, quasi(COL) + step * X), at("fB", ROW, COL))
        compute = (
            *loop(Front("fA"), keep, Pop("fA")),
            *loop(Front("fB"), Reserve("fO"), op("fO", added), Push("fO"), Pop("fB")),
        )
    fifos = tuple(Fifo(f"f{n}", "LOCAL", block, step, "f32", depth) for n in inputs)
    placed, cells, _ = laid_out(hand, target, (*fifos, Fifo("fO", "LOCAL", block, step, "f32", 1)), carries)
    sites = everywhere(target)
    shape = Shape(
        name=form.replace(" ", "_"),
        formals=(
            *(Formal(n, shape_of(rows, cols), "f32", "IN") for n in inputs),
            Formal("O", shape_of(rows, cols), "f32", "OUT"),
        ),
        spec=(Spec("O", shape_of(0, 0), shape_of(rows, cols), meant),),
        items=Items(quasi(target.sites), quasi(turns), block, step), numerics=Numerics(),
        processes=(
            Process("read", sites, "reader_a", load), Process("compute", sites, "matrix", compute),
            Process("write", sites, "writer", store),
        ),
        fifos=placed, carries=cells,
    )  # fmt: skip
    tensors = (
        *(Tensor(n.lower(), shape_of(rows, cols), "f32", "INPUT") for n in inputs),
        Tensor("o", shape_of(rows, cols), "f32", "OUTPUT"),
    )
    return one_section(target, shape, tensors, {n: n.lower() for n in (*inputs, "O")}), target
