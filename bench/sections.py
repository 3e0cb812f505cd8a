"""Where the time of a token goes, section by section, against what the machine could do: writes docs/performance.md.

    python bench/sections.py [--model FILE.gguf] [--cores N ...] [--speed RESULTS.json]

Every worker reads the cycle counter around its turns (`native.load(..., clocks=True)`). A section's roofline is the
greater of its weight bytes at the paired DRAM read rate and its multiply-adds at the vector unit's peak. The table of
ratios comes from a file of bench/speed.py.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from probes import Probes

import pavane as pv
from pavane import native
from pavane.frontends.models import fetch
from pavane.ir.program import Program
from pavane.ir.types import row_bytes

_TURNS, _BEHIND = 24, 256
_INT8_MACS_PER_SECOND = 1.085e12 / 2
_DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"


def main() -> None:
    """Measure both programs and write the page."""
    arguments = _arguments()
    parts = []
    for contract in ("INT8_ACTIVATIONS", "FLOAT"):
        source = pv.gguf(arguments.model or fetch(), contract, 2048)
        parts += [_profile(source, contract, cores) for cores in arguments.cores]
    text = _TEXT.format(
        date=time.strftime("%Y-%m-%d"), profiles="\n".join(parts), ratios=_ratios(arguments.speed), next=_NEXT
    )
    _DOCUMENT.write_text(text)
    print(text)


def _profile(source: pv.Gguf, contract: str, cores: int) -> str:
    target = pv.as_target("host", cores)
    decode, prompt = pv.compile(source.decode(), target), pv.compile(source.prompt(), target)
    most_rows = next(s.hi for s in prompt.symbols if s.name == "rows")
    ids = np.arange(most_rows, dtype=np.int32)
    with (
        native.load(decode, target, weights=source.weights(), clocks=True) as one,
        native.load(prompt, target, weights={}, share=one, clocks=True) as many,
    ):
        for start in range(0, _BEHIND, most_rows):
            many.launch({"pos": start, "rows": most_rows}, {"ids": ids})
        reads = Probes().read_bytes_per_second(min(cores, 2))
        steps = [lambda: one.launch({"pos": _BEHIND}, {"ids": ids[:1]}) for _ in range(_TURNS)]
        blocks = [lambda: many.launch({"pos": _BEHIND, "rows": most_rows}, {"ids": ids}) for _ in range(_TURNS)]
        return "\n".join(
            [
                f"\n### {contract}, {cores} worker{'s' * (cores > 1)}, DRAM read probe {reads / 1e9:.0f} GB/s\n",
                f"One token at position {_BEHIND}:\n",
                _table(decode, one, steps, reads, 1, cores),
                f"\nA prompt, the block of {most_rows} rows at position {_BEHIND}:\n",
                _table(prompt, many, blocks, reads, most_rows, cores),
            ]
        )


def _table(program: Program, ready: native.NativeProgram, turns: list, reads: float, rows: int, cores: int) -> str:
    """The least of the turns, section by section: a turn that others disturbed says nothing."""
    least, least_seconds = None, float("inf")
    for turn in turns:
        before, start = ready.cycles(), time.perf_counter()
        turn()
        seconds, cycles = time.perf_counter() - start, ready.cycles() - before
        if seconds < least_seconds:
            least, least_seconds = cycles, seconds
    cycles_per_second = least.sum(axis=1).max() / least_seconds
    by_shape: dict[str, np.ndarray] = {}
    for number, instance in enumerate(program.instances):
        by_shape[instance.shape] = by_shape.get(instance.shape, 0) + least[:, number]
    by_shape["(waits at boundaries)"] = least[:, -1]
    lines = ["| sections | us | share | weights MB | share of the roofline |", "| --- | --- | --- | --- | --- |"]
    for shape, counted in sorted(by_shape.items(), key=lambda item: -item[1].mean()):
        microseconds = counted.mean() / cycles_per_second * 1e6
        size, elements = _weights(program, shape)
        roof = max(size / reads, elements * _rows_of(program, shape, rows) / _INT8_MACS_PER_SECOND / cores) * 1e6
        part = counted.mean() / least.sum(axis=1).mean()
        share = f"{roof / microseconds:.0%}" if size > 1e5 else ""
        lines.append(f"| {shape} | {microseconds:.0f} | {part:.1%} | {size / 1e6:.1f} | {share} |")
    return "\n".join([*lines, f"| whole launch | {least_seconds * 1e6:.0f} | | | |"])


def _weights(program: Program, shape: str) -> tuple[int, int]:
    """(bytes, elements) of the matrices that the instances of a shape read in whole."""
    tensors, size, elements = {t.name: t for t in program.tensors}, 0, 0
    for instance in program.instances:
        if instance.shape != shape or shape == "embedding":
            continue
        for binding in instance.bindings:
            tensor = tensors[binding.tensor]
            if tensor.role == "WEIGHT" and len(tensor.shape) == 2:
                rows, columns = (q.evaluate({}) for q in tensor.shape)
                size, elements = size + rows * row_bytes(tensor.dtype, columns), elements + rows * columns
    return size, elements


def _rows_of(program: Program, shape: str, rows: int) -> int:
    """Rows that a section computes: those of the block, or those that its output has room for (logits)."""
    found = next((s for s in program.shapes if s.name == shape), None)
    if found is None:
        return 0
    out = next(f for f in found.formals if f.role == "OUT")
    return out.shape[0].const if out.shape[0].is_const else rows


def _ratios(path: Path | None) -> str:
    if path is None:
        return "Not measured with this page: `make bench`."
    record = json.loads(path.read_text())
    lines = [
        "| case | ratio, median [least, greatest] | Pavane a second | other a second | load |",
        "| --- | --- | --- | --- | --- |",
    ]
    for case in record["cases"]:
        r = case["ratio"]
        lines.append(
            f"| {case['name']} | {r['median']:.2f} [{r['min']:.2f}, {r['max']:.2f}] | {case['pavane_per_second']:.1f} "
            f"| {case['other_per_second']:.1f} | {case['load_average']:.1f} |"
        )
    start = record["second_start_seconds"]
    spread = f"{start['median']:.2f} s [{start['min']:.2f}, {start['max']:.2f}]"
    lines += ["", f"A second start, from exec to the first letter: {spread}."]
    return "\n".join([f"{record['processor']}, commit {record['commit']}, {record['versions']}\n", *lines])


_NEXT = """\
- Sections of a token between two boundaries share workers by items; with 9 query and 3 key/value heads on two cores
  one core has 9 of 15 heads. Giving the sections of one interval opposite homes would even that out.
