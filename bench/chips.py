"""Whole decoders on every chip: how long they take to compile and verify, and what the simulator says of a token.

    python bench/chips.py [--models A,B] [--chips X,Y] [--weights q8_0,bfp8,bfp4] [--contract FLOAT] [--context 2048]
        [--no-simulation] [--joined-only] [--prompts]

A line a model, kind of weights, chip and program: seconds of compile + verify (cold, this process, one core), bytes of
the artefact, sections; of `decode` (and with --prompts of a prompt's block of 32 rows), at the middle of the context:
simulated milliseconds a launch, and bytes read from and written to DRAM, over the bytes of the weights that a token
reads, and over those and the live rows of the caches, each read once; the same of the program without `pack` and
`forward`: each section has the whole grid, every result goes through the memory beside the chip.
"""

from __future__ import annotations

import argparse
import resource
import time
from itertools import product
from math import prod

from model_shapes import MODELS, stored_weights, weight_bytes_a_token

from pavane import api
from pavane.ir.digest import canonical_bytes
from pavane.ir.program import Program
from pavane.ir.types import StoredWeights, row_bytes
from pavane.passes.forward import Forwarded
from pavane.passes.pack import Packed
from pavane.passes.planning import Planning
from pavane.pipeline import compile_joined
from pavane.reject import SpatialReject
from pavane.sim import simulate
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.tensor_graph.decoder import DecoderConfig

CHIPS = ("wormhole_n150", "blackhole_p150", "sn40l", "xdna2")
SIMULATED = ("ms", "DRAM MB", "DRAM/weights", "DRAM/(weights+cache)")
HEADINGS = (
    "model", "weights", "chip", "program", "compile s", "bytes", "sections", *SIMULATED,
    *(f"{name} apart" for name in SIMULATED), "simulate s",
)  # fmt: skip


def main() -> None:
    """Print the table, as Markdown."""
    arguments = _arguments()
    print("| " + " | ".join(HEADINGS) + " |")
    print("| " + " | ".join("---" for _ in HEADINGS) + " |")
    for model in arguments.models.split(","):
        for weights, chip, rows in product(arguments.weights.split(","), arguments.chips.split(","), (1, "rows")):
            cells = _measured(MODELS[model], weights, load_target(chip), rows, arguments)
            program = "decode" if rows == 1 else "prompt"
            print("| " + " | ".join((model, weights, chip, program, *cells)) + " |", flush=True)
    print(f"\npeak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--weights", default="q8_0")
    parser.add_argument("--contract", default="FLOAT", choices=("FLOAT", "INT8_ACTIVATIONS"))
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--no-simulation", action="store_true")
    parser.add_argument("--joined-only", action="store_true", help="leave out the program without pack and forward")
    parser.add_argument("--prompts", action="store_true", help="simulate prompts too")
    return parser.parse_args()


def _measured(
    config: DecoderConfig, weights: StoredWeights, chip: SpatialTarget, rows: int | str, arguments: argparse.Namespace
) -> tuple[str, ...]:
    source = api.decoder(
        config, stored_weights(config, weights), rows=rows, contract=arguments.contract, context=arguments.context
    )
    start = time.perf_counter()
    try:
        program = api.compile(source, chip)
    except SpatialReject as reject:
        return (f"{type(reject).__name__}: {reject}", *[""] * (len(HEADINGS) - 5))
    seconds = time.perf_counter() - start
    compiled = (f"{seconds:.1f}", str(len(canonical_bytes(program))), str(len(program.instances)))
    if arguments.no_simulation or (rows != 1 and not arguments.prompts):
        return (*compiled, *[""] * (2 * len(SIMULATED) + 1))
    start = time.perf_counter()
    joined = _simulated(program, chip, config, weights, arguments.context // 2)
    apart = ("",) * len(SIMULATED)
    if not arguments.joined_only:
        apart = _simulated(_apart(source, chip), chip, config, weights, arguments.context // 2)
    return (*compiled, *joined, *apart, f"{time.perf_counter() - start:.1f}")


def _apart(source: api.Source, chip: SpatialTarget) -> Program:
    """Nothing packed, nothing forwarded."""
    sections = source.sections(chip)
    whole = (0, 0, chip.grid.width, chip.grid.height)
    packed = Packed(sections, (whole,) * len(sections), tuple(range(len(sections))))
    return compile_joined(source.name, Forwarded(packed, chip), chip, Planning())


def _simulated(
    program: Program, chip: SpatialTarget, config: DecoderConfig, weights: StoredWeights, position: int
) -> tuple[str, ...]:
    symbols = {s.name: position if s.name == "pos" else s.hi for s in program.symbols}
    result = simulate(program, chip, symbols=symbols, functional=False)
    moved = sum(channel.read_bytes + channel.written_bytes for channel in result.channels)
    milliseconds = 1e3 * result.cycles / chip.clock_hz
    least, cache = weight_bytes_a_token(config, weights), _live_cache_bytes(program, position)
    return f"{milliseconds:.3f}", f"{moved / 1e6:.1f}", f"{moved / least:.3f}", f"{moved / (least + cache):.3f}"


def _live_cache_bytes(program: Program, position: int) -> int:
    """Bytes of the rows of every cache up to and with the one at `position`."""
    caches = (tensor for tensor in program.tensors if tensor.role == "STATE")
    rows = ((cache.dtype, [extent.const for extent in cache.shape[1:]]) for cache in caches)
    return sum((position + 1) * prod(outer) * row_bytes(dtype, width) for dtype, (*outer, width) in rows)


if __name__ == "__main__":
    main()
