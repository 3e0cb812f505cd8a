"""Programs that the passes make: random small graphs, compiled for random small chips, composed."""

from __future__ import annotations

import random

from msgspec.structs import replace

from pavane import api
from pavane.ir.program import Program
from pavane.ir.types import BFP_BLOCK, Ints
from pavane.reject import DoesNotFit, NotProven, SpatialReject
from pavane.targets.descriptor import Grid, Memory, SpatialTarget
from pavane.targets.load import load_target
from pavane.tensor_graph.graph import Graph, Value
from tests.evidence.hand import Case

UNARY = ("tanh", "abs", "sin")
BINARY = ("add", "sub", "mul", "max")


def compiled(rng: random.Random) -> tuple[Case | None, str]:
    """A program without its certificate, or why there is none: it does not fit the chip, or `verify` refused it.

    A refusal by `verify` counts as a false reject: passes mean to make right programs.
    """
    target = random_chip(rng)
    graph = random_graph(rng, target.engine_for("compute").block_floats)
    try:
        program = api.compile(api.graph(graph), target)
    except DoesNotFit as refused:
        return None, f"does not fit: {refused.code}"
    except NotProven as refused:
        return None, f"refused by verify: {refused.code}: {refused.what}"
    except SpatialReject as refused:
        return None, f"no program: {refused.code}"
    return (bare(program), target), ""


def bare(program: Program) -> Program:
    return replace(program, phase="PERSISTENT", certificate=None)


def random_chip(rng: random.Random) -> SpatialTarget:
    """Cores, or the toy with another grid, counters, memory, with or without multicast, block floats, sites beside the
    DRAM channels.
    """
    if rng.random() < 0.3:
        return load_target("host", cores=rng.randint(1, 3))
    toy, grid = load_target("toy"), Grid(width=rng.randint(1, 3), height=rng.randint(1, 2))
    blocks = rng.choice(((), ("bfp8", "bfp4")))
    engines = tuple(replace(e, block_floats=blocks) if "compute" in e.roles else e for e in toy.engines)
    sites = [(x, y) for y in range(grid.height) for x in range(grid.width)]
    beside = tuple(rng.sample(sites, min(len(sites), toy.dram.channels))) if rng.random() < 0.4 else ()
    dram = replace(toy.dram, channels=len(beside) or toy.dram.channels, adjacent=beside)
    return replace(
        toy,
        grid=grid,
        engines=engines,
        dram=replace(dram, page_bytes=512, far_bytes_per_cycle=4) if beside else dram,
        memory=Memory(bytes=rng.choice((1 << 15, 1 << 16, 1 << 17)), alignment_bytes=rng.choice((16, 32, 64))),
        counters=replace(toy.counters, bits=rng.choice((4, 5, 8))),
        noc=replace(toy.noc, multicast=rng.random() < 0.6),
    )


def random_graph(rng: random.Random, blocks: tuple[str, ...]) -> Graph:
    """1 to 4 operators over a few tensors; rows are a symbol now and then; weights are block floats where they can."""
    graph = Graph("random")
    rows = graph.symbol("rows", 1, rng.randint(2, 8), 2) if rng.random() < 0.25 else rng.randint(1, 40)
    cols = rng.choice((rng.randint(1, 48), 16, 48))
    value = graph.input("x", (rows, cols))
    if rng.random() < 0.15:
        table = graph.weight("table", (rng.randint(2, 8), cols))
        entries = table.shape[0].const
        value = graph.gather(table, graph.input("ids", (rows,), "i32", Ints(0, entries - 1)))
    for number in range(rng.randint(1, 4)):
        value = _step(rng, graph, value, number, blocks)
    graph.output("y", value)
    return graph


def _step(rng: random.Random, graph: Graph, value: Value, number: int, blocks: tuple[str, ...]) -> Value:
    width = value.shape[-1].const
    kind = rng.choice(("unary", "binary", "matmul", "matmul", "matmul", "softmax", "norm", "reduce"))
    if kind == "unary":
        return graph.apply(rng.choice(UNARY), value)
    if kind == "binary":
        other = graph.weight(f"b{number}", (width,)) if rng.random() < 0.5 else 2.0
        return graph.apply(rng.choice(BINARY), value, other)
    if kind == "matmul":
        columns, transposed = rng.choice((rng.randint(1, 40), 16, 32)), rng.random() < 0.4
        shape = (columns, width) if transposed else (width, columns)
        dtype = rng.choice(("f32", *blocks)) if shape[1] % BFP_BLOCK == 0 else "f32"
        return graph.matmul(value, graph.weight(f"w{number}", shape, dtype), transposed)
    if kind == "softmax":
        return graph.softmax(value)
    if kind == "norm":
        return graph.rmsnorm(value, graph.weight(f"g{number}", (width,)) if rng.random() < 0.7 else None)
    return graph.reduce(rng.choice(("SUM", "MAX")), value)
