"""What a certificate covers, and what the checker established, in lines for people."""

from __future__ import annotations

from collections.abc import Sequence

from pavane.ir.program import Do, Program, Turns
from pavane.ir.walk import leaves
from pavane.verify.check import Report


def certificate_lines(program: Program) -> tuple[str, ...]:
    """What was proven of the program, and how big the evidence is; one line when there is no certificate."""
    if program.certificate is None:
        return (f"program {program.name} has no certificate (it is {program.phase})",)
    steps = sum(1 for shape in program.shapes for process in shape.processes for _ in leaves(process.body))
    claims = [shape.name for shape in program.shapes if shape.numerics.exact]
    ranges = ", ".join(f"{s.name} in {s.lo}..{s.hi}" for s in program.symbols)
    return (
        f"program {program.name} for {program.target}, certificate {program.certificate.program[:16]}",
        f"  {_count(len(program.instances), 'section')} of {_count(len(program.shapes), 'shape')}, "
        f"{_count(steps, 'step')}, {_count(len(program.workers), 'worker')}, one launch",
        f"  holds for {'every ' + ranges if ranges else 'its one size'}",
        f"  reference schedules of {_count(sum(_turns(s.schedule) for s in program.certificate.schedules), 'loop')}",
        f"  exact to the bit: {', '.join(claims) if claims else 'no section'}; same bits on any number of workers",
    )


def fact_lines(report: Report) -> tuple[str, ...]:
    """Every fact under its obligation; a fact of several shapes stands once."""
    shared: dict[tuple[str, str], list[str]] = {}
    for fact in report.facts:
        shared.setdefault((fact.obligation, fact.what), []).append(fact.of)
    width = max((len(obligation) for obligation, _ in shared), default=0)
    lines = (f"  {obligation:<{width}}  {', '.join(of)}: {what}" for (obligation, what), of in shared.items())
    return (f"accepted: {report.program}, {report.digest[:16]}", *lines)


def _turns(schedule: Sequence[Do | Turns]) -> int:
    return sum(1 + _turns(item.body) for item in schedule if isinstance(item, Turns))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
