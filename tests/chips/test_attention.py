"""Attention on chips: every way of cutting it into items gives the same, and a long cache is read once a KV head."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.program import LV_ITEM_Y, Load, Program, Symbol, Tensor
from pavane.ir.quasi import quasi
from pavane.ir.walk import bodies, leaves
from pavane.passes.attention import AttentionOp, attention_section
from pavane.passes.reader_sharing import sharable
from pavane.pipeline import run_passes
from pavane.sim import SimResult, Simulator, simulate
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.targets.restrict import restricted
from pavane.tensor_graph.bound import products_of

CONTEXT = 70
TOY, N150, XDNA2 = load_target("toy"), load_target("wormhole_n150"), load_target("xdna2")
CHIPS = {
    "toy": TOY,
    "n150": N150,
    "one site": replace(TOY, grid=replace(TOY.grid, width=1, height=1)),
    "no multicast": replace(TOY, noc=replace(TOY.noc, multicast=False)),
    "small sites": restricted(TOY, memory_bytes=2048),
    "slow beside the chip": replace(  # so slow everywhere that a site a head pays, and that one reader for two does
        TOY,
        engines=tuple(replace(e, generic_elements_per_cycle=min(1, e.generic_elements_per_cycle)) for e in TOY.engines),
        dram=replace(TOY.dram, channels=1, bytes_per_cycle=1),
    ),
}


def section(
    heads: int,
    kv_heads: int,
    width: int,
    target: SpatialTarget,
    window: int = 0,
    prompt: bool = False,
    context: int = CONTEXT,
) -> Program:
    """The TEMPLATE of one attention, over a cache of which `pos + rows` rows are live."""
    rows = quasi("rows" if prompt else 1)
    cached = (quasi(context + 31), quasi(kv_heads), quasi(width))
    queries = (rows, quasi(heads), quasi(width))
    op = AttentionOp(
        name="attention",
        section="attention",
        q=Tensor("q", queries, "f32", "INPUT"),
        k=Tensor("k", cached, "f16", "WEIGHT"),
        v=Tensor("v", cached, "f16", "WEIGHT"),
        o=Tensor("o", queries, "f32", "OUTPUT"),
        rows=rows,
        live=quasi("pos") + rows,
        heads=heads,
        kv_heads=kv_heads,
        width=width,
        scale=1 / math.sqrt(width),
        first=quasi("pos"),
        window=window,
    )
    symbols = (Symbol("pos", 0, context - 1, context // 2), Symbol("rows", 1, 32, 32))
    return attention_section(op, target, symbols if prompt else symbols[:1])


def attended(
    program: Program, target: SpatialTarget, pos: int, rows: int, window: int = 0
) -> tuple[SimResult, np.ndarray, np.ndarray]:
    """The simulation of a compiled attention on random operands, what it gave, and numpy's attention."""
    rng = np.random.default_rng(pos)
    shapes = {t.name: tuple(e.evaluate({"rows": rows}) for e in t.shape) for t in program.tensors}
    q = rng.standard_normal(shapes["q"]).astype(np.float32)
    k, v = (rng.standard_normal(shapes[name]).astype(np.float16) for name in ("k", "v"))
    symbols = {"pos": pos, "rows": rows}
    result = Simulator(program, target, {"k": k, "v": v}).launch(
        {s.name: symbols[s.name] for s in program.symbols}, {"q": q}
    )
    group = q.shape[1] // k.shape[1]
    keys, cached = (np.repeat(a[: pos + rows].astype(np.float64), group, axis=1) for a in (k, v))
    scores = np.einsum("rhd,jhd->rhj", q.astype(np.float64), keys) / math.sqrt(q.shape[2])
    place, at = np.arange(pos + rows), pos + np.arange(rows)[:, None]
    seen = (place <= at) & ((place > at - window) if window else True)
    weights = np.where(seen[:, None, :], np.exp(scores - scores.max()), 0.0)
    expected = np.einsum("rhj,jhd->rhd", weights / weights.sum(axis=-1, keepdims=True), cached)
    return result, result.outputs["o"], expected


# (heads, KV heads, width): a group that no block divides, one KV head, heads that no grid divides, each its own keys
FIGURES = ((6, 2, 16), (4, 1, 24), (15, 5, 8), (14, 2, 16), (3, 3, 16))


@pytest.mark.parametrize("window", [0, 9])
@pytest.mark.parametrize("figures", FIGURES)
@pytest.mark.parametrize("chip", sorted(CHIPS))
def test_one_token_at_any_position(chip, figures, window):
    target = CHIPS[chip]
    program = run_passes(section(*figures, target, window), target)
    tolerance = 2e-3 if chip == "n150" else 1e-5  # operands have 11 significand bits there
    for pos in (0, 8, 31, 32, 69):
        _, found, expected = attended(program, target, pos, 1, window)
        assert np.abs(found - expected).max() < tolerance


