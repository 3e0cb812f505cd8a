"""Which weights are repacked for the kernel that reads them, what the packed form is, and packing itself.

A q8_0 formal is packed when every use of it is as b^T of a one-lane product of blocks over the whole K, its windows
start at multiples of 16 rows, and every instance binds it to a WEIGHT. The tensor's own bytes stay where they are (a
gather may read them too); programs that share weights share packed ones.

Packed: groups of 16 rows, the last one padded, each as long as 16 stored rows: per block of 32 eight registers of 16
rows x 4 bytes (quant + 128), and behind all blocks 16 f16 scales a block. So the address of a row that is a multiple of
16 is what it was.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pavane.ir.expr import At, walk
from pavane.ir.program import Compute, Formal, Generic, Load, MatmulTiles, Program, Ref, Shape
from pavane.ir.quasi import Quasi
from pavane.ir.types import Q8_BLOCK
from pavane.ir.walk import bodies, leaves
from pavane.native.kernels_packed import GROUP, QUANTS
from pavane.native.text import LANES, Code, Module, shuffle

PACK = "pack"
_ZERO = Quasi()
_BLOCK_BYTES = Q8_BLOCK + 2
_LEAST_GROUPS = 64  # a share of work that is worth a thread
_DOOR = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


def packed_formals(program: Program, shape: Shape) -> frozenset[str]:
    """The formals of a shape that are bound to packed bytes."""
    candidates = [f for f in shape.formals if f.dtype == "q8_0" and f.role == "IN" and _read_packed(shape, f)]
    return frozenset(f.name for f in candidates if _only_weights(program, shape, f))


def _only_weights(program: Program, shape: Shape, formal: Formal) -> bool:
    tensors = {t.name: t for t in program.tensors}
    bound = [
        tensors[b.tensor]
        for i in program.instances
        if i.shape == shape.name
        for b in i.bindings
        if b.formal == formal.name
    ]
    return all(t.role == "WEIGHT" and t.shape[-1] == formal.shape[-1] for t in bound)


def _read_packed(shape: Shape, formal: Formal) -> bool:
    fifos = {f.name: f for f in shape.fifos}
    fed = {s.fifo for s in _loads(shape) if s.tensor == formal.name}
    loads = [s for s in _loads(shape) if s.fifo in fed]
    if not fed or not all(s.tensor == formal.name and fifos[s.fifo].kind == "ALIAS" for s in loads):
        return False
    return all(_in_groups(formal, s) for s in loads) and all(
        _is_block_product(shape, op, formal) for op in _uses(shape, fed)
    )


def _loads(shape: Shape) -> Iterator[Load]:
    for _, body in bodies(shape):
        yield from (step for _, step in leaves(body) if isinstance(step, Load))


def _uses(shape: Shape, fifos: set[str]) -> Iterator[Generic | MatmulTiles]:
    for _, body in bodies(shape):
        for _, step in leaves(body):
            if isinstance(step, Compute) and fifos & reads(step.op):
                yield step.op


def reads(op: Generic | MatmulTiles) -> set[str]:
    """The slots and carries that an op reads."""
    if isinstance(op, MatmulTiles):
        return {op.a.name, op.b.name}
    return {e.name for e in walk(op.expr) if isinstance(e, At)}


def _is_block_product(shape: Shape, op: Generic | MatmulTiles, formal: Formal) -> bool:
    if not isinstance(op, MatmulTiles) or op.b != Ref(op.b.name) or not op.transposed:
        return False
    left = {**{f.name: f.dtype for f in shape.fifos}, **{c.name: c.dtype for c in shape.carries}}[op.a.name]
    whole = op.k.start == _ZERO and op.k.limit == formal.shape[-1] and op.k.size >= op.k.limit.const
    same_side = op.a.name == op.b.name
    return left == "q8_0" and whole and not same_side and op.tree.lanes == 1 and op.tree.fused


def _in_groups(formal: Formal, step: Load) -> bool:
    """Whole rows, one after the other, the first a multiple of 16."""
    start, last = step.window.start, len(formal.shape) - 1
    if (
        start[last] != _ZERO
        or step.window.size[last] < formal.shape[last].const
        or step.window.row not in (-1, last - 1)
    ):
        return False
    stride = 1
    for d in range(last - 1, -1, -1):
        index = start[d]
        if not isinstance(index, Quasi) or any(n * stride % GROUP for n in _numbers(index)):
            return False
        stride *= formal.shape[d].const if formal.shape[d].is_const else GROUP
    return True


def _numbers(value: Quasi) -> Iterator[int]:
    yield value.const
    yield from (coefficient for coefficient, _ in value.terms)


def packed_products(shape: Shape, packed: frozenset[str]) -> tuple[MatmulTiles, ...]:
    """The products that read a packed formal."""
    fifos = {s.fifo for s in _loads(shape) if s.tensor in packed}
    return tuple(op for op in _uses(shape, fifos) if isinstance(op, MatmulTiles))


# --- packing ----------------------------------------------------------------------------------------------------------


def define_pack(module: Module) -> None:
    """`pack(out, rows, first, last, count, blocks)`: groups first .. last-1 of `count` stored rows."""
    code = Code(
        module, PACK, "ptr noalias %out, ptr %in, i64 %first, i64 %last, i64 %count, i64 %blocks", attributes="nounwind"
    )
    row_bytes = code.mul("%blocks", _BLOCK_BYTES)
    group_bytes = code.mul(row_bytes, GROUP)
    with code.loop("%last", start="%first") as group, code.loop("%blocks") as block:
        first = code.mul(group, GROUP)
        # A row beyond the last repeats it; nothing reads what comes of it.
        rows = [code.least(code.add(first, str(i)), code.sub("%count", "1")) for i in range(GROUP)]
        offset = code.mul(block, _BLOCK_BYTES)
        places = [code.at("%in", code.add(code.mul(row, row_bytes), offset)) for row in rows]
        target = code.at("%out", code.mul(group, group_bytes))
        _pack_block(code, places, target, block)
    code.finish()


def _pack_block(code: Code, places: list[str], target: str, block: str) -> None:
    scales = code.at(target, code.add(code.mul("%blocks", QUANTS), code.mul(block, 2 * GROUP)))
    for i, place in enumerate(places):
        code.store("i16", code.load("i16", place), code.at(scales, str(2 * i)))
    vectors = [code.load("<8 x i32>", code.at(place, "2")) for place in places]
    flip = "<" + ", ".join(["i32 -2139062144"] * LANES) + ">"  # 0x80808080
    at = code.at(target, code.mul(block, QUANTS))
    for dot, vector in enumerate(_transposed(code, vectors)):
        code.store(f"<{LANES} x i32>", code.value(f"xor <{LANES} x i32> {vector}, {flip}"), code.at(at, str(64 * dot)))


def _transposed(code: Code, vectors: list[str]) -> list[str]:
    """16 vectors of 8 as 8 vectors of 16: neighbours are interleaved until each holds one place of all."""
    width = 8
    while len(vectors) > 8:
        half = len(vectors) // 2
        vectors = [
            shuffle(code, "i32", width, vectors[i], vectors[i + half], list(range(2 * width))) for i in range(half)
        ]
        width *= 2
    # vectors[i] holds rows i and i + 8; three rounds of exchanging between pairs at distances 4, 2, 1.
    rows = [(i, i + 8) for i in range(8)]
    lanes = [[(row, place) for row in pair for place in range(8)] for pair in rows]
    return _sorted_lanes(code, vectors, lanes)


def _sorted_lanes(code: Code, vectors: list[str], lanes: list[list[tuple[int, int]]]) -> list[str]:
    """Bring every place's 16 rows into one vector: per bit of the place, pairs of vectors exchange halves."""
    for bit in (4, 2, 1):
        out, places = list(vectors), [list(line) for line in lanes]
        for i in range(8):
            if i & bit:
                continue
            j = i | bit
            both = [
                *((0, n, what) for n, what in enumerate(lanes[i])),
                *((LANES, n, what) for n, what in enumerate(lanes[j])),
            ]
            for target, wanted in ((i, 0), (j, bit)):
                picked = [(base + n, what) for base, n, what in both if what[1] & bit == wanted]
                picked.sort(key=lambda p: (p[1][1], p[1][0]))
                out[target] = shuffle(code, "i32", LANES, vectors[i], vectors[j], [p for p, _ in picked])
                places[target] = [what for _, what in picked]
        vectors, lanes = out, places
    return vectors


def pack_weight(pack: int, source: np.ndarray, rows: int, columns: int, threads: int, out: np.ndarray) -> None:
    """`source` and `out` are bytes; the work is shared by so many threads."""
    blocks, groups = columns // Q8_BLOCK, -(-rows // GROUP)
    door = _DOOR(pack)
    count = max(1, min(threads, groups // _LEAST_GROUPS))
    bounds = [groups * i // count for i in range(count + 1)]

    def share(number: int) -> None:
        door(out.ctypes.data, source.ctypes.data, bounds[number], bounds[number + 1], rows, blocks)

    if count == 1:
        share(0)
        return
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(share, range(count)))


def packed_bytes(rows: int, columns: int) -> int:
    return -(-rows // GROUP) * GROUP * (columns // Q8_BLOCK) * _BLOCK_BYTES


def packed_weights(program: Program) -> tuple[str, ...]:
    """The tensors of which a packed copy is needed."""
    formals = {shape.name: packed_formals(program, shape) for shape in program.shapes}
    found = {b.tensor: None for i in program.instances for b in i.bindings if b.formal in formals[i.shape]}
    return tuple(found)
