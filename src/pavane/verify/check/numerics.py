"""Numerics: the claims of exactness, of the contract and of the order of sums follow from the target's engine and the
fills.

- *Mode*: each MatmulTiles uses the mode that its engine has for the dtypes of its operands and the significand bits of
  what they hold (`targets.fidelity`), and accumulates in the mode's accumulator type.
- *Tree*: a product whose b is transposed sums in the mode's lanes over the whole contraction, so the contraction is
  one step; any other sums one lane in ascending k, which any ascending split respects, when nothing else is added to
  the same elements in the turns of a loop over its blocks (or all is exact). Multiply and add are fused as the mode
  says. So neither plan nor grid changes a bit.
- *Contract*: INT8_ACTIVATIONS exactly where a q8_0 weight meets activations that are q8_0.
- *Operands*: the dtype stated for each formal that a product reads is that of the buffer that holds it, or, where it is
  loaded into a slot (with nothing that is stated in another), one that the engine makes of it on the way in. Block
  floats lie only in buffers of engines that take them. What is in blocks is multiplied in whole ones: spans of its
  columns begin and end at blocks, at their size and where they are clipped.
- *Numbers*: f32 holds what a Generic computes with (`in_f32`).
- *Exact*: all values are integers and every value that an engine can make, partial sums included, is held exactly:
  bound(K terms) = K * max|a| * max|b|, and that of what an accumulator held before, together <= 2**accumulator_bits;
  operands fit the mode's operand bits, by their bound, or by the type that they are stored in, which they are; every
  buffer and output holds its bound, every carry its initial value.
"""

from __future__ import annotations

from pavane.ir.expr import At, Const, Expr, Fn, Reduce
from pavane.ir.program import Carry, Generic, Load, MatmulTiles, Ref, Tree
from pavane.ir.quasi import Domain, upper
from pavane.ir.types import MAGNITUDE_BITS, SIGNIFICAND_BITS, Ints, block_elements
from pavane.ir.types import Const as ConstantFill
from pavane.ir.walk import named
from pavane.reject import NumericsRefused
from pavane.targets.descriptor import MatrixMode, SpatialTarget
from pavane.targets.fidelity import buffer_bits
from pavane.verify.check.in_f32 import numbers
from pavane.verify.check.inequalities import in_whole_blocks
from pavane.verify.check.section import Section
from pavane.verify.check.values import Computed, Evidence, Place, Strip, Summed

GENERIC_BITS = 24
_INTEGER_BITS = {"i8": 7, "i32": 31}
_FLOATS = ("f32", "f16", "bf16")
_TAKEN_AS = {
    **dict.fromkeys((*_FLOATS, "i8"), _FLOATS), **dict.fromkeys(MAGNITUDE_BITS, ("f32", "bf16")), "q8_0": ("f32",),
}  # fmt: skip


def numerics(section: Section, evidence: Evidence, target: SpatialTarget) -> str:
    """Refuse a claim that does not follow."""
    for computed in evidence.computes:
        _block_floats(section, computed, target)
        numbers(section, computed)
    products = [c for c in evidence.computes if isinstance(c.op, MatmulTiles)]
    modes = {id(product): _mode(section, product, target) for product in products}
    for product in products:
        _tree(product, modes[id(product)], _sums_around(evidence, product))
        _contract(section, product)
    _listed(section, products)
    if section.shape.numerics.exact:
        for carry in section.shape.carries:
            where = f"{section.where}, carry {carry.name}"
            found = _bound(section, Const(carry.initial), section.symbols, GENERIC_BITS, where)
            if found:  # every type holds a 0
                _held(found, GENERIC_BITS, carry.dtype, carry.name, where)
        for computed in evidence.computes:
            _exact(section, computed, modes.get(id(computed)), _sums_around(evidence, computed))
        _exact_outputs(section, evidence)
    return f"{len(products)} products, {'exact' if section.shape.numerics.exact else 'exactness not claimed'}"