- Query, key and value sections norm and quantise the same rows, each for itself.
- Attention's scores along K go through 16 lanes that are added up for every score. (Keys turned in scratch, so that 32
  scores are added up at once, took 18 % of a prompt's block instead of 12 %: registers are spilt.)

## What was measured and left

- A checksum over the packed weights that are kept on disk: 70 ms a start for 135M parameters. What somebody has changed
  since is told by its time instead.
- Prefetching b's next columns in products across columns: 2 % (bf16, not packed), less than packing a weight's (5 %).
- A prompt in blocks of 128 rows: 1 % to 5 % faster than 64 on long prompts, slower below 96 tokens."""

_TEXT = """# Where the time goes

Written by `bench/sections.py` on {date}; the sections' names are those of `pavane show`. Times are the least of 24
launches, cycles of the workers' turns; a section's time is the mean over the workers. The roofline is the greater of
weight bytes at the DRAM read probe and int8 multiply-adds at the vector unit's peak (so FLOAT products of many rows are
far from it). What a cache keeps from the launch before can bring a share above 100 %; so can a probe that other work on
the machine disturbed.
{profiles}

## Against other engines

`load` is the machine's load average while the case ran, the case's own threads included. Where it is above the number
of workers by one or more, other work held a core: engines whose threads meet at barriers suffer from that far more than
others, so those ratios say little about a quiet machine.

{ratios}

## What would come next

{next}
"""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--speed", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
