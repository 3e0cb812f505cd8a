"""Small programs to mutate: written by hand, and compiled on both targets (single sections, and some composed)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from msgspec.structs import replace

from pavane import api
from pavane.ir.digest import program_digest
from pavane.ir.program import Certificate, Program
from pavane.ir.types import Ints
from pavane.passes.decoder_tensors import expected_weights
from pavane.reject import SpatialReject
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.tensor_graph.decoder import DecoderWeights
from pavane.tensor_graph.graph import Graph
from pavane.verify.check import check
from pavane.verify.prove import prove
from tests import examples
from tests.decoders import stored_dtype
from tests.tiny_models import tiny_config

Case = tuple[Program, SpatialTarget]


@lru_cache
def toy() -> SpatialTarget:
    return load_target("toy")


@lru_cache
def host() -> SpatialTarget:
    return load_target("host", cores=2)


def names() -> tuple[str, ...]:
    """Of every small program."""
    return (*_BY_HAND, *(f"{graph}_{chip}" for graph in _GRAPHS for chip in ("toy", "host")))


@lru_cache
def small(name: str) -> Case:
    """The program of that name and its target: tests/examples.py with small figures, or a small graph compiled."""
    if name in _BY_HAND:
        return _BY_HAND[name]()
    graph, _, chip = name.rpartition("_")
    target = toy() if chip == "toy" else host()
    return _compile(graph, _GRAPHS[graph], target), target


@lru_cache
def decoder(target_name: str, rows: int | str, contract: str = "FLOAT") -> Case:
    """A decoder of one tiny layer, composed."""
    target = toy() if target_name == "toy" else host()
    config = tiny_config(
        layers=1, width=32, feed_forward=32, heads=2, kv_heads=1, head_width=16, vocabulary=40, context=40
    )
    quantised = contract == "INT8_ACTIVATIONS"
    table = tuple((name, shape, stored_dtype(shape, quantised)) for name, shape in expected_weights(config))
    source = api.decoder(config, DecoderWeights(table), rows=rows, contract=contract, context=40)
    return _bare(api.compile(source, target)), target


def refusal(program: Program, target: SpatialTarget, original: Certificate | None = None) -> SpatialReject | None:
    """Why prover or checker refuse a program; None when it passes, with its own or with the original's schedules."""
    own: SpatialReject | None = None
    try:
        check(replace(program, certificate=prove(program, target)), target)
        return None
    except SpatialReject as reject:
        own = reject
    if original is None:
        return own
    try:
        check(replace(program, certificate=replace(original, program=program_digest(program))), target)
    except SpatialReject:
        return own
    return None


def _compile(name: str, build: Callable[[Graph], None], target: SpatialTarget) -> Program:
    graph = Graph(name)
    build(graph)
    return _bare(api.compile(api.graph(graph), target))


def _bare(program: Program) -> Program:
    return replace(program, phase="PERSISTENT", certificate=None)


def _norm_product(g: Graph) -> None:
    x, w, gain = g.input("x", (5, 40)), g.weight("w", (40, 24)), g.weight("gain", (40,))
    g.output("y", g.matmul(g.rmsnorm(x, gain), w))


def _two_products(g: Graph) -> None:
    x, w, v = g.input("x", (9, 20)), g.weight("w", (20, 16)), g.weight("v", (16, 12))
    g.output("y", g.matmul(g.apply("tanh", g.matmul(x, w)), v))


def _softmax(g: Graph) -> None:
    g.output("y", g.softmax(g.input("x", (7, 21))))


def _gather(g: Graph) -> None:
    table, ids = g.weight("table", (10, 40)), g.input("ids", (5,), "i32", Ints(0, 9))
    g.output("y", g.gather(table, ids))


def _chain(g: Graph) -> None:
    x, w = g.input("x", (8, 8)), g.weight("w", (8, 8))
    g.output("y", g.matmul(g.matmul(g.matmul(x, w), w), w))


def _symbolic(g: Graph) -> None:
    x, w = g.input("x", (g.symbol("rows", 1, 32, 4), 20)), g.weight("w", (20, 16))
    g.output("y", g.softmax(g.matmul(x, w)))


_GRAPHS: dict[str, Callable[[Graph], None]] = {
    "norm_product": _norm_product,
    "two_products": _two_products,
    "softmax": _softmax,
    "gather": _gather,
    "chain": _chain,
    "symbolic": _symbolic,
}
_BY_HAND: dict[str, Callable[[], Case]] = {
    "matmul_multicast": lambda: (examples.matmul_multicast(toy(), 40, 70, 40), toy()),
    "norm_product_by_hand": lambda: (examples.norm_product_host(host()), host()),
    "norm_product_int8": lambda: (examples.norm_product_host(host(), contract="INT8_ACTIVATIONS"), host()),
    "attention_by_hand": lambda: (examples.attention_host(host()), host()),
}
