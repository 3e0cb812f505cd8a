"""What a token costs with sections along the sites beside the DRAM channels, and without.

    python bench/adjacent.py [--models A,B] [--chips X,Y] [--types q8_0,bf16] [--context 2048]

A line a model, chip and type of the matrices: seconds of compile + verify (of the processor: cold, this process),
simulated milliseconds a token at the middle of the context, gigabytes a second that DRAM gives and takes in that time,
and which sections stand beside the channels; then the first three of the same chip described without such sites, where
every site gets of a channel what those get that are far from it.
"""

from __future__ import annotations

import argparse
import time

from model_shapes import MODELS, stored_weights
from msgspec.structs import replace

from pavane import api
from pavane.ir.program import Program
from pavane.reject import SpatialReject
from pavane.sim import simulate
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.tensor_graph.forward import DecoderConfig, DecoderWeights

CHIPS = ("wormhole_n150", "blackhole_p150")
FIGURES = ("compile s", "ms/token", "GB/s")
HEADINGS = ("model", "chip", "type", *FIGURES, "beside the channels", *(f"{name} without" for name in FIGURES))


def main() -> None:
    """Print the table, as Markdown."""
    arguments = _arguments()
    print("| " + " | ".join(HEADINGS) + " |")
    print("| " + " | ".join("---" for _ in HEADINGS) + " |")
    for chip in arguments.chips.split(","):
        for model in arguments.models.split(","):
            for dtype in arguments.types.split(","):
                cells = _line(MODELS[model], load_target(chip), dtype, arguments.context)
                print("| " + " | ".join((model, chip, dtype, *cells)) + " |", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--types", default="q8_0,bf16")
    parser.add_argument("--context", type=int, default=2048)
    return parser.parse_args()


def _line(config: DecoderConfig, chip: SpatialTarget, dtype: str, context: int) -> tuple[str, ...]:
    source = api.decoder(config, _stored_as(config, dtype), contract="FLOAT", context=context)
    try:
        program, figures = _measured(source, chip, context // 2)
    except SpatialReject as reject:
        return (f"{type(reject).__name__}: {reject.needed}", *[""] * (len(HEADINGS) - 4))
    beside = ", ".join(sorted(shape.name for shape in program.shapes if shape.sites)) or "none"
    return (*figures, beside, *_measured(source, _without(chip), context // 2)[1])


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
