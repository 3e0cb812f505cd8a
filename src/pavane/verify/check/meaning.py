"""Meaning: what a section stores is what its spec says, for every element, over the real numbers.

For each store the slot's term (values.py) at (row, col) is compared with the spec at i = start + (row, col) - origin,
both in normal form over the symbols, sites, loops and the window's elements. Equal normal forms are equal functions,
so with `coverage` (each element of the region stored once) the section implements its spec. Each reduction is matched
as one reduction with all its terms, so each term is taken exactly once. Formals of equal extents that every instance
of the shape binds to one tensor are one formal: nothing writes them while the section runs (`bindings`, `order`).

Storage: floats of all widths, in blocks too, round and do not change the meaning. An integer dtype would, so it is
stored only from an element of the same dtype, or from a cast to it (which truncates and saturates, in the spec too).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pavane.ir.expr import At, Expr, Fn, replace_operands, substitute
from pavane.ir.program import Generic, Instance, MatmulTiles, Spec, Store
from pavane.ir.quasi import Domain, Quasi, quasi
from pavane.ir.types import INTEGER_DTYPES, block_elements
from pavane.ir.walk import window_spans
from pavane.reject import MeaningRefused
from pavane.verify.check.inequalities import in_whole_blocks
from pavane.verify.check.section import Section
from pavane.verify.check.terms import COL, ROW, difference, normal
from pavane.verify.check.values import Computed, Evidence, Stored


def meaning(section: Section, evidence: Evidence, instances: Sequence[Instance]) -> str:
    """Refuse the first store whose term is not the spec's; `instances` are those of the shape."""
    one = _bound_alike(section, instances)
    for computed in evidence.computes:
        _storage(section, computed)
    for stored in evidence.stores:
        _same(section, section.specs[stored.step.tensor], stored, one)
    return f"{len(evidence.stores)} stores equal their specs"


def _bound_alike(section: Section, instances: Sequence[Instance]) -> dict[str, str]:
    """By formal the first one that is the same view of the same tensor in every instance."""
    bound = [{b.formal: b.tensor for b in instance.bindings} for instance in instances]
    first: dict[tuple, str] = {}
    views = {f.name: (f.shape, *(tensors[f.name] for tensors in bound)) for f in section.shape.formals}
    return {name: first.setdefault(view, name) for name, view in views.items()}


def _same(section: Section, spec: Spec, stored: Stored, one: dict[str, str]) -> None:
    step, where = stored.step, f"{stored.place.where}, {stored.step.tensor}"
    shape = section.formals[step.tensor].shape
    rows, cols = window_spans(step.window, shape)
    domain = Domain((*stored.place.domain.ranges, (ROW, 0, rows.size - 1), (COL, 0, cols.size - 1)))
    pair = (stored.value.term(where), expected(spec, step))
    found, wanted = (normal(replace_operands(term, lambda a: replace(a, name=one[a.name])), domain) for term in pair)
    apart = difference(found, wanted)
    if apart:
        raise MeaningRefused("what is stored is not what the spec says", where=where, terms=[apart])


def expected(spec: Spec, step: Store) -> Expr:
    """The spec at the elements of the store's slot, by ROW and COL."""
    last = len(step.window.start) - 1
    places: dict[str, Quasi | int] = {}
    for dimension, start in enumerate(step.window.start):
        element = quasi(COL) if dimension == last else quasi(ROW) if dimension == step.window.row else quasi(0)
        places[f"i{dimension}"] = start + element - spec.origin[dimension]  # type: ignore[arg-type, operator]
    return substitute(spec.expr, places)


def _storage(section: Section, computed: Computed) -> None:
    op = computed.op
    where = computed.place.where
    buffer = section.buffer(op.dst.name)
    if buffer.dtype in INTEGER_DTYPES and not _gives(section, op, buffer.dtype):
        what = f"{buffer.dtype} is stored from an expression that may not be an integer of its range"
        raise MeaningRefused(what, where=where)
    block = block_elements(buffer.dtype)
    if block > 1 and isinstance(op, MatmulTiles):
        raise MeaningRefused(f"a product is accumulated in {buffer.dtype}", where=where)
    if not in_whole_blocks(op.dst.col, op.cols, block, computed.place.domain):
        what = f"{buffer.dtype} columns do not begin and end at whole blocks of {block}"
        raise MeaningRefused(what, where=where, needed=f"{op.dst.col} +: {op.cols.size}")


def _gives(section: Section, op: Generic | MatmulTiles, dtype: str) -> bool:
    expr = op.expr if isinstance(op, Generic) else None
    if isinstance(expr, Fn):
        return expr.op == "cast" and expr.dtype == dtype
    return isinstance(expr, At) and section.buffer(expr.name).dtype == dtype
