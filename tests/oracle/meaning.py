"""What every section must store: its spec's cells, made of those that earlier sections must have left."""

from __future__ import annotations

from math import prod

import numpy as np

from pavane.ir.expr import At
from pavane.ir.program import Formal, Instance, Program, Shape, Tensor
from tests.oracle.cells import Cells, unwritten
from tests.oracle.expressions import Scope, over, value_of
from tests.oracle.laws import Laws
from tests.oracle.rounding import held
from tests.oracle.spaces import Fault

Values = dict[str, Cells]


class Expected:
    """Per instance and formal: the values of every stored element; nothing may be stored where `mask` is False."""

    def __init__(self, values: Cells, mask: np.ndarray) -> None:
        self.values = values
        self.mask = mask


def extents(shape: tuple, symbols: dict[str, int]) -> tuple[int, ...]:
    return tuple(e.evaluate(symbols) for e in shape)


def expectations(
    program: Program, memory: Values, symbols: dict[str, int], laws: Laws, rounds: bool
) -> list[dict[str, Expected]]:
    """Evaluate all instances in order; `memory` (flat arrays by tensor, NaN where unwritten) is updated. `rounds`: with
    numbers that the tensors' types hold.
    """
    out = []
    for instance in program.instances:
        shape = next(s for s in program.shapes if s.name == instance.shape)
        results = _instance(program, instance, shape, memory, symbols, laws)
        for formal, expected in results.items():
            tensor = _bound(program, instance, formal)
            flat = memory[tensor.name]
            part = flat[: expected.values.size]
            left = held(expected.values, tensor.dtype) if rounds else expected.values
            part[expected.mask.ravel()] = left.ravel()[expected.mask.ravel()]
        out.append(results)
    return out


def _bound(program: Program, instance: Instance, formal: str) -> Tensor:
    name = next(b.tensor for b in instance.bindings if b.formal == formal)
    return next(t for t in program.tensors if t.name == name)


def _instance(
    program: Program, instance: Instance, shape: Shape, memory: Values, symbols: dict[str, int], laws: Laws
) -> dict[str, Expected]:
    formals = {f.name: f for f in shape.formals}
    before = {f.name: _seen(program, instance, f, memory, symbols) for f in shape.formals}
    results: dict[str, Expected] = {}
    for spec in sorted(shape.spec, key=lambda s: formals[s.out].role != "STATE"):
        names = tuple(f"i{d}" for d in range(len(spec.extents)))
        sizes = extents(spec.extents, symbols)

        def read(at: At, indices: tuple[np.ndarray, ...]) -> Cells:
            array = _after(before[at.name], results.get(at.name)) if at.next else before[at.name]
            if any(i.size and (i.min() < 0 or i.max() >= n) for i, n in zip(indices, array.shape, strict=True)):
                raise Fault(f"the spec reads {at.name} outside its extents")
            return array[indices]

        scope = Scope(laws, dict(zip(names, sizes, strict=True)), symbols, read)
        values = over(value_of(spec.expr, scope), names, sizes)
        whole = results.get(spec.out) or Expected(
            unwritten(before[spec.out].shape), np.zeros(before[spec.out].shape, bool)
        )
        starts = extents(spec.origin, symbols)
        if any(s < 0 or s + n > e for s, n, e in zip(starts, sizes, whole.values.shape, strict=True)):
            raise Fault(f"the spec of {spec.out} passes its extents")
        region = tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))
        whole.values[region] = values
        whole.mask[region] = True
        results[spec.out] = whole
    return results


def _seen(program: Program, instance: Instance, formal: Formal, memory: Values, symbols: dict[str, int]) -> Cells:
    """A formal's view of its tensor: the first elements, in the formal's shape."""
    shape = extents(formal.shape, symbols)
    flat = memory[_bound(program, instance, formal.name).name]
    if prod(shape) > flat.size:
        raise Fault(f"{formal.name} of {instance.name} is larger than its tensor")
    return flat[: prod(shape)].reshape(shape).copy()


def _after(before: Cells, result: Expected | None) -> Cells:
    return before if result is None else np.where(result.mask, result.values, before)
