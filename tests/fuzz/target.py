"""What one case shows: the file's bytes through reader, checker and oracle, in this process.

    examine(data) -> Outcome

An `Outcome` with `finding` empty is right: a refusal, or an acceptance that the oracle does not contradict.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from msgspec.structs import replace as with_fields

from pavane.artefact import Artefact, parse_artefact
from pavane.ir.digest import program_digest
from pavane.ir.program import Certificate, Program
from pavane.reject import SpatialReject
from pavane.verify.check import check
from pavane.verify.prove import prove
from tests.oracle import judge

CHECK_SECONDS, JUDGE_SECONDS, MOST_STEPS, MOST_SLOTS = 10.0, 20.0, 3000, 1 << 16
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """`stage`: refused by `reader` or `checker`, or `accepted`. `finding`: what is wrong, one line; `trace`: where."""

    stage: str
    finding: str = ""
    trace: str = ""
    judged: bool = False


class TooSlow(BaseException):
    """The processor time of a stage is over; no handler of the code under test takes it."""


def examine(data: bytes) -> Outcome:
    """Read, check, and where it is accepted, judge. Also with the schedules that the prover finds."""
    read = _guarded("reader", lambda: parse_artefact(data))
    if isinstance(read, Outcome):
        return read
    outcome = _checked(read)
    if outcome.stage != "checker" or outcome.finding:
        return outcome
    proven = _guarded("prover", lambda: prove(read.program, read.target))
    if isinstance(proven, Outcome):
        return proven if proven.finding else outcome
    certificate = Certificate(program_digest(read.program), read.program.target_digest, proven.schedules)
    return _checked(with_fields(read, program=with_fields(read.program, certificate=certificate)))


def _checked(read: Artefact) -> Outcome:
    checked = _guarded("checker", lambda: check(read.program, read.target))
    if isinstance(checked, Outcome):
        return checked
    if _slots(read.program) > MOST_SLOTS:
        return Outcome("accepted")
    try:
        with _limited(JUDGE_SECONDS):
            verdict = judge(read.program, read.target, most_steps=MOST_STEPS, points=2, interleavings=20)
    except TooSlow:
        return Outcome("accepted")
    found = Outcome("accepted", judged=verdict.judged)
    return replace(found, finding=f"FALSE ACCEPT: {verdict.fault}") if verdict.judged and verdict.fault else found


def _slots(program: Program) -> int:
    """Rows of slots that the oracle would hold: an alias takes no memory of the chip, and may be of any depth."""
    return sum(fifo.depth * fifo.rows for shape in program.shapes for fifo in shape.fifos)


def _guarded(stage: str, action: Callable[[], T]) -> T | Outcome:
    """What the action gives, or the outcome that ends the case. Everything but a SpatialReject is a finding."""
    try:
        with _limited(CHECK_SECONDS):
            return action()
    except SpatialReject:
        return Outcome(stage)
    except TooSlow:
        return Outcome(stage, f"SLOW: {stage} takes more than {CHECK_SECONDS} s", traceback.format_exc())
    except Exception as error:  # whatever comes is what is looked for
        return Outcome(stage, f"CRASH: {stage} raises {type(error).__name__}: {error}"[:300], traceback.format_exc())


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """TooSlow after so much processor time of this process."""

    def over(number: int, frame: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
