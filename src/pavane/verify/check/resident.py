"""The processes of a shape in the two forms that a schedule may be about: with few loops, and with none that could be
written out.

- `resident`: a loop of one turn, for all values of the symbols, stands as its steps, with its variable 0.
- `written_out`: loops of constant extent stand turn by turn, but for those that step through a sum, where that gives at
  most MAX_WRITTEN_OUT steps. Slots then match by their number in the written order, whatever the loops were.

Both are the same program: each process does the same steps in the same order. Steps are numbered after it; the number
of steps in a schedule tells which form it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from pavane.ir.program import Compute, Do, Loop, MatmulTiles, Node, Process, Shape, Turns
from pavane.ir.quasi import Domain, lower, upper
from pavane.ir.walk import leaves, substituted
from pavane.verify.check.scope import MAX_INT

MAX_WRITTEN_OUT = 512


def resident(shape: Shape, symbols: Domain) -> tuple[Process, ...]:
    """The processes without loops of one turn."""
    return tuple(replace(p, body=tuple(_written(p.body, {}, 1, symbols))) for p in shape.processes)


def written_out(shape: Shape, symbols: Domain) -> tuple[Process, ...]:
    """The processes without loops, where that is not too long; otherwise as `resident` gives them."""
    plain = resident(shape, symbols)
    if sum(_size(p.body, symbols) for p in plain) > MAX_WRITTEN_OUT:
        return plain
    return tuple(replace(p, body=tuple(_written(p.body, {}, MAX_WRITTEN_OUT, symbols))) for p in plain)


def form_of(shape: Shape, symbols: Domain, schedule: tuple[Do | Turns, ...]) -> tuple[Process, ...]:
    """The processes in the form that a schedule is about."""
    plain = resident(shape, symbols)
    return plain if _steps(schedule) == sum(1 for p in plain for _ in leaves(p.body)) else written_out(shape, symbols)


def _steps(schedule: tuple[Do | Turns, ...]) -> int:
    return sum(_steps(i.body) if isinstance(i, Turns) else i.last - i.first + 1 for i in schedule)


def token_nest(body: tuple[Node, ...], kind: type | tuple[type, ...], name: str) -> tuple:
    """The loop tree of the steps of a kind that name a FIFO. A loop is (variable, extent, tree); none is empty."""
    tree: list = []
    for node in body:
        if isinstance(node, Loop):
            inner = token_nest(node.body, kind, name)
            tree += [(node.var, node.extent, inner)] if inner else []
        elif isinstance(node, kind) and getattr(node, "fifo", "") == name:
            tree.append("step")
    return tuple(tree)


def _written(body: tuple[Node, ...], values: Mapping[str, int], most: int, symbols: Domain) -> Iterator[Node]:
    """Steps at given turns of the loops around them; loops of constant extent up to `most` turn by turn."""
    for node in body:
        if not isinstance(node, Loop):
            yield substituted(node, values) if values else node
        elif (turns := _turns(node, symbols)) <= most:
            for turn in range(turns):
                yield from _written(node.body, {**values, node.var: turn}, most, symbols)
        else:
            yield Loop(node.var, node.extent, tuple(_written(node.body, values, most, symbols)))


def _turns(loop: Loop, symbols: Domain) -> int:
    """The turns of a loop that may be written out; more than any limit where they vary or step through a sum."""
    turns = upper(loop.extent, symbols)
    if turns == lower(loop.extent, symbols) == 1:
        return 1
    products = (s.op for _, s in leaves(loop.body) if isinstance(s, Compute) and isinstance(s.op, MatmulTiles))
    sums = any(loop.var in edge.variables() for op in products for edge in (op.k.start, op.k.limit))
    return MAX_INT if sums or not loop.extent.is_const else turns


def _size(body: tuple[Node, ...], symbols: Domain) -> int:
    """How many steps a body has with its loops written out."""
    total = 0
    for node in body:
        turns = _turns(node, symbols) if isinstance(node, Loop) else 1
        total += (turns if turns < MAX_INT else 1) * (_size(node.body, symbols) if isinstance(node, Loop) else 1)
    return total
