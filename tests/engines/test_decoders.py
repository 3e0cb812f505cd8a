"""Random small decoders, from figures to logits: native and simulator against the plain numpy forward.

Figures are drawn (heads, key and value heads, widths that no tile divides, vocabularies, both rope pairings); prompts
run token by token and in blocks; `host` natively with 1 and 2 workers, `toy` on the simulator.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.digest import graph_digest, program_digest
from pavane.passes.decoder_tensors import expected_weights
from pavane.passes.from_qwen_ops import decoder_sections
from pavane.passes.verify import verify
from pavane.pipeline import compile_sections
from pavane.targets.load import load_target
from pavane.tensor_graph.decoder import DecoderWeights
from pavane.tensor_graph.decoder_reference import decoder_reference
from pavane.tensor_graph.q8 import dequantise_q8
from tests.decoders import (
    compile_decoder,
    random_weights,
    run_native,
    run_simulator,
    stored_dtype,
    stored_weights,
)
from tests.tiny_models import tiny_config

TOKENS = 9
FLOAT_LIMIT = 0.005  # centred relative RMS of logits
INT8_LIMIT = 0.08  # activations rounded to 8 bits a block, on decoders too small to average it out


def drawn_config(seed: int, **fixed):
    """Figures that divide nothing, drawn."""
    rng = np.random.default_rng(seed)
    kv_heads = int(rng.integers(1, 4))
    return tiny_config(
        **{
            "layers": int(rng.integers(1, 3)),
            "width": int(rng.integers(9, 80)),
            "feed_forward": int(rng.integers(10, 120)),
            "kv_heads": kv_heads,
            "heads": kv_heads * int(rng.integers(1, 4)),
            "head_width": 2 * int(rng.integers(2, 17)),
            "vocabulary": int(rng.integers(33, 200)),
            "rope": ["interleaved", "halves"][int(rng.integers(2))],
            "tied_embeddings": bool(rng.integers(2)),
            "qkv_biases": bool(rng.integers(2)),
            "qk_norm": bool(rng.integers(2)),
        }
        | fixed
    )


def centred_relative_rms(found: np.ndarray, expected: np.ndarray) -> float:
    a, b = (x - x.mean(axis=1, keepdims=True) for x in (found.astype(np.float64), expected.astype(np.float64)))
    return float(np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2)))


def case(seed: int, quantised: bool, **fixed):
    """(config, arrays as stored, tokens, the reference's logits)."""
    config = drawn_config(seed, **fixed)
    plain = random_weights(config, seed)
    arrays = stored_weights(config, plain, quantised)
    meant = {
        name: dequantise_q8(arrays[name]) if stored_dtype(array.shape, quantised) == "q8_0" else array
        for name, array in plain.items()
    }
    tokens = [int(t) for t in np.random.default_rng(seed).integers(0, config.vocabulary, TOKENS)]
    return config, arrays, tokens, decoder_reference(config, meant, tokens, np.float64)


def compiled(config, target, rows, quantised=False, contract="FLOAT"):
    context = 7 + 2 * TOKENS
    return compile_decoder(config, target, rows, quantised=quantised, contract=contract, context=context)


@pytest.mark.parametrize("seed", range(4))
def test_random_decoder_on_both_targets(seed):
    config, arrays, tokens, expected = case(seed, quantised=False)
    host, toy = load_target("host", 2), load_target("toy")
    by_token = run_native(compiled(config, host, 1), host, arrays, tokens, 1)
    in_blocks = run_native(compiled(config, host, "rows"), host, arrays, tokens, 4)
    simulated = run_simulator(compiled(config, toy, "rows"), toy, arrays, tokens, 5)
    for found in (by_token, in_blocks, simulated):
        assert centred_relative_rms(found, expected) < FLOAT_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 124))
def test_more_random_decoders(seed):
    config, arrays, tokens, expected = case(seed, quantised=False)
    host, toy = load_target("host", 1 + seed % 3), load_target("toy")
    for rows, block in ((1, 1), ("rows", 7)):
        found = run_native(compiled(config, host, rows), host, arrays, tokens, block)
        assert centred_relative_rms(found, expected) < FLOAT_LIMIT
        found = run_simulator(compiled(config, toy, rows), toy, arrays, tokens, block)
        assert centred_relative_rms(found, expected) < FLOAT_LIMIT


