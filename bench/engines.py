"""One engine in a process of its own, commanded over its standard streams: a JSON line in, a JSON line out.

    python bench/engines.py pavane MODEL.gguf WORKERS CONTEXT CONTRACT
    python bench/engines.py llama MODEL.gguf WORKERS CONTEXT
    python bench/engines.py numpy - WORKERS 0        python bench/engines.py torch - WORKERS 0

Commands: {"do": "prompt", "ids": [...]}: from position 0 on. {"do": "decode", "ids": [...], "at": position}: token by
token over a cache
that is filled so far. {"do": "fill", "count": n}: make n positions. {"do": "logits", "ids": [...]}: after each token.
{"do": "gemm", "dtype": d,
"size": n}: the best of some. Answers have `seconds` (wall) and `peak_bytes` (peak resident set). A process waits
without using a core.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_GEMM_TURNS = 20


def main(kind: str, model: str, workers: int, context: int, contract: str = "") -> None:
    """Answer until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    engine = _MAKERS[kind](model, workers, context, contract)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        found = getattr(engine, command.pop("do"))(**command)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({**found, "peak_bytes": peak}), file=answers, flush=True)


def _seconds(run: Callable[[], object]) -> dict[str, float]:
    start = time.perf_counter()
    run()
    return {"seconds": time.perf_counter() - start}


class Pavane:
    """Both programs of a model, as `pavane run` holds them."""

    def __init__(self, model: str, workers: int, context: int, contract: str) -> None:
        import pavane as pv
        from pavane.generate import Session

        self.workers, self.session = workers, None
        if model != "-":
            self.session = Session(pv.gguf(model, contract, context), pv.as_target("host", workers))

    def prompt(self, ids: Sequence[int]) -> dict[str, float]:
        self.session.position = 0
        return _seconds(lambda: self.session.read(ids))

    def decode(self, ids: Sequence[int], at: int) -> dict[str, float]:
        self.session.position = at
        return _seconds(lambda: [self.session.step(token) for token in ids])

    def fill(self, count: int) -> dict[str, float]:
        return self.prompt([token % 1000 for token in range(count)])

    def logits(self, ids: Sequence[int]) -> dict[str, Any]:
        self.session.position = 0
        return {"logits": [self.session.step(token).tolist() for token in ids]}

    def gemm(self, dtype: str, size: int) -> dict[str, float]:
        import pavane as pv
        from pavane import native

        target = pv.as_target("host", self.workers)
        a, b = _matrices(dtype, size)
        with native.load(
            pv.compile(pv.op(f"matmul:{size},{size},{size}:{dtype}"), target), target, weights={"b": b}
        ) as ready:
            place = ready.input("a", {})  # as the others read theirs where they are
            place[...] = a
            best = min(_seconds(lambda: ready.launch({}, {"a": place}))["seconds"] for _ in range(_GEMM_TURNS))
            found = ready.tensor("c")[:4].astype(np.float64)
        _check(found, a[:4].astype(np.float64) @ b.astype(np.float64))
        return {"seconds": best}


class LlamaCpp:
    """llama.cpp through llama-cpp-python."""

    def __init__(self, model: str, workers: int, context: int, contract: str) -> None:
        from llama_cpp import Llama

        self.model = Llama(
            model_path=model, n_ctx=context, n_batch=512, n_threads=workers, n_threads_batch=workers, verbose=False
        )

    def prompt(self, ids: Sequence[int]) -> dict[str, float]:
        self.model.reset()
        return _seconds(lambda: self.model.eval(ids))

    def decode(self, ids: Sequence[int], at: int) -> dict[str, float]:
        self.model.n_tokens = at
        return _seconds(lambda: [self.model.eval([token]) for token in ids])

    def fill(self, count: int) -> dict[str, float]:
        return self.prompt([token % 1000 for token in range(count)])

    def logits(self, ids: Sequence[int]) -> dict[str, Any]:
        self.model.reset()
        found = []
        for token in ids:
            self.model.eval([token])
            pointer = self.model._ctx.get_logits()
            found.append(np.ctypeslib.as_array(pointer, shape=(self.model.n_vocab(),)).tolist())
        return {"logits": found}


class Numpy:
    """Products of numpy's own library."""

    def __init__(self, model: str, workers: int, context: int, contract: str) -> None:
        pass

    def gemm(self, dtype: str, size: int) -> dict[str, float]:
        a, b = _matrices(dtype, size)
        out = np.empty((size, size), a.dtype)
        return {"seconds": min(_seconds(lambda: np.matmul(a, b, out=out))["seconds"] for _ in range(_GEMM_TURNS))}


class Torch:
    """Products of torch."""

    def __init__(self, model: str, workers: int, context: int, contract: str) -> None:
        import torch

        torch.set_num_threads(workers)

    def gemm(self, dtype: str, size: int) -> dict[str, float]:
        import torch

        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        a, b = torch.randn(size, size).to(kind), torch.randn(size, size).to(kind)
        return {"seconds": min(_seconds(lambda: torch.matmul(a, b))["seconds"] for _ in range(_GEMM_TURNS))}


class OnnxRuntime:
    """Products of onnxruntime's CPU provider."""

    def __init__(self, model: str, workers: int, context: int, contract: str) -> None:
        self.workers = workers

    def gemm(self, dtype: str, size: int) -> dict[str, float]:
        import onnx
        import onnxruntime

        kind, shape = onnx.TensorProto.FLOAT, [size, size]
        tensors = {name: onnx.helper.make_tensor_value_info(name, kind, shape) for name in "abc"}
        node = onnx.helper.make_node("MatMul", ["a", "b"], ["c"])
        graph = onnx.helper.make_graph([node], "product", [tensors["a"], tensors["b"]], [tensors["c"]])
        made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.workers
        session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        a, b = _matrices(dtype, size)
        run = lambda: session.run(None, {"a": a, "b": b})  # noqa: E731
        return {"seconds": min(_seconds(run)["seconds"] for _ in range(_GEMM_TURNS))}


def _matrices(dtype: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    import ml_dtypes

    kind = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}[dtype]
    rng = np.random.default_rng(1)
    return tuple(rng.standard_normal((size, size)).astype(kind) for _ in range(2))


def _check(found: np.ndarray, expected: np.ndarray) -> None:
    worst = float(np.abs(found - expected).max() / np.abs(expected).max())
    if not worst < 1e-5:
        raise SystemExit(f"a product is wrong by {worst:.1e}: it has no timing")


_MAKERS = {"pavane": Pavane, "llama": LlamaCpp, "numpy": Numpy, "torch": Torch, "onnxruntime": OnnxRuntime}

if __name__ == "__main__":
    name, path, count, positions, *rest = sys.argv[1:]
    main(name, path, int(count), int(positions), *rest)
