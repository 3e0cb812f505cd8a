"""Specs say something: ranks agree, operands are readable, integers stay integers, no MAX is empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pavane.ir.expr import At, Expr, Fn, Indirect, Reduce, walk
from pavane.ir.program import Formal, Spec
from pavane.ir.quasi import Domain
from pavane.ir.types import INTEGER_DTYPES
from pavane.validate.section import Section, greatest, is_never_negative, least
from pavane.validate.violation import Finding, RuleTable


def outputs(section: Section) -> Iterator[Finding]:
    """Every written formal has a spec, no other has; origin and extents have its rank and stay inside it."""
    specified = [spec.out for spec in section.shape.spec]
    for formal in section.shape.formals:
        if formal.role == "OUT" and formal.name not in specified:
            yield section.place, f"no spec says what {formal.name} is"
    for spec in section.shape.spec:
        place, formal = f"{section.place}, spec of {spec.out}", section.formals[spec.out]
        if formal.role == "IN":
            yield place, "a formal that is only read"
        if not len(spec.origin) == len(spec.extents) == len(formal.shape):
            yield (
                place,
                f"{len(spec.origin)} origins and {len(spec.extents)} extents for {len(formal.shape)} dimensions",
            )
        else:
            yield from ((place, text) for text in _outside(spec, formal, section.symbols))


def _outside(spec: Spec, formal: Formal, symbols: Domain) -> Iterator[str]:
    for origin, extent, whole in zip(spec.origin, spec.extents, formal.shape, strict=True):
        if not all(is_never_negative(n, symbols) for n in (origin, extent, whole - origin - extent)):
            yield f"elements {origin} to {origin + extent} of a dimension of {whole}"


def operands(section: Section) -> Iterator[Finding]:
    """Operands are formals that may be read, indexed in all dimensions; indirect indices come from i32 tensors."""
    for spec in section.shape.spec:
        place = f"{section.place}, spec of {spec.out}"
        for expr in walk(spec.expr):
            if isinstance(expr, At):
                yield from ((place, text) for text in operand_faults(expr, section.formals))


def operand_faults(expr: At, formals: Mapping[str, Formal]) -> Iterator[str]:
    """What is wrong with an operand of a spec."""
    formal = formals[expr.name]
    if formal.role == "OUT":
        yield f"reads {expr.name}, which is only written"
    if expr.next and formal.role != "STATE":
        yield f"{expr.name} has no state after a transition"
    if len(expr.index) != len(formal.shape):
        yield f"{expr.name} has {len(formal.shape)} dimensions and {len(expr.index)} indices"
        return
    for index, extent in zip(expr.index, formal.shape, strict=True):
        if isinstance(index, Indirect):
            yield from indirect_faults(index, formals)
            if extent.is_const and index.hi > extent.const:
                yield f"an index of {expr.name} may be {index.hi - 1}, outside {extent}"
            if index.via:
                yield f"a spec does not say via which FIFO ({index.via!r}) an index comes"


def indirect_faults(index: Indirect, formals: Mapping[str, Formal]) -> Iterator[str]:
    """Its tensor is i32 with the rank of its map, its range is not empty."""
    formal = formals[index.tensor]
    if formal.dtype != "i32" or len(formal.shape) != len(index.index):
        yield f"indices {index.tensor} are {formal.dtype} of rank {len(formal.shape)}, not i32 of {len(index.index)}"
    if not 0 <= index.lo < index.hi:
        yield f"0 <= {index.lo} < {index.hi} does not hold for an index"


def reductions(section: Section) -> Iterator[Finding]:
    """A MAX is never empty, a SUM never has a negative extent."""
    for spec in section.shape.spec:
        domain = section.symbols
        for number, extent in enumerate(spec.extents):
            domain = domain.with_loop(f"i{number}", extent)
        yield from ((f"{section.place}, spec of {spec.out}", text) for text in _reduction_faults(spec.expr, domain))


def _reduction_faults(expr: Expr, domain: Domain) -> Iterator[str]:
    if isinstance(expr, Reduce):
        smallest = least(expr.extent, domain)
        if smallest is None or smallest < (1 if expr.kind == "MAX" else 0):
            yield f"{expr.kind} over {expr.var} < {expr.extent}, which may be {smallest}"
        yield from _reduction_faults(expr.body, domain.with_loop(expr.var, expr.extent))
    elif isinstance(expr, Fn):
        for argument in expr.args:
            yield from _reduction_faults(argument, domain)


def casts(section: Section) -> Iterator[Finding]:
    """`cast` names an integer dtype, no other operator names one."""
    for spec in section.shape.spec:
        yield from ((f"{section.place}, spec of {spec.out}", text) for text in cast_faults(spec.expr))


def cast_faults(expr: Expr) -> Iterator[str]:
    """What is wrong with the operators that name a dtype."""
    for node in walk(expr):
        if isinstance(node, Fn) and (node.dtype in INTEGER_DTYPES) != (node.op == "cast"):
            yield f"{node.op} names the dtype {node.dtype!r}"


def integers(section: Section) -> Iterator[Finding]:
    """An integer dtype is stored from a cast to it or from an element of that dtype."""
    dtypes = {formal.name: formal.dtype for formal in section.shape.formals}
    for spec in section.shape.spec:
        dtype = dtypes[spec.out]
        if dtype in INTEGER_DTYPES and not gives_integers(spec.expr, dtype, dtypes):
            yield f"{section.place}, spec of {spec.out}", f"{dtype} is stored without a cast to it"


def gives_integers(expr: Expr, dtype: str, dtypes: Mapping[str, str]) -> bool:
    """Only integers that the type holds: nothing is rounded, cut or saturated but where the expression says so."""
    if isinstance(expr, Fn):
        return expr.op == "cast" and expr.dtype == dtype
    return isinstance(expr, At) and dtypes[expr.name] == dtype


def numerics(section: Section) -> Iterator[Finding]:
    """The accumulator is a type that engines add in; an operand has one dtype."""
    numbers = section.shape.numerics
    if numbers.accumulator not in ("f32", "i32"):
        yield f"{section.place}, numerics", f"the accumulator is {numbers.accumulator}, not f32 or i32"
    names = [name for name, _ in numbers.operands]
    if len(set(names)) != len(names):
        yield f"{section.place}, numerics", "an operand is named twice"


def grid(section: Section) -> Iterator[Finding]:
    """The work grid has at least one item of at least one element."""
    items = section.shape.items
    for count in (items.y, items.x):
        smallest, most = least(count, section.symbols), greatest(count, section.symbols)
        if smallest is None or most is None or smallest < 1:
            yield f"{section.place}, items", f"{count} items may be fewer than 1"
    if items.rows < 1 or items.cols < 1:
        yield f"{section.place}, items", f"an item of {items.rows} x {items.cols} elements"


RULES: RuleTable[Section] = (
    ("spec.output", outputs),
    ("spec.operand", operands),
    ("spec.reduction", reductions),
    ("spec.cast", casts),
    ("spec.integer", integers),
    ("spec.numerics", numerics),
    ("spec.items", grid),
)
