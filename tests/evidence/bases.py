"""Right programs to mutate: examples by hand, programs of the passes, careful draws of the hand-written generators."""

from __future__ import annotations

import random
from functools import cache as cache_of

from tests.checker.two_sections import twice_on_host, twice_on_toy
from tests.checker_oracle import programs
from tests.evidence import graphs
from tests.evidence.caches import cache, gather
from tests.evidence.hand import Case, Hand
from tests.evidence.pipelines import alias_pipeline, fifo_pipeline
from tests.evidence.products import multicast, product, row_windows
from tests.evidence.sections import products_in_sections, sections, side_by_side

# Generators and how many draws of each: more where few programs have what a class needs.
DRAWN = {
    "fifo": (fifo_pipeline, 8), "alias": (alias_pipeline, 8), "product": (product, 60), "multicast": (multicast, 16),
    "rows": (row_windows, 8), "sections": (sections, 8), "product_section": (products_in_sections, 14),
    "halves": (side_by_side, 6), "cache": (cache, 36), "gather": (gather, 20),
}  # fmt: skip
PASSES = 12


def names() -> tuple[str, ...]:
    """Of every base."""
    drawn = [f"{family}.{n}" for family, (_, draws) in DRAWN.items() for n in range(draws)]
    return (*programs.names(), "twice_host", "twice_toy", *drawn, *(f"passes.{n}" for n in range(PASSES)))


@cache_of
def base(name: str) -> Case | None:
    """None where the passes have no program for that draw."""
    if name == "twice_host":
        return twice_on_host(programs.host(), 20, 70), programs.host()
    if name == "twice_toy":
        return twice_on_toy(programs.toy(), 20, 70), programs.toy()
    family = name.partition(".")[0]
    if family == "passes":
        return graphs.compiled(random.Random(f"base {name}"))[0]
    if family in DRAWN:
        return DRAWN[family][0](Hand(random.Random(f"base {name}"), careless=0.0))
    return programs.small(name)


def is_composed(case: Case) -> bool:
    return len(case[0].instances) > 1
