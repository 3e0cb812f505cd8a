"""Quasi-affine expressions, spans and guards as code: 64-bit integers of one point, or of 16 neighbouring values of
one variable.
"""

from __future__ import annotations

from collections.abc import Mapping

from pavane.ir.program import Span
from pavane.ir.quasi import Floor, Quasi
from pavane.native.outside import outside
from pavane.native.text import I64, LANES, Code

Scope = Mapping[str, str]


def emit_index(code: Code, value: Quasi, scope: Scope) -> str:
    """The value at the point that `scope` gives."""
    total = str(value.const)
    for coefficient, atom in value.terms:
        term = _floor(code, atom, scope) if isinstance(atom, Floor) else in_scope(scope, atom)
        total = code.add(code.mul(term, coefficient), total)
    return total


def in_scope(scope: Scope, name: str) -> str:
    if name not in scope:
        raise outside("a variable is used where it has no value", name)
    return scope[name]


def _floor(code: Code, atom: Floor, scope: Scope) -> str:
    numerator, divisor = emit_index(code, atom.numerator, scope), atom.divisor
    if not numerator.startswith("%"):
        return str(int(numerator) // divisor)
    if divisor & (divisor - 1) == 0:
        return code.value(f"ashr i64 {numerator}, {divisor.bit_length() - 1}")
    quotient = code.value(f"sdiv i64 {numerator}, {divisor}")
    remainder = code.value(f"srem i64 {numerator}, {divisor}")
    below = code.value(f"sext i1 {code.value(f'icmp slt i64 {remainder}, 0')} to i64")
    return code.add(quotient, below)


def emit_lanes(code: Code, value: Quasi, scope: Scope, variable: str, lanes: str) -> str:
    """The values where `variable` takes the 16 values `lanes`."""
    fixed = Quasi(value.const, tuple((c, a) for c, a in value.terms if not _moves(a, variable)))
    total = code.splat("i64", LANES, emit_index(code, fixed, scope))
    for coefficient, atom in value.terms:
        if _moves(atom, variable):
            term = _floor_lanes(code, atom, scope, variable, lanes) if isinstance(atom, Floor) else lanes
            scaled = code.value(f"mul {I64} {term}, {code.splat('i64', LANES, str(coefficient))}")
            total = code.value(f"add {I64} {total}, {scaled}")
    return total


def _moves(atom: str | Floor, variable: str) -> bool:
    return variable in atom.numerator.variables() if isinstance(atom, Floor) else atom == variable


def _floor_lanes(code: Code, atom: Floor, scope: Scope, variable: str, lanes: str) -> str:
    numerator, divisor = emit_lanes(code, atom.numerator, scope, variable, lanes), atom.divisor
    if divisor & (divisor - 1) == 0:
        return code.value(f"ashr {I64} {numerator}, {code.splat('i64', LANES, str(divisor.bit_length() - 1))}")
    splat = code.splat("i64", LANES, str(divisor))
    quotient, remainder = code.value(f"sdiv {I64} {numerator}, {splat}"), code.value(f"srem {I64} {numerator}, {splat}")
    below = code.value(f"icmp slt {I64} {remainder}, zeroinitializer")
    return code.value(f"add {I64} {quotient}, {code.value(f'sext <{LANES} x i1> {below} to {I64}')}")


def moves_by_one(value: Quasi, variable: str) -> bool:
    """The expression is `variable` plus something that does not depend on it."""
    return value.coefficient(variable) == 1 and variable not in (value - Quasi(0, ((1, variable),))).variables()


def lane_offsets(value: Quasi, variable: str) -> tuple[int, ...] | None:
    """How far each of 16 neighbours of `variable` is from the first, where that is the same from every multiple of 16
    on; else None.
    """
    offsets = [0] * LANES
    for coefficient, atom in value.terms:
        steps = _steps(atom, variable)
        if steps is None:
            return None
        offsets = [offset + coefficient * step for offset, step in zip(offsets, steps, strict=True)]
    return tuple(offsets)


def _steps(atom: str | Floor, variable: str) -> list[int] | None:
    if not _moves(atom, variable):
        return [0] * LANES
    if isinstance(atom, str):
        return list(range(LANES))
    inside, divisor = atom.numerator, atom.divisor
    speed = inside.coefficient(variable)
    if inside.terms != ((speed, variable),) or speed * LANES % divisor:
        return None
    first = inside.const // divisor
    return [(speed * lane + inside.const) // divisor - first for lane in range(LANES)]


def emit_length(code: Code, span: Span, scope: Scope) -> str:
    """clamp(limit - start, 0, size)."""
    rest = emit_index(code, span.limit - span.start, scope)
    return code.greatest(code.least(rest, str(span.size)), "0")


def emit_guards(code: Code, guards: tuple[Span, ...], scope: Scope) -> str | None:
    """Whether every span has an element; None where there are no guards."""
    condition = None
    for span in guards:
        here = code.value(f"icmp sgt i64 {emit_length(code, span, scope)}, 0")
        condition = here if condition is None else code.value(f"and i1 {condition}, {here}")
    return condition