@pytest.mark.parametrize(("pos", "rows"), [(0, 1), (3, 7), (38, 32)])
@pytest.mark.parametrize("chip", sorted(CHIPS))
def test_a_block_of_rows(chip, pos, rows):
    target = CHIPS[chip]
    program = run_passes(section(6, 2, 16, target, prompt=True), target)
    _, found, expected = attended(program, target, pos, rows)
    assert np.abs(found - expected).max() < (2e-3 if chip == "n150" else 1e-5)


@pytest.mark.parametrize("figures", [(9, 3, 64), (16, 8, 128), (32, 8, 128), (4, 1, 256)])
@pytest.mark.parametrize("chip", ["wormhole_n150", "blackhole_p150"])
def test_a_long_cache_is_read_once(chip, figures):
    target, (heads, kv_heads, width), pos = load_target(chip), figures, 1024
    program = run_passes(section(*figures, target, context=2 * pos), target)
    result = simulate(program, target, symbols={"pos": pos}, functional=False)
    cache, queries = 2 * (pos + 1) * kv_heads * width * 2, heads * width * 4
    assert sum(channel.read_bytes for channel in result.channels) == cache + queries


@pytest.mark.parametrize("figures", [(16, 8, 128), (32, 8, 128)])
def test_small_sites_read_a_long_cache_once_too(figures):
    """Scores become weights in their place, and one FIFO takes keys and values: so all that share a key have room."""
    (heads, kv_heads, width), pos = figures, 1024
    program = run_passes(section(*figures, XDNA2, context=2 * pos), XDNA2)
    (shape,) = program.shapes
    assert [fifo.name for fifo in shape.fifos] == ["fQ", "fKV", "fO"]
    assert "P" not in {carry.name for carry in shape.carries}
    assert set(products_of(shape, XDNA2)) == {"K", "V"}  # a section's error bound counts both
    result = simulate(program, XDNA2, symbols={"pos": pos}, functional=False)
    cache, queries = 2 * (pos + 1) * kv_heads * width * 2, heads * width * 4
    assert sum(channel.read_bytes for channel in result.channels) == cache + queries


def test_a_fifo_that_is_filled_in_two_places_has_one_reader_a_site():
    (shape,) = section(9, 3, 64, XDNA2, context=2048).shapes
    assert [one.fifo for one in sharable(shape, XDNA2)] == []
    (prompt,) = section(9, 3, 64, XDNA2, context=2048, prompt=True).shapes
    assert [one.fifo for one in sharable(prompt, XDNA2)] == ["fK", "fV"]


def test_a_prompt_with_fewer_heads_than_sites_is_cut_into_rows():
    """3 heads on 64 sites."""
    (shape,) = run_passes(section(3, 3, 64, N150, prompt=True), N150).shapes
    assert shape.items.y.evaluate({"rows": 32}) > 1


@pytest.mark.parametrize("figures", [(9, 3, 64), (32, 8, 128), (4, 1, 256)])
def test_values_come_while_keys_do(figures):
    program = run_passes(section(*figures, N150, context=2048), N150)
    (shape,) = program.shapes
    blocks = -(-1025 // shape.plan.k)
    assert {fifo.name: fifo.depth for fifo in shape.fifos}["fV"] == blocks
    cycles = simulate(program, N150, symbols={"pos": 1024}, functional=False).cycles
    assert abs(cycles - shape.plan.cycles) < cycles / 8


def test_heads_on_sites_of_their_own_share_one_reader_of_keys():
    target = CHIPS["slow beside the chip"]
    program = run_passes(section(4, 2, 16, target), target)
    (shape,) = program.shapes
    assert (shape.items.y, shape.items.x) == (quasi(2), quasi(2))
    assert {f.name: f.kind for f in shape.fifos}["fK"] == "MULTICAST_COLUMN"
    result, _, _ = attended(program, target, 40, 1)
    assert sum(channel.read_bytes for channel in result.channels) == 2 * 41 * 2 * 16 * 2 + 4 * 16 * 4


@pytest.mark.parametrize(
    ("heads", "prompt", "shape"), [(6, False, (2, 3, 16)), (2, False, (1, 2, 16)), (6, True, ("rows", 6, 16))]
)
def test_which_rows_are_an_items(heads, prompt, shape):
    (made,) = section(heads, 2, 16, TOY, prompt=prompt).shapes
    assert {f.name: f.shape for f in made.formals}["Q"] == tuple(quasi(extent) for extent in shape)
    loads = [step for _, body in bodies(made) for _, step in leaves(body) if isinstance(step, Load)]
    keys = [step for step in loads if step.tensor in ("K", "V")]
    assert len(keys) == 2
    assert not any(LV_ITEM_Y in start.variables() for step in keys for start in step.window.start)


def test_what_is_bound_in_place_is_cut_into_heads():
    host = load_target("host", cores=2)
    (made,) = section(6, 2, 16, host).shapes
    assert (made.items.y, made.items.x) == (quasi(1), quasi(6))
