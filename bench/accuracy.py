"""Accuracy of the native backend on a real model, against the float32 numpy reference on the same (dequantised Q8_0)
weights.

    python bench/accuracy.py [--model FILE.gguf] [--other LOGITS.npy] [--cores N]

Three prompts x 64 positions. Per contract: centred relative RMS of the logits, top-1 agreement where the reference's
gap exceeds 0.1, mean KL divergence; the same for the prompt program and whether 1 and N
workers give the same bits. `--other` is an array [3, 64, vocabulary] of another engine's logits on the same tokens
(bench/llama_logits.py writes one); its KL is printed beside.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from prompts import POSITIONS, TEXTS

import pavane as pv
from pavane import native
from pavane.frontends.models import fetch
from pavane.frontends.tokenizer import read_tokenizer
from pavane.tensor_graph.decoder_reference import decoder_reference


def main() -> None:
    """Measure and print one JSON object."""
    arguments = _arguments()
    model = arguments.model or fetch()
    results: dict[str, dict] = {}
    source = pv.gguf(model, "FLOAT", 256)
    sequences = tokens_of(source)
    weights = {name: source.deployed.tensor_f32(name) for name in source.deployed.weights}
    expected = [decoder_reference(source.config, weights, tokens) for tokens in sequences]
    for contract in ("FLOAT", "INT8_ACTIVATIONS"):
        source = pv.gguf(model, contract, 256)
        one = [decode_logits(source, tokens, 1) for tokens in sequences]
        many = [decode_logits(source, tokens, arguments.cores) for tokens in sequences]
        blocks = [_prompt_logits(source, tokens, arguments.cores) for tokens in sequences]
        results[contract] = {
            "decode": compare(many, expected),
            "prompt": compare(blocks, expected),
            "prompt_against_decode": compare(blocks, many),
            f"bits_equal_1_and_{arguments.cores}_workers": all(
                np.array_equal(a, b) for a, b in zip(one, many, strict=True)
            ),
        }
    if arguments.other:
        results["other"] = compare(list(np.load(arguments.other)), expected)
    print(json.dumps(results, indent=2))


def compare(found: list[np.ndarray], expected: list[np.ndarray]) -> dict[str, float]:
    """Measures over all positions: `found` and `expected` are lists of [T, vocabulary]."""
    a = np.concatenate(found).astype(np.float64)
    b = np.concatenate(expected).astype(np.float64)
    centred_a, centred_b = (x - x.mean(axis=1, keepdims=True) for x in (a, b))
    rms = np.sqrt(np.mean((centred_a - centred_b) ** 2) / np.mean(centred_b**2))
    top = np.sort(b, axis=1)
    clear = top[:, -1] - top[:, -2] > 0.1
    log_p, log_q = (
        x - np.log(np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)) - x.max(axis=1, keepdims=True)
        for x in (b, a)
    )
    kl = np.mean(np.sum(np.exp(log_p) * (log_p - log_q), axis=1))
    same = np.argmax(a, axis=1) == np.argmax(b, axis=1)
    return {
        "centred_relative_rms": float(rms),
        "mean_kl": float(kl),
        "top1_equal_where_clear": float(np.mean(same[clear])),
        "clear_positions": int(clear.sum()),
        "top1_equal": float(np.mean(same)),
        "positions": len(a),
    }


def tokens_of(source: pv.Gguf) -> list[list[int]]:
    """The first positions of each text."""
    tokenizer = read_tokenizer(source.deployed.path, source.deployed.metadata)
    return [tokenizer.encode(text)[:POSITIONS] for text in TEXTS]


def decode_logits(source: pv.Gguf, tokens: list[int], cores: int) -> np.ndarray:
    """Token by token, [T, vocabulary]."""
    target = pv.as_target("host", cores)
    with native.load(pv.compile(source.decode(), target), target, weights=source.weights()) as engine:
        out = []
        for position, token in enumerate(tokens):
            engine.launch({"pos": position}, {"ids": np.array([token], np.int32)})
            out.append(engine.tensor("logits")[0].copy())
    return np.stack(out)


def _prompt_logits(source: pv.Gguf, tokens: list[int], cores: int) -> np.ndarray:
    target = pv.as_target("host", cores)
    program = pv.compile(source.prompt(logits_every_row=True), target)
    most_rows = next(s.hi for s in program.symbols if s.name == "rows")
    with native.load(program, target, weights=source.weights()) as engine:
        out = []
        for start in range(0, len(tokens), most_rows):
            block = tokens[start : start + most_rows]
            engine.launch({"pos": start, "rows": len(block)}, {"ids": np.array(block, np.int32)})
            out.append(engine.tensor("logits")[: len(block)].copy())
    return np.concatenate(out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--other")
    parser.add_argument("--cores", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
