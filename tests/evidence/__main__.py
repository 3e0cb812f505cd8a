"""`python -m tests.evidence`: run the suite, write docs/evidence.md, and say in one line what came out.

Exits with 1 on a false accept or a mutant that is not killed. `--witnesses DIR` keeps one program (JSON) of each class
of false accept and of false reject.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pool, cpu_count
from pathlib import Path

from tests.evidence import document, growth, witnesses
from tests.evidence.plan import NoProgram, done, jobs
from tests.evidence.verdicts import Outcome

PAGE = Path(__file__).resolve().parents[2] / "docs" / "evidence.md"


def main() -> int:
    arguments = _arguments()
    start = time.perf_counter()
    outcomes, missing = run(arguments.size, arguments.seed, arguments.processes)
    seconds = time.perf_counter() - start
    if arguments.witnesses:
        witnesses.keep(outcomes, arguments.witnesses)
    figures = growth.measured() if arguments.growth else ()
    page = document.page(outcomes, missing, figures, arguments.size, arguments.seed, seconds)
    arguments.output.write_text(page)
    wrong = [o for o in outcomes if o.unsafe and o.accepted]
    print(f"{len(outcomes)} instances in {seconds:.0f} s, {len(wrong)} false accepts; {arguments.output} is written")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.evidence", description=__doc__)
    parser.add_argument("--size", type=float, default=1.0, help="1: all that docs/evidence.md wants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=cpu_count())
    parser.add_argument("--output", type=Path, default=PAGE)
    parser.add_argument("--witnesses", type=Path)
    parser.add_argument("--growth", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def run(size: float, seed: int, processes: int) -> tuple[list[Outcome], list[NoProgram]]:
    """All outcomes, in an order that does not depend on who was faster."""
    todo = jobs(size, seed)
    outcomes: list[Outcome] = []
    missing: list[NoProgram] = []
    for result in _progress(_results(todo, processes), len(todo)):
        for found in result:
            (missing if isinstance(found, NoProgram) else outcomes).append(found)
    outcomes.sort(key=lambda o: (o.generator, o.label, o.tags, o.number))
    return outcomes, sorted(missing, key=lambda m: m.number)


def _results(todo: list, processes: int) -> Iterator[list]:
    if processes == 1:
        yield from map(done, todo)
        return
    with Pool(processes) as pool:
        yield from pool.imap_unordered(done, todo, chunksize=4)


def _progress(results: Iterator[list], total: int) -> Iterator[list]:
    start = said = time.perf_counter()
    for number, result in enumerate(results, 1):
        yield result
        now = time.perf_counter()
        if now - said > 5 or number == total:
            said = now
            print(f"\r{number} of {total} jobs, {now - start:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
