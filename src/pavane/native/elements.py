"""Elements in memory: 16 at a time or one, widened to f32 when read, rounded to nearest even when written.

A place is (row pointer, column). Columns of types in blocks are counted in elements; 16 of them are read at once where
the column is known to be a multiple of 16 (block floats: `block_floats`). i32 and i8 values are carried as f32: exact
for integers up to 2**24 in magnitude. Writing an integer type takes an f32 that holds an integer (saturating); q8_0 is
written a block of 32 at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.types import MAGNITUDE_BITS, Q8_BLOCK, Q8_BLOCK_BYTES, Q8_SCALE_BYTES
from pavane.native.block_floats import block_offset, load_block, load_block_element
from pavane.native.text import F32, I64, LANES, MASK, Code

_Q8_SHIFT = Q8_BLOCK.bit_length() - 1
_SIZE = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "i32": 4}
_STORED = {"f32": "float", "f16": "i16", "bf16": "i16", "i8": "i8", "i32": "i32"}


def byte_offset(code: Code, dtype: str, column: str) -> str:
    """Bytes before a column; of a type in blocks it begins one."""
    if dtype in MAGNITUDE_BITS:
        return block_offset(code, dtype, column)
    if dtype == "q8_0":
        if not column.startswith("%"):
            return str(int(column) // Q8_BLOCK * Q8_BLOCK_BYTES)
        return code.mul(code.value(f"ashr exact i64 {column}, {_Q8_SHIFT}"), Q8_BLOCK_BYTES)
    return code.mul(column, _SIZE[dtype])


def load_lanes(code: Code, dtype: str, row: str, column: str, mask: str | None) -> str:
    """16 consecutive elements as f32; lanes outside the mask are 0. In blocks: the column is a multiple of 16."""
    if dtype in MAGNITUDE_BITS:
        return _load_block_float(code, dtype, code.at(row, block_offset(code, dtype, column)), mask)
    if dtype == "q8_0":
        return _load_half_block(code, row, column, mask)
    raw = load_raw_lanes(code, _STORED[dtype], code.at(row, code.mul(column, _SIZE[dtype])), mask)
    return widen(code, dtype, raw, LANES)


def widen(code: Code, dtype: str, raw: str, lanes: int) -> str:
    """Stored lanes (i16 for f16 and bf16) as f32."""
    floats = f"<{lanes} x float>"
    if dtype == "f32":
        return raw
    if dtype == "f16":
        halves = code.value(f"bitcast <{lanes} x i16> {raw} to <{lanes} x half>")
        return code.value(f"fpext <{lanes} x half> {halves} to {floats}")
    if dtype == "bf16":
        wide = code.value(f"zext <{lanes} x i16> {raw} to <{lanes} x i32>")
        high = code.value(f"shl <{lanes} x i32> {wide}, {code.splat('i32', lanes, '16')}")
        return code.value(f"bitcast <{lanes} x i32> {high} to {floats}")
    return code.value(f"sitofp <{lanes} x {_STORED[dtype]}> {raw} to {floats}")


def load_raw_lanes(code: Code, kind: str, pointer: str, mask: str | None) -> str:
    """16 neighbours as they are stored; lanes outside the mask are 0."""
    if mask is None:
        return code.load(f"<{LANES} x {kind}>", pointer)
    suffix = {"float": "f32"}.get(kind, kind)
    vector = f"<{LANES} x {kind}>"
    arguments = f"ptr {pointer}, i32 1, {MASK} {mask}, {vector} zeroinitializer"
    return code.call(f"llvm.masked.load.v{LANES}{suffix}.p0", vector, arguments, f"ptr, i32, {MASK}, {vector}")


def _load_half_block(code: Code, row: str, column: str, mask: str | None) -> str:
    block = q8_block(code, row, column)
    quants = _quant(code, block, column)
    if mask is None:
        scale = load_scale(code, block)
        values = widen(code, "i8", load_raw_lanes(code, "i8", quants, None), LANES)
        return code.value(f"fmul {F32} {code.splat('float', LANES, scale)}, {values}")
    result = code.slot(F32)
    code.store(F32, "zeroinitializer", result, 64)
    with code.when(code.value(f"extractelement {MASK} {mask}, i64 0")):
        scale = load_scale(code, block)
        values = widen(code, "i8", load_raw_lanes(code, "i8", quants, mask), LANES)
        code.store(F32, code.value(f"fmul {F32} {code.splat('float', LANES, scale)}, {values}"), result, 64)
    return code.load(F32, result, 64)


def _load_block_float(code: Code, dtype: str, block: str, mask: str | None) -> str:
    if mask is None:
        return load_block(code, dtype, block)
    result = code.slot(F32)
    code.store(F32, "zeroinitializer", result, 64)
    with code.when(code.value(f"extractelement {MASK} {mask}, i64 0")):
        values = load_block(code, dtype, block)
        code.store(F32, code.value(f"select {MASK} {mask}, {F32} {values}, {F32} zeroinitializer"), result, 64)
    return code.load(F32, result, 64)


def q8_block(code: Code, row: str, column: str, is_first: bool = False) -> str:
    """The address of the q8_0 block that has a column; `is_first`: the column is known to be the block's first."""
    number = code.value(f"{'lshr exact' if is_first else 'ashr'} i64 {column}, {_Q8_SHIFT}")
    return code.at(row, code.mul(number, Q8_BLOCK_BYTES))


