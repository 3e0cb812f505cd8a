"""The independent checker: does a program, with its certificate, keep the ten obligations, for every value of its
symbols?

    check(program, target) -> Report        facts established, per obligation
    check_part(program, target) -> Report   the same for one section that `compose` will make part of a program
    raises NotProven                        the class of the first obligation not shown; `terms` holds all others

It trusts no pass, imports only `ir`, `targets` and `reject`, and reasons about the fragment that `fragment` admits
(outside it: OutsideFragment, which says nothing about the program). One file per obligation states its mathematics;
the other files are evidence that they share. Each shape is checked once; instances cost a few table look-ups each;
tiles and sites cost nothing.

    coverage bounds balance capacity progress order multicast replay numerics meaning
    evidence: section (steps placed)  abstract_run (schedule replayed)  ownership  values (terms)
              facts and boundaries (clocks)  bindings
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pavane.ir.digest import graph_digest, program_digest
from pavane.ir.program import Program, Shape, ShapeSchedule
from pavane.ir.quasi import Domain, Unbounded
from pavane.ir.walk import symbol_domain
from pavane.reject import CertificateMismatch, NotProven, OutsideFragment
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.verify.check.abstract_run import abstract_run
from pavane.verify.check.balance import balance
from pavane.verify.check.bindings import bindings, memory_of
from pavane.verify.check.bounds import bounds
from pavane.verify.check.capacity import capacity, counters
from pavane.verify.check.coverage import coverage
from pavane.verify.check.fragment import admit
from pavane.verify.check.meaning import meaning
from pavane.verify.check.multicast import multicast, multicast_leaders
from pavane.verify.check.numerics import numerics
from pavane.verify.check.order import program_order, section_order
from pavane.verify.check.progress import progress
from pavane.verify.check.replay import replay
from pavane.verify.check.section import Section, section_of
from pavane.verify.check.values import evaluate

T = TypeVar("T")

OBLIGATIONS = (
    "coverage", "bounds", "balance", "capacity", "progress", "order", "multicast", "replay", "numerics", "meaning",
)  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """What one rule has established, of one shape or of the whole program."""

    obligation: str
    of: str
    what: str


@dataclass(frozen=True)
class Report:
    """An accepted program: its name, its digest, and what was established."""

    program: str
    digest: str
    facts: tuple[Fact, ...]


def check(program: Program, target: SpatialTarget) -> Report:
    """Accept a PERSISTENT or VERIFIED program that carries its certificate, or raise NotProven."""
    return _check(program, target, part=False)


def check_part(program: Program, target: SpatialTarget) -> Report:
    """Accept one section as a part of a program that is still to be composed.

    All rules, except that its SCRATCH tensors need no place yet and what it reads of SCRATCH and STATE is taken as
    given. A part that reads them is no program: `check` refuses it, and so does every engine.
    """
    if len(program.instances) != 1:
        raise OutsideFragment(
            "a part is one section", where=program.name, needed="1", available=str(len(program.instances))
        )
    return _check(program, target, part=True)


def _check(program: Program, target: SpatialTarget, part: bool) -> Report:
    program = admit(program, target)
    schedules = _certified(program, target)
    findings = _Findings()
    symbols = symbol_domain(program)
    sections = {shape.name: _section(findings, shape, symbols) for shape in program.shapes}
    for section in sections.values():
        if section is not None:
            _check_section(findings, section, schedules[section.shape.name], target)
    if not findings.refusals:
        known = {name: section for name, section in sections.items() if section is not None}
        _check_program(findings, program, known, target, part)
    if findings.refusals:
        raise _together(findings.refusals)
    return Report(program.name, program_digest(program), tuple(findings.facts))


def _certified(program: Program, target: SpatialTarget) -> dict[str, ShapeSchedule]:
    """The certificate's schedules by shape, when it binds this program and this target."""
    if program.target != target.name or program.target_digest != target_digest(target):
        raise CertificateMismatch(
            f"the program is for target {program.target!r} as it was then",
            available=target.name,
            remedy="compile it for this target",
        )
    certificate = program.certificate
    if certificate is None:
        raise CertificateMismatch("the program carries no certificate", where=program.name, remedy="run `verify` on it")
    digest = program_digest(program)
    for what, stated, found in (
        ("program", certificate.program, digest),
        ("target", certificate.target, program.target_digest),
        ("graph", program.graph_digest, graph_digest(program)),
    ):
        if stated != found:
            raise CertificateMismatch(
                f"the {what} is not the one that was certified",
                where=program.name,
                needed=found[:12],
                available=stated[:12],
                remedy="the file was edited after `verify`; run it again",
            )
    names = [schedule.shape for schedule in certificate.schedules]
    if sorted(names) != sorted(shape.name for shape in program.shapes):
        raise CertificateMismatch(
            "the certificate does not have one schedule for each shape", where=program.name, terms=names
        )
    return {schedule.shape: schedule for schedule in certificate.schedules}


