"""Which terms are equal. A term is a word of residues (residues.py), made by the operators here.

Equal are, whatever the data, terms that can be turned into each other by

    +, -, *, /       the laws of a field: order, grouping, factors, a term that is added and taken away, x / x = 1
    SUM              a sum in any order and any blocks; each addend counts as often as it stands there; 0 adds nothing
    exp              exp(a + b) = exp(a) exp(b), so that exp(x - c) over its sum is the same for all c
    max              any order, any grouping, max(a, a) = a, of constants the greatest; min(a, b) = -max(-a, -b),
                     abs(a) = max(a, -a)
    rsqrt            1 / sqrt
    eq, lt, le       depend on the difference of their arguments; le(a, b) = 1 - lt(b, a)
    select           of a condition that is a constant, the branch; else c' a + (1 - c') b where c' says whether c is 0
    constants        a loop variable, a symbol, a coordinate of a site, a carry's initial value, an element of a tensor
                     with a constant fill is a number; comparisons, round and cast of numbers are computed
    storage          slots, carries and tensors hold what was put into them: types round, they do not change the
                     meaning. Elements of a block are put there all at once, and stand there as long as all of it does

and by nothing else: round, cast, log, sqrt, sin, cos, tanh and erf are functions that are known to be equal of equal
arguments only, and an element read through an index is a function of the index and of the element. So it is a term of
its own what a coincidence of the data makes equal: two inputs, two indices, a weight of zero, a difference below a
tolerance.

Different terms are taken for equal with a probability of about their degree / 2**32 an element; equal ones are taken
for different where an exponential of exponentials has two forms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.oracle import residues
from tests.oracle.cells import Cells, cells, is_constant
from tests.oracle.record import Point, Record
from tests.oracle.residues import ONE, Terms

Names = tuple[str, ...]


class Laws:
    """The operators of one run. `maxima`: the members of each maximum of several terms."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng((seed, 1))  # apart from the one that draws numbers
        self.record = Record()
        self.maxima: dict[int, Cells] = {}

    def leaves(self, tensor: str, numbers: np.ndarray) -> Cells:
        """Elements of a tensor of which nothing is known."""
        made = cells(numbers, residues.packed(*(self.rng.integers(0, m, numbers.shape) for m in residues.MODULI)))
        self.record.leaf(tensor, made["term"])
        return made

    def function(self, name: str, args: list[Cells], numbers: np.ndarray) -> Cells:
        """An operator of the expression language (`cast` with its type). `numbers`: it, of the arguments' numbers."""
        made = cells(numbers, _TERMS.get(name, _known_or_drawn)(self, name, args, numbers))
        taken = np.broadcast_arrays(*args)
        self.record.operation(name, made["term"], lambda place: [a[place] for a in taken])
        return made

    def total(self, addends: Cells) -> Cells:
        """The sum along the last axis."""
        made = cells(addends["number"].sum(-1), residues.total(addends["term"]))
        self.record.operation("SUM", made["term"], lambda place: list(addends[place]))
        return made

    def product(self, left: Names, a: Cells, right: Names, b: Cells, over: str) -> tuple[Names, Cells]:
        """The sum over one axis of the products; the other axes are matched by name."""
        letters = {n: i for i, n in enumerate(dict.fromkeys((*left, *right)))}
        keep = tuple(n for n in letters if n != over)
        axes = [[letters[n] for n in names] for names in (left, right, keep)]

        def contraction(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            return np.einsum(x, axes[0], y, axes[1], axes[2])

        def addends(place: Point) -> list[Cells]:
            at = {**dict(zip(keep, place, strict=True)), over: slice(None)}
            pair = [x[tuple(at[n] for n in names)] for x, names in ((a, left), (b, right))]
            return list(self.function("mul", pair, pair[0]["number"] * pair[1]["number"]))

        with np.errstate(all="ignore"):
            numbers = contraction(a["number"], b["number"])
        made = cells(numbers, residues.contract(contraction, a["term"], b["term"]))
        self.record.operation("SUM", made["term"], addends)
        return keep, made

    def greatest(self, members: Cells) -> Cells:
        """The maximum along the last axis."""
        rows = members.reshape(-1, members.shape[-1])
        if any(term in self.maxima for term in rows["term"].ravel().tolist()):
            rows = self._opened(rows)
        rows = _sorted(_one_constant(rows))
        first = np.concatenate([np.ones((len(rows), 1), bool), rows["term"][:, 1:] != rows["term"][:, :-1]], 1)
        terms = np.where(first.sum(1) == 1, rows["term"][:, 0], _set_of(rows["term"], first))
        for term, row, several in zip(terms.tolist(), rows, first.sum(1) > 1, strict=True):
            if several:
                self.maxima[term] = row
        made = cells(members["number"].max(-1), terms.reshape(members.shape[:-1]))
        self.record.operation("max", made["term"], lambda place: list(members[place]))
        return made

    def through(self, index: Cells, element: Cells) -> Cells:
        """An element of a tensor, read where an index says."""
        drawn = residues.drawn("through", index["term"], element["term"])
        made = cells(element["number"], np.where(is_constant(index), element["term"], drawn))
        self.record.operation(
            "through", made["term"], lambda place: [a[place] for a in np.broadcast_arrays(index, element)]
        )
        return made

    def _opened(self, rows: Cells) -> Cells:
        """With the members of maxima in their place; rows of one length: shorter ones repeat a member."""
        opened = [np.concatenate([self.maxima.get(int(c["term"]), c.reshape(1)) for c in row]) for row in rows]
        width = max(map(len, opened))
        return np.stack([np.concatenate([row, np.repeat(row[:1], width - len(row))]) for row in opened])


# --- maxima ---


def _one_constant(rows: Cells) -> Cells:
    """Of several constants in a row only the greatest, in the place of all."""
    known = is_constant(rows)
    best = np.where(known, rows["number"], -np.inf).argmax(1)
    return np.where(known, rows[np.arange(len(rows)), best][:, None], rows)


def _sorted(rows: Cells) -> Cells:
    return np.take_along_axis(rows, rows["term"].argsort(1), 1)


def _set_of(terms: Terms, first: np.ndarray) -> Terms:
    members = np.where(first, residues.drawn("member", terms), np.uint64(0))
    return residues.drawn("max", residues.total(members))


# --- operators: (laws, name, arguments, numbers) -> terms ---


def _known_or_drawn(_: Laws, name: str, args: list[Cells], numbers: np.ndarray) -> Terms:
    """Of numbers a number, else a function of the arguments that nothing is known of."""
    known = np.logical_and.reduce(np.broadcast_arrays(*(is_constant(a) for a in args)))
    return np.where(known, residues.of_number(numbers), residues.drawn(name, *(a["term"] for a in args)))


def _drawn(_: Laws, name: str, args: list[Cells], numbers: np.ndarray) -> Terms:
    return residues.drawn(name, *(a["term"] for a in args))


def _divided(_: Laws, name: str, args: list[Cells], numbers: np.ndarray) -> Terms:
    a, b = (x["term"] for x in args)
    return np.where(b == 0, residues.drawn(name, a, b), residues.mul(a, residues.inverse(b)))


def _max(laws: Laws, name: str, args: list[Cells], numbers: np.ndarray) -> Terms:
    return laws.greatest(np.stack(np.broadcast_arrays(*args), -1))["term"]


def _min(laws: Laws, name: str, args: list[Cells], numbers: np.ndarray) -> Terms:
    return residues.negative(_max(laws, "max", [_negative(a) for a in args], -numbers))


def _abs(laws: Laws, name: str, args: list[Cells], numbers: np.ndarray) -> Terms:
    return _max(laws, "max", [args[0], _negative(args[0])], numbers)


def _negative(a: Cells) -> Cells:
    return cells(-a["number"], residues.negative(a["term"]))


def _eq(_: Laws, name: str, args: list[Cells], numbers: np.ndarray) -> Terms:
    one_way = residues.sub(args[0]["term"], args[1]["term"])
    drawn = residues.drawn(name, np.minimum(one_way, residues.negative(one_way)))
    return _compared(args, numbers, np.uint64(ONE), drawn)


def _lt(_: Laws, name: str, args: list[Cells], numbers: np.ndarray) -> Terms:
    drawn = residues.drawn("lt", residues.sub(args[1]["term"], args[0]["term"]))
    return _compared(args, numbers, np.uint64(0), drawn)


def _le(laws: Laws, name: str, args: list[Cells], numbers: np.ndarray) -> Terms:
    return residues.sub(ONE, _lt(laws, "lt", args[::-1], 1.0 - numbers))


def _compared(args: list[Cells], numbers: np.ndarray, of_equals: Terms, of_others: Terms) -> Terms:
    known = is_constant(args[0]) & is_constant(args[1])
    apart = np.where(residues.same(args[0]["term"], args[1]["term"]), of_equals, of_others)
    return np.where(known, residues.of_number(numbers), apart)


def _select(laws: Laws, name: str, args: list[Cells], numbers: np.ndarray) -> Terms:
    condition, a, b = args
    chosen = np.where(condition["number"] != 0, a["term"], b["term"])
    holds = residues.drawn("holds", condition["term"])
    mixed = residues.add(b["term"], residues.mul(holds, residues.sub(a["term"], b["term"])))
    return np.where(is_constant(condition), chosen, mixed)


_TERMS: dict[str, Callable[[Laws, str, list[Cells], np.ndarray], Terms]] = {
    "add": lambda _, n, args, x: residues.add(args[0]["term"], args[1]["term"]),
    "sub": lambda _, n, args, x: residues.sub(args[0]["term"], args[1]["term"]),
    "mul": lambda _, n, args, x: residues.mul(args[0]["term"], args[1]["term"]),
    "div": _divided, "max": _max, "min": _min, "abs": _abs, "eq": _eq, "lt": _lt, "le": _le, "select": _select,
    "exp": lambda _, n, args, x: residues.exponential(args[0]["term"]),
    "rsqrt": lambda _, n, args, x: residues.inverse(residues.drawn("sqrt", args[0]["term"])),
    **dict.fromkeys(("log", "sqrt", "sin", "cos", "tanh", "erf"), _drawn),
}  # fmt: skip