def _block_floats(section: Section, computed: Computed, target: SpatialTarget) -> None:
    """Nothing else widens them, or rounds into them."""
    engine = named(target.engines, computed.place.actor.process.engine)
    for name in (computed.op.dst.name, *computed.operands):
        dtype = section.buffer(name).dtype
        if dtype in MAGNITUDE_BITS and dtype not in engine.block_floats:
            what, available = f"engine {engine.name} takes no {dtype} out of {name}", ", ".join(engine.block_floats)
            raise NumericsRefused(what, where=computed.place.where, available=available or "no block floats")


def _mode(section: Section, product: Computed, target: SpatialTarget) -> MatrixMode:
    op: MatmulTiles = product.op  # type: ignore[assignment]
    dst = section.buffer(op.dst.name)
    a, b = (_taken(section, product, ref) for ref in (op.a, op.b))
    engine = named(target.engines, product.place.actor.process.engine)
    bits = buffer_bits(section.shape)
    mode = engine.product_mode(a, b, (bits[op.a.name], bits[op.b.name]))
    if mode is None:
        raise NumericsRefused(f"engine {engine.name} has no product {a} x {b}", where=product.place.where)
    _whole_blocks(section, op, product.place)
    stated = section.shape.numerics.accumulator
    if not (dst.dtype == stated == mode.accumulator and isinstance(dst, Carry)):
        what, available = (
            "the sum is not kept in a carry of the engine's accumulator type",
            f"{dst.dtype}, stated {stated}",
        )
        raise NumericsRefused(what, where=product.place.where, needed=mode.accumulator, available=available)
    return mode


def _whole_blocks(section: Section, op: MatmulTiles, place: Place) -> None:
    """An operand in blocks is read in whole ones along its columns: an engine multiplies blocks."""
    for ref, span in ((op.a, op.k), (op.b, op.k if op.transposed else op.cols)):
        block = block_elements(section.buffer(ref.name).dtype)
        if not in_whole_blocks(ref.col, span, block, place.domain):
            needed = f"{ref.col} +: {span.size}, below {span.limit - span.start}"
            raise NumericsRefused(
                f"{ref.name} is not read in whole blocks of {block}", where=place.where, needed=needed
            )


def _sums_around(evidence: Evidence, computed: Computed) -> list[Summed]:
    """The loops around an op whose turns add to the same elements of its destination."""
    place, name = computed.place, computed.op.dst.name
    sums = (s for s in evidence.sums if s.actor is place.actor and s.name == name)
    return [s for s in sums if s.first <= place.leaf.index <= s.last]


def _tree(product: Computed, mode: MatrixMode, sums: list[Summed]) -> None:
    op: MatmulTiles = product.op  # type: ignore[assignment]
    lanes = mode.lanes if op.transposed else 1
    wanted = Tree(lanes=lanes, fused=mode.fused)
    if op.tree != wanted:
        what = "the order of the sum is not the engine's"
        raise NumericsRefused(what, where=product.place.where, needed=f"{wanted}", available=f"{op.tree}")
    if lanes > 1 and (sums or len(product.result) > 2):
        what = "a sum in lanes is split over steps, so the plan would change its bits"
        raise NumericsRefused(what, where=product.place.where)
    if any(s.mixed for s in sums) and not product.place.section.shape.numerics.exact:
        what = "two sums are added up in turns, block by block, so the plan would change their bits"
        raise NumericsRefused(what, where=product.place.where)


def _contract(section: Section, product: Computed) -> None:
    op: MatmulTiles = product.op  # type: ignore[assignment]
    a, b = section.buffer(op.a.name).dtype, section.buffer(op.b.name).dtype
    quantised = section.shape.numerics.contract == "INT8_ACTIVATIONS"
    if (a == "q8_0") != (quantised and b == "q8_0"):
        what = f"a product {a} x {b} does not belong to the contract {section.shape.numerics.contract}"
        raise NumericsRefused(what, where=product.place.where)


