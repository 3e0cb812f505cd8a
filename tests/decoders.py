"""Small decoders with random weights, compiled for a target and run on an engine, token by token or in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pavane import api, native
from pavane.ir.program import Program
from pavane.passes.decoder_tensors import expected_weights
from pavane.sim import Simulator
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.decoder import DecoderConfig, DecoderWeights
from pavane.tensor_graph.q8 import quantise_q8

Arrays = dict[str, np.ndarray]


def random_weights(config: DecoderConfig, seed: int) -> Arrays:
    """float32 by canonical name: matrices with a spread of 1 / sqrt(columns), gains around 1."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, shape in expected_weights(config):
        values = rng.standard_normal(shape).astype(np.float32)
        out[name] = values / np.float32(np.sqrt(shape[-1])) if len(shape) == 2 else 1 + np.float32(0.1) * values
    return out


def stored_dtype(shape: tuple[int, ...], quantised: bool) -> str:
    return "q8_0" if quantised and len(shape) == 2 and shape[-1] % 32 == 0 else "f32"


def compile_decoder(
    config: DecoderConfig,
    target: SpatialTarget,
    rows: int | str,
    *,
    quantised: bool,
    contract: str,
    context: int,
    every_row: bool = True,
) -> Program:
    """The VERIFIED program of a decoder whose matrices are q8_0 where their width allows, or f32."""
    table = tuple((n, s, stored_dtype(s, quantised)) for n, s in expected_weights(config))
    source = api.decoder(
        config, DecoderWeights(table), rows=rows, contract=contract, context=context, logits_every_row=every_row
    )
    return api.compile(source, target)


def stored_weights(config: DecoderConfig, weights: Mapping[str, np.ndarray], quantised: bool) -> Arrays:
    """The arrays that the programs bind: as stored, and the rope frequencies."""
    arrays = {
        name: quantise_q8(array) if stored_dtype(array.shape, quantised) == "q8_0" else array
        for name, array in weights.items()
    }
    arrays["rope_inverse_frequencies"] = np.array(config.rope_inverse_frequencies, np.float32)
    return arrays


def epochs(tokens: Sequence[int], block: int) -> Iterator[tuple[int, Sequence[int]]]:
    """(position, tokens) of each launch."""
    for start in range(0, len(tokens), block):
        yield start, tokens[start : start + block]


def run_native(
    program: Program,
    target: SpatialTarget,
    weights: Arrays,
    tokens: Sequence[int],
    block: int,
    ids: str = "ids",
    logits: str = "logits",
) -> np.ndarray:
    """Logits of every position, [T, vocabulary]. `ids`, `logits`: what the program calls its input and its output."""
    out = []
    with native.load(program, target, weights=weights) as engine:
        for position, part in epochs(tokens, block):
            engine.launch(_symbols(program, position, len(part)), {ids: np.array(part, np.int32)})
            out.append(engine.tensor(logits)[: len(part)].copy())
    return np.concatenate(out)


def run_simulator(
    program: Program, target: SpatialTarget, weights: Arrays, tokens: Sequence[int], block: int
) -> np.ndarray:
    """The same on the simulated chip."""
    out = []
    simulator = Simulator(program, target, weights)
    for position, ids in epochs(tokens, block):
        result = simulator.launch(_symbols(program, position, len(ids)), {"ids": np.array(ids, np.int32)})
        out.append(result.outputs["logits"][: len(ids)])
    return np.concatenate(out)


def _symbols(program: Program, position: int, rows: int) -> dict[str, int]:
    values = {"pos": position, "rows": rows}
    return {s.name: values[s.name] for s in program.symbols}
