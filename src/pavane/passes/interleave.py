"""interleave: TEMPLATE sections -> TEMPLATE sections whose weights lie in the channels by whole blocks of rows.

A weight that products read transposed, an item's rows at a time, may lie so that an item's rows are all in one channel:
unit b of `interleave_bytes` in channel b mod C, for the site beside it to read. It does where the slowest site would
then have read and multiplied its units with a row sooner than all sites can read all pages. That follows from the
weight, how sections see and multiply it, and the chip; not from the rows of a launch or any plan: `decode` and `prompt`
share their weights, so both find the same. Whether a section then runs beside the channels is `pack`'s choice.

Of heads the unit is one head's rows. Of other weights a tile's rows, half of it, or as many times a tile as `tile`
tries, whichever the slowest site is done with soonest; two of them take at most four fifths of a site's memory. Nothing
lies so where the fullest channel would have less than an eighth left beside its part of weights and caches.

Refuses never.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil, prod

from pavane.cost.traffic import events, expected_values
from pavane.ir.program import LV_ITEM_X, Compute, Formal, Load, MatmulTiles, Program, Shape
from pavane.ir.quasi import quasi
from pavane.ir.types import block_elements, row_bytes
from pavane.ir.walk import bodies, leaves, symbol_domain
from pavane.passes.buffers import usable_bytes
from pavane.passes.memory_beside import tensor_bytes
from pavane.passes.plans import LARGER
from pavane.passes.section import with_tensors
from pavane.targets.descriptor import SpatialTarget


def interleave(sections: Sequence[Program], target: SpatialTarget) -> tuple[Program, ...]:
    """The sections, their weights and the formals bound to them saying how these lie."""
    if not target.dram.adjacent:
        return tuple(sections)
    units = _units(sections, target)
    if not units or 8 * target.dram.channels * _fullest_bytes(sections, units, target) > 7 * target.dram.bytes:
        return tuple(sections)
    lying = {name: {"interleave_bytes": unit} for name, unit in units.items()}
    return tuple(with_tensors(section, lying) for section in sections)


def _units(sections: Sequence[Program], target: SpatialTarget) -> dict[str, int]:
    """Bytes of a unit by weight, where all its products would have it so."""
    wanted: dict[str, dict[int, None]] = {}
    for section in sections:
        (shape,), (instance,) = section.shapes, section.instances
        tensors, bound = {t.name: t for t in section.tensors}, {b.formal: b.tensor for b in instance.bindings}
        for formal, rows_of_item in read_by_items(shape):
            tensor = tensors[bound[formal.name]]
            if tensor.role == "WEIGHT" and tensor.home == "dram":
                unit = _unit_bytes(formal, rows_of_item, _product_rate(section, formal.dtype, target), target)
                wanted.setdefault(tensor.name, {})[unit] = None
    return {name: unit for name, units in wanted.items() if len(units) == 1 for unit in units if unit}


def read_by_items(shape: Shape) -> Iterator[tuple[Formal, int]]:
    """The weights of products that are walked by items along their first dimension; rows of an item where they are
    given (a head), else 0.
    """
    steps = [step for _, body in bodies(shape) for _, step in leaves(body)]
    ops = (step.op for step in steps if isinstance(step, Compute))
    fifos = {op.b.name for op in ops if isinstance(op, MatmulTiles) and op.transposed}
    formals = {formal.name: formal for formal in shape.formals}
    for step in steps:
        if not isinstance(step, Load) or step.fifo not in fifos:
            continue
        first, size, row = step.window.start[0], step.window.size, step.window.row
        if first != size[0] * quasi(LV_ITEM_X):
            continue
        formal = formals[step.tensor]
        if row == 0:
            yield formal, 0
        elif row == 1 and size[0] == 1 and formal.shape[1] == quasi(size[1]):
            yield formal, size[1]


def _product_rate(section: Program, dtype: str, target: SpatialTarget) -> Fraction:
    """Bytes of the weight a cycle that a site multiplies with a row; 0 where no matrix engine does."""
    block = block_elements(dtype)
    element = Fraction(row_bytes(dtype, block), block)
    work = events(section.shapes[0], target, expected_values(section))
    modes = [event.mode for event in work if event.kind == "matmul"]
    rates = [element * mode.tile[1] * mode.tile[2] / mode.cycles if mode else Fraction(0) for mode in modes]
    return min(rates, default=Fraction(0))


def _unit_bytes(formal: Formal, rows_of_item: int, product_rate: Fraction, target: SpatialTarget) -> int:
    """The unit that is best for the sites beside the channels, or 0 where pages serve all sites as well."""
    *outer, last = (extent.const for extent in formal.shape)
    width, rows = row_bytes(formal.dtype, last), prod(outer)
    fitting = unit_heights(width, rows_of_item, target)
    if not fitting or not product_rate:
        return 0
    times = {height: _slowest_site(rows, height, width, product_rate, target) for height in fitting}
    best = min(fitting, key=lambda height: (times[height], -height))
    evenly = Fraction(rows * width, target.dram.channels * target.dram.far_rate)
    return best * width if times[best] < evenly else 0


def unit_heights(width_bytes: int, rows_of_item: int, target: SpatialTarget) -> list[int]:
    """Of how many rows a unit may be; `rows_of_item` where that is given, else 0."""
    heights = (rows_of_item,) if rows_of_item else tuple((target.tile[1] << n) // 2 for n in range(LARGER + 2))
    most = usable_bytes(target) * 2 // 5
    return [h for h in heights if h * width_bytes <= most and h * width_bytes % target.dram.alignment_bytes == 0]


def _slowest_site(rows: int, height: int, width: int, product_rate: Fraction, target: SpatialTarget) -> Fraction:
    """Cycles for its blocks of so many rows: each is waited for and read while the one before is multiplied."""
    dram = target.dram
    blocks, size = ceil(rows / (height * dram.channels)), height * width
    read = Fraction(size, min(dram.bytes_per_cycle, target.noc.bytes_per_cycle)) + dram.latency_cycles
    return blocks * max(read + dram.request_cycles, size / product_rate) + size / product_rate


def _fullest_bytes(sections: Sequence[Program], units: dict[str, int], target: SpatialTarget) -> int:
    """What the first channel holds at most of weights and caches: as many units as of whole rounds."""
    beside = {t.name: (t, symbol_domain(s)) for s in sections for t in s.tensors if t.home == "dram"}
    found = 0
    for tensor, domain in beside.values():
        if tensor.role not in ("WEIGHT", "STATE"):
            continue
        unit = units.get(tensor.name, target.dram.interleave_bytes)
        found += ceil(tensor_bytes(tensor, domain) / (unit * target.dram.channels)) * unit
    return found
