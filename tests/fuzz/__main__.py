"""`python -m tests.fuzz --minutes N`: cases until the time is over; findings, made small, go to a folder.

Of findings with the same cause (what is raised, and where) the first is kept. A finding is made small by leaving out
edits as long as the cause stays. Ends with 1 when anything was found.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.cases import cases
from tests.fuzz.edits import Case, edited
from tests.fuzz.sandbox import Sandbox
from tests.fuzz.target import Outcome

ROUND = 200


def main() -> int:
    options = _options()
    end, tally, causes = time.monotonic() + 60 * options.minutes, Counter(), {}
    options.findings.mkdir(parents=True, exist_ok=True)
    with Sandbox() as sandbox:
        number = options.seed
        while time.monotonic() < end:
            for case in _round(number, end, sandbox, tally):
                _keep(case, sandbox, causes, options.findings)
            number += 1
            print(f"{sum(tally.values())} cases, {len(causes)} findings: {dict(sorted(tally.items()))}", flush=True)
    return 1 if causes else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    return parser.parse_args()


def _round(number: int, end: float, sandbox: Sandbox, tally: Counter[str]) -> list[Case]:
    """The cases of one round that show a finding."""
    found: list[Case] = []

    @seed(number)
    @settings(max_examples=ROUND, phases=[Phase.generate], database=None, deadline=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(cases())
    def run(case: Case) -> None:
        if time.monotonic() > end:
            return
        outcome = sandbox.examine(edited(case))
        tally["finding" if outcome.finding else outcome.stage] += 1
        tally["judged"] += outcome.judged
        if outcome.finding:
            found.append(case)

    run()
    return found


def _keep(case: Case, sandbox: Sandbox, causes: dict[str, int], folder: Path) -> None:
    """Write a finding whose cause is new: case, outcome and file, made small."""
    outcome = sandbox.examine(edited(case))
    cause = _cause(outcome)
    causes[cause] = causes.get(cause, 0) + 1
    if causes[cause] > 1 or not outcome.finding:
        return
    case = _smaller(case, cause, sandbox)
    outcome = sandbox.examine(edited(case))
    name = f"{len(causes):03}-{re.sub(r'[^A-Za-z0-9]+', '-', cause)[:60]}"
    (folder / f"{name}.pavane").write_bytes(edited(case))
    (folder / f"{name}.txt").write_text(f"{outcome.finding}\n\n{case!r}\n\n{outcome.trace}")
    print(f"found {name}: {outcome.finding}", flush=True)


def _smaller(case: Case, cause: str, sandbox: Sandbox) -> Case:
    """The case without the edits that its finding does not need."""
    for i in reversed(range(len(case.edits))):
        less = Case(case.seed, case.edits[:i] + case.edits[i + 1 :])
        if _cause(sandbox.examine(edited(less))) == cause:
            case = less
    return case


def _cause(outcome: Outcome) -> str:
    """What is raised and where; of a false accept the kind of its fault."""
    if outcome.finding.startswith("FALSE ACCEPT"):
        return ":".join(outcome.finding.split(":")[:2])
    places = re.findall(r'File "[^"]*?/(pavane/[^"]+)", line \d+, in (\w+)', outcome.trace)
    kind = re.sub(r"[0-9.]+", "", ":".join(outcome.finding.split(":")[:2]))
    return f"{kind} {places[-1][0]} {places[-1][1]}" if places else kind


if __name__ == "__main__":
    sys.exit(main())
