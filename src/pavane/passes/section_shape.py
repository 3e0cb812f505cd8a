"""section_shape: the digest of a section's choreography with every name forgotten.

Sections with equal digests are compiled, verified, lowered and simulated once. Formals, FIFOs, carries, counters,
groups, stages and processes are numbered in the order in which they are declared. Symbols keep their names and
ranges, since those are the program's. Phase and target belong to the digest; tensors, and what passes recorded for
people (plan, joins, the wording of the numerics), do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

import msgspec
from msgspec.structs import replace

from pavane.ir.digest import digest
from pavane.ir.expr import At, Indirect
from pavane.ir.program import (
    Carry,
    Counter,
    Fifo,
    Formal,
    Group,
    Load,
    Numerics,
    Process,
    Program,
    Ref,
    Shape,
    Spec,
    Stage,
    Store,
)
from pavane.ir.quasi import Quasi
from pavane.passes.buffers import buffers_of
from pavane.passes.section import section_of

Names = Mapping[str, str]
T = TypeVar("T")

# Which fields hold a name, and whether it is a formal's.
_FORMAL = {(Formal, "name"), (Spec, "out"), (Load, "tensor"), (Store, "tensor"), (Indirect, "tensor")}
_OTHER = {(c, "name") for c in (Fifo, Carry, Counter, Group, Stage, Process, Ref)} | {(Indirect, "via")}
_STEP_FIELDS = ("fifo", "counter", "carry")


def section_shape(program: Program) -> str:
    """SHA-256 of the section without its names, at any phase."""
    shape = section_of(program, program.phase)
    mentioned = _variables(shape)
    symbols = tuple(s for s in program.symbols if s.name in mentioned)
    return digest([program.phase, program.target_digest, symbols, anonymous(shape)])


def anonymous(shape: Shape) -> Shape:
    """The shape with numbers for names."""
    formals = _numbered("formal", (f.name for f in shape.formals))
    others = {
        **_numbered("process", (p.name for p in shape.processes)),
        **_numbered("stage", (stage.name for group in shape.groups for stage in group.stages)),
        **_numbered("group", (g.name for g in shape.groups)),
        **_numbered("counter", (c.name for c in shape.counters)),
        **_numbered("buffer", (b.name for b in buffers_of(shape))),
    }
    bare = replace(shape, name="", plan=None, joins=(), numerics=_numerics(shape.numerics, formals))
    spec = _renamed(shape.spec, formals, formals)
    return replace(_renamed(replace(bare, spec=()), formals, others), spec=spec)


def _numbered(kind: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{kind}{number}" for number, name in enumerate(names)}


def _numerics(numerics: Numerics, formals: Names) -> Numerics:
    return replace(
        numerics, terms=(), operands=tuple((formals.get(name, name), dtype) for name, dtype in numerics.operands)
    )


def _renamed(value: T, formals: Names, others: Names) -> T:
    """A value of the grammar with its names replaced; `others` are the names that `At` uses there."""
    if isinstance(value, tuple):
        return cast(T, tuple(_renamed(item, formals, others) for item in value))
    if not isinstance(value, msgspec.Struct) or isinstance(value, Quasi):
        return value
    changed = {}
    for field in value.__struct_fields__:
        old = getattr(value, field)
        names = _names_of(type(value), field, formals, others)
        changed[field] = names.get(old, old) if names is not None else _renamed(old, formals, others)
    return type(value)(**changed)


def _names_of(owner: type, field: str, formals: Names, others: Names) -> Names | None:
    if (owner, field) in _FORMAL:
        return formals
    if (owner, field) in _OTHER or (owner, field) == (At, "name") or field in _STEP_FIELDS:
        return others
    return None


def _variables(value: object) -> set[str]:
    """Every variable of every quasi-affine expression inside."""
    if isinstance(value, Quasi):
        return set(value.variables())
    if isinstance(value, tuple):
        return {name for item in value for name in _variables(item)}
    if isinstance(value, msgspec.Struct):
        return {name for field in value.__struct_fields__ for name in _variables(getattr(value, field))}
    return set()
