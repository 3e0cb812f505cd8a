"""Which instances there are, and how each is made: a job is one draw of a generator, or a class on a base."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pavane.ir.program import Program
from tests.evidence import bases, graphs
from tests.evidence.blocks import block_floats
from tests.evidence.caches import cache, gather, gathers_in_sections
from tests.evidence.classes import CLASSES
from tests.evidence.epochs import over_epochs, round_and_round
from tests.evidence.hand import Case, Hand
from tests.evidence.large_figures import large_figures
from tests.evidence.pipelines import alias_pipeline, fifo_pipeline
from tests.evidence.places import beside_channels, on_the_sites
from tests.evidence.products import multicast, product, row_windows
from tests.evidence.repeated import repeated
from tests.evidence.sections import other_sync, products_in_sections, sections, side_by_side
from tests.evidence.sums import sums
from tests.evidence.unusual import unusual
from tests.evidence.verdicts import Outcome, outcome

EPOCHS = 5
ROUND = "counters over many epochs"
# Hand-written generators, and how many programs of each at size 1.
HAND: dict[str, tuple[Callable[[Hand], Case], int]] = {
    "FIFO pipelines": (fifo_pipeline, 600), "alias pipelines": (alias_pipeline, 500), "products": (product, 500),
    "multicast with credits": (multicast, 300), "rows in carries": (row_windows, 400), "sections": (sections, 350),
    "products in sections": (products_in_sections, 150), "sections side by side": (side_by_side, 200),
    "caches": (cache, 300), "gathers": (gather, 300), "other synchronisation": (other_sync, 100),
    "unusual forms": (unusual, 100), "block floats": (block_floats, 300), "caches over epochs": (over_epochs, 300),
    ROUND: (round_and_round, 150), "tensors on the sites": (on_the_sites, 250),
    "beside the channels": (beside_channels, 250), "gathers in sections": (gathers_in_sections, 100),
    "sums of products": (sums, 250), "large figures": (large_figures, 250), "sections repeated": (repeated, 250),
}  # fmt: skip
PASSES = ("passes", 900)
# Mutants of a class at size 1; more where many of them turn out to be harmless.
MUTANTS, MORE = 240, 480
OFTEN_HARMLESS = (
    "swapped waits", "missing cross-section edge", "depth reduced", "counter bits too few",
    "wrong binding of an instance", "source reused before receipt",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """`kind`: "hand", "passes" or "mutants"; `name`: a generator or a class; `number`: a draw.

    Of mutants: the base, and which of all that the class makes of it.
    """

    kind: str
    name: str
    number: int
    seed: int
    base: str = ""
    places: tuple[int, ...] = ()


@dataclass(frozen=True)
class NoProgram:
    """The passes gave none: why."""

    why: str
    number: int


def jobs(size: float, seed: int) -> list[Job]:
    """All jobs of a run, in an order that spreads slow ones."""
    found = [Job("hand", name, n, seed) for name, (_, count) in HAND.items() for n in range(_scaled(count, size))]
    found += [Job("passes", PASSES[0], n, seed) for n in range(_scaled(PASSES[1], size))]
    for name in CLASSES:
        found += _mutant_jobs(name, _scaled(MORE if name in OFTEN_HARMLESS else MUTANTS, size), size, seed)
    random.Random(seed).shuffle(found)
    return found


def _mutant_jobs(name: str, count: int, size: float, seed: int) -> list[Job]:
    """Mutants of a class, as evenly as there are any over single and composed programs, top level and loops."""
    rng = random.Random(f"{seed} {name}")
    strata: dict[tuple[bool, bool], list[tuple[str, int]]] = {}
    for base in _some_bases(rng, size):
        case = bases.base(base)
        if case is None:
            continue
        for place, mutant in enumerate(CLASSES[name].make(*case)):
            strata.setdefault((bases.is_composed(case), mutant.nested), []).append((base, place))
    chosen: dict[str, list[int]] = {}
    left = count
    for number, stratum in enumerate(sorted(strata.values(), key=len)):
        share = min(len(stratum), -(-left // (len(strata) - number)))
        left -= share
        for base, place in rng.sample(stratum, share):
            chosen.setdefault(base, []).append(place)
    return [Job("mutants", name, 0, seed, base, tuple(sorted(places))) for base, places in sorted(chosen.items())]


def _some_bases(rng: random.Random, size: float) -> list[str]:
    """All, or for a small run two or more of each family."""
    families: dict[str, list[str]] = {}
    for name in bases.names():
        families.setdefault(name.partition(".")[0], []).append(name)
    if size >= 0.5:
        return list(bases.names())
    few = [rng.sample(names, min(len(names), max(2, round(len(names) * size)))) for names in families.values()]
    return [name for names in few for name in names]


def _scaled(count: int, size: float) -> int:
    return max(1, round(count * size))


def done(job: Job) -> list[Outcome | NoProgram]:
    """Make the job's programs; judge and check them."""
    return list(_done(job))


def _done(job: Job) -> Iterator[Outcome | NoProgram]:
    rng = random.Random(f"{job.seed} {job.kind} {job.name} {job.number} {job.base}")
    if job.kind == "hand":
        program, target = HAND[job.name][0](Hand(rng))
        epochs = (1 << target.counters.bits) + 2 if job.name == ROUND else _epochs(program)
        yield outcome(job.name, job.name, job.number, program, target, epochs=epochs)
    elif job.kind == "passes":
        case, why = graphs.compiled(rng)
        if case is None:
            yield NoProgram(why, job.number)
        else:
            yield outcome("passes", "passes", job.number, *case)
    else:
        yield from _mutants(job)


def _mutants(job: Job) -> Iterator[Outcome]:
    case = bases.base(job.base)
    if case is None:
        return
    level = "composed" if bases.is_composed(case) else "single"
    for place, mutant in enumerate(CLASSES[job.name].make(*case)):
        if place in job.places and mutant.program != case[0]:
            tags = (job.base, level, "nested" if mutant.nested else "top")
            epochs = _epochs(mutant.program)
            yield outcome("mutants", job.name, place, mutant.program, mutant.target, case[0], tags, epochs)


def _epochs(program: Program) -> int:
    """How many are run: two, or some more where a cache grows from one to the next."""
    return EPOCHS if any(tensor.role == "STATE" for tensor in program.tensors) else 2
