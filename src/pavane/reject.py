"""Every reason why an input or a program cannot go on, as typed exceptions with their fields as data.

    SpatialReject                       code, exit_code, what, where, needed, available, terms, remedy
    +-- InputReject (exit 3)            a file, a tensor, a graph or an argument is not what it must be
    |   +-- FileReject                    unreadable, truncated, wrong magic, wrong version; or not to be written
    |   +-- ModelReject                   unknown architecture, missing or misshapen tensor, bad metadata
    |   +-- FetchReject                   no network, cut short, wrong checksum
    |   +-- ArgumentReject (exit 2)       a value on the command line or in a call that cannot be
    |   +-- OutsideAlgebra                ops that Generic and MatmulTiles cannot express
    |   +-- LaunchReject                  a symbol, an index, a size or the weights at a launch
    +-- TargetReject (exit 4)           a descriptor is missing a figure or contradicts itself
    +-- MissingExtra (exit 4)           an optional dependency is not installed
    +-- ProgramReject (exit 5)          `validate` found rules broken
    +-- DoesNotFit (exit 6)             a pass cannot meet the chip's limits: demand > bound, with its terms
    |   +-- NoEngine | NoPlan | TooFewSites | MemoryExceeded | TooManyFifos | OutOfRegisters | OutOfCounters
    |   +-- ComposeReject
    +-- NotProven (exit 7)              the checker refuses the program: one class per obligation
        +-- OutsideFragment | CertificateMismatch
        +-- CoverageRefused | BoundsRefused | BalanceRefused | CapacityRefused | ProgressRefused
        +-- OrderRefused | MulticastRefused | ReplayRefused | NumericsRefused | MeaningRefused
    +-- SimulationFault (exit 8)        what the simulator caught: Deadlock, PoisonRead, ProtocolFault, UnwrittenOutput

A message says, in this order: what could not be done, where, needed and available with units, the terms of the sum, and
what would make it fit. A bug in Pavane is never a reject.
"""

from __future__ import annotations

from collections.abc import Sequence

EXIT_CODES = (
    (0, "done"),
    (1, "a defect of Pavane"),
    (2, "a wrong command line: an unknown name, or a value that cannot be"),
    (3, "a file cannot be read, written or fetched, or does not hold what it must"),
    (4, "a chip's description is wrong, or an optional dependency is not installed"),
    (5, "a program is not well formed"),
    (6, "it does not fit the chip"),
    (7, "it is not proven"),
    (8, "a simulation failed"),
    (130, "interrupted"),
    (141, "the reader of the output went away"),
)


class SpatialReject(Exception):
    """A worded refusal. `code` is stable; `exit_code` is what the CLI exits with."""

    code = "reject"
    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        needed: str = "",
        available: str = "",
        terms: Sequence[str] = (),
        remedy: str = "",
    ) -> None:
        self.what = what
        self.where = where
        self.needed = needed
        self.available = available
        self.terms = tuple(terms)
        self.remedy = remedy
        super().__init__(self._message())

    def _message(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"at {self.where}")
        if self.needed:
            parts.append(f"needed {self.needed}" + (f", available {self.available}" if self.available else ""))
        if self.terms:
            parts.append("terms: " + "; ".join(self.terms))
        if self.remedy:
            parts.append(f"way out: {self.remedy}")
        return ". ".join(part.rstrip(".") for part in parts) + "."

    def __reduce__(self) -> tuple:
        fields = {name: getattr(self, name) for name in ("where", "needed", "available", "terms", "remedy")}
        return (_rebuild, (type(self), self.what, fields))


def _rebuild(cls: type[SpatialReject], what: str, fields: dict) -> SpatialReject:
    return cls(what, **fields)


class InputReject(SpatialReject):
    code, exit_code = "input", 3


class FileReject(InputReject):
    code = "file"


class ModelReject(InputReject):
    code = "model"


class FetchReject(InputReject):
    code = "fetch"


class ArgumentReject(InputReject):
    code, exit_code = "argument", 2


class OutsideAlgebra(InputReject):
    code = "outside-algebra"


class LaunchReject(InputReject):
    code = "launch"


class TargetReject(SpatialReject):
    code, exit_code = "target", 4


class MissingExtra(SpatialReject):
    code, exit_code = "missing-extra", 4


class ProgramReject(SpatialReject):
    code, exit_code = "program", 5


class DoesNotFit(SpatialReject):
    code, exit_code = "does-not-fit", 6


class NoEngine(DoesNotFit):
    """No engine of the chip does that role, or multiplies those types."""

    code = "no-engine"


class NoPlan(DoesNotFit):
    """No block plan fits into the local memory of a site."""

    code = "no-plan"


class TooFewSites(DoesNotFit):
    """A rectangle of sites is needed that the grid does not have."""

    code = "too-few-sites"


class MemoryExceeded(DoesNotFit):
    """Buffers need more local memory than a site has."""

    code = "memory-exceeded"


class TooManyFifos(DoesNotFit):
    """A section needs more FIFOs than a site has."""

    code = "too-many-fifos"


class OutOfRegisters(DoesNotFit):
    """An op holds more tiles at once than an engine's registers."""

    code = "out-of-registers"


class OutOfCounters(DoesNotFit):
    """More counters are needed than a site has."""

    code = "out-of-counters"


class ComposeReject(DoesNotFit):
    """Sections cannot become one program: declarations differ, memory beside the chip or counter bits run out."""

    code = "compose"


class NotProven(SpatialReject):
    code, exit_code = "not-proven", 7


class OutsideFragment(NotProven):
    """The program is of a form that the checker does not know."""

    code = "outside-fragment"


class CertificateMismatch(NotProven):
    """The certificate is missing, or of another program or chip."""

    code = "certificate-mismatch"


class CoverageRefused(NotProven):
    """An output element is not written exactly once, or a term not summed exactly once."""

    code = "coverage"


class BoundsRefused(NotProven):
    """An access may leave its tensor, its buffer or its memory."""

    code = "bounds"


class BalanceRefused(NotProven):
    """Pushes and pops, or posts and waits, do not match."""

    code = "balance"


class CapacityRefused(NotProven):
    """Slots, memory, FIFOs, counters or their bits are exceeded, or live buffers overlap."""

    code = "capacity"


class ProgressRefused(NotProven):
    """The program may stop for ever."""

    code = "progress"


class OrderRefused(NotProven):
    """Two accesses to the same bytes are not ordered."""

    code = "order"


class MulticastRefused(NotProven):
    """Receivers of a multicast are no rectangle, or receive unequally, or a source is reused too early."""

    code = "multicast"


class ReplayRefused(NotProven):
    """Counters or FIFOs are not where the next launch needs them."""

    code = "replay"


class NumericsRefused(NotProven):
    """A claim of exactness or of reproducibility does not follow."""

    code = "numerics"


class MeaningRefused(NotProven):
    """The program does not compute what its sections specify, or reads what was never written."""

    code = "meaning"
