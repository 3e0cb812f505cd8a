"""Cycles and bytes: what must cost less costs less, nothing depends on values or on the run, and large programs are
quick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.program import Counter, Post, Wait
from pavane.sim import perfetto_json, simulate
from pavane.sim.channels import requests_of
from pavane.sim.links import Links
from pavane.sim.transfers import Transfer
from tests.building import SX, SY, rect, site
from tests.engines.sim_programs import local_matmul, product_chain
from tests.engines.test_sim_numbers import permutations
from tests.examples import attention_host, matmul_multicast, norm_product_host

ROOT = Path(__file__).parents[2]


def test_depth_two_is_faster_than_depth_one(toy):
    programs = [local_matmul(toy, 1, 640, 32, depth, "bf16", "bf16") for depth in (1, 2, 3)]
    one, two, three = (simulate(p, toy, functional=False).cycles for p in programs)
    assert two < 0.9 * one
    assert three <= two


def test_multicast_reads_fewer_bytes(toy):
    """In 2 x 2 sites each tile of A and of B is read once instead of twice."""
    m, k, n = 32, 320, 128
    multicast = simulate(matmul_multicast(toy, 2 * m, k, n), toy, functional=False)
    local = simulate(local_matmul(toy, m, k, n, a="bf16", b="bf16"), toy, functional=False)
    a_bytes, b_bytes = m * k * 2, k * n * 2
    assert sum(c.read_bytes for c in multicast.channels) == 2 * (2 * a_bytes) + b_bytes  # two turns of x, one of y
    assert sum(c.read_bytes for c in local.channels) == 4 * a_bytes + b_bytes  # for half the rows: four sites read A
    assert multicast.sent_bytes > 0 == local.sent_bytes


def served(links, time, source, sinks, count_bytes):
    transfer = Transfer()
    links.send(transfer, time, source, sinks, count_bytes)
    links.serve(transfer.asked_at)
    return transfer.done_at


def test_a_network_without_multicast_sends_one_by_one(toy):
    wide = replace(toy, grid=replace(toy.grid, width=3))
    alone = replace(wide, noc=replace(wide.noc, multicast=False))
    sinks = (1, 3, 0, 1)
    together, apart = (served(Links(t), 100, (0, 0), sinks, 160) for t in (wide, alone))
    assert together == 100 + 16 + 10 + 2 * 2  # start, 160 bytes at 16 a cycle, two hops
    assert apart == together + 10  # the second message waits for the first link


def test_every_byte_is_counted_once(toy):
    result = simulate(local_matmul(toy, 7, 45, 40), toy, functional=False)
    assert sum(c.written_bytes for c in result.channels) == 7 * 40 * 4
    assert sum(c.read_bytes for c in result.channels) == 4 * 7 * 45 * 4 + 45 * 40 * 4  # ghosts read A too


def test_a_channel_is_busy_for_its_bytes(toy):
    result = simulate(local_matmul(toy, 32, 128, 128), toy, functional=False)
    for channel in result.channels:
        assert channel.busy_cycles == (channel.read_bytes + channel.written_bytes) // toy.dram.bytes_per_cycle
        assert channel.busy_cycles <= result.cycles


def test_bytes_go_round_the_channels():
    assert requests_of(0, 1, 100, 100, 32, 2, 0).split == ((0, 64), (1, 36))
    assert requests_of(40, 1, 20, 20, 32, 2, 0).split == ((1, 20),)
    assert requests_of(0, 3, 32, 64, 32, 2, 0).split == ((0, 96),)
    assert requests_of(16, 2, 64, 64, 32, 2, 0).split == ((0, 64), (1, 64))


def test_the_engine_does_what_the_descriptor_says(toy):
    """4 products of 32 x 32 x 32 in f32 at 128 cycles; 1024 elements at 32 a cycle are initialised, and copied."""
    result = simulate(local_matmul(toy, 32, 128, 128), toy, functional=False)
    assert result.engines[0, 0, "matrix"].busy_cycles == 4 * 128 + 32 + 32


def test_products_of_fewer_rows_than_a_tile_cost_a_tile(toy):
    one, full = (simulate(local_matmul(toy, m, 128, 128), toy, functional=False) for m in (1, 32))
    assert one.engines[0, 0, "matrix"].busy_cycles == 4 * 128 + 32 + 1
    assert one.cycles < full.cycles


def test_cycles_do_not_depend_on_values_or_on_the_mode(toy, host):
    rng = np.random.default_rng(0)
    program = matmul_multicast(toy)
    draws = [
        {"a": rng.integers(-4, 5, (100, 70)).astype(ml_dtypes.bfloat16), "b": np.ones((70, 150), ml_dtypes.bfloat16)}
        for _ in range(2)
    ]
    runs = [simulate(program, toy, tensors=t) for t in draws] + [simulate(program, toy, functional=False)] * 2
    assert len({(r.cycles, r.channels, r.waits) for r in runs}) == 1
    tensors, _ = permutations(64, 3)
    chain = product_chain(toy, 64, 3)
    assert simulate(chain, toy, tensors=tensors).cycles == simulate(chain, toy, functional=False).cycles


def test_longer_contexts_take_longer(host):
    program = attention_host(host)
    cycles = [simulate(program, host, symbols={"pos": p, "rows": 1}, functional=False).cycles for p in (0, 31, 32)]
    assert cycles[0] < cycles[1] < cycles[2]


def test_two_cores_are_faster_than_one():
    from pavane.targets.load import load_target

    one, two = (load_target("host", cores=n) for n in (1, 2))
    cycles = [
        simulate(norm_product_host(t, 64, 960), t, symbols={"rows": 32}, functional=False).cycles for t in (one, two)
    ]
    assert cycles[1] < 0.7 * cycles[0]


def test_in_place_weights_cost_bandwidth(host):
    """q8_0 rows of 64 are 68 bytes; x and g are read by each site once."""
    result = simulate(norm_product_host(host, 64, 96), host, symbols={"rows": 1}, functional=False)
    assert sum(c.read_bytes for c in result.channels) == 96 * 68 + 2 * (64 * 4 + 64 * 4)
    assert result.channels[0].busy_cycles > 0


def test_time_is_the_same_under_any_hash_seed():
    code = (
        "from tests.engines.sim_programs import *; from tests.examples import matmul_multicast\n"
        "from pavane.sim import *; from pavane.targets.load import load_target\n"
        "toy = load_target('toy')\n"
        "for p in (matmul_multicast(toy), product_chain(toy, 100, 5)):\n"
        "    r = simulate(p, toy, functional=False, trace=True); print(r.cycles, r.waits, perfetto_json(r.events))\n"
    )
    printed = set()
    for seed in ("0", "12345"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        printed.add(done.stdout)
    assert len(printed) == 1


def test_a_large_program_is_quick(toy):
    """240 products of 1 x 576 x 576 on `toy`, about 300,000 steps on 16 processes."""
    start = time.perf_counter()
    result = simulate(product_chain(toy, 576, 240, rows=1), toy, functional=False)
    assert time.perf_counter() - start < 20
    assert sum(c.written_bytes for c in result.channels) == 240 * 576 * 4


def test_launch_cost_and_epochs(toy):
    program = local_matmul(toy, 8, 40, 40)
    once, thrice = (simulate(program, toy, functional=False, epochs=n) for n in (1, 3))
    assert once.cycles > toy.launch.cycles
    assert thrice.epoch_cycles == (once.cycles,) * 3
    assert thrice.cycles == 3 * once.cycles
    assert thrice.engines[0, 0, "matrix"].busy_cycles == 3 * once.engines[0, 0, "matrix"].busy_cycles


@pytest.mark.parametrize("kind", ["MONOTONE", "CREDIT"])
def test_posts_on_their_way_at_the_end_are_there_in_the_next_epoch(toy, kind):
    """Each reader waits for a post that its site's writer makes as its last step; the first one is there ahead."""
    program = local_matmul(toy, 8, 40, 40)
    shape = program.shapes[0]
    extra = {"readA": lambda body: (Wait("again"), *body), "write": lambda body: (*body, Post("again", site(SX, SY)))}
    processes = tuple(replace(p, body=extra.get(p.name, tuple)(p.body)) for p in shape.processes)
    counter = Counter("again", rect(0, 2, 0, 2), "reader_a", kind, 4, ahead=1, id=0)
    waiting = replace(program, shapes=(replace(shape, processes=processes, counters=(counter,)),))
    once = simulate(waiting, toy, functional=False)
    assert simulate(waiting, toy, functional=False, epochs=3).epoch_cycles == (once.cycles,) * 3
    assert not [w for w in once.waits if "again" in w.what]


