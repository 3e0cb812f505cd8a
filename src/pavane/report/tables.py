"""The tables of the documentation that are generated: of passes (from `pipeline`) and of refusals (from `reject`).

`python -m pavane.report.tables DIRECTORY` writes passes.md and refusals.md there; a test says when they are out of
date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pavane import reject
from pavane.pipeline import JOINING, PASS_ORDER

_BRANCH = re.compile(r"\+-- (?P<names>[A-Za-z |]+?)(?: \(exit \d+\))?(?:\s{2,}(?P<text>.+))?$")


def generated_tables() -> dict[str, str]:
    """File name -> text."""
    return {"passes.md": passes_table(), "refusals.md": refusals_table()}


def passes_table() -> str:
    """Every pass in order, the phase it leaves a program in, and why it stands there."""
    lines = [
        "# Passes",
        "",
        "Generated from `pipeline.PASS_ORDER`.",
        "",
        "| pass | leaves | because |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{entry.name}` | {entry.phase} | {entry.because} |" for entry in PASS_ORDER]
    lines += ["", "What takes many sections (`pipeline.JOINING`):", "", "| name | because |", "| --- | --- |"]
    lines += [f"| `{entry.name}` | {entry.because} |" for entry in JOINING]
    return "\n".join(lines) + "\n"


def refusals_table() -> str:
    """The exit codes of the command line; every refusal with its stable code, its exit code, and when it is raised."""
    tree = dict(_descriptions())
    lines = [
        "# Refusals",
        "",
        "Generated from `reject.py`. A message says what could not be done, where, needed and available, the terms,",
        "and the way out. What the command line exits with, whatever the command:",
        "",
        "| exit | when |",
        "| --- | --- |",
        *(f"| {code} | {when} |" for code, when in reject.EXIT_CODES),
        "",
        "The code in the first column is stable, for programs that read messages.",
        "",
        "| code | exit | class | when |",
        "| --- | --- | --- | --- |",
    ]
    for kind in _classes(reject.SpatialReject):
        when = _sentence(kind) or tree.get(kind.__name__, "")
        lines.append(f"| `{kind.code}` | {kind.exit_code} | `{kind.__name__}` | {when} |")
    return "\n".join(lines) + "\n"


def _sentence(kind: type[reject.SpatialReject]) -> str:
    """A class's own docstring, as the end of a table's row."""
    text = kind.__dict__.get("__doc__") or ""
    return text[:1].lower() + text[1:].rstrip(".")


def _classes(root: type[reject.SpatialReject]) -> Iterator[type[reject.SpatialReject]]:
    """Depth first, in the order of definition, without the root."""
    for kind in root.__subclasses__():
        if kind.__module__ == reject.__name__:
            yield kind
            yield from _classes(kind)


def _descriptions() -> Iterator[tuple[str, str]]:
    """(class, when) from the tree at the top of reject.py; classes on one line share the text of the line above."""
    above = ""
    for line in (reject.__doc__ or "").splitlines():
        found = _BRANCH.search(line)
        if found:
            above = found["text"] or above
            yield from ((name.strip(), above) for name in found["names"].split("|"))


def main(directory: Path) -> None:
    """Write the tables."""
    for name, text in generated_tables().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
