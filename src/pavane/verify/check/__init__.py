"""The independent checker: does a program, with its certificate, keep the ten obligations, for every value of its
symbols?

    check(program, target) -> Report        facts established, per obligation
    check_part(program, target) -> Report   the same for one section that `compose` will make part of a program
    raise NotProven                         the class of the first obligation not shown; `terms` holds all others
    examine(program, target) -> Report      facts and refusals; raises only where there is no program to examine

It trusts no pass, imports only `ir`, `targets` and `reject`, and reasons about the fragment that `fragment` admits
(outside it: OutsideFragment, which says nothing about the program). One file per obligation states its mathematics;
the other files are evidence that they share. Each shape is checked once; instances cost a few table look-ups each;
tiles and sites cost nothing.

    coverage bounds balance capacity progress order multicast replay numerics meaning
    evidence: resident (loops written out)  section (steps placed)  abstract_run (schedule replayed)  ownership
              evaluation (terms of buffers)  facts, clocks, families, rounds and boundaries (what happens before what)
              footprints (which site touches what)  lag (how far FIFOs let one run ahead)  local_bytes (of buffers)
              bindings, homes and channels (where tensors stand)  standing (where a section stands)
              in_f32 (what Generics compute with)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TypeVar

from pavane.ir.digest import graph_digest, program_digest
from pavane.ir.program import Instance, Program, ShapeSchedule
from pavane.ir.walk import symbol_domain
from pavane.reject import CertificateMismatch, NotProven, OutsideFragment
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.verify.check.abstract_run import abstract_run
from pavane.verify.check.balance import balance
from pavane.verify.check.bindings import bindings, memory_of
from pavane.verify.check.bounds import bounds
from pavane.verify.check.capacity import capacity, counters, on_grid
from pavane.verify.check.channels import channels
from pavane.verify.check.coverage import coverage
from pavane.verify.check.evaluation import evaluate
from pavane.verify.check.fragment import admit
from pavane.verify.check.homes import homes
from pavane.verify.check.meaning import meaning
from pavane.verify.check.multicast import multicast_leaders
from pavane.verify.check.numerics import numerics
from pavane.verify.check.order import program_order, section_order
from pavane.verify.check.progress import progress
from pavane.verify.check.replay import replay
from pavane.verify.check.scope import TOO_LARGE, too_large
from pavane.verify.check.section import Section, section_of
from pavane.verify.check.terms import Effort
from pavane.verify.check.values import Evidence

T = TypeVar("T")

OBLIGATIONS = (
    "coverage", "bounds", "balance", "capacity", "progress", "order", "multicast", "replay", "numerics", "meaning",
)  # fmt: skip
BETWEEN_SECTIONS = ("bounds", "capacity", "order")


@dataclass(frozen=True)
class Fact:
    """What one rule has established, of one shape or of the whole program, and how long it took with its evidence."""

    obligation: str
    of: str
    what: str
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Report:
    """A program: its name, its digest, what was established, what was refused, and what was not asked for that: pairs
    (obligation, shape or program).
    """

    program: str
    digest: str
    facts: tuple[Fact, ...]
    refusals: tuple[NotProven, ...] = ()
    unasked: tuple[tuple[str, str], ...] = ()


def check(program: Program, target: SpatialTarget) -> Report:
    """Accept a PERSISTENT or VERIFIED program that carries its certificate, or raise NotProven."""
    return accepted(examine(program, target))


def check_part(program: Program, target: SpatialTarget) -> Report:
    """Accept one section as a part of a program that is still to be composed.

    All rules, except that its SCRATCH tensors need no place yet and what it reads of SCRATCH, STATE and OUTPUT tensors
    is taken as given. A part that reads them is no program: `check` refuses it, and so does every engine.
    """
    if len(program.instances) != 1:
        available = str(len(program.instances))
        raise OutsideFragment("a part is one section", where=program.name, needed="1", available=available)
    return accepted(examine(program, target, part=True))


def accepted(report: Report) -> Report:
    """The report of an accepted program; otherwise raises the first refusal, with the others as further terms."""
    if not report.refusals:
        return report
    first, *others = report.refusals
    terms = (*first.terms, *(f"[{other.code}] {other}" for other in others[:15]))
    raise type(first)(
        first.what, where=first.where, needed=first.needed, available=first.available, terms=terms, remedy=first.remedy
    )


def examine(program: Program, target: SpatialTarget, part: bool = False) -> Report:
    """Ask all rules of a program that is in the fragment, for this target, and has a certificate."""
    program = admit(program, target)
    digest = program_digest(program)
    findings = _Findings()
    schedules = _certified(findings, program, target, digest)
    symbols = symbol_domain(program)
    sections, evidence = {}, {}
    for shape in program.shapes:
        section = findings.evidence(shape.name, partial(section_of, shape, symbols, schedules[shape.name]))
        if section is not None:
            sections[shape.name] = section
            instances = [i for i in program.instances if i.shape == shape.name]
            values = _check_section(findings, section, schedules[shape.name], target, instances)
            if values is not None:
                evidence[shape.name] = values
    unasked = [(rule, shape.name) for shape in program.shapes for rule in OBLIGATIONS]
    unasked = [pair for pair in unasked if pair not in findings.asked]
    if findings.refusals:
        unasked += [(rule, program.name) for rule in BETWEEN_SECTIONS]
    else:
        _check_program(findings, program, sections, evidence, target, part)
    return Report(program.name, digest, tuple(findings.facts), tuple(findings.refusals), tuple(unasked))


def _certified(findings: _Findings, program: Program, target: SpatialTarget, digest: str) -> dict[str, ShapeSchedule]:
    """The certificate's schedules by shape; notes where it does not bind this program."""
    if program.target != target.name or program.target_digest != target_digest(target):
        what = f"the program is for target {program.target!r} as it was then"
        raise CertificateMismatch(what, available=target.name, remedy="compile it for this target")
    certificate = program.certificate
    if certificate is None:
        raise CertificateMismatch("the program carries no certificate", where=program.name, remedy="run `verify` on it")
    for what, stated, found in (
        ("program", certificate.program, digest),
        ("target", certificate.target, program.target_digest),
        ("graph", program.graph_digest, graph_digest(program)),
    ):
        if stated != found:
            mismatch = CertificateMismatch(
                f"the {what} is not the one that was certified",
                where=program.name,
                needed=found[:12],
                available=stated[:12],
                remedy="the file was edited after `verify`; run it again",
            )
            findings.refusals.append(mismatch)
    names = [schedule.shape for schedule in certificate.schedules]
    if sorted(names) != sorted(shape.name for shape in program.shapes):
        what = "the certificate does not have one schedule for each shape"
        raise CertificateMismatch(what, where=program.name, terms=names)
    return {schedule.shape: schedule for schedule in certificate.schedules}