def _taken(section: Section, product: Computed, ref: Ref) -> str:
    """The type in which the engine takes an operand: the one stated for what is loaded into its slot, else its own."""
    term, buffer, where = product.operands[ref.name], section.buffer(ref.name), product.place.where
    stated = dict(section.shape.numerics.operands)
    loaded = {leaf.step.tensor for a in section.pushers.get(ref.name, ()) for leaf in a.uses(Load, ref.name)}  # type: ignore[union-attr]
    types = sorted({stated.get(name, buffer.dtype) for name in loaded}) or [buffer.dtype]
    if len(types) > 1:
        raise NumericsRefused(f"what is loaded into {ref.name} is stated in different types", where=where, terms=types)
    taken = types[0]
    if taken != buffer.dtype and taken not in _TAKEN_AS.get(buffer.dtype, ()):
        raise NumericsRefused(
            f"{ref.name} holds {buffer.dtype}, which no engine takes as {taken}",
            where=where,
            needed=f"{taken}, as is stated",
        )
    name = term.name if isinstance(term, At) else ""
    if name and (name in stated or not isinstance(buffer, Carry)) and stated.get(name) != taken:
        raise NumericsRefused(f"{name} enters the product as {taken}", where=where, needed="that it is stated")
    return taken


def _listed(section: Section, products: list[Computed]) -> None:
    names = {t.name for p in products for t in p.operands.values() if isinstance(t, At)}
    listed = [name for name, _ in section.shape.numerics.operands]
    if len(set(listed)) < len(listed):
        raise NumericsRefused("an operand of a product is stated twice", where=section.where, terms=listed)
    for name in listed:
        if name not in names:
            what = f"{name} is stated as an operand of a product, which no product reads"
            raise NumericsRefused(what, where=section.where)


# --- exactness --------------------------------------------------------------------------------------------------------


def _exact(section: Section, computed: Computed, mode: MatrixMode | None, sums: list[Summed]) -> None:
    """Every value that one op makes is held exactly, where it is made and where it is put."""
    where = computed.place.where
    bits = GENERIC_BITS if mode is None else mode.accumulator_bits
    if mode is None and _copied(section, computed):
        return
    if mode is not None:
        op: MatmulTiles = computed.op  # type: ignore[assignment]
        if any(s.var not in op.k.start.variables() for s in sums):
            raise NumericsRefused("exactness is claimed of a sum over more than contractions", where=where)
        for ref, taken, full in zip((op.a, op.b), (mode.a, mode.b), mode.bits, strict=True):
            term = computed.operands[ref.name]
            bound = _bound(section, term, computed.place.domain, bits, where)
            if not _multiplied_whole(section, term, taken, full):
                _within(bound, min(full, _bits(taken, where)), f"operand {ref.name} taken as {taken}", where)
    found = sum(_bound(section, t, computed.place.domain, bits, where) for t in computed.result)
    _held(found, bits, section.buffer(computed.op.dst.name).dtype, computed.op.dst.name, where)


def _multiplied_whole(section: Section, term: Expr, taken: str, full: int) -> bool:
    """Are a formal's elements multiplied with all bits that their type has, whatever their size?"""
    source = section.formals[term.name].dtype if isinstance(term, At) else ""
    return source in SIGNIFICAND_BITS and _holds(taken, source) and SIGNIFICAND_BITS[source] <= full


def _copied(section: Section, computed: Computed) -> bool:
    """A plain copy of a formal's element into a type that holds it. Not into blocks: there elements of many blocks may
    come to share one scale or exponent.
    """
    term, made = computed.result[0], section.buffer(computed.op.dst.name).dtype
    if not isinstance(term, At) or not isinstance(computed.op, Generic) or not isinstance(computed.op.expr, At):
        return False
    return block_elements(made) == 1 and _holds(made, section.formals[term.name].dtype)


