"""Random things for property tests: index expressions, and edits of programs."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import strategies as st

from pavane.ir.digest import canonical_bytes
from pavane.ir.program import Program
from pavane.ir.quasi import Domain, Quasi, quasi

NAMES = ("a", "b", "c")


def quasis(names: tuple[str, ...] = NAMES, depth: int = 3) -> st.SearchStrategy[Quasi]:
    """Sums, multiples and floors of variables, as code would build them."""
    leaf = st.integers(-40, 40).map(quasi) | st.sampled_from(names).map(quasi)

    def grow(inner: st.SearchStrategy[Quasi]) -> st.SearchStrategy[Quasi]:
        return st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1]),
            st.tuples(inner, st.integers(-6, 6)).map(lambda pair: pair[0] * pair[1]),
            st.tuples(inner, st.integers(1, 9)).map(lambda pair: pair[0] // pair[1]),
            st.tuples(inner, st.integers(1, 9)).map(lambda pair: pair[0] % pair[1]),
        )

    return st.recursive(leaf, grow, max_leaves=2**depth)


def points(names: tuple[str, ...] = NAMES, low: int = -50, high: int = 50) -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({name: st.integers(low, high) for name in names})


def boxes(names: tuple[str, ...] = NAMES, low: int = -4, longest: int = 5) -> st.SearchStrategy[Domain]:
    """A small constant range for every variable."""
    one = st.tuples(st.integers(low, 4), st.integers(0, longest))
    return st.tuples(*(one for _ in names)).map(
        lambda ranges: Domain((name, lo, lo + more) for name, (lo, more) in zip(names, ranges, strict=True))
    )


def edited(program: Program) -> st.SearchStrategy[Program | None]:
    """One to three random edits of the program's JSON; None where the result is no program."""
    tree = msgspec.json.decode(canonical_bytes(program))
    return st.randoms(use_true_random=False).flatmap(lambda random: st.just(_decoded(_edit(tree, random))))


def _edit(tree: Any, random: Any) -> Any:
    tree = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 2, 3))):
        places = list(_places(tree))
        holder, key = random.choice(places)
        holder[key] = _other(holder[key], places, random)
        if isinstance(holder, list) and random.random() < 0.2:
            holder.insert(random.randrange(len(holder)), copy.deepcopy(random.choice(holder)))
        if random.random() < 0.2:
            holder.pop(key) if isinstance(holder, dict) else holder.pop()
    return tree


def _places(tree: Any) -> Any:
    """Every (holder, key) of a tree of lists and dictionaries."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)


def _other(value: Any, places: list[tuple[Any, Any]], random: Any) -> Any:
    """A value of the same kind: a moderate or absurd number, or what stands elsewhere in the tree."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((0, 1, -1, 2, value + 1, value - 1, value * 2, 31, 32, 1 << 20, 1 << 45, -(1 << 60)))
    alike = [holder[key] for holder, key in places if type(holder[key]) is type(value)]
    return copy.deepcopy(random.choice(alike))


def _decoded(tree: Any) -> Program | None:
    try:
        return msgspec.json.decode(msgspec.json.encode(tree), type=Program)
    except (msgspec.ValidationError, ValueError):
        return None
