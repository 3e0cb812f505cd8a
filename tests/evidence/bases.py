"""Right programs to mutate: examples by hand, programs of the passes, careful draws of the hand-written generators."""

from __future__ import annotations

import random
from functools import cache as cache_of

from tests.checker.two_sections import twice_on_host, twice_on_toy
from tests.checker_oracle import programs
from tests.evidence import graphs
from tests.evidence.blocks import block_floats
from tests.evidence.caches import cache, gather, gathers_in_sections
from tests.evidence.epochs import over_epochs
from tests.evidence.flat import Small, flat
from tests.evidence.hand import Case, Hand
from tests.evidence.pipelines import alias_pipeline, fifo_pipeline
from tests.evidence.places import beside_channels, on_the_sites
from tests.evidence.products import multicast, multicast_on_a_line, product, row_windows
from tests.evidence.repeated import repeated
from tests.evidence.sections import products_in_sections, sections, side_by_side
from tests.evidence.sums import sums
from tests.evidence.verdicts import refusals_of

# Generators and how many draws of each: more where few programs have what a class needs.
DRAWN = {
    "fifo": (fifo_pipeline, 8), "alias": (alias_pipeline, 8), "product": (product, 60), "multicast": (multicast, 16),
    "line": (multicast_on_a_line, 24),
    "rows": (row_windows, 8), "sections": (sections, 8), "product_section": (products_in_sections, 30),
    "halves": (side_by_side, 6), "cache": (cache, 36), "gather": (gather, 20),
    "gather_section": (gathers_in_sections, 12), "blocks": (block_floats, 16),
    "epochs": (over_epochs, 20), "places": (on_the_sites, 10), "channels": (beside_channels, 12),
    "sums": (sums, 12), "repeated": (repeated, 10),
}  # fmt: skip
# Of each, with loops written out: more where few programs have posts, positions or indices.
FLAT = {
    **dict.fromkeys(DRAWN, 12),
    "multicast": 40,
    "line": 40,
    "cache": 30,
    "product_section": 40,
    "gather_section": 20,
}
PASSES = 12


def names() -> tuple[str, ...]:
    """Of every base."""
    drawn = [f"{family}.{n}" for family, (_, draws) in DRAWN.items() for n in range(draws)]
    flat = [f"flat_{family}.{n}" for family in DRAWN for n in range(FLAT[family])]
    return (*programs.names(), "twice_host", "twice_toy", *drawn, *flat, *(f"passes.{n}" for n in range(PASSES)))


@cache_of
def base(name: str) -> Case | None:
    """None where the passes have no program for that draw, where loops written out are too many, and where the checker
    refuses it: it would refuse a mutant for what is no mistake.
    """
    if name == "twice_host":
        return twice_on_host(programs.host(), 20, 70), programs.host()
    if name == "twice_toy":
        return twice_on_toy(programs.toy(), 20, 70), programs.toy()
    family = name.partition(".")[0]
    if family == "passes":
        return graphs.compiled(random.Random(f"base {name}"))[0]
    if family.removeprefix("flat_") in DRAWN:
        return _drawn(family, name)
    return programs.small(name)


def _drawn(family: str, name: str) -> Case | None:
    """A careful draw; of a flat family a small one, with its loops written out."""
    plain, rng = family.removeprefix("flat_"), random.Random(f"base {name}")
    program, target = DRAWN[plain][0](Hand(rng, 0.0) if family == plain else Small(rng, 0.0))
    made = program if family == plain else flat(program)
    return None if made is None or refusals_of(made, target) else (made, target)


def is_composed(case: Case) -> bool:
    return len(case[0].instances) > 1
