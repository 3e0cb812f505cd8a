"""Tensors, formals and what binds them: shapes, dtypes, roles, views.

A formal is a tensor or a view of one: its dimensions after the first are numbers with product I, and the tensor has
at least `shape[0] * I` elements for every value of the symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from pavane.ir.program import Formal, Instance, Program, Tensor
from pavane.ir.quasi import Domain, Quasi
from pavane.ir.types import INTEGER_DTYPES, INTEGER_RANGE, Const, DType, Fill, Floats, Ints, block_elements, row_bytes
from pavane.ir.walk import named, symbol_domain
from pavane.validate.sane import MAX_NUMBER
from pavane.validate.section import Section, greatest, is_multiple, is_never_negative, least, level_of
from pavane.validate.violation import Finding, RuleTable

MAX_RANK = 8
_MAY_BIND = {
    "IN": ("INPUT", "WEIGHT", "STATE", "SCRATCH", "OUTPUT"),
    "OUT": ("SCRATCH", "OUTPUT", "STATE"),
    "STATE": ("STATE",),
}


def tensor_shapes(program: Program) -> Iterator[Finding]:
    """1 to 8 dimensions of 1 to 2**40 elements altogether; rows of types in blocks are whole ones."""
    domain = symbol_domain(program)
    for tensor in program.tensors:
        yield from _shape_faults(f"tensor {tensor.name}", tensor.shape, tensor.dtype, domain)


def formal_shapes(section: Section) -> Iterator[Finding]:
    """As for tensors; a formal's extents hold for every value of the symbols."""
    for formal in section.shape.formals:
        yield from _shape_faults(f"{section.place}, formal {formal.name}", formal.shape, formal.dtype, section.symbols)


def _shape_faults(place: str, shape: tuple[Quasi, ...], dtype: DType, domain: Domain) -> Iterator[Finding]:
    if not 1 <= len(shape) <= MAX_RANK:
        yield place, f"has {len(shape)} dimensions; 1 to {MAX_RANK} are allowed"
        return
    for extent in shape:
        smallest = least(extent, domain)
        if smallest is None or smallest < 1:
            yield place, f"the extent {extent} may be below 1"
    most = [greatest(extent, domain) for extent in shape]
    if None in most or prod(max(1, n) for n in most if n is not None) > MAX_NUMBER:
        yield place, "may have more than 2**40 elements"
    if block_elements(dtype) > 1 and not (shape[-1].is_const and is_multiple(shape[-1], block_elements(dtype))):
        yield place, f"{dtype} needs a last extent that is a multiple of {block_elements(dtype)}, not {shape[-1]}"


def fills(program: Program) -> Iterator[Finding]:
    """What is said of values fits the dtype."""
    for tensor in program.tensors:
        yield from ((f"tensor {tensor.name}", text) for text in _fill_faults(tensor.fill, tensor.dtype))


def formal_fills(section: Section) -> Iterator[Finding]:
    """What is said of a formal's values fits its dtype."""
    for formal in section.shape.formals:
        yield from (
            (f"{section.place}, formal {formal.name}", text) for text in _fill_faults(formal.fill, formal.dtype)
        )


def _fill_faults(fill: Fill, dtype: DType) -> Iterator[str]:
    if isinstance(fill, Ints) and fill.lo > fill.hi:
        yield f"the range {fill.lo} .. {fill.hi} of its values is empty"
    if dtype not in INTEGER_DTYPES:
        return
    low, high = INTEGER_RANGE[dtype]
    if isinstance(fill, Ints) and not low <= fill.lo <= fill.hi <= high:
        yield f"values {fill.lo} .. {fill.hi} do not fit {dtype}"
    if isinstance(fill, Const) and not (fill.value == int(fill.value) and low <= fill.value <= high):
        yield f"the value {fill.value} does not fit {dtype}"


def roles(program: Program) -> Iterator[Finding]:
    """STATE has a transition inside its rows, nothing else has; SCRATCH of a composed program has an offset."""
    domain = symbol_domain(program)
    composed = len(program.instances) > 1 and level_of(program.phase) >= level_of("PERSISTENT")
    for tensor in program.tensors:
        place = f"tensor {tensor.name}"
        if (tensor.role == "STATE") != (tensor.transition is not None):
            yield place, f"a transition is {'missing' if tensor.role == 'STATE' else 'no part of'} role {tensor.role}"
        elif tensor.transition is not None and tensor.shape:
            first, end = tensor.transition.row, tensor.transition.row + tensor.transition.rows
            if not (is_never_negative(first, domain) and is_never_negative(tensor.shape[0] - end, domain)):
                yield place, f"the transition writes rows {first} to {end}, outside {tensor.shape[0]} rows"
        laid_out = tensor.role == "SCRATCH" or tensor.home != "dram"
        if tensor.offset != -1 and (not laid_out or tensor.offset < 0):
            yield place, f"has the offset {tensor.offset}; only SCRATCH and what lies on the sites has one"
        if tensor.home == "sites" and tensor.role not in ("SCRATCH", "WEIGHT"):
            yield place, f"lies on the sites; only SCRATCH and WEIGHT may, not {tensor.role}"
        if tensor.home == "sharded" and tensor.role not in ("WEIGHT", "STATE"):
            yield place, f"is sharded; only WEIGHT and STATE may be, not {tensor.role}"
        yield from ((place, text) for text in _shard_faults(tensor))
        if tensor.interleave_bytes and (tensor.role != "WEIGHT" or tensor.interleave_bytes < 0):
            yield place, f"goes round the channels by {tensor.interleave_bytes} B; only a WEIGHT says so"
        if composed and laid_out and tensor.offset < 0:
            yield place, f"has no offset at {program.phase}"


