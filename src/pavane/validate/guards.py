"""Who reads what a ghost item may have left empty says so in its guard.

A dimension of a load's window that is neither row nor column (a head) empties the slot where it is outside its
tensor. An op or a store that reads such a slot, or a buffer that a guarded op wrote, must be empty there too: the
span is in its guard (in its window), never empty at all, or not empty where one of its guards is not. Of a buffer
that is filled in several ways, what all ways share counts here; the checker proves each read.
"""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.program import Compute, Init, Load, Span, Step, Store
from pavane.ir.quasi import Domain, Floor, Quasi
from pavane.ir.walk import operands, window_guard
from pavane.validate.section import Section, is_never_empty, is_never_negative
from pavane.validate.violation import Finding, RuleTable


def guards(section: Section) -> Iterator[Finding]:
    """Every guard of every operand is in the op's guard, provably not empty, or implied by one that is."""
    filled = _fillings(section)
    for body in section.bodies:
        for place, nest, step in body.steps:
            names, own = _reads(section, step)
            domain = section.domain(body, nest)
            for name in names:
                missing = (g for g in filled.get(name, ()) if not _holds(g, own, domain))
                yield from ((place, f"reads {name}, empty outside {_range(g)}, without that guard") for g in missing)


def _reads(section: Section, step: Step) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """The buffers that a step reads, and its own guards."""
    if isinstance(step, Compute):
        return tuple(n for n in operands(step.op) if n != step.op.dst.name), step.op.guard
    if isinstance(step, Store):
        return (step.fifo,), window_guard(step.window, section.formals[step.tensor].shape)
    return (), ()


def _fillings(section: Section) -> dict[str, tuple[Span, ...]]:
    """Per FIFO and carry: the spans outside which every way of filling it leaves it empty."""
    ways: dict[str, list[tuple[Span, ...]]] = {}
    for body in section.bodies:
        for _, _, step in body.steps:
            if isinstance(step, Load):
                ways.setdefault(step.fifo, []).append(window_guard(step.window, section.formals[step.tensor].shape))
            elif isinstance(step, Compute):
                ways.setdefault(step.op.dst.name, []).append(step.op.guard)
            elif isinstance(step, Init):
                ways.setdefault(step.carry, [])
    return {name: tuple(g for g in found[0] if all(g in way for way in found)) for name, found in ways.items() if found}


def _holds(guard: Span, own: tuple[Span, ...], domain: Domain) -> bool:
    if guard in own or is_never_empty(guard, domain):
        return True
    return any(_implies(known, guard, domain) for known in own)


def _implies(known: Span, wanted: Span, domain: Domain) -> bool:
    """start < limit gives floor(start / d) <= (limit - 1) // d, which may be below the wanted limit."""
    for divisor in _divisors(wanted.start):
        if known.start // divisor == wanted.start:
            return is_never_negative(wanted.limit - (known.limit - 1) // divisor - 1, domain)
    return known.start == wanted.start and is_never_negative(wanted.limit - known.limit, domain)


def _divisors(start: Quasi) -> tuple[int, ...]:
    return tuple(atom.divisor for _, atom in start.terms if isinstance(atom, Floor))


def _range(guard: Span) -> str:
    return f"{guard.start} < {guard.limit}"


RULES: RuleTable[Section] = (("guard.missing", guards),)