class _Findings:
    """Facts and refusals so far, and the effort that is left for terms."""

    def __init__(self) -> None:
        self.effort = Effort()
        self.facts: list[Fact] = []
        self.refusals: list[NotProven] = []
        self.asked: list[tuple[str, str]] = []
        self.since = perf_counter()

    def ask(self, obligation: str, of: str, rule: Callable[[], str]) -> bool:
        """Run a rule; note its fact or its refusal."""
        self.asked.append((obligation, of))
        what = self.evidence(of, rule)
        now = perf_counter()
        if what is not None:
            self.facts.append(Fact(obligation, of, what, now - self.since))
        self.since = now
        return what is not None

    def evidence(self, of: str, make: Callable[[], T]) -> T | None:
        """What `make` gives, or nothing and its refusal noted."""
        try:
            return make()
        except NotProven as refusal:
            self.refusals.append(refusal)
        except TOO_LARGE as error:
            self.refusals.append(too_large(error, of))
        return None


def _check_section(
    findings: _Findings,
    section: Section,
    schedule: ShapeSchedule,
    target: SpatialTarget,
    instances: Sequence[Instance],
) -> Evidence | None:
    """All rules of one shape; what its buffers hold. Rules that build on others run only when those hold."""
    name = section.shape.name
    sound = findings.ask("capacity", name, lambda: capacity(section, target))
    sound &= findings.ask("coverage", name, lambda: coverage(section))
    sound &= findings.ask("order", name, lambda: section_order(section))
    run = findings.evidence(name, lambda: abstract_run(section, schedule))
    if run is not None:
        sound &= findings.ask("progress", name, lambda: progress(section, run))
        sound &= findings.ask("balance", name, lambda: balance(section, run))
        sound &= findings.ask("replay", name, lambda: replay(section, run))
    leaders = findings.evidence(name, lambda: multicast_leaders(section))
    if leaders is None or run is None or not sound:
        return None
    findings.ask("multicast", name, lambda: f"{len(leaders)} FIFOs sent to all their members")
    values = findings.evidence(name, lambda: evaluate(section, leaders, findings.effort))
    if values is not None:
        findings.ask("bounds", name, lambda: bounds(section, values))
        findings.ask("numerics", name, lambda: numerics(section, values, target))
        findings.ask("meaning", name, lambda: meaning(section, values, instances))
    return values


def _check_program(
    findings: _Findings,
    program: Program,
    sections: dict[str, Section],
    evidence: dict[str, Evidence],
    target: SpatialTarget,
    part: bool,
) -> None:
    """What holds between sections, each of which holds by itself."""
    if not findings.ask("capacity", program.name, lambda: _own_counters(program, target)):
        return
    memory = findings.evidence(program.name, lambda: memory_of(program, sections, target, part))
    if memory is not None and findings.ask("bounds", program.name, lambda: bindings(memory)):
        findings.ask("capacity", program.name, lambda: homes(memory, target))
        findings.ask("capacity", program.name, lambda: channels(memory, target))
        findings.ask("order", program.name, lambda: program_order(memory, evidence, target))


def _own_counters(program: Program, target: SpatialTarget) -> str:
    counters(program.counters, target, f"program {program.name}")
    for worker in program.workers:
        on_grid(worker.rect, target, f"worker {worker.name}")
    return f"{len(program.counters)} boundary counters"
