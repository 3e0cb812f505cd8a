"""Block floats in memory (bfp8, bfp4): a block of 16, or one element, widened to f32; 16 f32 rounded into a block.

A block is an exponent byte E, then 16 elements of a sign and a magnitude m, a byte or half a byte each (the even one in
the lower half). Values and rounding are `tensor_graph.block_float`'s, to the bit: +-m * 2**(E - 127 - h), where h = 6
(2) is the magnitude's bits less one, and -infinity for a sign without magnitude.
"""

from __future__ import annotations

from pavane.ir.types import BFP_BLOCK, MAGNITUDE_BITS, row_bytes
from pavane.native.text import F32, LANES, MASK, Code, shuffle

_INTS, _BYTES, _PAIRS = f"<{LANES} x i32>", f"<{LANES} x i8>", f"<{LANES // 2} x i8>"
_SHIFT = BFP_BLOCK.bit_length() - 1
_EVEN, _ODD = list(range(0, LANES, 2)), list(range(1, LANES, 2))
_TOGETHER = [lane // 2 + lane % 2 * (LANES // 2) for lane in range(LANES)]


def block_offset(code: Code, dtype: str, column: str) -> str:
    """Bytes before the block of a column."""
    block = code.value(f"ashr i64 {column}, {_SHIFT}") if column.startswith("%") else str(int(column) // BFP_BLOCK)
    return code.mul(block, row_bytes(dtype, BFP_BLOCK))


def load_block(code: Code, dtype: str, block: str) -> str:
    """The 16 elements of the block at an address."""
    if dtype == "bfp8":
        elements = code.load(_BYTES, code.at(block, "1"))
    else:
        pairs = code.load(_PAIRS, code.at(block, "1"))
        low = code.value(f"and {_PAIRS} {pairs}, {code.splat('i8', LANES // 2, '15')}")
        high = code.value(f"lshr {_PAIRS} {pairs}, {code.splat('i8', LANES // 2, '4')}")
        elements = shuffle(code, "i8", LANES // 2, low, high, _TOGETHER)
    wide = code.value(f"zext {_BYTES} {elements} to {_INTS}")
    return _values(code, dtype, wide, code.splat("float", LANES, _scale(code, dtype, block)), LANES)


def load_block_element(code: Code, dtype: str, row: str, column: str) -> str:
    """The element of a column."""
    block = code.at(row, block_offset(code, dtype, column))
    place = code.value(f"and i64 {column}, {BFP_BLOCK - 1}")
    byte = place if dtype == "bfp8" else code.value(f"lshr i64 {place}, 1")
    wide = code.value(f"zext i8 {code.load('i8', code.at(block, code.add(byte, '1')))} to i32")
    if dtype == "bfp4":
        half = code.value(f"trunc i64 {code.mul(code.value(f'and i64 {place}, 1'), 4)} to i32")
        wide = code.value(f"and i32 {code.value(f'lshr i32 {wide}, {half}')}, 15")
    return _values(code, dtype, wide, _scale(code, dtype, block), 1)


def store_block_float(code: Code, dtype: str, block: str, value: str) -> None:
    """16 f32 as the block at an address."""
    bits = MAGNITUDE_BITS[dtype]
    words = code.value(f"bitcast {F32} {value} to {_INTS}")
    exponents = _with(code, "and", _with(code, "lshr", words, 23), 255)
    most = code.call(f"llvm.vector.reduce.umax.v{LANES}i32", "i32", f"{_INTS} {exponents}", _INTS)
    shared = code.splat("i32", LANES, most)
    magnitudes = _rounded(code, _significands(code, words, exponents), _both(code, "sub", shared, exponents), bits)
    exact = _both(code, "shl", magnitudes, _least(code, shared, 24))  # m * 2**E: below 2**(h + 1) it is not normal
    kept = code.value(f"icmp uge {_INTS} {exact}, {code.splat('i32', LANES, str(1 << bits))}")
    sign = _with(code, "shl", _with(code, "lshr", words, 31), bits)
    signed = _both(code, "or", magnitudes, sign)
    elements = code.value(f"select {MASK} {kept}, {_INTS} {signed}, {_INTS} zeroinitializer")
    stored = code.value(f"trunc {_INTS} {elements} to {_BYTES}")
    code.store("i8", code.value(f"trunc i32 {most} to i8"), block)
    if dtype == "bfp8":
        code.store(_BYTES, stored, code.at(block, "1"))
        return
    low, high = (shuffle(code, "i8", LANES, stored, "poison", picks) for picks in (_EVEN, _ODD))
    raised = code.value(f"shl {_PAIRS} {high}, {code.splat('i8', LANES // 2, '4')}")
    code.store(_PAIRS, code.value(f"or {_PAIRS} {low}, {raised}"), code.at(block, "1"))


def _scale(code: Code, dtype: str, block: str) -> str:
    """2**(E - 127 - h), which is below the normal numbers where E <= h."""
    h = MAGNITUDE_BITS[dtype] - 1
    exponent = code.value(f"zext i8 {code.load('i8', block)} to i32")
    normal = code.value(f"shl i32 {code.value(f'sub i32 {exponent}, {h}')}, 23")
    small = code.value(f"shl i32 1, {code.value(f'add i32 {exponent}, {22 - h}')}")
    is_normal = code.value(f"icmp ugt i32 {exponent}, {h}")
    chosen = code.value(f"select i1 {is_normal}, i32 {normal}, i32 {small}")
    return code.value(f"bitcast i32 {chosen} to float")


def _values(code: Code, dtype: str, elements: str, scale: str, lanes: int) -> str:
    """Elements (i32) times the scale (as many), with their signs."""
    bits = MAGNITUDE_BITS[dtype]
    ints, floats, flags = ("i32", "float", "i1") if lanes == 1 else (_INTS, F32, MASK)

    def constant(n: int | str, kind: str = "i32") -> str:
        return str(n) if lanes == 1 else code.splat(kind, lanes, str(n))

    magnitudes = code.value(f"and {ints} {elements}, {constant((1 << bits) - 1)}")
    size = code.value(f"fmul {floats} {code.value(f'uitofp {ints} {magnitudes} to {floats}')}, {scale}")
    sign = code.value(f"shl {ints} {code.value(f'lshr {ints} {elements}, {constant(bits)}')}, {constant(31)}")
    both = code.value(f"or {ints} {code.value(f'bitcast {floats} {size} to {ints}')}, {sign}")
    signed = code.value(f"bitcast {ints} {both} to {floats}")
    only_sign = code.value(f"icmp eq {ints} {elements}, {constant(1 << bits)}")
    infinity = constant("0xFFF0000000000000", "float")
    return code.value(f"select {flags} {only_sign}, {floats} {infinity}, {floats} {signed}")


def _significands(code: Code, words: str, exponents: str) -> str:
    """24 bits; 0 of what is below the normal numbers."""
    whole = _with(code, "or", _with(code, "and", words, (1 << 23) - 1), 1 << 23)
    normal = code.value(f"icmp ugt {_INTS} {exponents}, zeroinitializer")
    return code.value(f"select {MASK} {normal}, {_INTS} {whole}, {_INTS} zeroinitializer")


def _rounded(code: Code, significands: str, shifts: str, bits: int) -> str:
    """To nearest, halves to even, at most all ones."""
    aligned, spare = _both(code, "lshr", significands, _least(code, shifts, 31)), 24 - bits
    odd = _with(code, "and", _with(code, "lshr", aligned, spare), 1)
    raised = _with(code, "add", _both(code, "add", aligned, odd), (1 << (spare - 1)) - 1)
    return _least(code, _with(code, "lshr", raised, spare), (1 << bits) - 1)


def _both(code: Code, op: str, a: str, b: str) -> str:
    return code.value(f"{op} {_INTS} {a}, {b}")


def _with(code: Code, op: str, a: str, constant: int) -> str:
    return _both(code, op, a, code.splat("i32", LANES, str(constant)))


def _least(code: Code, a: str, constant: int) -> str:
    arguments = f"{_INTS} {a}, {_INTS} {code.splat('i32', LANES, str(constant))}"
    return code.call(f"llvm.umin.v{LANES}i32", _INTS, arguments, f"{_INTS}, {_INTS}")