def _quant(code: Code, block: str, column: str) -> str:
    """The address of a column's quant in its block."""
    return code.at(block, code.add(code.value(f"and i64 {column}, {Q8_BLOCK - 1}"), str(Q8_SCALE_BYTES)))


def load_quants(code: Code, block: str) -> Iterator[str]:
    """The 32 quants of a q8_0 block, as two vectors of 16 bytes, each loaded when it is asked for."""
    for half in (0, LANES):
        yield code.load(f"<{LANES} x i8>", code.at(block, str(Q8_SCALE_BYTES + half)))


def load_scale(code: Code, block: str) -> str:
    """The scale of a q8_0 block."""
    return code.value(f"fpext half {code.load('half', block)} to float")


def load_scale_lanes(code: Code, block: str, lanes: int) -> str:
    """The scale of a q8_0 block in every lane: broadcast as stored, then widened."""
    halves = code.splat("half", lanes, code.load("half", block))
    return code.value(f"fpext <{lanes} x half> {halves} to <{lanes} x float>")


def load_element(code: Code, dtype: str, row: str, column: str) -> str:
    """One element as f32, at any column."""
    if dtype in MAGNITUDE_BITS:
        return load_block_element(code, dtype, row, column)
    if dtype == "q8_0":
        block = q8_block(code, row, column)
        quant = code.value(f"sitofp i8 {code.load('i8', _quant(code, block, column))} to float")
        return code.value(f"fmul float {load_scale(code, block)}, {quant}")
    place = code.at(row, code.mul(column, _SIZE[dtype]))
    if dtype == "f32":
        return code.load("float", place)
    if dtype == "f16":
        return code.value(f"fpext half {code.load('half', place)} to float")
    if dtype == "bf16":
        wide = code.value(f"zext i16 {code.load('i16', place)} to i32")
        return code.value(f"bitcast i32 {code.value(f'shl i32 {wide}, 16')} to float")
    return code.value(f"sitofp {_STORED[dtype]} {code.load(_STORED[dtype], place)} to float")


def gather_lanes(code: Code, dtype: str, base: str, row_stride: int, rows: str, columns: str, mask: str) -> str:
    """16 elements at any rows and columns (vectors of i64), one at a time but for f32."""
    strides = code.splat("i64", LANES, str(row_stride))
    offsets = code.value(f"mul {I64} {rows}, {strides}")
    if dtype == "f32":
        bytes_ = code.value(
            f"add {I64} {offsets}, {code.value(f'shl {I64} {columns}, ' + code.splat('i64', LANES, '2'))}"
        )
        places = code.value(f"getelementptr i8, ptr {base}, {I64} {bytes_}")
        pointers = f"<{LANES} x ptr>"
        return code.call(
            f"llvm.masked.gather.v{LANES}f32.v{LANES}p0",
            F32,
            f"{pointers} {places}, i32 4, {MASK} {mask}, {F32} zeroinitializer",
            f"{pointers}, i32, {MASK}, {F32}",
        )
    return _gather_slowly(code, dtype, base, offsets, columns, mask)


def _gather_slowly(code: Code, dtype: str, base: str, offsets: str, columns: str, mask: str) -> str:
    places = [code.slot(kind) for kind in (I64, I64, f"<{LANES} x i8>", F32)]
    wide_mask = code.value(f"zext {MASK} {mask} to <{LANES} x i8>")
    for kind, value, place in zip(
        (I64, I64, f"<{LANES} x i8>", F32), (offsets, columns, wide_mask, "zeroinitializer"), places, strict=True
    ):
        code.store(kind, value, place, 16)
    with code.loop(str(LANES)) as lane:
        inside = code.load("i8", code.at(places[2], lane))
        with code.when(code.value(f"icmp ne i8 {inside}, 0")):
            offset = code.load("i64", code.at(places[0], code.mul(lane, 8)))
            column = code.load("i64", code.at(places[1], code.mul(lane, 8)))
            element = load_element(code, dtype, code.at(base, offset), column)
            code.store("float", element, code.at(places[3], code.mul(lane, 4)))
    return code.load(F32, places[3], 16)


