"""What a certificate covers, and what the checker established, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pavane.ir.program import Do, Program, Turns
from pavane.ir.walk import leaves
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.targets.host import MAX_CORES
from pavane.targets.load import load_target, target_names
from pavane.verify.check import OBLIGATIONS, Fact, Report


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


def chip_lines(target: SpatialTarget) -> tuple[str, ...]:
    """The digest of a file's own chip, and whether it is the chip that Pavane knows by that name."""
    digest = target_digest(target)
    if target.name not in target_names():
        return (
            f"chip {target.name}, digest {digest}",
            "  its figures are the file's: Pavane knows no chip of that name",
        )
    known = target_digest(_known(target))
    if digest == known:
        return (f"chip {target.name}, digest {digest}, as Pavane knows it",)
    on = " of this machine" if target.name == "host" else ""
    return (
        f"chip {target.name}, digest {digest}",
        f"  NOT the {target.name}{on} that Pavane knows, whose digest is {known}: all below is of the file's chip",
    )


def _known(target: SpatialTarget) -> SpatialTarget:
    """Pavane's own chip of that name; `host` with as many cores, where it can have them."""
    cores = min(target.grid.width, MAX_CORES) if target.name == "host" else None
    return load_target(target.name, cores)


def report_lines(report: Report) -> tuple[str, ...]:
    """Every obligation with its time and what was established or refused, and the digest that the certificate binds."""
    seconds = sum(fact.seconds for fact in report.facts)
    if report.refusals:
        verdict = f"refused: {report.program}: {', '.join(broken(report))}"
    else:
        verdict = f"accepted: {report.program}, {len(OBLIGATIONS)} obligations in {_milliseconds(seconds)}"
    lines = (line for obligation in OBLIGATIONS for line in _obligation_lines(obligation, report))
    others = (f"  {r.code}: {r}" for r in report.refusals if r.code not in OBLIGATIONS)
    return (verdict, f"  binds digest {report.digest}", *others, *lines)


def broken(report: Report) -> tuple[str, ...]:
    """The codes of all refusals, in the order of the obligations, those outside them first."""
    codes = dict.fromkeys(refusal.code for refusal in report.refusals)
    return (*(c for c in codes if c not in OBLIGATIONS), *(o for o in OBLIGATIONS if o in codes))


def _obligation_lines(obligation: str, report: Report) -> Iterator[str]:
    """Facts (a fact of several shapes stands once) with their time together, then refusals."""
    facts = [fact for fact in report.facts if fact.obligation == obligation]
    refusals = [f"REFUSED: {refusal}" for refusal in report.refusals if refusal.code == obligation]
    unasked = [of for rule, of in report.unasked if rule == obligation]
    resting = [f"not examined of {', '.join(unasked)}: it rests on what was refused"] if unasked else []
    texts = [*_shared(facts), *refusals, *resting] or ["nothing to show"]
    time = _milliseconds(sum(fact.seconds for fact in facts)) if facts else ""
    width = max(len(name) for name in OBLIGATIONS)
    for number, text in enumerate(texts):
        yield f"  {obligation if number == 0 else '':<{width}} {time if number == 0 else '':>9}  {text}"


def _shared(facts: Sequence[Fact]) -> Iterator[str]:
    by_text: dict[str, list[str]] = {}
    for fact in facts:
        by_text.setdefault(fact.what, []).append(fact.of)
    return (f"{', '.join(of)}: {what}" for what, of in by_text.items())


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def _turns(schedule: Sequence[Do | Turns]) -> int:
    return sum(1 + _turns(item.body) for item in schedule if isinstance(item, Turns))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
