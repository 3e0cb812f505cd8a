"""Logits of llama.cpp (the package llama-cpp-python, for this benchmark only) on tokens given as JSON, token by token.

    python bench/llama_logits.py MODEL.gguf TOKENS.json OUT.npy

TOKENS.json holds equally long lists of token ids; OUT.npy gets float32 [lists, positions, vocabulary].
"""

from __future__ import annotations

import json
import sys

import numpy as np
from llama_cpp import Llama


def main(model_path: str, tokens_path: str, out_path: str) -> None:
    """Evaluate every list in a fresh context."""
    with open(tokens_path) as file:
        sequences = json.load(file)
    model = Llama(model_path=model_path, n_ctx=256, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False)
    out = []
    for sequence in sequences:
        model.reset()
        for token in sequence:
            model.eval([token])
        out.append(np.array(model.scores[: len(sequence)]))
    np.save(out_path, np.stack(out))


if __name__ == "__main__":
    main(*sys.argv[1:4])
