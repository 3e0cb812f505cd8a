"""An observer of a compilation: what each pass did, for the artefact, for `--dump`, and in a few lines.

`--dump DIR` writes one numbered file a pass: digest, predicted cycles, seconds, and the whole program after it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pavane.artefact import PassRecord
from pavane.atomic import replacing
from pavane.cli.outputs import make_folder, unwritable
from pavane.ir.digest import program_digest
from pavane.ir.program import Program
from pavane.ir.text import show, show_difference

if TYPE_CHECKING:
    from pavane.pipeline import PassEvent


class PassesSeen:
    """Collects events; holds the program before, to say what changed."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._records: list[PassRecord] = []
        self._seconds: dict[str, float] = {}
        self._before: Program | None = None
        if directory is not None:
            make_folder(directory)

    def see(self, event: PassEvent) -> None:
        """Record one event."""
        before = self._before if self._before is not None and self._before.name == event.program.name else None
        change = show_difference(before, event.program) if before is not None else show(event.program)
        record = PassRecord(event.section, event.name, program_digest(event.program), _cycles(event.program), change)
        self._records.append(record)
        self._seconds[event.name] = self._seconds.get(event.name, 0.0) + event.seconds
        self._before = event.program
        if self._directory is not None:
            self._dump(self._directory, record, event)

    def records(self) -> tuple[PassRecord, ...]:
        return tuple(self._records)

    def summary(self) -> tuple[str, ...]:
        """A line: seconds by pass, all sections together."""
        spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self._seconds.items() if seconds)
        return (f"passes, seconds: {spent}",)

    def _dump(self, directory: Path, record: PassRecord, event: PassEvent) -> None:
        name = f"{len(self._records):04d}_{_file_name(event.section)}_{event.name}.txt"
        head = f"digest {record.digest}\npredicted {record.cycles:,} cycles\ntook {event.seconds:.4f} s\n\n"
        try:
            with replacing(directory / name) as temporary:
                temporary.write_text(head + show(event.program), encoding="utf-8")
        except OSError as error:
            raise unwritable(directory, error) from error


def _cycles(program: Program) -> int:
    """Predicted cycles of all sections, where they have a plan."""
    cycles = {shape.name: shape.plan.cycles if shape.plan else 0 for shape in program.shapes}
    return sum(cycles[instance.shape] for instance in program.instances)


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in ".-_" else "_" for letter in text)
