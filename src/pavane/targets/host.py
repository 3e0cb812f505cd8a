"""This machine as a target: one site a core, one `core` engine that is all of them, memory addressed in place.

Figures come from what the operating system says (cores that this process may use, vector extensions); where it says
nothing, the values are the smallest that are safe. The local memory of a site is its share of what stays close to the
core.
"""

from __future__ import annotations

import os

import llvmlite.binding as llvm

from pavane.reject import ArgumentReject
from pavane.targets.descriptor import (
    Counters,
    Dram,
    Engine,
    Fifos,
    Grid,
    Launch,
    MatrixMode,
    Memory,
    Noc,
    SpatialTarget,
)

_SITE_BYTES = 4 << 20  # working buffers live in ordinary memory; this bounds them so that they stay in the caches
MAX_CORES = 256


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def host_target(cores: int | None = None) -> SpatialTarget:
    """The descriptor of this machine with `cores` sites (default: all that the process may use)."""
    count = available_cores() if cores is None else cores
    if type(count) is not int or not 1 <= count <= MAX_CORES:
        raise ArgumentReject(
            f"the target host cannot have {count!r} cores",
            needed="1 to 256 cores",
            remedy="give --cores a number in that range",
        )
    features = llvm.get_host_cpu_features()
    wide = bool(features.get("avx512f"))
    lanes = 16 if wide else 8
    return SpatialTarget(
        name="host",
        description=f"this machine: {count} core{'s' if count > 1 else ''}, {lanes} f32 lanes",
        clock_hz=1_000_000_000,
        grid=Grid(width=count, height=1),
        memory=Memory(bytes=_SITE_BYTES, alignment_bytes=64),
        tile=(32, 32),
        alias=True,
        engines=(_core(lanes, bool(features.get("avx512vnni") or features.get("avxvnni"))),),
        fifos=Fifos(per_site=64, handover_cycles=0),
        counters=Counters(kind="MONOTONE", bits=32, per_site=64, post_cycles=200),
        noc=Noc(bytes_per_cycle=32, hop_cycles=50, start_cycles=100, multicast=False),
        dram=Dram(
            bytes=1 << 40,
            channels=1,
            bytes_per_cycle=32 if count == 1 else 48,  # one core of a server draws 32 to 40, two 45 to 75
            latency_cycles=40,
            request_cycles=1,
            alignment_bytes=64,
        ),
        launch=Launch(cycles=2000),
    )


def _core(lanes: int, block_dot: bool) -> Engine:
    """Multiply-adds of a vector unit with fused f32, and int8 sums per block of 32; a cycle is a nanosecond.

    Products work on 16 or 32 columns at a time, so narrower blocks cost as much.
    """
    turns = 16 // lanes
    modes = [
        MatrixMode(a="f32", b=b, accumulator="f32", operand_bits=24, accumulator_bits=24, lanes=16, fused=True,
                   tile=(1, 32, 16), cycles=cycles * turns)
        for b, cycles in (("f32", 4), ("f16", 6), ("bf16", 6), ("q8_0", 8))
    ]  # fmt: skip
    modes.append(
        MatrixMode(a="q8_0", b="q8_0", accumulator="f32", operand_bits=8, accumulator_bits=24, lanes=1, fused=True,
                   tile=(1, 32, 32), cycles=(3 if block_dot else 24) * turns)
    )  # fmt: skip
    return Engine(
        name="core",
        roles=("reader", "compute", "writer"),
        matrix=tuple(modes),
        generic_elements_per_cycle=2 * lanes,
        function_cycles=8,
        register_tiles=0,
        block_floats=("bfp8", "bfp4"),
    )
