"""What a token costs with sections along the sites beside the DRAM channels, and without.

    python bench/adjacent.py [--models A,B] [--chips X,Y] [--types q8_0,bf16] [--context 2048] [--sections]

A line a model, chip and type of the matrices: seconds of compile + verify (of the processor: cold, this process),
simulated milliseconds a token at the middle of the context, gigabytes a second that DRAM gives and takes in that time,
and which sections stand beside the channels; then the first three of the same chip described without such sites, where
every site gets of a channel what those get that are far from it.

With --sections a line a product of a token instead, by itself, what it reads but for its weight on the sites, whatever
the passes would choose: simulated cycles on all sites with the weight in pages, and along the sites beside the channels
with it in units, the best of all heights of units that `interleave` looks at.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from model_shapes import MODELS, stored_weights
from msgspec.structs import replace

from pavane import api
from pavane.ir.program import Formal, Program
from pavane.ir.types import row_bytes
from pavane.passes.compose import compose
from pavane.passes.interleave import read_by_items, unit_heights
from pavane.passes.section import with_tensors
from pavane.pipeline import run_passes
from pavane.reject import SpatialReject
from pavane.sim import simulate
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.targets.load import load_target
from pavane.targets.restrict import adjacent_sites
from pavane.tensor_graph.decoder import DecoderConfig, DecoderWeights

CHIPS = ("wormhole_n150", "blackhole_p150")
FIGURES = ("compile s", "ms/token", "GB/s")
OF_SECTIONS = (
    "model",
    "chip",
    "type",
    "section",
    "cycles on all sites",
    "cycles beside the channels",
    "rows of a unit",
)
HEADINGS = ("model", "chip", "type", *FIGURES, "beside the channels", *(f"{name} without" for name in FIGURES))


def main() -> None:
    """Print the table, as Markdown."""
    arguments = _arguments()
    headings, lines = (OF_SECTIONS, _section_lines) if arguments.sections else (HEADINGS, _model_lines)
    print("| " + " | ".join(headings) + " |")
    print("| " + " | ".join("---" for _ in headings) + " |")
    for chip in arguments.chips.split(","):
        for model in arguments.models.split(","):
            for dtype in arguments.types.split(","):
                for cells in lines(MODELS[model], load_target(chip), dtype, arguments.context):
                    print("| " + " | ".join((model, chip, dtype, *cells)) + " |", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--types", default="q8_0,bf16")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--sections", action="store_true")
    return parser.parse_args()


def _model_lines(config: DecoderConfig, chip: SpatialTarget, dtype: str, context: int) -> Iterator[tuple[str, ...]]:
    source = api.decoder(config, _stored_as(config, dtype), contract="FLOAT", context=context)
    try:
        program, figures = _measured(source, chip, context // 2)
    except SpatialReject as reject:
        yield (f"{type(reject).__name__}: {reject.needed}", *[""] * (len(HEADINGS) - 4))
        return
    beside = ", ".join(sorted(shape.name for shape in program.shapes if shape.sites)) or "none"
    yield (*figures, beside, *_measured(source, _without(chip), context // 2)[1])


def _section_lines(config: DecoderConfig, chip: SpatialTarget, dtype: str, context: int) -> Iterator[tuple[str, ...]]:
    """Of one layer, and the logits."""
    one = replace(config, layers=1, local_layers=tuple(layer for layer in config.local_layers if layer < 1))
    source = api.decoder(one, _stored_as(one, dtype), contract="FLOAT", context=context)
    for section in source.sections(chip):
        near = {t.name: {"home": "sites"} for t in section.tensors if t.role == "SCRATCH" or len(t.shape) == 1}
        for formal, rows_of_item in read_by_items(section.shapes[0]):
            given = with_tensors(section, near)
            yield section.shapes[0].name, str(_cycles(given, chip)), *_best_beside(given, formal, rows_of_item, chip)


def _best_beside(section: Program, formal: Formal, rows_of_item: int, chip: SpatialTarget) -> tuple[str, str]:
    """The fewest cycles along the sites beside the channels, and of how many rows the weight's units are then."""
    (weight,) = (b.tensor for b in section.instances[0].bindings if b.formal == formal.name)
    width = row_bytes(formal.dtype, formal.shape[-1].const)
    found = []
    for height in unit_heights(width, rows_of_item, chip):
        lying = with_tensors(section, {weight: {"interleave_bytes": height * width}})
        found.append((_cycles(lying, adjacent_sites(chip)), height))
    best = min(found, default=("no unit fits", ""))
    return str(best[0]), str(best[1])


def _cycles(section: Program, chip: SpatialTarget) -> int:
    program = compose(section.name, [run_passes(replace(section, target_digest=target_digest(chip)), chip)], chip)
    symbols = {symbol.name: symbol.expected for symbol in program.symbols}
    return simulate(program, chip, symbols=symbols, functional=False).cycles - chip.launch.cycles


def _stored_as(config: DecoderConfig, dtype: str) -> DecoderWeights:
    """The weights' table with its matrices of this type."""
    table = stored_weights(config).tensors
    return DecoderWeights(tuple((n, s, dtype if kind == "q8_0" else kind) for n, s, kind in table))


def _without(chip: SpatialTarget) -> SpatialTarget:
    far = replace(chip.dram, adjacent=(), bytes_per_cycle=chip.dram.far_rate, far_bytes_per_cycle=0)
    return replace(chip, dram=far)


def _measured(source: api.Source, chip: SpatialTarget, position: int) -> tuple[Program, tuple[str, ...]]:
    start = time.process_time()
    program = api.compile(source, chip)
    seconds = time.process_time() - start
    result = simulate(program, chip, symbols={"pos": position}, functional=False)
    moved = sum(channel.read_bytes + channel.written_bytes for channel in result.channels)
    token_seconds = result.cycles / chip.clock_hz
    return program, (f"{seconds:.1f}", f"{1e3 * token_seconds:.3f}", f"{moved / token_seconds / 1e9:.0f}")


if __name__ == "__main__":
    main()
