"""What storing a model's matrices costs in accuracy: the float32 reference over the stored weights, against the same
over the model file's own.

    python bench/storage.py [--model FILE.gguf] [--weights q8_0,bfp8,bfp4]

Three prompts x 64 positions (`prompts.py`). A line a kind of storage, as Markdown: mean KL divergence and centred
relative RMS of the logits, top-1 agreement (and where the reference's gap exceeds 0.1), bits an element; and how far
the native engine over the stored weights is from their reference. The model file's weights may be quantised
themselves (the default model's are Q4_1): what they say is the reference.
"""

from __future__ import annotations

import argparse

import numpy as np
from accuracy import compare, decode_logits, tokens_of

import pavane as pv
from pavane.frontends.gguf import read_gguf
from pavane.frontends.models import fetch
from pavane.ir.types import STORED_WEIGHTS, block_elements, row_bytes
from pavane.tensor_graph.decoder_reference import decoder_reference

HEADINGS = ("weights", "bits", "mean KL", "centred RMS", "top-1", "top-1 where clear", "native from its reference, RMS")


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    path = arguments.model or fetch()
    model = read_gguf(path)
    print(f"{model.config.name}, stored in the file as {', '.join(sorted(_kinds(model)))}\n")
    print("| " + " | ".join(HEADINGS) + " |\n" + "| --- " * len(HEADINGS) + "|")
    sequences = tokens_of(pv.gguf(path, "FLOAT", 256))
    weights = {name: model.tensor_f32(name) for name in model.tensors}
    expected = [decoder_reference(model.config, weights, tokens) for tokens in sequences]
    for kind in arguments.weights.split(","):
        print("| " + " | ".join(_measured(path, kind, sequences, expected)) + " |", flush=True)


def _kinds(model) -> set[str]:
    return {entry.ggml_type for entry in model.tensors.values() if len(entry.shape) == 2}


def _measured(path: str, kind: str, sequences: list[list[int]], expected: list[np.ndarray]) -> tuple[str, ...]:
    source = pv.gguf(path, "FLOAT", 256, weights=kind)
    weights = {name: source.deployed.tensor_f32(name) for name in source.deployed.weights}
    stored = [decoder_reference(source.config, weights, tokens) for tokens in sequences]
    effect = compare(stored, expected)
    native = compare([decode_logits(source, tokens, 2) for tokens in sequences], stored)
    bits = 8 * row_bytes(kind, block_elements(kind)) / block_elements(kind)
    return (
        kind,
        f"{bits:g}",
        f"{effect['mean_kl']:.5f}",
        f"{effect['centred_relative_rms']:.4f}",
        f"{effect['top1_equal']:.3f}",
        f"{effect['top1_equal_where_clear']:.3f}",
        f"{native['centred_relative_rms']:.5f}",
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--weights", default=",".join(STORED_WEIGHTS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
