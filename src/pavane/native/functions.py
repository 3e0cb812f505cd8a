"""exp, log, sin, cos, tanh, erf and rsqrt of 16 f32 at once, as functions of the module.

Largest errors against the real function, in units of the last place of an f32 (tested): exp 1, log 2, rsqrt 1.5, tanh
2, erf 2, sin and cos 2 for |x| <= 1e5 (beyond, the reduction loses bits, in the end all, and results stay between -1
and 1). exp of less than -104 is 0, of more than 88.73 infinity. Reductions are Cody and Waite's (Software Manual for
the Elementary Functions, 1980) with fused multiply-adds; polynomials are minimax fits in the manner of Cephes.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

from pavane.native.text import F32, LANES, MASK, Code, Module

_INTS = f"<{LANES} x i32>"


def f32_text(number: float) -> str:
    """A number rounded to f32 (what is beyond it to infinity), as LLVM writes it: the bits of the double that is equal
    to it.
    """
    single = ctypes.c_float(number).value
    return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"


class _Lanes:
    """Arithmetic on 16 f32 in one function: the vocabulary in which the functions below are written."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def const(self, number: float) -> str:
        return self.code.splat("float", LANES, f32_text(number))

    def int_const(self, number: int) -> str:
        return self.code.splat("i32", LANES, str(number))

    def binary(self, op: str, a: str, b: str) -> str:
        return self.code.value(f"{op} {F32} {a}, {b}")

    def integer(self, op: str, a: str, b: str) -> str:
        return self.code.value(f"{op} {_INTS} {a}, {b}")

    def negate(self, a: str) -> str:
        return self.code.value(f"fneg {F32} {a}")

    def fma(self, a: str, b: str, c: str) -> str:
        return self.code.call(f"llvm.fma.v{LANES}f32", F32, f"{F32} {a}, {F32} {b}, {F32} {c}", f"{F32}, {F32}, {F32}")

    def unary(self, name: str, a: str) -> str:
        return self.code.call(f"llvm.{name}.v{LANES}f32", F32, f"{F32} {a}", F32)

    def copysign(self, a: str, b: str) -> str:
        return self.code.call(f"llvm.copysign.v{LANES}f32", F32, f"{F32} {a}, {F32} {b}", f"{F32}, {F32}")

    def compare(self, how: str, a: str, b: str) -> str:
        return self.code.value(f"fcmp {how} {F32} {a}, {b}")

    def choose(self, mask: str, a: str, b: str, kind: str = F32) -> str:
        return self.code.value(f"select {MASK} {mask}, {kind} {a}, {kind} {b}")

    def to_int(self, a: str) -> str:
        return self.code.value(f"fptosi {F32} {a} to {_INTS}")

    def to_float(self, a: str) -> str:
        return self.code.value(f"sitofp {_INTS} {a} to {F32}")

    def bits(self, a: str) -> str:
        return self.code.value(f"bitcast {F32} {a} to {_INTS}")

    def from_bits(self, a: str) -> str:
        return self.code.value(f"bitcast {_INTS} {a} to {F32}")

    def polynomial(self, x: str, coefficients: list[float]) -> str:
        """Highest power first."""
        total = self.const(coefficients[0])
        for c in coefficients[1:]:
            total = self.fma(total, x, self.const(c))
        return total


def apply_function(code: Code, op: str, argument: str) -> str:
    """A call of the module's function for `op` (one of FUNCTIONS), which is written on its first use."""
    name = f"lanes_{op}"
    if not code.module.has(name):
        _define(code.module, name, FUNCTIONS[op])
    return code.value(f"call {F32} @{name}({F32} {argument})")


def _define(module: Module, name: str, write: Callable[[_Lanes, str], str]) -> None:
    code = Code(module, name, f"{F32} %x", F32, "internal")
    code.finish(f"{F32} {write(_Lanes(code), '%x')}")


def _scaled(v: _Lanes, x: str, power: str) -> str:
    """x * 2**power (integers) by two multiplications, so that results may be subnormal or infinite."""
    half = v.integer("ashr", power, v.int_const(1))
    for part in (half, v.integer("sub", power, half)):
        x = v.binary(
            "fmul", x, v.from_bits(v.integer("shl", v.integer("add", part, v.int_const(127)), v.int_const(23)))
        )
    return x


def _exp(v: _Lanes, x: str) -> str:
    low, high = v.const(-104.0), v.const(88.8)
    inside = v.choose(v.compare("olt", x, low), low, x)
    inside = v.choose(v.compare("ogt", inside, high), high, inside)
    n = v.unary("rint", v.binary("fmul", inside, v.const(1.4426950408889634)))
    r = v.fma(n, v.const(-0.693359375), inside)
    r = v.fma(n, v.const(2.12194440e-4), r)
    p = v.polynomial(
        r, [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1]
    )
    p = v.binary("fadd", v.fma(p, v.binary("fmul", r, r), r), v.const(1.0))
    result = v.choose(v.compare("olt", x, low), v.const(0.0), _scaled(v, p, v.to_int(n)))
    return v.choose(v.compare("uno", x, x), x, result)


