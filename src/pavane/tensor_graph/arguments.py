"""What an author may give the methods of `Graph`: names, numbers, extents, fills. Each fault is an ArgumentReject."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn, SupportsIndex

from pavane.ir.quasi import Domain, Quasi, lower, quasi, upper
from pavane.ir.types import INTEGER_RANGE, Const, DType, Fill, Floats, Ints, block_elements
from pavane.reject import ArgumentReject
from pavane.tensor_graph.fills import integer_range
from pavane.tensor_graph.nodes import Dims

MOST_ELEMENTS = 1 << 40
MOST_DIMENSIONS = 8
MOST_NAME_CHARACTERS = 200

Extent = int | Quasi


def check_fill(name: str, dtype: str, fill: Fill | None) -> None:
    """Integers in a range, and a range that the type holds; constants that are numbers."""
    if not isinstance(fill, Floats | Ints | Const | None):
        refuse(f"tensor {name}: no such fill", "Floats, Ints or Const", repr(fill))
    if isinstance(fill, Const):
        check_number(f"tensor {name}", fill.value)
    if isinstance(fill, Ints) and (type(fill.lo) is not int or type(fill.hi) is not int):
        refuse(f"tensor {name}: a range of integers", "two integers", f"{fill.lo!r} to {fill.hi!r}")
    if isinstance(fill, Ints) and fill.lo > fill.hi:
        refuse(f"tensor {name}: an empty range of integers", f"{fill.lo} <= {fill.hi}")
    least, most = INTEGER_RANGE.get(dtype, (-(2**127), 2**127))
    if isinstance(fill, Ints) and not least <= fill.lo <= fill.hi <= most:
        refuse(f"tensor {name}: {dtype} does not hold that range", f"{least} to {most}", f"{fill.lo} to {fill.hi}")


def check_integers(name: str, fill: Fill, dtype: DType) -> None:
    """An integer type stores what is known to be integers that it holds."""
    known, (least, most) = integer_range(fill), INTEGER_RANGE[dtype]
    if known is None or known[0] < least or known[1] > most:
        refuse(
            f"output {name}: {dtype} holds integers from {least} to {most}",
            f"such integers, as g.apply('cast', g.apply('round', x), dtype='{dtype}') gives",
            "values that may be others" if known is None else f"integers from {known[0]} to {known[1]}",
        )


def check_choice(what: str, given: str, choices: Sequence[str]) -> None:
    """One of a closed list."""
    if not isinstance(given, str) or given not in choices:
        refuse(f"no {what} is named {given!r:.40}", " or ".join(choices))


def check_name(name: str) -> None:
    """A name is short and printable."""
    if not isinstance(name, str) or not 1 <= len(name) <= MOST_NAME_CHARACTERS or not name.isprintable():
        refuse("this is not a name", f"1 to {MOST_NAME_CHARACTERS} printable characters", repr(name)[:40])


def check_number(what: str, number: float) -> None:
    """A constant is a finite number."""
    try:
        finite = math.isfinite(number)
    except (TypeError, OverflowError):
        finite = False
    if not finite:
        refuse(f"{what}: a constant is not a number", "a finite number", repr(number)[:40])


def extents_given(name: str, shape: Sequence[Extent], symbols: set[str]) -> Dims:
    """The extents: integers, or sums of symbols of the graph."""
    extents: tuple[object, ...] = tuple(shape) if isinstance(shape, Sequence) else (None,)
    for extent in extents:
        integer = isinstance(extent, SupportsIndex) and abs(int(extent)) <= MOST_ELEMENTS
        if not integer and not (isinstance(extent, Quasi) and set(extent.variables()) <= symbols):
            refuse(f"tensor {name} has no such shape", "a tuple of integers and symbols of the graph", repr(shape)[:60])
    return tuple(quasi(e) for e in shape)


def check_extents(name: str, dims: Dims, dtype: DType, domain: Domain) -> None:
    """A tensor has elements, not too many; only its first extent is a symbol; rows of types in blocks are whole."""
    shown = str(tuple(str(e) for e in dims))
    if not dims or any(upper(e, domain) < 1 or lower(e, domain) < 0 for e in dims):
        refuse(f"tensor {name} has no elements", "extents of at least 1", shown)
    if math.prod(upper(e, domain) for e in dims) > MOST_ELEMENTS or len(dims) > MOST_DIMENSIONS:
        refuse(f"tensor {name} is too big", f"at most {MOST_DIMENSIONS} dimensions and 2**40 elements", shown)
    if any(not e.is_const for e in dims[1:]):
        refuse(f"tensor {name}: only the first dimension may be a symbol", "constants after the first", shown)
    block = block_elements(dtype)
    if block > 1 and (not dims[-1].is_const or dims[-1].const % block):
        refuse(f"tensor {name}: {dtype} rows are whole blocks", f"a multiple of {block}", str(dims[-1]))


def broadcast(op: str, shapes: list[Dims]) -> Dims:
    """numpy's rule."""
    if not shapes:
        refuse(f"{op} has no tensor among its operands", "at least one")
    rank = max(len(s) for s in shapes)
    padded = [(quasi(1),) * (rank - len(s)) + s for s in shapes]
    out = []
    for extents in zip(*padded, strict=True):
        wide = [e for e in extents if e != quasi(1)]
        if any(e != wide[0] for e in wide):
            refuse(f"{op}: shapes do not broadcast", "equal extents or 1", " and ".join(str(e) for e in wide))
        out.append(wide[0] if wide else quasi(1))
    return tuple(out)


def constant(extent: Quasi, what: str) -> int:
    """The number that an extent is; symbols are refused."""
    if not extent.is_const:
        refuse(f"{what} is a number, not a symbol", "a constant", str(extent))
    return extent.const


def refuse(what: str, needed: str, available: str = "") -> NoReturn:
    """Raise ArgumentReject: the place to mend is the call that gave the argument."""
    raise ArgumentReject(what, needed=needed, available=available, remedy="correct the call")
