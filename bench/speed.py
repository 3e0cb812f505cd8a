"""Pavane beside llama.cpp, numpy and torch, in pairs: `make bench`, or

    python bench/speed.py [--quick] [--model FILE.gguf] [--llama-python PYTHON] [--only WORD] [--no-large]

Every engine is a process of its own (bench/engines.py), idle while another is measured. A case runs A B A B ...; what
counts is the
ratio of each pair, printed as median [least, greatest] beside a DRAM read probe and a handshake probe of the same
time. Logits are compared first: a
wrong answer has no timing. Everything goes to bench/results/ as JSON, with versions, commit and machine.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from probes import Probes
from random_model import random_model

from pavane.frontends.deploy import deployment
from pavane.frontends.gguf import read_gguf
from pavane.frontends.models import fetch

_HERE = Path(__file__).parent
_SETTLE_SECONDS = 0.03  # other engines' workers spin for a while after a call
_MOST_KL = 0.02
_INT8_OPS_A_CORE = 1.085e12
_CONTEXT = 2048
_CLEAN = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Engine:
    """A child process that answers commands."""

    def __init__(self, python: str, *arguments: str, threads: int = 1) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in _CLEAN}
        environment |= {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
        self._child = subprocess.Popen(
            [python, str(_HERE / "engines.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._answer()

    def ask(self, do: str, **rest: Any) -> dict[str, Any]:
        print(json.dumps({"do": do, **rest}), file=self._child.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f"an engine ended: {' '.join(map(str, self._child.args))}")
        return json.loads(line)

    def close(self) -> None:
        self._child.stdin.close()
        self._child.wait()


class Bench:
    """Arguments, probes and the results so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.probes, self.cases = arguments, Probes(), []
        self.start_seconds: dict[str, float] | None = None
        self.turns = 3 if arguments.quick else 9

    @contextmanager
    def engines(self, *made: Engine) -> Iterator[tuple[Engine, ...]]:
        try:
            yield made
        finally:
            for engine in made:
                engine.close()

    def pavane(self, model: Path, workers: int, contract: str = "INT8_ACTIVATIONS") -> Engine:
        return Engine(sys.executable, "pavane", str(model), str(workers), str(_CONTEXT), contract, threads=workers)

    def llama(self, model: Path, workers: int) -> Engine:
        return Engine(self.arguments.llama_python, "llama", str(model), str(workers), str(_CONTEXT), threads=workers)

    def wanted(self, name: str) -> bool:
        return not self.arguments.only or self.arguments.only in name

    def pair(
        self, name: str, ours: Engine, theirs: Engine, units: float, workers: int, do: str, **rest: Any
    ) -> dict[str, Any]:
        """Interleaved turns of one command; units / seconds is a rate."""
        seconds: tuple[list[float], list[float]] = ([], [])
        reads, handshakes = [], []
        for turn in range(self.turns + 1):
            for engine, found in zip((ours, theirs), seconds, strict=True):
                time.sleep(_SETTLE_SECONDS)
                taken = engine.ask(do, **rest)["seconds"]
                found.extend([taken] if turn else [])
            time.sleep(_SETTLE_SECONDS)
            reads.append(self.probes.read_bytes_per_second(workers))
            handshakes.append(self.probes.handshake_seconds())
        ratios = [b / a for a, b in zip(*seconds, strict=True)]
        case = {
            "name": name,
            "ratio": _spread(ratios),
            "pavane_per_second": units / statistics.median(seconds[0]),
            "other_per_second": units / statistics.median(seconds[1]),
            "dram_read_gb_per_second": statistics.median(reads) / 1e9,
            "handshake_ns": None if None in handshakes else statistics.median(handshakes) * 1e9,
            "load_average": os.getloadavg()[0],
        }
        self.cases.append(case)
        print(_line(case), flush=True)
        return case


