"""The contract that every program keeps at its phase: `validate` holds on what each pass takes and gives.

    violations(program, target) -> all violations of the first tier that has any
    require_valid(program, target) -> the program, or ProgramReject with all of them

Rules stand in tiers, because later rules rely on earlier ones: sizes that can be handled, then names and variables,
then parts and shapes, then the order and operands of steps. Whatever can be decoded as a program is judged without an
exception. Validation says that a program is well formed. That it is *right* is what the checker proves.
"""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.program import Program
from pavane.reject import ProgramReject
from pavane.targets.descriptor import SpatialTarget
from pavane.validate import (
    buffers,
    guards,
    names,
    on_target,
    ops,
    order,
    phases,
    sane,
    specs,
    tensors,
    variables,
    windows,
)
from pavane.validate.section import Section, sections
from pavane.validate.violation import RuleTable, Violation, judged

__all__ = ["TIERS", "Violation", "require_valid", "rule_ids", "violations"]

# (rules of the program, rules of each section), tier after tier
TIERS: tuple[tuple[RuleTable[Program], RuleTable[Section]], ...] = (
    (names.PROGRAM_RULES + variables.PROGRAM_RULES, names.SECTION_RULES + variables.SECTION_RULES),
    (
        phases.PROGRAM_RULES + tensors.PROGRAM_RULES + buffers.PROGRAM_RULES,
        phases.SECTION_RULES + tensors.SECTION_RULES + buffers.SECTION_RULES + specs.RULES + windows.RULES,
    ),
    (tensors.BINDING_RULES, order.RULES + ops.RULES + guards.RULES),
)


def violations(program: Program, target: SpatialTarget | None = None) -> tuple[Violation, ...]:
    """Every rule broken in the first tier where one is; with a target, also what does not fit that chip."""
    found = tuple(judged(sane.RULES, sane.measure(program)))
    if found:
        return found
    for program_rules, section_rules in TIERS:
        found = tuple(dict.fromkeys(_tier(program, program_rules, section_rules)))
        if found:
            return found
    return tuple(judged(on_target.RULES, (program, target))) if target is not None else ()


def require_valid(program: Program, target: SpatialTarget | None = None) -> Program:
    """The program itself when no rule is broken; raises ProgramReject with every violation."""
    found = violations(program, target)
    if found:
        raise ProgramReject(
            f"program {program.name!r} breaks {len(found)} rule{'s' if len(found) > 1 else ''} of {program.phase}",
            where=found[0].place,
            terms=tuple(str(violation) for violation in found),
            remedy="a pass that gives such a program has a bug; a file that holds one was edited",
        )
    return program


def rule_ids() -> tuple[str, ...]:
    """The ids of all rules, sorted."""
    tables = [sane.RULES, on_target.RULES, *(table for tier in TIERS for table in tier)]
    return tuple(sorted({rule for table in tables for rule, _ in table}))


def _tier(
    program: Program, program_rules: RuleTable[Program], section_rules: RuleTable[Section]
) -> Iterator[Violation]:
    yield from judged(program_rules, program)
    for section in sections(program):
        yield from judged(section_rules, section)
