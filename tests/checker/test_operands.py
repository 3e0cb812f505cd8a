"""What a buffer holds as the steps that use it take it: an index out of a slot, sums onto sums, operands of products in
the types that are stated for what is loaded.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.expr import Expr, Indirect, Reduce, at, fn
from pavane.ir.program import (
    Carry,
    Compute,
    Fence,
    Fifo,
    Formal,
    Front,
    Generic,
    Init,
    Items,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Numerics,
    Pop,
    Process,
    Program,
    Push,
    Ref,
    Reserve,
    Shape,
    Spec,
    Tree,
)
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import Fill, Floats, Ints
from pavane.reject import MeaningRefused, NumericsRefused
from pavane.sim.simulator import Simulator
from pavane.targets.descriptor import SpatialTarget
from tests.building import COL, ROW, Body, K, S, program_of, read, rect, shape_of, span, whole, window, write
from tests.checker.editing import accepted
from tests.checker.two_sections import lone
from tests.oracle.judge import judge

CHIP = lone(1, 1)
N = 8
SQUARE = window((0, N), (0, N), row=0)
AS_IT_COMES = Numerics()


def on_one_site(
    target: SpatialTarget,
    body: Body,
    given: dict[str, tuple[tuple[int, ...], str, Fill]],
    spec: Expr,
    slots: dict[str, tuple[int, int, str]],
    carries: tuple[Carry, ...] = (),
    numerics: Numerics = AS_IT_COMES,
    rows: int = N,
) -> Program:
    """O = spec, rows x N, out of slot fO; `slots` as (rows, columns, type), one a FIFO."""
    body = (*body, *write("fO", "O", window((0, rows), (0, N), row=0)))
    sizes = {**slots, "fO": (rows, N, "f32")}
    fifos = tuple(Fifo(name, "LOCAL", *size, 1, 4096 * i) for i, (name, size) in enumerate(sizes.items()))
    formals = tuple(Formal(n, shape_of(*shape), dtype, "IN", fill) for n, (shape, dtype, fill) in given.items())
    out = shape_of(rows, N)
    shape = Shape(
        "lone", (*formals, Formal("O", out, "f32", "OUT")), (Spec("O", shape_of(0, 0), out, spec),),
        Items(quasi(1), quasi(1), rows, N), numerics, processes=(Process("core", rect(0, 1, 0, 1), "core", body),),
        fifos=fifos, carries=carries,
    )  # fmt: skip
    return program_of(target, shape)


# --- an index out of a slot -------------------------------------------------------------------------------------------

VOCABULARY, ROWS = 600, 4


def gather(index: str, slot: str, first: int, *made: Node, copy: str = "i32", popped: tuple[str, ...] = ()) -> Program:
    """O[i] = X[ids[first + i]], the index out of `slot`, which `made` fills."""
    via = lambda i: Indirect("ids", (i + first,), 0, VOCABULARY, via=slot)  # noqa: E731
    load = Load("fX", "X", window((via(S), 1), (0, N)), row=S)
    keep = Compute(Generic(Ref("fO"), at("fX", ROW, COL), whole(ROWS), whole(N)))
    body = (
        *made, Reserve("fX"), Loop("LV_SUB_H", quasi(ROWS), (load,)), Fence(), Push("fX"), Front("fX"),
        Reserve("fO"), keep, Push("fO"), Pop("fX"), *(Pop(name) for name in popped),
    )  # fmt: skip
    given = {"ids": ((16,), "i32", Ints(0, VOCABULARY - 1)), "X": ((VOCABULARY, N), "f32", Floats())}
    spec = at("X", Indirect("ids", (quasi("i0") + first,), 0, VOCABULARY), "i1")
    slots = {"fI": (1, 16, "i32"), "fC": (1, 16, copy), "fX": (ROWS, N, "f32")}
    return on_one_site(CHIP, body, given, spec, {n: s for n, s in slots.items() if n in (*popped, "fX")}, rows=ROWS)


def loaded(first: int) -> Program:
    made = (*read("fI", "ids", window((first, 16 - first))), Front("fI"))
    return gather("ids", "fI", first, *made, popped=("fI",))


def copied(first: int, dtype: str) -> Program:
    """The slot is filled by an op, from the first element that is needed on."""
    copy = Compute(Generic(Ref("fC"), at("fI", ROW, quasi(COL) + first), whole(1), whole(ROWS)))
    made = (*read("fI", "ids", window((0, 16))), Front("fI"), Reserve("fC"), copy, Push("fC"), Front("fC"))
    return gather("ids", "fC", first, *made, copy=dtype, popped=("fC", "fI"))


@pytest.mark.parametrize("first", [0, 4])
def test_an_index_is_read_where_a_load_has_put_it(first):
    made = loaded(first)
    assert judge(made, CHIP).safe
    accepted(made, CHIP)


@pytest.mark.parametrize("first", [0, 4])
@pytest.mark.parametrize("dtype", ["i32", "f32", "bf16"])
def test_an_index_is_not_read_where_an_op_has_put_it(first, dtype):
    """In a type that rounds it is another index, and no engine knows at which element the slot begins."""
    made = copied(first, dtype)
    assert judge(made, CHIP).fault
    with pytest.raises(MeaningRefused, match="does not hold a part of ids"):
        accepted(made, CHIP)


# --- sums onto sums ---------------------------------------------------------------------------------------------------


def summing_in(accumulator: str, bits: int) -> SpatialTarget:
    (engine,) = CHIP.engines
    mode = next(m for m in engine.matrix if (m.a, m.b) == ("bf16", "bf16"))
    mode = replace(mode, accumulator=accumulator, accumulator_bits=bits)
    return replace(CHIP, engines=(replace(engine, matrix=(mode,)),))


def product(to: str, a: str, b: str, k: Quasi | None = None) -> Compute:
    """to += a . b, all of it or the two terms from `k` on."""
    place, terms = (quasi(0), whole(N)) if k is None else (k, span(k, 2, N))
    return Compute(MatmulTiles(Ref(to), Ref(a, col=place), Ref(b, row=place), False, whole(N), whole(N), terms, Tree()))


def in_steps(a: str, loop: bool) -> Node:
    return Loop("LV_KBLOCK", quasi(N // 2), (product("c", a, "fB", 2 * K),)) if loop else product("c", a, "fB")


def contraction(a: Expr, b: str, k: str) -> Expr:
    return Reduce("SUM", k, quasi(N), fn("mul", a, at(b, k, "i1")))


def two_sums(
    loops: tuple[bool, bool], largest: int, initial: int = 0, exact: bool = True, mixed: bool = False
) -> Program:
    """O = initial + A . B + C . B, in one accumulator: in steps or loops of their own, or (`mixed`) in one loop."""
    given = {name: ((N, N), "bf16", Ints(-m, m)) for name, m in (("A", largest), ("C", largest), ("B", 1))}
    slots = {f"f{name}": (N, N, "bf16") for name in given}
    both = (Loop("LV_KBLOCK", quasi(N // 2), (product("c", "fA", "fB", 2 * K), product("c", "fC", "fB", 2 * K))),)
    body = (
        *(step for name in given for step in (*read(f"f{name}", name, SQUARE), Front(f"f{name}"))), Init("c"),
        *(both if mixed else (in_steps("fA", loops[0]), in_steps("fC", loops[1]))), *(Pop(slot) for slot in slots),
        Reserve("fO"), Compute(Generic(Ref("fO"), at("c", ROW, COL), whole(N), whole(N))), Push("fO"),
    )  # fmt: skip
    sums = fn("add", contraction(at("A", "i0", "k0"), "B", "k0"), contraction(at("C", "i0", "k1"), "B", "k1"))
    if initial:
        first, second = sums.args  # type: ignore[union-attr]
        sums = fn("add", fn("add", first, float(initial)), second)
    numerics = Numerics(accumulator="f16", operands=tuple((n, "bf16") for n in sorted(given)), exact=exact)
    carry = Carry("c", N, N, "f16", initial=float(initial), address=1 << 15)
    return on_one_site(summing_in("f16", 11), body, given, sums, slots, (carry,), numerics)


@pytest.mark.parametrize("loops", [(a, b) for a in (False, True) for b in (False, True)])
def test_sums_in_one_accumulator_fit_it_together(loops):
    target = summing_in("f16", 11)
    made = two_sums(loops, 128)  # 2 * 8 * 128 = 2**11
    assert judge(made, target).safe
    accepted(made, target)
    made = two_sums(loops, 255)  # each of them fits
    assert judge(made, target).fault
    with pytest.raises(NumericsRefused, match="may not hold every value exactly"):
        accepted(made, target)


def test_what_a_sum_starts_from_counts():
    target = summing_in("f16", 11)
    accepted(two_sums((True, True), 127, 2 * N), target)
    with pytest.raises(NumericsRefused, match="may not hold every value exactly"):
        accepted(two_sums((True, True), 127, 2 * N + 1), target)


def test_two_sums_are_not_added_up_in_turns():
    """The size of their blocks, which a plan chooses, would say in which order terms of both are added and rounded."""
    target = summing_in("f16", 11)
    accepted(two_sums((True, True), 128, exact=False), target)
    accepted(two_sums((True, True), 128, mixed=True), target)
    with pytest.raises(NumericsRefused, match="the plan would change their bits"):
        accepted(two_sums((True, True), 128, exact=False, mixed=True), target)
    with pytest.raises(NumericsRefused, match="may not hold every value exactly"):
        accepted(two_sums((True, True), 129, mixed=True), target)


def blocks_and_sums(size: int, order: str) -> Program:
    """O = SUM(t < 4, k < 2) C . B + SUM(k < 5) A . B in one carry; the second `size` terms a turn of a loop over t, in
    which the first adds two (`order`: "CA", "AC", or "apart": in a loop before it).
    """
    given = {name: ((N, N), "f32", Floats()) for name in "ABC"}
    slots = {f"f{name}": (N, N, "f32") for name in given}
    terms = {"A": (span(size * K, size, 5), size * K), "C": (whole(2), 2 * K)}
    adds = {
        name: MatmulTiles(Ref("c"), Ref(f"f{name}", col=k), Ref("fB", row=k), False, whole(N), whole(N), of, Tree())
        for name, (of, k) in terms.items()
    }
    turns = [tuple(Compute(adds[name]) for name in turn) for turn in (("C", "A") if order == "apart" else (order,))]
    body = (
        *(step for name in given for step in (*read(f"f{name}", name, SQUARE), Front(f"f{name}"))), Init("c"),
        *(Loop("LV_KBLOCK", quasi(4), turn) for turn in turns), *(Pop(slot) for slot in slots),
        Reserve("fO"), Compute(Generic(Ref("fO"), at("c", ROW, COL), whole(N), whole(N))), Push("fO"),
    )  # fmt: skip
    k = 2 * quasi("k0") + quasi("k1")
    pairs = Reduce("SUM", "k1", quasi(2), fn("mul", at("C", "i0", k), at("B", k, "i1")))
    sums = [Reduce("SUM", "k0", quasi(4), pairs)]
    sums.append(Reduce("SUM", "k2", quasi(5), fn("mul", at("A", "i0", "k2"), at("B", "k2", "i1"))))
    spec = fn("add", *(sums[::-1] if order == "AC" else sums))
    numerics = Numerics(operands=tuple((name, "f32") for name in "ABC"))
    return on_one_site(CHIP, body, given, spec, slots, (Carry("c", N, N, "f32", address=1 << 15),), numerics)


def bits_of(made: Program) -> bytes:
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((N, N)).astype(np.float32) for name in "abc"}
    return Simulator(made, CHIP, {}, timing=False).launch({}, given).outputs["o"].tobytes()


@pytest.mark.parametrize("order", ["CA", "AC"])
def test_a_sum_in_blocks_is_alone_in_its_loop(order):
    """Also where what is added in every turn is a whole sum each time, before a block or after it."""
    assert bits_of(blocks_and_sums(2, order)) != bits_of(blocks_and_sums(3, order))
    for size in (2, 3):
        with pytest.raises(NumericsRefused, match="the plan would change their bits"):
            accepted(blocks_and_sums(size, order), CHIP)


def test_sums_in_loops_of_their_own_have_the_same_bits_in_any_blocks():
    made = [blocks_and_sums(size, "apart") for size in (2, 3, 8)]
    assert len({bits_of(one) for one in made}) == 1
    for one in made:
        accepted(one, CHIP)


# --- operands in the types that are stated ----------------------------------------------------------------------------


def stated(types: dict[str, str], *made: Node, second: Expr, slots: tuple[str, ...]) -> Program:
    """O = A . B + second, exactly; the products in carries of their own, into which `made` puts them."""
    given = {name: ((N, N), "f32", Ints(-m, m)) for name, m in (("A", 255), ("X", 765), ("B", 1), ("W", 1))}
    given = {name: what for name, what in given.items() if name in types}
    body = (
        Init("c"), Init("d"), *read("fB", "B", SQUARE), Front("fB"), *read("fW", "W", SQUARE), Front("fW"), *made,
        Pop("fB"), Pop("fW"), Reserve("fO"),
        Compute(Generic(Ref("fO"), fn("add", at("c", ROW, COL), at("d", ROW, COL)), whole(N), whole(N))), Push("fO"),
    )  # fmt: skip
    carries = tuple(Carry(name, N, N, "f32", address=(1 << 15) + 1024 * i) for i, name in enumerate("cd"))
    numerics = Numerics(operands=tuple(sorted(types.items())), exact=True)
    spec = fn("add", contraction(at("A", "i0", "k0"), "B", "k0"), second)
    sizes = dict.fromkeys(("fB", "fW", *slots), (N, N, "f32"))
    return on_one_site(CHIP, body, given, spec, sizes, carries, numerics)


def used(slot: str, to: str, by: str) -> Body:
    return (Front(slot), product(to, slot, by), Pop(slot))


def changed_in_place(narrow: str) -> Program:
    """The second product takes 3 * A out of a slot into which A was loaded."""
    triple = Compute(Generic(Ref("fT"), fn("mul", at("fT", ROW, COL), 3.0), whole(N), whole(N)))
    made = (
        *read("fA", "A", SQUARE), *used("fA", "c", "fB"),
        Reserve("fT"), Load("fT", "A", SQUARE), Fence(), triple, Push("fT"), *used("fT", "d", "fW"),
    )  # fmt: skip
    second = contraction(fn("mul", at("A", "i0", "k1"), 3.0), "W", "k1")
    return stated({"A": narrow, "B": narrow, "W": "f32"}, *made, second=second, slots=("fA", "fT"))


def loaded_in_turn(narrow: str) -> Program:
    """One slot holds X, then A."""
    made = (*read("fA", "X", SQUARE), *used("fA", "d", "fW"), *read("fA", "A", SQUARE), *used("fA", "c", "fB"))
    second = contraction(at("X", "i0", "k1"), "W", "k1")
    return stated({"A": narrow, "B": narrow, "X": "f32", "W": "f32"}, *made, second=second, slots=("fA",))


def copied_to_another(narrow: str) -> Program:
    """An op has put A into the slot out of which the first product takes it."""
    copy = Compute(Generic(Ref("fT"), at("fA", ROW, COL), whole(N), whole(N)))
    made = (
        *read("fA", "A", SQUARE), Front("fA"), Reserve("fT"), copy, Push("fT"), Pop("fA"), *used("fT", "c", "fB"),
        *read("fA", "X", SQUARE), *used("fA", "d", "fW"),
    )  # fmt: skip
    second = contraction(at("X", "i0", "k1"), "W", "k1")
    return stated({"A": narrow, "B": narrow, "X": "f32", "W": "f32"}, *made, second=second, slots=("fA", "fT"))


@pytest.mark.parametrize("make", [changed_in_place, loaded_in_turn, copied_to_another])
def test_a_product_takes_a_slot_as_what_is_loaded_into_it(make):
    """An engine converts what comes out of a slot by what is loaded there, whatever an op has made of it."""
    assert judge(make("f32"), CHIP).safe
    accepted(make("f32"), CHIP)
    with pytest.raises(NumericsRefused):
        accepted(make("bf16"), CHIP)
