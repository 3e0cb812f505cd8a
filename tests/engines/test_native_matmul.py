"""Every product kernel against the plainest way to write its tree: one scalar at a time, to the bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.program import Compute, Fifo, Init, MatmulTiles, Pop, Program, Ref, Tree
from pavane.native.compile import Loaded
from pavane.native.cpu import Cpu, host_cpu
from pavane.native.layout import program_layout
from pavane.native.memory import Memory
from pavane.native.runtime import NativeProgram, compile_program
from pavane.reject import OutsideFragment
from pavane.targets.load import load_target
from tests.building import take, whole, window
from tests.engines.native_programs import accepted, as_numbers, as_stored, product_program
from tests.engines.sim_programs import edited

F32 = np.float32
DTYPES = ("f32", "f16", "bf16", "i8", "q8_0")


def multiply_add(total: np.ndarray, a: np.ndarray, b: np.ndarray, fused: bool) -> np.ndarray:
    """In float64 the product is exact; longdouble keeps the sum of it and an f32, so one rounding is left."""
    if fused:
        return (a.astype(np.longdouble) * b.astype(np.longdouble) + total.astype(np.longdouble)).astype(F32)
    return total + a * b


def halved(lanes: np.ndarray) -> np.ndarray:
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def tree_product(total: np.ndarray, a: np.ndarray, b: np.ndarray, tree: Tree) -> np.ndarray:
    """total + a . b^T, a [m, k], b [n, k], term by term."""
    k = a.shape[1]
    if tree.lanes == 1:
        for j in range(k):
            total = multiply_add(total, a[:, None, j], b[None, :, j], tree.fused)
        return total
    for start in range(0, k, tree.atom or k):
        lanes = np.zeros((*total.shape, tree.lanes), F32)
        for j in range(start, min(k, start + (tree.atom or k))):
            lane = (j - start) % tree.lanes
            lanes[..., lane] = multiply_add(lanes[..., lane], a[:, None, j], b[None, :, j], tree.fused)
        total = total + halved(lanes)
    return total


def block_product(total: np.ndarray, a: np.ndarray, b: np.ndarray, lanes: int) -> np.ndarray:
    """total + a . b^T of q8_0 bytes: integer sums of 32 / lanes products, met with both scales."""
    (scale_a, quants_a), (scale_b, quants_b) = _blocks(a, lanes), _blocks(b, lanes)
    sums = np.zeros((*total.shape, lanes), F32)
    for block in range(scale_a.shape[1]):
        whole = np.einsum("rli,cli->rcl", quants_a[:, block], quants_b[:, block]).astype(F32)
        scale = scale_a[:, None, block] * scale_b[None, :, block]
        if lanes == 1:
            total = multiply_add(total, scale, whole[..., 0], True)
        else:
            sums = multiply_add(sums, scale[..., None], whole, True)
    return total if lanes == 1 else total + halved(sums)


def _blocks(stored: np.ndarray, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    blocks = stored.reshape(len(stored), -1, 34)
    scales = blocks[:, :, :2].copy().view(np.float16)[:, :, 0].astype(F32)
    return scales, blocks[:, :, 2:].view(np.int8).astype(np.int32).reshape(len(stored), blocks.shape[1], lanes, -1)


def numbers(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> np.ndarray:
    values = rng.integers(-100, 101, shape) if dtype == "i8" else rng.standard_normal(shape)
    return as_stored(values.astype(F32), dtype)


def product(
    a_type: str,
    b_type: str,
    m: int,
    n: int,
    k: int,
    tree: Tree,
    transposed: bool,
    initial: float = 0.0,
    b_role: str = "WEIGHT",
) -> tuple:
    """(native, expected) of one product."""
    rng = np.random.default_rng(m * 1000 + n * 10 + k)
    a = numbers(rng, (m, k), a_type)
    b = numbers(rng, (n, k) if transposed else (k, n), b_type)
    host = load_target("host", 1)
    program = product_program(host, a_type, b_type, m, n, k, tree, transposed, initial)
    tensors = tuple(replace(t, role=b_role) if t.name == "B" else t for t in program.tensors)
    given = {"WEIGHT": ({"B": b}, {"A": a}), "INPUT": ({}, {"A": a, "B": b})}[b_role]
    with native.load(replace(program, tensors=tensors), host, weights=given[0], accept=accepted) as ready:
        ready.launch({}, given[1])
        found = ready.tensor("Y").copy()
    start = np.full((m, n), initial, F32)
    if a_type == b_type == "q8_0" and transposed:
        return found, block_product(start, a, b, tree.lanes)
    left, right = as_numbers(a, a_type), as_numbers(b, b_type)
    return found, tree_product(start, left, right if transposed else right.T, tree)


@pytest.mark.parametrize(
    ("a", "b"), [(a, b) for a, b in itertools.product(DTYPES, DTYPES) if (a, b) != ("q8_0", "q8_0")]
)
def test_sixteen_lanes_along_k(a, b):
    for m, n in ((1, 9), (6, 7)):
        found, expected = product(a, b, m, n, 96, Tree(0, 16, True), True)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, DTYPES)))
def test_one_lane_across_columns(a, b):
    for fused in (False, True):
        found, expected = product(a, b, 5, 96, 32, Tree(0, 1, fused), False)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 5, 17), (2, 3, 31), (4, 4, 16), (5, 6, 33), (32, 33, 70)])
@pytest.mark.parametrize("fused", [False, True])
def test_ragged_products_along_k(m, n, k, fused):
    found, expected = product("f32", "f16", m, n, k, Tree(0, 16, fused), True, initial=0.75)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (7, 64, 6),
        (8, 64, 2),
        (9, 130, 70),
        (33, 65, 64),
        (12, 64, 7),
        (9, 65, 256),
        (8, 64, 302),
        (11, 128, 515),
        (260, 72, 516),
    ],
)
@pytest.mark.parametrize("role", ["WEIGHT", "INPUT"])
@pytest.mark.parametrize("initial", [0.0, 0.5])
def test_pairs_of_bf16_are_two_fused_terms_in_order(m, n, k, role, initial):
    """A weight is packed beforehand, an input by the kernel."""
    found, expected = product("bf16", "bf16", m, n, k, Tree(0, 1, True), False, initial, role)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (3, 15, 2), (4, 64, 5), (33, 81, 65), (1, 17, 40), (9, 64, 128), (13, 70, 261)]
)
def test_ragged_products_across_columns(m, n, k):
    found, expected = product("f32", "bf16", m, n, k, Tree(0, 1, True), False, initial=-2.5)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 1, 32), (1, 9, 96), (3, 4, 64), (4, 8, 32), (9, 6, 160), (32, 5, 64), (1, 48, 96), (1, 50, 64), (32, 50, 576)],
)
def test_blocks_of_quants(m, n, k):
    found, expected = product("q8_0", "q8_0", m, n, k, Tree(0, 1, True), True, initial=0.5)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_one_row_of_b_beside_many(dtype, m):
    """A window without rows has no distance from row to row. Its product comes first, in column 0."""
    host, tree, n, k = load_target("host", 1), Tree(0, 16, True), 6, 40
    program = product_program(host, "f32", dtype, m, n, k, tree, True)
    shape = program.shapes[0]
    op = MatmulTiles(Ref("acc"), Ref("A"), Ref("V"), True, whole(m), whole(1), whole(k), tree)
    steps = (*take("V", "B", window((0, 1), (0, k))), Compute(op), Pop("V"))
    program = edited(program, "core", lambda s: (s, *steps) if isinstance(s, Init) else (s,))
    vector = replace(program.shapes[0], fifos=(*shape.fifos, Fifo("V", "ALIAS", 1, k, dtype, 1)))
    rng = np.random.default_rng(m)
    a, b = numbers(rng, (m, k), "f32"), numbers(rng, (n, k), dtype)
    with native.load(replace(program, shapes=(vector,)), host, weights={"B": b}, accept=accepted) as ready:
        ready.launch({}, {"A": a})
        expected, right = np.zeros((m, n), F32), as_numbers(b, dtype)
        expected[:, :1] = tree_product(expected[:, :1], a, right[:1], tree)
        assert np.array_equal(ready.tensor("Y"), tree_product(expected, a, right, tree))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_blocks_of_quants_in_other_trees(lanes):
    found, expected = product("q8_0", "q8_0", 3, 5, 96, Tree(0, lanes, True), True)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("tree", [Tree(32, 4, False), Tree(0, 2, True), Tree(8, 16, True), Tree(0, 1, False)])
@pytest.mark.parametrize("transposed", [True, False])
def test_any_tree(tree, transposed):
    found, expected = product("f16", "f32", 3, 5, 70, tree, transposed)
    assert np.array_equal(found, expected)


def test_a_block_tree_that_splits_blocks_is_refused():
    with pytest.raises(OutsideFragment, match="whole blocks"):
        product("q8_0", "q8_0", 1, 1, 64, Tree(16, 4, True), True)


def extreme_quants(rng: np.random.Generator, rows: int, k: int) -> np.ndarray:
    """Every byte value, -128 too."""
    stored = np.zeros((rows, k // 32, 34), np.uint8)
    stored[:, :, :2] = rng.uniform(0.001, 2, (rows, k // 32)).astype(np.float16)[..., None].view(np.uint8)
    stored[:, :, 2:] = rng.choice(np.array([0, 1, 127, 128, 129, 255], np.uint8), (rows, k // 32, 32))
    return stored.reshape(rows, -1)


LESS = {
    "nothing": (),
    "no byte dots": ("avx512vnni", "avxvnni"),
    "no pairs": ("avx512bf16",),
    "narrow": ("avx512vl", "avx512bw", "avxvnni"),
}
ON_X86 = pytest.mark.skipif(host_cpu().machine not in ("x86_64", "amd64"), reason="features of another kind of chip")


def poorer(less: tuple[str, ...]) -> Cpu:
    """This processor, described without these features."""
    cpu = host_cpu()
    kept = [f for f in cpu.features.split(",") if f[1:] not in less]
    return replace(cpu, features=",".join([*kept, *(f"-{f}" for f in less)]))


def on_processor(cpu: Cpu, program: Program, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    host = load_target("host", 1)
    layout = program_layout(program, host)
    loaded = Loaded(compile_program(program, layout, cpu))
    with NativeProgram(program, layout, loaded, Memory(program, {"B": b}, None)) as ready:
        ready.launch({}, {"A": a})
        return ready.tensor("Y").copy()


@ON_X86
@pytest.mark.parametrize("less", LESS)
def test_processors_agree_to_the_bit_on_blocks(less):
    """With and without the dot instructions and the wide registers (the code is told that the processor has none)."""
    cpu = poorer(LESS[less])
    assert cpu.block_dot <= (less in ("nothing", "no pairs"))
    rng = np.random.default_rng(3)
    for m in (1, 7):
        a, b = extreme_quants(rng, m, 128), extreme_quants(rng, 38, 128)
        program = product_program(load_target("host", 1), "q8_0", "q8_0", m, 38, 128, Tree(0, 1, True), True)
        assert np.array_equal(on_processor(cpu, program, a, b), block_product(np.zeros((m, 38), F32), a, b, 1))


@ON_X86
@pytest.mark.parametrize("less", LESS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_processors_agree_to_the_bit_across_columns(less, dtype):
    cpu, tree = poorer(LESS[less]), Tree(0, 1, True)
    assert cpu.pair_dot <= (less in ("nothing", "no byte dots"))
    rng = np.random.default_rng(4)
    a, b = numbers(rng, (9, 140), dtype), numbers(rng, (140, 70), dtype)
    program = product_program(load_target("host", 1), dtype, dtype, 9, 70, 140, tree, False)
    expected = tree_product(np.zeros((9, 70), F32), as_numbers(a, dtype), as_numbers(b, dtype).T, tree)
    assert np.array_equal(on_processor(cpu, program, a, b), expected)