def _shard_faults(tensor: Tensor) -> Iterator[str]:
    """Blocks are whole rows of the last dimension."""
    if (tensor.home == "sharded") != (tensor.shard_bytes != 0):
        yield f"has blocks of {tensor.shard_bytes} bytes; what is sharded has some, nothing else"
    elif tensor.shard_bytes and tensor.shape and tensor.shape[-1].is_const:
        row = row_bytes(tensor.dtype, tensor.shape[-1].const)
        if tensor.shard_bytes < 0 or tensor.shard_bytes % row:
            yield f"is sharded in blocks of {tensor.shard_bytes} bytes, which are no whole rows of {row}"


def bindings(program: Program) -> Iterator[Finding]:
    """Each formal is a legal view of its tensor, of a role and of values that the section was compiled for."""
    domain = symbol_domain(program)
    tensors = {tensor.name: tensor for tensor in program.tensors}
    for number, instance in enumerate(program.instances):
        shape = named(program.shapes, instance.shape)
        bound = {b.formal: tensors[b.tensor] for b in instance.bindings}
        for formal in shape.formals:
            place = f"instance {number} {instance.name}, formal {formal.name}"
            yield from ((place, text) for text in _binding_faults(formal, bound[formal.name], domain))


def _binding_faults(formal: Formal, tensor: Tensor, domain: Domain) -> Iterator[str]:
    if formal.dtype != tensor.dtype:
        yield f"{formal.dtype} is bound to {tensor.name}, which is {tensor.dtype}"
    if formal.home != tensor.home:
        yield f"what lies in {formal.home} is bound to {tensor.name}, which lies in {tensor.home}"
    if formal.shard_bytes != tensor.shard_bytes:
        yield f"blocks of {formal.shard_bytes} bytes are bound to {tensor.name}, which has {tensor.shard_bytes}"
    if formal.interleave_bytes != tensor.interleave_bytes:
        yield f"the section takes {tensor.name} to go round the channels by {formal.interleave_bytes} B"
    if tensor.role not in _MAY_BIND[formal.role]:
        yield f"role {formal.role} is bound to {tensor.name}, which is {tensor.role}"
    if not _implies(tensor.fill, formal.fill):
        yield f"the section relies on values that {tensor.name} does not promise"
    if formal.shape == tensor.shape:
        return
    if any(not extent.is_const for extent in formal.shape[1:]):
        yield f"a view's extents after the first are numbers, not {', '.join(map(str, formal.shape[1:]))}"
    elif not _has_room(formal, tensor, domain):
        yield f"{tensor.name} may have fewer elements than the view needs"
    if block_elements(formal.dtype) > 1 and formal.shape[-1] != tensor.shape[-1]:
        yield f"a view of {formal.dtype} keeps the last extent {tensor.shape[-1]}, not {formal.shape[-1]}"


def _has_room(formal: Formal, tensor: Tensor, domain: Domain) -> bool:
    """Has the tensor as many elements as the view for all values of symbols? Inner extents count as their least."""
    inner = [least(extent, domain) or 0 for extent in tensor.shape[1:]]
    try:
        spare = tensor.shape[0] * prod(inner) - formal.shape[0] * prod(extent.const for extent in formal.shape[1:])
    except ValueError:
        return False
    return is_never_negative(spare, domain)


def _implies(known: Fill, needed: Fill) -> bool:
    """Are all values that `known` allows allowed by `needed`?"""
    if isinstance(needed, Floats) or known == needed:
        return True
    if isinstance(needed, Const) or isinstance(known, Floats):
        return False
    low, high = (known.lo, known.hi) if isinstance(known, Ints) else (known.value, known.value)
    return needed.lo <= low and high <= needed.hi and low == int(low)


def written_bytes_are_exclusive(program: Program) -> Iterator[Finding]:
    """No formal that is written shares bytes with another formal of its instance."""
    for number, instance in enumerate(program.instances):
        shape = named(program.shapes, instance.shape)
        written = tuple(f.name for f in shape.formals if f.role != "IN")
        yield from ((f"instance {number} {instance.name}", text) for text in _shared(instance, written))


def _shared(instance: Instance, written: tuple[str, ...]) -> Iterator[str]:
    for binding in instance.bindings:
        if binding.formal not in written:
            continue
        for other in instance.bindings:
            if other.formal != binding.formal and other.tensor == binding.tensor:
                yield f"{binding.formal} is written and shares {binding.tensor} with {other.formal}"


PROGRAM_RULES: RuleTable[Program] = (
    ("tensor.shape", tensor_shapes),
    ("tensor.fill", fills),
    ("tensor.role", roles),
)
SECTION_RULES: RuleTable[Section] = (("tensor.shape", formal_shapes), ("tensor.fill", formal_fills))
BINDING_RULES: RuleTable[Program] = (
    ("binding.view", bindings),
    ("binding.exclusive", written_bytes_are_exclusive),
)
