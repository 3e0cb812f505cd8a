"""Caches that grow from epoch to epoch, written by hand: the position moves on, stays, or goes back.

over_epochs   keys and values (or keys alone) are appended at rows [pos, pos + rows); sections read the rows that are
              there, rows of this epoch included or not. A cache lies beside the chip, or its blocks on the sites; its
              elements are floats or block floats.
round_and_round   a section or two over counters of 4 to 6 bits, which many epochs take round their end

A careless hand appends at another row (one beside, after the new ones, the first, round a ring), reads a row too many
or all that the cache has room for, appends twice to one cache, states another transition, or takes a cache too short.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.program import Symbol, Tensor, Transition
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.shards import share_bytes
from pavane.ir.types import block_elements, row_bytes
from pavane.targets.descriptor import SpatialTarget
from tests.building import shape_of
from tests.evidence.blocks import converting
from tests.evidence.caches import LIVE, POS, ROWS, Lies, appended, copied, weighted
from tests.evidence.hand import Case, Hand, chip, host_chip
from tests.evidence.products import multicast
from tests.evidence.sections import Part, chain, composed, meeting


def over_epochs(hand: Hand) -> Case:
    target = host_chip(hand) if hand.chance(0.35) else converting(hand, chip(hand))
    (lies, cols), most_rows, most_pos = _lies(hand, target), hand.pick((1, 2, 5)), hand.pick((3, 6, 11))
    context = most_pos + most_rows + (hand.pick((-1, 1)) if hand.slip() else hand.pick((0, 1, 4)))
    read_whole = context if hand.slip() else LIVE + 1 if hand.slip() else hand.pick((LIVE, LIVE, POS))
    symbols = (Symbol("pos", 0 if read_whole != POS else 1, most_pos, 2), Symbol("rows", 1, most_rows, 1))
    append, end = appended(hand, target, cols, most_rows, 0, lies, _row(hand, context))
    reading, last = copied(hand, target, cols, quasi(read_whole), 0 if hand.chance(0.5) else end, lies)
    free = max(end, last)
    values = hand.chance(0.5)
    parts = [
        Part(append, (("N", "n"), ("C", "keys"))),
        *((Part(append, (("N", "m"), ("C", "keys" if hand.slip() else "values"))),) if values else ()),
        Part(reading, (("C", "keys"), ("O", "o")), boundary=not hand.slip()),
    ]
    if values:
        product, end = weighted(hand, target, cols, most_rows, context, LIVE, 0 if hand.chance(0.5) else free, lies)
        parts.append(Part(product, (("P", "p"), ("C", "values"), ("O", "v"))))
        free = max(free, end)
    if hand.slip():
        hand.rng.shuffle(parts)
    tensors = _tensors(hand, target, lies, cols, context, quasi(read_whole), free, values)
    return composed(hand, target, tuple(parts), tensors, meeting(target), symbols), target


def _lies(hand: Hand, target: SpatialTarget) -> tuple[Lies, int]:
    """Of which type, and where; and the columns. A block of a share is two rows of the cache."""
    dtype = hand.pick(("f32", "f32", "f16", "bfp8"))
    block = block_elements(dtype)
    cols = block * hand.between(1, 24 // block)
    if target.alias or hand.chance(0.5):
        return Lies(dtype), cols
    return Lies(dtype, "sharded", 2 * row_bytes(dtype, cols)), cols


def _row(hand: Hand, context: int) -> Quasi:
    """Where new rows go: behind what is there; of a careless hand over it, beyond it, or round a ring."""
    if not hand.slip():
        return POS
    ring = max(2, context // 2)
    return hand.pick((POS + 1, POS - 1, POS + ROWS, quasi(0), POS - ring * (POS // ring)))


def _tensors(
    hand: Hand, target: SpatialTarget, lies: Lies, cols: int, context: int, live: Quasi, free: int, values: bool
) -> tuple[Tensor, ...]:
    names, place, tensors = ("keys", "values")[: 1 + values], free, []
    align, size = target.memory.alignment_bytes, context * row_bytes(lies.dtype, cols)
    transition = Transition(hand.pick((POS + 1, quasi(0))), ROWS) if hand.slip() else Transition(POS, ROWS)
    for name in names:
        cache = Tensor(name, shape_of(context, cols), lies.dtype, "STATE", transition=transition, home=lies.home)
        if lies.home == "sharded":
            place = -(-place // align) * align - (align if hand.slip() else 0)
            cache = replace(cache, offset=place, shard_bytes=lies.shard_bytes)
            place += share_bytes(size, lies.shard_bytes, target.sites)
        tensors.append(cache)
    tensors += [Tensor("n", shape_of(ROWS, cols), "f32", "INPUT"), Tensor("o", shape_of(live, cols), "f32", "OUTPUT")]
    if values:
        tensors += [
            Tensor("m", shape_of(ROWS, cols), "f32", "INPUT"), Tensor("p", shape_of(ROWS, context), "f32", "INPUT"),
            Tensor("v", shape_of(ROWS, cols), "f32", "OUTPUT"),
        ]  # fmt: skip
    return tuple(tensors)


# --- counters over many epochs ---


def round_and_round(hand: Hand) -> Case:
    """Sections or a multicast, over few sites and elements: a few bits hold what is in flight, or they do not."""
    few = chip(hand, widest=3 if hand.careless else 2)
    target = replace(few, counters=replace(few.counters, bits=hand.pick((4, 4, 5, 6))))
    if hand.chance(0.4):
        return multicast(hand, target, most=12)
    return chain(hand, target, hand.pick((meeting(target), "lines", "start all")), most=12), target