def _spread(values: list[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def _line(case: dict[str, Any]) -> str:
    r = case["ratio"]
    handshake = f"{case['handshake_ns']:.0f} ns" if case["handshake_ns"] else "one core"
    return (
        f"{case['name']:<46} {r['median']:5.2f}x [{r['min']:.2f}, {r['max']:.2f}]   "
        f"{case['pavane_per_second']:9.1f} against {case['other_per_second']:9.1f} a second   "
        f"(read {case['dram_read_gb_per_second']:.0f} GB/s, handshake {handshake}, load {case['load_average']:.1f})"
    )


def main() -> None:
    bench = Bench(_arguments())
    model = bench.arguments.model or fetch()
    deployed = deployment(read_gguf(model))
    for workers in (1, 2):
        _small_model(bench, deployed.path, workers, _streamed_bytes(deployed))
    if not bench.arguments.no_large:
        _large_model(bench)
    _products(bench)
    _starts(bench, deployed.path)
    _write(bench)


def _streamed_bytes(deployed: Any) -> int:
    """Weights that a token reads: every matrix once (a tied embedding as the output)."""
    return sum(deployed.array(name).nbytes for name, w in deployed.weights.items() if len(w.shape) == 2)


def _small_model(bench: Bench, model: Path, workers: int, streamed: int) -> None:
    ids = np.random.default_rng(0).integers(0, 49152, _CONTEXT).tolist()
    names = [f"{what}, {workers} worker{'s' * (workers > 1)}" for what in (
        "decode 64", "prompt 128", "prompt 512", "decode 64 FLOAT", "decode at 2048")]  # fmt: skip
    if not any(bench.wanted(name) for name in names):
        return
    with bench.engines(
        bench.pavane(model, workers), bench.pavane(model, workers, "FLOAT"), bench.llama(model, workers)
    ) as found:
        int8, exact, llama = found
        _require_equal(int8, llama, ids[:12], "INT8_ACTIVATIONS")
        _require_equal(exact, llama, ids[:12], "FLOAT")
        for name, ours in ((names[0], int8), (names[3], exact)):
            for engine in (ours, llama):
                engine.ask("fill", count=16)
            if bench.wanted(name):
                case = bench.pair(name, ours, llama, 64, workers, "decode", ids=ids[:64], at=16)
                case["share_of_read_probe"] = (
                    case["pavane_per_second"] * streamed / case["dram_read_gb_per_second"] / 1e9
                )
                print(f"{'':<46} {case['share_of_read_probe']:.0%} of the read probe")
        for name, count in ((names[1], 128), (names[2], 512)):
            if bench.wanted(name):
                case = bench.pair(name, int8, llama, count, workers, "prompt", ids=ids[:count])
                operations = 2 * (streamed - 49152 * 576 * 34 // 32) * 32 / 34
                case["share_of_int8_peak"] = case["pavane_per_second"] * operations / _INT8_OPS_A_CORE / workers
                print(f"{'':<46} {case['share_of_int8_peak']:.0%} of the int8 peak")
        if bench.wanted(names[4]):
            peaks = [engine.ask("fill", count=_CONTEXT - 64)["peak_bytes"] for engine in (int8, llama)]
            case = bench.pair(names[4], int8, llama, 64, workers, "decode", ids=ids[:64], at=_CONTEXT - 64)
            case["peak_bytes"] = peaks
            print(f"{'':<46} peak resident set {peaks[0] / 1e6:.0f} MB against {peaks[1] / 1e6:.0f} MB")


def _require_equal(ours: Engine, theirs: Engine, ids: list[int], contract: str) -> None:
    """Mean KL of the distributions after each token; both quantise, so they differ a little."""
    p, q = (np.array(e.ask("logits", ids=ids)["logits"]) for e in (theirs, ours))
    log_p, log_q = (x - np.logaddexp.reduce(x, axis=1, keepdims=True) for x in (p, q))
    kl = float(np.mean(np.sum(np.exp(log_p) * (log_p - log_q), axis=1)))
    print(f"{contract}: KL of the logits against llama.cpp {kl:.4f}")
    if not kl < _MOST_KL:
        raise SystemExit(f"the logits differ (KL {kl:.4f}): a wrong answer has no timing")


def _large_model(bench: Bench) -> None:
    names = ("1.1B decode 32, 1 worker", "1.1B prompt 128, 1 worker")
    if not any(bench.wanted(name) for name in names):
        return
    model = random_model(Path(tempfile.gettempdir()) / "pavane-bench-1.1B.q8_0.gguf")
    ids = [10 + 37 * i % 30000 for i in range(128)]
    with bench.engines(bench.pavane(model, 1), bench.llama(model, 1)) as (ours, llama):
        _require_equal(ours, llama, ids[:4], "INT8_ACTIVATIONS, 1.1B")
        turns, bench.turns = bench.turns, 3
        for engine in (ours, llama):
            engine.ask("fill", count=16)
        if bench.wanted(names[0]):
            bench.pair(names[0], ours, llama, 32, 1, "decode", ids=ids[:32], at=16)
        if bench.wanted(names[1]):
            bench.pair(names[1], ours, llama, 128, 1, "prompt", ids=ids)
        bench.turns = turns


def _products(bench: Bench) -> None:
    operations = 2 * 1024**3 / 1e9
    for workers in (1, 2):
        for dtype, other in (("f32", "numpy"), ("f32", "onnxruntime"), ("bf16", "torch")):
            name = f"GEMM {dtype} 1024 against {other}, {workers} worker{'s' * (workers > 1)}, GFLOP"
            if not bench.wanted(name) or not _has(other):
                continue
            ours = Engine(sys.executable, "pavane", "-", str(workers), "0", threads=workers)
            theirs = Engine(sys.executable, other, "-", str(workers), "0", threads=workers)
            with bench.engines(ours, theirs):
                bench.pair(name, ours, theirs, operations, workers, "gemm", dtype=dtype, size=1024)


def _starts(bench: Bench, model: Path) -> None:
    """From exec to the first letter, by `pavane run` on programs, objects and weights that earlier starts left."""
    if not bench.wanted("second start"):
        return
    pavane = Path(sys.executable).with_name("pavane")
    run = [str(pavane), "run", str(model), "--prompt", "Hi", "--max-tokens", "8"]
    seconds = []
    for _ in range(bench.turns + 1):
        start = time.perf_counter()
        with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            child.stdout.read(1)
            seconds.append(time.perf_counter() - start)
            child.stdout.read()
        if child.returncode:
            raise SystemExit(f"a start failed: {' '.join(run)}")
    bench.start_seconds = _spread(seconds[1:])
    print(f"{'second start to the first letter':<46} {' '.join(f'{v:.2f}' for v in bench.start_seconds.values())} s")


def _has(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _write(bench: Bench) -> None:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=_HERE, capture_output=True, text=True
    ).stdout.strip()
    packages = ("pavane", "llama-cpp-python", "llvmlite", "numpy", "torch", "onnxruntime")
    llama = subprocess.run(
        [bench.arguments.llama_python, "-c", "import llama_cpp; print(llama_cpp.__version__)"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    record = {
        "commit": commit,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": _processor(),
        "versions": {p: importlib.metadata.version(p) for p in packages if _has(p)} | {"llama-cpp-python": llama},
        "cases": bench.cases,
        "second_start_seconds": bench.start_seconds,
    }
    folder = _HERE / "results"
    folder.mkdir(exist_ok=True)
    arguments = bench.arguments
    kind = ("-quick" if arguments.quick else "") + ("-part" if arguments.only or arguments.no_large else "")
    path = folder / f"speed-{commit or 'no-commit'}{kind}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: {path}")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three turns a case instead of nine")
    parser.add_argument("--model")
    parser.add_argument("--llama-python", default=sys.executable, help="an interpreter that has llama-cpp-python")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--no-large", action="store_true", help="leave the 1.1B model out")
    return parser.parse_args()


if __name__ == "__main__":
    main()
