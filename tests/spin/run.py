"""Runs SPIN on a model: `spin -a`, the C compiler, `pan` under limits of memory and time; and words what it found.

`missing_tools` says which of `spin` and `cc` are not on PATH.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pavane.ir.program import Program
from pavane.targets.descriptor import SpatialTarget
from tests.spin.accesses import Misuse, Values
from tests.spin.events import TooLarge
from tests.spin.promela import Model, promela

SPIN, CC = "spin", "cc"
MEMORY_MIB = 1024
PAN_SECONDS = 120
TOOL_SECONDS = 300
DEPTH = 1_000_000
COMPILE = ("-O0", "-w", "-DSAFETY", "-DNOREDUCE", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MIB}", "-DVECTORSZ=16384")


@dataclass(frozen=True)
class SpinVerdict:
    """`fault` is empty where none was found; `complete` where all states were seen (else a limit was reached)."""

    fault: str
    complete: bool = True
    states: int = 0


def missing_tools() -> str:
    """Which of the tools are not installed; empty when all are."""
    return ", ".join(tool for tool in (SPIN, CC) if shutil.which(tool) is None)


def two_launches(program: Program, greatest: bool) -> tuple[Values, Values]:
    """Symbols of two epochs: each at the end of its range, then a position as far on as a launch allows."""
    first = {s.name: s.hi if greatest else s.lo for s in program.symbols}
    limits = {s.name: s.hi for s in program.symbols}
    second = {**first, "pos": min(limits["pos"], first["pos"] + first.get("rows", 1))} if "pos" in first else first
    return first, second


def spin_verdict(
    program: Program,
    target: SpatialTarget,
    epochs: tuple[Values, ...],
    exhaustive: bool = False,
    seconds: int = PAN_SECONDS,
) -> SpinVerdict:
    """What SPIN says of the program's choreography, for one set of symbols an epoch."""
    try:
        model = promela(program, target, epochs, exhaustive)
    except Misuse as misuse:
        return SpinVerdict(f"misuse: {misuse}")
    except TooLarge as large:
        return SpinVerdict(f"not modelled: {large}", complete=False)
    with tempfile.TemporaryDirectory(prefix="spin-") as folder:
        return _explored(model, Path(folder), seconds)


def _explored(model: Model, folder: Path, seconds: int) -> SpinVerdict:
    (folder / "program.pml").write_text(model.text)
    _tool([SPIN, "-a", "program.pml"], folder)
    _tool([CC, *COMPILE, "-o", "pan", "pan.c"], folder)
    try:
        pan = subprocess.run(
            ["./pan", f"-m{DEPTH}"], cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return SpinVerdict("", complete=False)
    return _read(pan.stdout, model)


def _tool(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    if done.returncode or not (folder / ("pan.c" if command[0] == SPIN else "pan")).exists():
        raise RuntimeError(f"{' '.join(command)}: {(done.stdout + done.stderr)[-2000:]}")


def _read(output: str, model: Model) -> SpinVerdict:
    states = re.search(r"(\d+) states, stored", output)
    errors = re.search(r"errors: (\d+)", output)
    if states is None or errors is None:
        raise RuntimeError(f"pan said nothing: {output[-2000:]}")
    found = re.search(r"pan:1: (.*?) \(at depth", output)
    if found is not None:
        return SpinVerdict(_worded(found.group(1), model), states=int(states.group(1)))
    if "Search not completed" in output or "max search depth too small" in output:
        return SpinVerdict("", complete=False, states=int(states.group(1)))
    return SpinVerdict("", states=int(states.group(1)))


_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (r"invalid end state", "deadlock", ""),
    (r"(?:readers|writers)\[(\d+)\]", "race", "watched"),
    (r"slot_owned", "misuse: a slot is used by one that does not own it", ""),
    (r"transfers_fenced", "unbalanced: a process ends with transfers that no fence completes", ""),
    (r"waits_count", "overflow: a wait of more than half a counter's range", ""),
    (r"flight\[(\d+)\]<=", "overflow", "counters"),
    (r"flight\[(\d+)\]==", "unbalanced", "counters"),
    (r"(?:pusher|popper)\[(\d+)\]", "misuse: two processes at one end of", "queues"),
    (r"waiter\[(\d+)\]", "misuse: two processes wait for", "counters"),
    (r"number\[(\d+)\]", "multicast: sent into another slot than the reserved one of", "queues"),
    (r"sending\[(\d+)\]", "multicast: reserved or pushed while it is sent into", "queues"),
    (r"taken\[(\d+)\].*reserved", "unbalanced", "queues"),
    (r"taken\[(\d+)\]<=", "overflow", "queues"),
    (r"(?:reserved|held)\[(\d+)\]", "misuse: pushed or popped without a slot", "queues"),
)


def _worded(text: str, model: Model) -> str:
    """The failed assertion of `promela`, in words."""
    plain = re.sub(r"[ ()]", "", text) if "invalid end state" not in text else text
    for pattern, words, names in _MEANINGS:
        match = re.search(pattern, plain)
        if match is not None:
            of = f" {getattr(model, names)[int(match.group(1))]}" if names else ""
            return f"{words}{of}" if words.startswith(("misuse", "multicast")) or not of else f"{words}:{of}"
    raise RuntimeError(f"an assertion without a meaning: {text}")