def _holds(dtype: str, source: str) -> bool:
    """Does a type hold every value of another?"""
    return source == dtype or (dtype == "f32" and source in ("f16", "bf16", "q8_0", *MAGNITUDE_BITS))


def _bits(dtype: str, where: str) -> int:
    bits = SIGNIFICAND_BITS.get(dtype, _INTEGER_BITS.get(dtype))
    if bits is None:
        raise NumericsRefused(f"{dtype} rounds, so nothing that passes through it is exact", where=where)
    return bits


def _held(bound: int, bits: int, dtype: str, what: str, where: str) -> None:
    """Refuse magnitudes that a type may not hold. A block float holds each below a power of two, whatever else is in
    the block.
    """
    if dtype in MAGNITUDE_BITS:
        bound, bits = bound + 1, min(bits, MAGNITUDE_BITS[dtype])
    else:
        bits = min(bits, _bits(dtype, where))
    _within(bound, bits, f"{what} ({dtype})", where)


def _within(bound: int, bits: int, what: str, where: str) -> None:
    if bound > 1 << bits:
        what, needed = f"{what} may not hold every value exactly", f"magnitudes up to {bound}"
        raise NumericsRefused(what, where=where, needed=needed, available=f"2**{bits}")


def _exact_outputs(section: Section, evidence: Evidence) -> None:
    for stored in evidence.stores:
        where, dtype = stored.place.where, section.formals[stored.step.tensor].dtype
        term = stored.value.term(where)
        if not (isinstance(term, At) and _holds(dtype, section.formals[term.name].dtype)):
            bound = _bound(section, term, stored.place.domain, GENERIC_BITS + 8, where)
            _held(bound, GENERIC_BITS + 8, dtype, "the output", where)


def _bound(section: Section, term: Expr | Strip, domain: Domain, bits: int, where: str) -> int:
    """Greatest magnitude of an integer term; refuses one that may not be an integer, or has a value above 2**bits."""
    if isinstance(term, Strip):
        inside = Domain((*domain.ranges, (term.var, 0, term.span.size - 1)))
        total = max(upper(term.span.limit, domain), term.span.size) * _bound(section, term.body, inside, bits, where)
        _within(total, bits, "a partial sum", where)
        return total
    if isinstance(term, At):
        return _fill_bound(section, term, where)
    if isinstance(term, Const):
        if term.value != int(term.value):
            raise NumericsRefused(f"{term.value} is not an integer", where=where)
        return abs(int(term.value))
    if isinstance(term, Reduce):
        inside = domain.with_loop(term.var, term.extent)
        each = _bound(section, term.body, inside, bits, where)
        total = each if term.kind == "MAX" else each * max(upper(term.extent, domain), 0)
        _within(total, bits, "a partial sum", where)
        return total
    if isinstance(term, Fn) and term.op in ("add", "sub", "mul", "min", "max", "abs"):
        parts = [_bound(section, a, domain, bits, where) for a in term.args]
        bound = parts[0] * parts[1] if term.op == "mul" else sum(parts) if term.op in ("add", "sub") else max(parts)
        _within(bound, bits, "a value", where)
        return bound
    raise NumericsRefused("exactness is claimed of an expression that does not keep integers", where=where)


def _fill_bound(section: Section, term: At, where: str) -> int:
    """Of what is stored in a formal, which is read exactly, whatever its size."""
    formal = section.formals[term.name]
    if isinstance(formal.fill, Ints):
        bound = max(abs(formal.fill.lo), abs(formal.fill.hi))
    elif isinstance(formal.fill, ConstantFill) and formal.fill.value == int(formal.fill.value):
        bound = abs(int(formal.fill.value))
    else:
        raise NumericsRefused(f"{term.name} is not known to hold integers", where=where)
    if formal.dtype not in MAGNITUDE_BITS:
        _bits(formal.dtype, where)
    return bound