def store_lanes(code: Code, dtype: str, row: str, column: str, value: str, mask: str | None) -> None:
    """16 consecutive f32 rounded to `dtype` (not one in blocks: see `store_block`)."""
    raw = narrow(code, dtype, value)
    vector, place = f"<{LANES} x {_STORED[dtype]}>", code.at(row, code.mul(column, _SIZE[dtype]))
    if mask is None:
        code.store(vector, raw, place)
        return
    suffix = {"float": "f32"}.get(_STORED[dtype], _STORED[dtype])
    code.call(
        f"llvm.masked.store.v{LANES}{suffix}.p0",
        "void",
        f"{vector} {raw}, ptr {place}, i32 1, {MASK} {mask}",
        f"{vector}, ptr, i32, {MASK}",
    )


def narrow(code: Code, dtype: str, value: str) -> str:
    """16 f32 as stored lanes, rounded to nearest even; integers saturate."""
    if dtype == "f32":
        return value
    if dtype == "f16":
        halves = code.value(f"fptrunc {F32} {value} to <{LANES} x half>")
        return code.value(f"bitcast <{LANES} x half> {halves} to <{LANES} x i16>")
    if dtype == "bf16":
        return _narrow_bf16(code, value)
    bits = 32 if dtype == "i32" else 8
    stored = f"<{LANES} x i{bits}>"
    return code.call(f"llvm.fptosi.sat.v{LANES}i{bits}.v{LANES}f32", stored, f"{F32} {value}", F32)


def _narrow_bf16(code: Code, value: str) -> str:
    ints = f"<{LANES} x i32>"

    def constant(number: int) -> str:
        return code.splat("i32", LANES, str(number))

    bits = code.value(f"bitcast {F32} {value} to {ints}")
    high = code.value(f"lshr {ints} {bits}, {constant(16)}")
    odd = code.value(f"and {ints} {high}, {constant(1)}")
    bias = code.value(f"add {ints} {odd}, {constant(0x7FFF)}")
    rounded = code.value(f"lshr {ints} {code.value(f'add {ints} {bits}, {bias}')}, {constant(16)}")
    nan = code.value(f"fcmp uno {F32} {value}, zeroinitializer")
    chosen = code.value(f"select {MASK} {nan}, {ints} {constant(0x7FC0)}, {ints} {rounded}")
    return code.value(f"trunc {ints} {chosen} to <{LANES} x i16>")


def store_block(code: Code, row: str, column: str, low: str, high: str) -> None:
    """32 f32 as a q8_0 block by ggml's rule: d = max|x| / 127, scale = f16(d), quant = round(x * (1 / d)).

    Halves are rounded away from zero; where d is 0, quants are 0.
    """
    block = code.at(row, byte_offset(code, "q8_0", column))
    scale, quants = quantised_block(code, low, high)
    code.store("half", scale, block)
    for half, value in enumerate(quants):
        code.store(f"<{LANES} x i8>", value, code.at(block, str(Q8_SCALE_BYTES + LANES * half)))


def quantised_block(code: Code, low: str, high: str) -> tuple[str, list[str]]:
    """The scale (half) and the quants (two vectors of 16) of 32 f32."""
    # Numbers without their sign are in the order of their bits.
    ints = f"<{LANES} x i32>"
    sizes = [
        code.value(f"and {ints} {code.value(f'bitcast {F32} {v} to {ints}')}, {code.splat('i32', LANES, '2147483647')}")
        for v in (low, high)
    ]
    larger = code.call(f"llvm.smax.v{LANES}i32", ints, f"{ints} {sizes[0]}, {ints} {sizes[1]}", f"{ints}, {ints}")
    most = code.call(f"llvm.vector.reduce.smax.v{LANES}i32", "i32", f"{ints} {larger}", ints)
    peak = code.value(f"bitcast i32 {most} to float")
    step = code.value(f"fdiv float {peak}, 127.0")
    zero = code.value(f"fcmp oeq float {step}, 0.0")
    inverse = code.value(f"select i1 {zero}, float 0.0, float {code.value(f'fdiv float 1.0, {step}')}")
    lanes = code.splat("float", LANES, inverse)
    quants = [_quants(code, code.value(f"fmul {F32} {value}, {lanes}")) for value in (low, high)]
    return code.value(f"fptrunc float {step} to half"), quants


def _quants(code: Code, ratio: str) -> str:
    """Rounded with halves away from zero: the largest f32 below 1/2 is added, then the fraction is cut off."""
    half = code.splat("float", LANES, "0x3FDFFFFFE0000000")
    signed = code.call(f"llvm.copysign.v{LANES}f32", F32, f"{F32} {half}, {F32} {ratio}", f"{F32}, {F32}")
    whole = code.value(f"fptosi {F32} {code.value(f'fadd {F32} {ratio}, {signed}')} to <{LANES} x i32>")
    return code.value(f"trunc <{LANES} x i32> {code.value(f'freeze <{LANES} x i32> {whole}')} to <{LANES} x i8>")
