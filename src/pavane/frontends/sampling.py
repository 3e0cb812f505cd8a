"""From logits to the next token: greedy, or drawn with a seed.

`Sampler` is deterministic: greedy takes the largest logit and the lowest index among equals; drawing uses one
PCG64 stream from the seed, in double precision, over candidates in a fixed order (logit descending, then index).
Temperature comes first, then top-k, then top-p. Refuses senseless settings with `ArgumentReject`.
"""

from __future__ import annotations

import math

import numpy as np

from pavane.reject import ArgumentReject


class Sampler:
    """Picks one token at a time. Temperature 0 is greedy; top_k 0 and top_p 1 leave all tokens in."""

    def __init__(self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0) -> None:
        _require(0.0 <= temperature < math.inf, "temperature", temperature, "a number from 0 up (0 is greedy)")
        _require(top_k >= 0, "top-k", top_k, "an integer from 0 up (0 keeps all tokens)")
        _require(0.0 < top_p <= 1.0, "top-p", top_p, "a number above 0 and at most 1")
        _require(seed >= 0, "seed", seed, "an integer from 0 up")
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self._stream = np.random.Generator(np.random.PCG64(seed))

    def pick(self, logits: np.ndarray) -> int:
        """The next token for float32 logits [vocabulary]. ValueError when no logit is a number."""
        best = int(np.argmax(logits))
        if not math.isfinite(logits[best]):
            raise ValueError(f"logit {best} is {logits[best]}")
        if self.temperature == 0.0:
            return best
        candidates = _largest(logits, self.top_k) if self.top_k or self.top_p < 1.0 else np.arange(len(logits))
        with np.errstate(over="ignore"):
            weights = np.exp((logits[candidates].astype(np.float64) - float(logits[best])) / self.temperature)
        sums = np.cumsum(weights)
        if self.top_p < 1.0:
            sums = sums[: int(np.searchsorted(sums, self.top_p * sums[-1])) + 1]
        drawn = self._stream.random() * sums[-1]
        return int(candidates[min(int(np.searchsorted(sums, drawn, side="right")), len(sums) - 1)])


def _largest(logits: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest logits (all for 0), largest first, the lower index first among equals."""
    if not 0 < count < len(logits):
        return np.argsort(-logits, kind="stable")
    floor = np.partition(logits, len(logits) - count)[len(logits) - count]
    kept = np.flatnonzero(logits >= floor)
    return kept[np.argsort(-logits[kept], kind="stable")][:count]


def _require(holds: bool, name: str, value: float, needed: str) -> None:
    if not holds:
        raise ArgumentReject(f"{name} is {value}", needed=needed, remedy=f"give another {name}")