def _log(v: _Lanes, x: str) -> str:
    tiny = v.compare("olt", x, v.const(1.17549435e-38))
    scaled = v.choose(tiny, v.binary("fmul", x, v.const(float(1 << 25))), x)
    # The significand is brought to [sqrt(1/2), sqrt(2)).
    offset = v.integer("sub", v.bits(scaled), v.int_const(0x3F3504F3))
    exponent = v.integer("ashr", offset, v.int_const(23))
    mantissa = v.from_bits(v.integer("add", v.integer("and", offset, v.int_const(0x7FFFFF)), v.int_const(0x3F3504F3)))
    e = v.binary("fsub", v.to_float(exponent), v.choose(tiny, v.const(25.0), v.const(0.0)))
    f = v.binary("fsub", mantissa, v.const(1.0))
    p = v.polynomial(f, [7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                         -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1])  # fmt: skip
    square = v.binary("fmul", f, f)
    y = v.binary("fmul", v.binary("fmul", p, f), square)
    y = v.fma(e, v.const(-2.12194440e-4), y)
    y = v.fma(square, v.const(-0.5), y)
    result = v.fma(e, v.const(0.693359375), v.binary("fadd", f, y))
    result = v.choose(v.compare("oeq", x, v.const(0.0)), v.const(float("-inf")), result)
    result = v.choose(v.compare("oeq", x, v.const(float("inf"))), x, result)
    return v.choose(v.compare("ult", x, v.const(0.0)), v.const(float("nan")), result)


def _sin(v: _Lanes, x: str) -> str:
    return _circular(v, x, quarter=0)


def _cos(v: _Lanes, x: str) -> str:
    return _circular(v, x, quarter=1)


def _circular(v: _Lanes, x: str, quarter: int) -> str:
    """sin(x + quarter * pi/2): n = the nearest multiple of pi/2, then the polynomial that n's quarter asks for."""
    n = v.unary("rint", v.binary("fmul", x, v.const(0.6366197723675814)))
    r = x
    for part in (-1.5707963705062866, 4.371139000186241e-8, 1.7151245100059007e-15):
        r = v.fma(n, v.const(part), r)
    square = v.binary("fmul", r, r)
    s = v.polynomial(
        square, [2.6083159809786593e-06, -1.9810690719168633e-04, 8.3330785855650902e-03, -1.6666659712791443e-01]
    )
    s = v.fma(v.binary("fmul", s, square), r, r)
    c = v.polynomial(square, [-2.6051615e-07, 2.4760495e-05, -1.3888378e-03, 4.1666638e-02])
    c = v.fma(v.binary("fmul", c, square), square, v.fma(square, v.const(-0.5), v.const(1.0)))
    phase = v.integer("add", v.code.value(f"freeze {_INTS} {v.to_int(n)}"), v.int_const(quarter))
    zero = v.int_const(0)
    odd = v.code.value(f"icmp ne {_INTS} {v.integer('and', phase, v.int_const(1))}, {zero}")
    negative = v.code.value(f"icmp ne {_INTS} {v.integer('and', phase, v.int_const(2))}, {zero}")
    result = v.choose(odd, c, s)
    result = v.choose(v.compare("ogt", v.unary("fabs", result), v.const(1.0)), v.copysign(v.const(1.0), result), result)
    return v.choose(negative, v.negate(result), result)


def _tanh(v: _Lanes, x: str) -> str:
    size = v.unary("fabs", x)
    grown = v.code.value(f"call {F32} @{_ensure(v, 'exp')}({F32} {v.binary('fadd', size, size)})")
    large = v.binary("fsub", v.const(1.0), v.binary("fdiv", v.const(2.0), v.binary("fadd", grown, v.const(1.0))))
    square = v.binary("fmul", x, x)
    p = v.polynomial(
        square, [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1]
    )
    small = v.fma(v.binary("fmul", p, square), x, x)
    return v.choose(v.compare("olt", size, v.const(0.625)), small, v.copysign(large, x))


def _ensure(v: _Lanes, op: str) -> str:
    if not v.code.module.has(f"lanes_{op}"):
        _define(v.code.module, f"lanes_{op}", FUNCTIONS[op])
    return f"lanes_{op}"


def _erf(v: _Lanes, x: str) -> str:
    """After N. Juffa's single-precision erf: a polynomial near 0, 1 - exp(polynomial) beyond 475/512."""
    t, s = v.unary("fabs", x), v.binary("fmul", x, x)
    r = v.fma(v.const(-1.72853470e-5), t, v.const(3.83197126e-4))
    u = v.fma(v.const(-3.88396438e-3), t, v.const(2.42546219e-2))
    r = v.fma(r, s, u)
    for c in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = v.fma(r, t, v.const(c))
    r = v.fma(r, t, v.negate(t))
    large = v.binary("fsub", v.const(1.0), v.code.value(f"call {F32} @{_ensure(v, 'exp')}({F32} {r})"))
    p = v.polynomial(s, [-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1])
    small = v.fma(p, x, x)
    # Beyond 4 the result is 1 to the last bit, and the polynomial's powers would overflow.
    chosen = v.choose(v.compare("ogt", t, v.const(4.0)), v.const(1.0), large)
    return v.choose(v.compare("ogt", t, v.const(0.927734375)), v.copysign(chosen, x), small)


def _rsqrt(v: _Lanes, x: str) -> str:
    return v.binary("fdiv", v.const(1.0), v.unary("sqrt", x))


FUNCTIONS: dict[str, Callable[[_Lanes, str], str]] = {
    "exp": _exp, "log": _log, "sin": _sin, "cos": _cos, "tanh": _tanh, "erf": _erf, "rsqrt": _rsqrt,
}  # fmt: skip
