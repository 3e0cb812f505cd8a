"""How prove and check grow: seconds and memory against layers, sites and tile counts, and for two whole decoders.

One process compiles the program; another one, which has done nothing before, reads its bytes and proves and checks it
once. Seconds are those of that process (reading not counted), memory is its peak.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from time import process_time

import msgspec
from bench.model_shapes import MODELS, decoder_config, stored_weights
from msgspec.structs import replace

from pavane import api
from pavane.ir.digest import canonical_bytes
from pavane.ir.program import Program
from pavane.targets.descriptor import Grid, SpatialTarget
from pavane.targets.load import load_target
from pavane.verify.check import check
from pavane.verify.prove import prove
from tests.evidence.graphs import bare
from tests.examples import matmul_multicast

QWEN3_8B = decoder_config(
    name="qwen3-8b", architecture="qwen3", layers=36, width=4096, feed_forward=12288, heads=32, kv_heads=8,
    head_width=128, vocabulary=151936, qk_norm=True,
)  # fmt: skip
SMOLLM2 = MODELS["smollm2-135m"]
LAYERS, QWEN_LAYERS = (1, 4, 15, 30), (1, 9, 36)
SIDES, WIDTHS = (2, 4, 8, 16, 32), (64, 256, 1024, 4096)


@dataclass(frozen=True)
class Figure:
    """One line of a table. Bytes are canonical JSON."""

    table: str
    what: str
    sections: int
    prove_seconds: float
    check_seconds: float
    memory_mib: float
    certificate_bytes: int
    program_bytes: int


def measured() -> tuple[Figure, ...]:
    """All figures; one process after the other."""
    return tuple(_apart(*case) for case in _cases())


def _cases() -> list[tuple[str, str, Callable[..., tuple[Program, SpatialTarget]], tuple]]:
    found: list = [("whole decoders", "SmolLM2-135M, decode, host", _smollm2, (SMOLLM2.layers, 1))]
    found += [("whole decoders", "SmolLM2-135M, prompt, host", _smollm2, (SMOLLM2.layers, "rows"))]
    found += [
        ("whole decoders", f"Qwen3-8B, {w}, wormhole_n150", _qwen3, (36, r))
        for w, r in (("decode", 1), ("prompt", "rows"))
    ]
    found += [("layers", f"SmolLM2-135M with {n} layers, host", _smollm2, (n, 1)) for n in LAYERS]
    found += [("layers", f"Qwen3-8B with {n} layers, wormhole_n150", _qwen3, (n, 1)) for n in QWEN_LAYERS]
    found += [("sites", f"a product on {n} x {n} sites", _product_on, (n,)) for n in SIDES]
    found += [
        ("tiles", f"a product of {n} x {n} x {n}: {(n // 32) ** 3:,} tile steps", _product_of, (n,)) for n in WIDTHS
    ]
    return found


def _apart(table: str, what: str, make: Callable[..., tuple[Program, SpatialTarget]], arguments: tuple) -> Figure:
    program, target = _fresh(_made, make, arguments)
    return Figure(table, what, *_fresh(_timed, program, target))


def _fresh(work: Callable, *arguments: object) -> tuple:
    """Do it in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def _made(make: Callable[..., tuple[Program, SpatialTarget]], arguments: tuple) -> tuple[bytes, bytes]:
    program, target = make(*arguments)
    return canonical_bytes(program), canonical_bytes(target)


def _timed(program_bytes: bytes, target_bytes: bytes) -> tuple:
    program = msgspec.json.decode(program_bytes, type=Program)
    target = msgspec.json.decode(target_bytes, type=SpatialTarget)
    start = process_time()
    certificate = prove(program, target)
    between = process_time()
    check(replace(program, certificate=certificate), target)
    end = process_time()
    sizes = len(canonical_bytes(certificate)), len(program_bytes)
    return len(program.instances), between - start, end - between, _peak_mib(), *sizes


def _peak_mib() -> float:
    """Of this process alone where /proc tells; `ru_maxrss` is at least that of the process that started it."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return (peaks[0] if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


def _smollm2(layers: int, rows: int | str) -> tuple[Program, SpatialTarget]:
    return _decoder(replace(SMOLLM2, layers=layers), load_target("host", cores=2), rows)


def _qwen3(layers: int, rows: int | str) -> tuple[Program, SpatialTarget]:
    return _decoder(replace(QWEN3_8B, layers=layers), load_target("wormhole_n150"), rows)


def _decoder(config: object, target: SpatialTarget, rows: int | str) -> tuple[Program, SpatialTarget]:
    source = api.decoder(config, stored_weights(config), rows=rows, contract="INT8_ACTIVATIONS", context=2048)
    return bare(api.compile(source, target)), target


def _product_on(side: int) -> tuple[Program, SpatialTarget]:
    """A compiled product of one size on ever larger grids of the toy chip."""
    target = replace(load_target("toy"), grid=Grid(width=side, height=side))
    target = replace(target, counters=replace(target.counters, bits=16))
    return bare(api.compile(api.op("matmul:1024,1024,1024"), target)), target


def _product_of(width: int) -> tuple[Program, SpatialTarget]:
    """The hand-written multicast product, ever larger, on the 2 x 2 sites of the toy chip."""
    target = load_target("toy")
    return matmul_multicast(target, width, width, width, -1, 1), target
