"""Arithmetic on terms' fingerprints: residues modulo two primes P = 2 Q + 1, packed into one 64-bit word (P's above).

Both are fields, so sums, products and quotients of residues are those of the terms; a real constant is a dyadic
rational and has a residue of its own. G has order Q modulo P, so G ** (t mod Q) mod P is a function of t that turns
sums into products, as `exp` does. (The two fields and the exponential between them: Wu et al., "Mirage: A
Multi-Level Superoptimizer for Tensor Programs", OSDI 2025.)
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import numpy as np

P, Q = 4294967087, 2147483543
G = 2718281828**2 % P  # any square but of a small number: its powers should be no constants that programs have
MODULI = (P, Q)
ONE = np.uint64(1 << 32 | 1)
_SHIFT, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_LIMB, _LIMB_MASK = np.uint64(16), np.uint64(0xFFFF)
Terms = np.ndarray
Bilinear = Callable[[np.ndarray, np.ndarray], np.ndarray]


def packed(high: np.ndarray, low: np.ndarray) -> Terms:
    """Of residues modulo P and Q."""
    return high.astype(np.uint64) << _SHIFT | low.astype(np.uint64)


def add(a: Terms, b: Terms) -> Terms:
    return _in_both(lambda m, x, y: (x + y) % m, a, b)


def sub(a: Terms, b: Terms) -> Terms:
    return _in_both(lambda m, x, y: (x + (m - y)) % m, a, b)


def negative(a: Terms) -> Terms:
    return _in_both(lambda m, x: (m - x) % m, a)


def mul(a: Terms, b: Terms) -> Terms:
    return _in_both(lambda m, x, y: x * y % m, a, b)


def total(a: Terms) -> Terms:
    """The sum along the last axis."""
    return _in_both(lambda m, x: x.sum(-1, dtype=np.uint64) % m, a)


def contract(product: Bilinear, a: Terms, b: Terms) -> Terms:
    """A product of arrays (matmul, einsum) in residues: of limbs of 16 bits, exact in float64 below 2**20 addends."""

    def of(modulus: np.uint64, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        (x1, x0), (y1, y0) = (((v >> _LIMB).astype(float), (v & _LIMB_MASK).astype(float)) for v in (x, y))
        high, middle, low = product(x1, y1), product(x1, y0) + product(x0, y1), product(x0, y0)
        result = high.astype(np.uint64) % modulus
        for part in (middle, low):
            result = (result * np.uint64(1 << 16) + part.astype(np.uint64)) % modulus
        return result

    return _in_both(of, a, b)


def inverse(a: Terms) -> Terms:
    """1 / a, by Fermat; of a residue 0 it is 0."""
    return _in_both(lambda m, x: _power(m, x, int(m) - 2), a)


def exponential(a: Terms) -> Terms:
    """G ** (a mod Q) modulo P; modulo Q, where that has no meaning, a number drawn from it."""
    exponent, result = a & _LOW, np.ones_like(a)
    for bit in range(31):
        square = np.uint64(pow(G, 1 << bit, P))
        result = np.where(exponent >> np.uint64(bit) & np.uint64(1), result * square % np.uint64(P), result)
    high = result << _SHIFT
    return high | (drawn("exp", high) & _LOW)


def of_number(numbers: np.ndarray) -> Terms:
    """The residues of finite doubles, exactly; anything else is a term by itself."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(numbers), numbers, 0.0))
    whole, place = (mantissa * 2.0**53).astype(np.int64), exponent - 53 - _LEAST
    found = packed(*((whole % m).astype(np.uint64) * powers[place] % np.uint64(m) for m, powers in _POWERS))
    strange = drawn("strange", np.asarray(numbers, float).view(np.uint64))
    return np.where(np.isfinite(numbers), found, strange)


def drawn(name: str, *arguments: Terms) -> Terms:
    """An uninterpreted function: residues that look random, and depend on the name and the arguments modulo P only."""
    state = np.asarray(np.uint64(int.from_bytes(sha256(name.encode()).digest()[:8], "big")))
    with np.errstate(over="ignore"):
        for argument in arguments:
            state = _stirred(state ^ (argument & ~_LOW))
    return _in_both(lambda m, x: x % m, state)


def same(a: Terms, b: Terms) -> np.ndarray:
    """Are the terms equal? Modulo P: modulo Q an exponential of an exponential does not keep its laws."""
    return a >> _SHIFT == b >> _SHIFT


def _in_both(of: Callable[..., np.ndarray], *terms: Terms) -> Terms:
    high = of(np.uint64(P), *(t >> _SHIFT for t in terms))
    return high << _SHIFT | of(np.uint64(Q), *(t & _LOW for t in terms))


def _power(modulus: np.uint64, base: np.ndarray, exponent: int) -> np.ndarray:
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base % modulus
        base = base * base % modulus
        exponent >>= 1
    return result


def _stirred(x: np.ndarray) -> np.ndarray:
    """One round of splitmix64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


_LEAST, _MOST = -1073 - 53, 1024 - 53
_POWERS = tuple((m, np.array([pow(2, e, m) for e in range(_LEAST, _MOST + 1)], np.uint64)) for m in MODULI)
