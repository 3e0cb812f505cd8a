"""Programs without loops: those of constant extent written out turn by turn, so that steps stand at top level.

The rows of a gather stay in their loop, which is how it is written (docs/ir.md, Load).
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.program import Loop, Node, Program
from pavane.ir.walk import leaves, substituted
from tests.evidence.hand import Hand, signed

MOST_STEPS = 160  # of a process


class Small(Hand):
    """A hand that draws small figures, so that there are few turns."""

    def between(self, lo: int, hi: int) -> int:
        return super().between(lo, min(hi, lo + 19))


def flat(program: Program) -> Program | None:
    """None where that is too long, or where there was none."""
    shapes = tuple(
        replace(s, processes=tuple(replace(p, body=_written_out(p.body)) for p in s.processes)) for s in program.shapes
    )
    longest = max(sum(1 for _ in leaves(p.body)) for s in shapes for p in s.processes)
    if shapes == program.shapes or longest > MOST_STEPS:
        return None
    return signed(replace(program, shapes=shapes))


def _written_out(body: tuple[Node, ...]) -> tuple[Node, ...]:
    found: list[Node] = []
    for node in body:
        if isinstance(node, Loop) and node.extent.is_const and node.var != "LV_SUB_H":
            for turn in range(min(node.extent.const, MOST_STEPS)):
                found += _written_out(tuple(substituted(n, {node.var: turn}) for n in node.body))
        elif isinstance(node, Loop):
            found.append(replace(node, body=_written_out(node.body)))
        else:
            found.append(node)
    return tuple(found)
