"""Where tensors lie that share bytes over time: the largest first, each where it fits first, by lifetime.

A lifetime is the first and last phase in which a tensor is used, both inclusive: what two phases apart use may share
bytes, since a boundary stands between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Lifetimes = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Arena:
    """Bytes in all, and each tensor's offset."""

    bytes: int
    offsets: dict[str, int]


def arena(sizes: Mapping[str, int], lives: Lifetimes, alignment_bytes: int) -> Arena:
    """Places for tensors of so many bytes; one that no section uses lives in the first phase."""
    placed: list[tuple[int, int, int, int]] = []  # first phase, last phase, start, end
    offsets: dict[str, int] = {}
    for name in sorted(sizes, key=lambda n: (-sizes[n], lives.get(n, (0, 0)), n)):
        first, last = lives.get(name, (0, 0))
        size = -(-sizes[name] // alignment_bytes) * alignment_bytes
        start = _first_gap([(s, e) for begin, end, s, e in placed if begin <= last and first <= end], size)
        placed.append((first, last, start, start + size))
        offsets[name] = start
    return Arena(max((end for *_, end in placed), default=0), offsets)


def end_of_memory(
    lasting: Sequence[Mapping[str, int]],
    passing: Mapping[str, int],
    lives: Lifetimes,
    memory_bytes: int,
    alignment_bytes: int,
) -> Arena:
    """Local addresses of what lies on the sites, from the end of their memory down, and the bytes that it takes there.

    What is `lasting` comes first, table after table, each by name: so programs that keep the same tensors of a table
    there, and of those before it, find them at the same places. What is `passing` shares an arena below.
    """
    offsets: dict[str, int] = {}
    end = memory_bytes
    for table in lasting:
        for name in sorted(table):
            end = (end - table[name]) // alignment_bytes * alignment_bytes
            offsets[name] = end
    below = arena(passing, lives, alignment_bytes)
    if passing:
        end = (end - below.bytes) // alignment_bytes * alignment_bytes
    offsets.update((name, end + offset) for name, offset in below.offsets.items())
    return Arena(memory_bytes - end, offsets)


def _first_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    start = 0
    for low, high in sorted(taken):
        if low - start >= size:
            break
        start = max(start, high)
    return start