@pytest.mark.parametrize(("contract", "limit"), [("FLOAT", FLOAT_LIMIT), ("INT8_ACTIVATIONS", INT8_LIMIT)])
def test_quantised_decoder(contract, limit):
    figures = {"width": 64, "feed_forward": 96, "heads": 4, "kv_heads": 2, "head_width": 16}
    config, arrays, tokens, expected = case(7, quantised=True, **figures)
    host, toy = load_target("host", 2), load_target("toy")
    for rows, block in ((1, 1), ("rows", 4)):
        found = run_native(compiled(config, host, rows, True, contract), host, arrays, tokens, block)
        assert centred_relative_rms(found, expected) < limit
    simulated = run_simulator(compiled(config, toy, "rows", True, contract), toy, arrays, tokens, 4)
    assert centred_relative_rms(simulated, expected) < limit


@pytest.mark.parametrize("contract", ["FLOAT", "INT8_ACTIVATIONS"])
def test_bits_do_not_depend_on_workers_or_blocks(contract):
    config, arrays, tokens, _ = case(11, quantised=True, width=64, feed_forward=160)
    one, three = load_target("host", 1), load_target("host", 3)
    first = run_native(compiled(config, one, 1, True, contract), one, arrays, tokens, 1)
    assert np.array_equal(first, run_native(compiled(config, three, 1, True, contract), three, arrays, tokens, 1))
    assert np.array_equal(first, run_native(compiled(config, three, "rows", True, contract), three, arrays, tokens, 4))


def test_names_mean_nothing_to_native():
    """Every tensor, shape, worker and counter renamed, and independent sections exchanged: the same bits."""
    config, arrays, tokens, _ = case(3, quantised=False, layers=2)
    target = load_target("host", 2)
    program = compiled(config, target, 1)
    renamed = renamed_program(program)
    assert program_digest(renamed) != program_digest(program)
    plain = run_native(program, target, arrays, tokens, 1)
    other_arrays = {f"t{i}": arrays[t.name] for i, t in enumerate(program.tensors) if t.name in arrays}
    names = {t.name: f"t{i}" for i, t in enumerate(program.tensors)}
    found = run_native(renamed, target, other_arrays, tokens, 1, ids=names["ids"], logits=names["logits"])
    assert np.array_equal(plain, found)


def renamed_program(program):
    """The program with other names for tensors, shapes, instances, counters and workers; certified anew."""
    tensors = {t.name: f"t{i}" for i, t in enumerate(program.tensors)}
    shapes = {s.name: f"s{i}" for i, s in enumerate(program.shapes)}
    counters = {c.name: f"c{i}" for i, c in enumerate(program.counters)}

    def turn(t):
        return replace(t, counter=counters[t.counter]) if hasattr(t, "counter") else t

    renamed = replace(
        program,
        name="x",
        phase="PERSISTENT",
        certificate=None,
        tensors=tuple(replace(t, name=tensors[t.name]) for t in program.tensors),
        shapes=tuple(replace(s, name=shapes[s.name]) for s in program.shapes),
        instances=tuple(
            replace(
                i,
                name="",
                shape=shapes[i.shape],
                bindings=tuple(replace(b, tensor=tensors[b.tensor]) for b in i.bindings),
            )
            for i in program.instances
        ),
        counters=tuple(replace(c, name=counters[c.name]) for c in program.counters),
        workers=tuple(
            replace(w, name=f"w{n}", body=tuple(turn(t) for t in w.body)) for n, w in enumerate(program.workers)
        ),
    )
    renamed = replace(renamed, graph_digest=graph_digest(renamed))
    return verify(renamed, load_target("host", 2))


def test_independent_sections_may_be_exchanged():
    """q, k, v of every layer in another order: another program, the same bits."""
    config, arrays, tokens, _ = case(3, quantised=False, layers=2)
    target = load_target("host", 2)
    table = tuple((n, s, "f32") for n, s in expected_weights(config))
    forward = decoder_sections(config, DecoderWeights(table), target, rows=1, contract="FLOAT", context=7 + 2 * TOKENS)
    sections = list(forward.sections)
    for start in [n for n, s in enumerate(sections) if s.name.endswith(".q")]:
        assert [s.name.rsplit(".", 1)[1] for s in sections[start : start + 3]] == ["q", "k", "v"]
        sections[start : start + 3] = reversed(sections[start : start + 3])
    plain = compile_sections(forward.name, forward.sections, target)
    exchanged = compile_sections(forward.name, sections, target)
    assert program_digest(plain) != program_digest(exchanged)
    runs = [run_native(program, target, arrays, tokens, 1) for program in (plain, exchanged)]
    assert np.array_equal(*runs)