class _Findings:
    """Facts and refusals so far."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.refusals: list[NotProven] = []

    def ask(self, obligation: str, of: str, rule: Callable[[], str]) -> bool:
        """Run a rule; note its fact or its refusal."""
        what = self.evidence(of, rule)
        if what is not None:
            self.facts.append(Fact(obligation, of, what))
        return what is not None

    def evidence(self, of: str, make: Callable[[], T]) -> T | None:
        """What `make` gives, or nothing and its refusal noted."""
        try:
            return make()
        except NotProven as refusal:
            self.refusals.append(refusal)
        except (ValueError, Unbounded, OverflowError, RecursionError) as error:
            self.refusals.append(
                OutsideFragment(f"figures or expressions are too large to reason about: {error}", where=of)
            )
        return None


def _section(findings: _Findings, shape: Shape, symbols: Domain) -> Section | None:
    try:
        return section_of(shape, symbols)
    except NotProven as refusal:
        findings.refusals.append(refusal)
        return None


def _check_section(findings: _Findings, section: Section, schedule: ShapeSchedule, target: SpatialTarget) -> None:
    """All rules of one shape. Rules that build on others run only when those hold."""
    name = section.shape.name
    if not findings.ask("capacity", name, lambda: capacity(section, target)):
        return
    sound = findings.ask("coverage", name, lambda: coverage(section))
    sound &= findings.ask("order", name, lambda: section_order(section))
    run = findings.evidence(name, lambda: abstract_run(section, schedule))
    if run is not None:
        sound &= findings.ask("progress", name, lambda: progress(section, run))
        sound &= findings.ask("balance", name, lambda: balance(section, run))
        sound &= findings.ask("replay", name, lambda: replay(section, run))
    leaders = findings.evidence(name, lambda: multicast_leaders(section))
    if leaders is None or run is None or not sound:
        return
    findings.ask("multicast", name, lambda: multicast(leaders))
    values = findings.evidence(name, lambda: evaluate(section, leaders))
    if values is not None:
        findings.ask("bounds", name, lambda: bounds(section, values))
        findings.ask("numerics", name, lambda: numerics(section, values, target))
        findings.ask("meaning", name, lambda: meaning(section, values))


def _check_program(
    findings: _Findings, program: Program, sections: dict[str, Section], target: SpatialTarget, part: bool
) -> None:
    """What holds between sections."""
    symbols = symbol_domain(program)
    memory = findings.evidence(program.name, lambda: memory_of(program, symbols, target, part))
    if memory is not None and findings.ask(
        "bounds", program.name, lambda: bindings(program, sections, memory, symbols)
    ):
        findings.ask("order", program.name, lambda: program_order(program, sections, memory, symbols))
    findings.ask("capacity", program.name, lambda: _own_counters(program, target))


def _own_counters(program: Program, target: SpatialTarget) -> str:
    counters(program.counters, target, f"program {program.name}")
    return f"{len(program.counters)} boundary counters"


def _together(refusals: list[NotProven]) -> NotProven:
    """The first refusal; the others as further terms."""
    first = refusals[0]
    if len(refusals) == 1:
        return first
    others = tuple(f"[{other.code}] {other}" for other in refusals[1:16])
    return type(first)(
        first.what,
        where=first.where,
        needed=first.needed,
        available=first.available,
        terms=(*first.terms, *others),
        remedy=first.remedy,
    )
