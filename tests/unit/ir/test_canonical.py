"""Equal values have equal bytes: of every kind of part, a default that is stated, or copied, is the default."""

from __future__ import annotations

import copy
import json
import pickle
import types
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields, replace

from pavane.artefact import Artefact
from pavane.ir.digest import canonical_bytes, program_digest
from pavane.ir.expr import Const as Number
from pavane.ir.expr import Fn
from pavane.ir.program import Carry, Program
from pavane.ir.types import Const as Constant
from pavane.targets.load import load_target
from tests.examples import matmul_multicast


def kinds(hint: Any, known: dict[type, None]) -> tuple[type[Struct], ...]:
    """All kinds of parts that a value of that type can have, each once."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        if hint in known:
            return tuple(known)
        known[hint] = None
        inside = tuple(get_type_hints(hint).values())
    else:
        inside = () if get_origin(hint) is Literal else get_args(hint)
    for one in inside:
        kinds(one, known)
    return tuple(known)


def least(hint: Any) -> Any:
    """A small value of a type."""
    if hint is Fn:
        return Fn("abs", (Number(1.0),))
    if isinstance(hint, type) and issubclass(hint, Struct):
        hints = get_type_hints(hint)
        return hint(**{f.name: least(hints[f.name]) for f in fields(hint) if required(f)})
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if get_origin(hint) is tuple:
        return () if ... in get_args(hint) else tuple(least(one) for one in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return least(get_args(hint)[0])
    return {int: 1, float: 1.0, str: "x", bool: True}[hint]


def required(field: msgspec.structs.FieldInfo) -> bool:
    return field.default is NODEFAULT and field.default_factory is NODEFAULT


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if field.default is NODEFAULT else field.default


def copied(value: Any) -> Any:
    """An equal value that is another object where Python allows one."""
    if isinstance(value, str):
        return "".join(list(value))
    if isinstance(value, float):
        return float(repr(value))
    return msgspec.json.decode(canonical_bytes(value), type=type(value)) if isinstance(value, Struct) else value


KINDS = kinds(Artefact, {})
DEFAULTS = [(kind, field) for kind in KINDS for field in fields(kind) if not required(field)]
NAMES = [f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}.{field.name}" for kind, field in DEFAULTS]


def test_all_of_the_grammar_is_there():
    assert {"Program", "Shape", "Ref", "Quasi", "Indirect", "Floats", "SpatialTarget", "Engine"} <= {
        kind.__name__ for kind in KINDS
    }
    assert len(KINDS) > 60
    assert len(DEFAULTS) > 70


def test_what_is_always_written():
    """docs/certificate.md names them; a field of an array has its place whatever it holds."""
    objects = [
        (kind, f) for kind, f in DEFAULTS if kind in kinds(Program, {}) and not kind.__struct_config__.array_like
    ]
    written = [(k.__name__, f.name) for k, f in objects if f.name in json.loads(canonical_bytes(least(k)))]
    assert sorted(written) == [("At", "next"), ("Fn", "dtype")]


def stating(part: Struct, field: msgspec.structs.FieldInfo) -> Any:
    """The part as a file may have it: with the default in words, or (an array) without it and what follows."""
    tree = json.loads(canonical_bytes(part))
    if isinstance(tree, list):
        tagged = part.__struct_config__.tag is not None
        return tree[: part.__struct_fields__.index(field.name) + tagged]
    return tree | {field.name: msgspec.to_builtins(default_of(field))}


@pytest.mark.parametrize(("kind", "field"), DEFAULTS, ids=NAMES)
def test_a_default_that_a_file_states(kind, field):
    part = least(kind)
    again = msgspec.json.decode(json.dumps(stating(part, field)), type=kind)
    assert again == part
    assert canonical_bytes(again) == canonical_bytes(part)


@pytest.mark.parametrize(("kind", "field"), DEFAULTS, ids=NAMES)
def test_a_copy_of_a_default(kind, field):
    part = least(kind)
    made = replace(part, **{field.name: copied(default_of(field))})
    assert made == part
    assert canonical_bytes(made) == canonical_bytes(part)


@pytest.mark.parametrize("kind", [Number, Constant, partial(Carry, "acc", 1, 1, "f32")], ids=["expr", "fill", "carry"])
@pytest.mark.parametrize(("number", "other"), [(0.0, -0.0), (0.0, 0), (3.0, 3)])
def test_equal_numbers(kind, number, other):
    assert canonical_bytes(kind(number)) == canonical_bytes(kind(other))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_of_a_program_have_its_digest(again):
    made = matmul_multicast(load_target("toy"))
    assert program_digest(again(made)) == program_digest(made)