def test_waits_and_work_fit_into_the_time(toy):
    result = simulate(matmul_multicast(toy), toy, functional=False)
    for engine in result.engines.values():
        assert 0 < engine.busy_cycles + engine.blocked_cycles <= result.cycles - toy.launch.cycles
    assert [w.cycles for w in result.waits] == sorted((w.cycles for w in result.waits), reverse=True)
    assert {w.what for w in result.waits} >= {"counter matmul.validA", "a pushed slot of matmul.fC", "a fence"}


def test_a_trace_holds_every_engine_and_no_overlap(toy):
    result = simulate(matmul_multicast(toy), toy, functional=False, trace=True)
    records = json.loads(perfetto_json(result.events))["traceEvents"]
    named = [r["args"]["name"] for r in records if r["ph"] == "M"]
    assert named.count("matrix") == 4
    assert "site (1, 1)" in named
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for record in records:
        if record["ph"] == "X":
            lanes.setdefault((record["pid"], record["tid"]), []).append((record["ts"], record["ts"] + record["dur"]))
    assert len(lanes) == 16
    for spans in lanes.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    busy = sum(e.busy_cycles for e in result.engines.values())
    assert busy == sum(r["dur"] for r in records if r["ph"] == "X" and r["cat"] != "wait")


def test_without_timing_there_are_no_cycles(toy):
    tensors = {"a": np.ones((8, 40), np.float32), "b": np.ones((40, 40), np.float32)}
    assert simulate(local_matmul(toy, 8, 40, 40), toy, tensors=tensors, timing=False).cycles == 0


@pytest.mark.parametrize("k", [32, 64])
def test_more_work_takes_longer(toy, k):
    assert (
        simulate(local_matmul(toy, 32, k, 128), toy, functional=False).cycles
        < simulate(local_matmul(toy, 32, 2 * k, 128), toy, functional=False).cycles
    )
