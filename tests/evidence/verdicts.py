"""One instance: what the oracle says of it, what the checker says, and how long it takes to accept it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import process_time

from msgspec.structs import replace

from pavane.ir.digest import canonical_bytes, graph_digest, program_digest
from pavane.ir.program import Certificate, Do, Program, Shape, ShapeSchedule
from pavane.ir.walk import leaves
from pavane.reject import NotProven, SpatialReject
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.verify.check import examine
from pavane.verify.prove import prove
from tests.oracle import judge

POINTS = 5  # all corners of two symbols and their middle
INTERLEAVINGS, MORE_INTERLEAVINGS = 12, 60  # of each program; of one that the oracle calls safe and the checker refuses
Refusal = tuple[str, str]  # code, what


@dataclass(frozen=True)
class Outcome:
    """`refusals` are (code, what) in the checker's order, none where it accepts; `fault` is the oracle's, if any."""

    generator: str
    label: str
    number: int
    judged: bool
    fault: str
    refusals: tuple[Refusal, ...]
    check_seconds: float
    small: bool
    tags: tuple[str, ...] = ()
    program: bytes = b""  # kept of wrong verdicts only, with its chip
    chip: bytes = b""

    @property
    def safe(self) -> bool:
        return self.judged and not self.fault

    @property
    def unsafe(self) -> bool:
        return self.judged and bool(self.fault)

    @property
    def accepted(self) -> bool:
        return not self.refusals


def outcome(
    generator: str,
    label: str,
    number: int,
    program: Program,
    target: SpatialTarget,
    original: Program | None = None,
    tags: tuple[str, ...] = (),
    epochs: int = 2,
) -> Outcome:
    """Judge and check; where the checker refuses what the oracle calls safe, the oracle looks once more, for longer.

    `original`: the program that this one was made of; its schedules serve a forger, too.

    What a program must mean is what its graph digest names: that of the original, where the digest is the original's.
    """
    same = original is not None and original.graph_digest == program.graph_digest
    looked = partial(judge, program, target, number, points=POINTS, meant=original if same else None, epochs=epochs)
    verdict = looked(interleavings=INTERLEAVINGS)
    fault = verdict.fault or _false_digest(program)
    refusals = refusals_of(program, target, original)
    if refusals and verdict.judged and not fault:
        fault = looked(interleavings=MORE_INTERLEAVINGS).fault
    bad = bool(fault) == (not refusals) and verdict.judged
    return Outcome(
        generator, label, number, verdict.judged, fault, refusals, 0.0 if refusals else _seconds(program, target),
        _is_small(program, target), tags, *((canonical_bytes(program), canonical_bytes(target)) if bad else ()),
    )  # fmt: skip


def _seconds(program: Program, target: SpatialTarget) -> float:
    """Of this process, to check a program that is accepted with the prover's certificate; 0 where it has none."""
    with suppress(SpatialReject):
        certified = replace(program, certificate=prove(program, target))
        start = process_time()
        examine(certified, target)
        return process_time() - start
    return 0.0


def _false_digest(program: Program) -> str:
    """The graph digest names formals, specs, tensors and bindings. A program that states another graph's is not that
    graph, whatever it computes: who has checked the graph has not checked this.
    """
    with suppress(KeyError):
        if graph_digest(program) != program.graph_digest:
            return "misuse: the program states the digest of another graph"
    return ""


def refusals_of(program: Program, target: SpatialTarget, original: Program | None = None) -> tuple[Refusal, ...]:
    """What the checker says with the best certificate that there is; none where it accepts with any of them.

    What names the mistake comes first: that the schedules are those of another program says nothing of this one.
    """
    said: list[Refusal] = []
    unproven: list[Refusal] = []
    for certificate in _certificates(program, target, original, unproven):
        found = _examined(replace(program, certificate=certificate), target)
        if not found:
            return ()
        said = said or list(found)
    return tuple(sorted((*said, *unproven), key=lambda refusal: refusal[0] == "certificate-mismatch"))


def _certificates(
    program: Program, target: SpatialTarget, original: Program | None, unproven: list[Refusal]
) -> list[Certificate]:
    """The prover's; that of the program it was made of; where there is neither, every process by itself."""
    found = []
    for source in (program, original):
        try:
            if source is not None:
                found.append(prove(source, target).schedules)
        except SpatialReject as refused:
            unproven.append((refused.code, refused.what))
    if not found:
        found.append(tuple(ShapeSchedule(s.name, _one_by_one(s)) for s in program.shapes))
    bound = program_digest(program), target_digest(target)
    return [Certificate(*bound, schedules) for schedules in dict.fromkeys(found)]


def _one_by_one(shape: Shape) -> tuple[Do, ...]:
    return tuple(Do(n, 0, sum(1 for _ in leaves(p.body)) - 1) for n, p in enumerate(shape.processes))


def _examined(program: Program, target: SpatialTarget) -> tuple[Refusal, ...]:
    try:
        return tuple((r.code, r.what) for r in examine(program, target).refusals)
    except NotProven as refusal:
        return ((refusal.code, refusal.what),)


def _is_small(program: Program, target: SpatialTarget) -> bool:
    """At most 16 sites, 8 FIFOs and 200 events (steps as written)."""
    events = sum(1 for s in program.shapes for p in s.processes for _ in leaves(p.body))
    return target.sites <= 16 and max(len(s.fifos) for s in program.shapes) <= 8 and events <= 200
