"""A block that no transformer has, authored by hand: y = (x . A) * exp(x . B - rowmax(x . B)) . C over Q8_0 weights.

    python bench/block.py [--rows 1,32] [--workers 1,2]

Prints weight bytes and multiply-adds a second (medians of 30 launches). `docs/performance.md` has the same for the MLP
of a model: a kernel that knew a model would show here.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import pavane as pv
from pavane import native
from pavane.tensor_graph.q8 import quantise_q8

WIDE, NARROW = 8192, 2048
SHAPES = {"a": (WIDE, NARROW), "b": (WIDE, NARROW), "c": (NARROW, WIDE)}


def main() -> None:
    """Measure every combination."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,32")
    parser.add_argument("--workers", default="1,2")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    weights = {n: quantise_q8((rng.standard_normal(s) / np.sqrt(s[1])).astype(np.float32)) for n, s in SHAPES.items()}
    for workers in map(int, arguments.workers.split(",")):
        for rows in map(int, arguments.rows.split(",")):
            seconds = measure(rows, workers, weights, rng)
            stored = sum(w.nbytes for w in weights.values()) / seconds / 1e9
            work = 2 * rows * 3 * WIDE * NARROW / seconds / 1e9
            print(f"{rows} rows, {workers} workers: {stored:.1f} GB/s of weights, {work:.0f} GOP/s")


def block(rows: int) -> pv.Source:
    """The graph, three sections once compiled."""
    graph = pv.Graph("gated", contract="INT8_ACTIVATIONS")
    x = graph.input("x", (rows, NARROW))
    a, b, c = (graph.weight(name, shape, "q8_0") for name, shape in SHAPES.items())
    scores = graph.matmul(x, b, transposed=True)
    gate = graph.apply("exp", graph.apply("sub", scores, graph.reduce("MAX", scores)))
    graph.output("y", graph.matmul(graph.apply("mul", graph.matmul(x, a, transposed=True), gate), c, transposed=True))
    return pv.graph(graph)


def measure(rows: int, workers: int, weights: dict[str, np.ndarray], rng: np.random.Generator) -> float:
    """Seconds of one launch."""
    target = pv.as_target("host", workers)
    x = rng.standard_normal((rows, NARROW)).astype(np.float32)
    with native.load(pv.compile(block(rows), target), target, weights=weights) as engine:
        times = []
        for _ in range(31):
            start = time.perf_counter()
            engine.launch({}, {"x": x})
            times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
