"""One small program of each class of wrong verdict, as JSON, with a list: what an engineer of the checker needs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.evidence.verdicts import Outcome


def worded(what: str) -> str:
    """A refusal's words without names and numbers."""
    return re.sub(r"\b(n\d+|\w*\d\w*|f[A-Z]\w*|[A-Z])\b", "_", what)[:90]


def classes(outcomes: Sequence[Outcome]) -> dict[tuple[str, str, str], list[Outcome]]:
    """Safe and refused, by (generator, code, words); smallest program first."""
    found: dict[tuple[str, str, str], list[Outcome]] = defaultdict(list)
    for o in outcomes:
        if o.safe and not o.accepted:
            code, what = o.refusals[0]
            found[(o.generator if o.generator != "mutants" else f"mutants: {o.label}", code, worded(what))].append(o)
    return {k: sorted(v, key=lambda o: len(o.program)) for k, v in sorted(found.items())}


def keep(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Write false_rejects/ and false_accepts/ with their README."""
    rejects, lines = (
        folder / "false_rejects",
        ["What the oracle calls safe and the checker refuses; NN-chip.json is its chip (SpatialTarget as JSON).", ""],
    )
    _emptied(rejects)
    for number, ((generator, code, words), found) in enumerate(classes(outcomes).items()):
        name = f"{number:02d}-{code}.json"
        (rejects / name).write_bytes(found[0].program)
        (rejects / f"{number:02d}-chip.json").write_bytes(found[0].chip)
        lines += [f"- {name}: {generator}: {len(found)} times: {code}: {found[0].refusals[0][1]} ({words})"]
    (rejects / "README").write_text("\n".join(lines) + "\n")
    accepts, lines = folder / "false_accepts", ["What the oracle calls unsafe and the checker accepts.", ""]
    _emptied(accepts)
    wrong = sorted((o for o in outcomes if o.unsafe and o.accepted), key=lambda o: len(o.program))
    for number, o in enumerate(wrong[:200]):
        (accepts / f"{number:03d}.json").write_bytes(o.program)
        (accepts / f"{number:03d}-chip.json").write_bytes(o.chip)
        lines.append(f"- {number:03d}.json: {o.generator}, {o.label}, {o.tags}, {o.number}: {o.fault}")
    (accepts / "README").write_text("\n".join(lines) + "\n")


def _emptied(folder: Path) -> None:
    """The folder, without what an earlier run kept there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
