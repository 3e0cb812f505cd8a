"""Single edits of a program at PERSISTENT: every part of the grammar, by its own kinds of mistake.

`places(program)` lists what can be edited; `mutant(program, rng)` makes one edit and says which. The graph's digest is
made anew, as an attacker would; the certificate is left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from pavane.ir import expr as E
from pavane.ir import program as P
from pavane.ir.digest import graph_digest
from pavane.ir.program import Program
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import Const, Floats, Ints

Path = tuple[Any, ...]
_SKIPPED = (
    "name", "digest", "graph_digest", "target", "target_digest", "version", "phase", "certificate", "plan", "joins",
    "expected", "items", "terms", "cut",
)  # fmt: skip
_NAMED = {
    "fifo": "fifos", "tensor": "tensors", "carry": "carries", "counter": "counters", "process": "processes",
    "formal": "formals", "out": "formals", "via": "fifos", "shape": "shapes",
}  # fmt: skip
_CHOICES = {
    "dtype": ("f32", "f16", "bf16", "q8_0", "i32", "bfp8", "bfp4"),
    "home": ("dram", "sites", "sharded"),
    "kind": ("LOCAL", "ALIAS", "MULTICAST_ROW", "MULTICAST_COLUMN", "SUM", "MAX"),
    "role": ("IN", "OUT", "STATE", "INPUT", "WEIGHT", "SCRATCH", "OUTPUT"),
    "op": ("add", "sub", "mul", "div", "min", "max", "eq", "lt", "le"),
    "contract": ("FLOAT", "INT8_ACTIVATIONS"),
    "accumulator": ("f32", "bf16"),
}
_SEQUENCES = {
    "body",
    "guard",
    "processes",
    "workers",
    "counters",
    "instances",
    "spec",
    "bindings",
    "fifos",
    "carries",
    "tensors",
}


def places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every part that an edit can replace, with its path."""
    if isinstance(value, Quasi | bool | int | float | str):
        yield path, value
    elif isinstance(value, tuple):
        if path and path[-1] in _SEQUENCES and value:
            yield path, value
        for i, item in enumerate(value):
            yield from places(item, (*path, i))
    elif isinstance(value, msgspec.Struct):
        if isinstance(
            value, P.Loop | P.Load | P.Generic | P.MatmulTiles | P.Rect | P.Span | E.Fn | E.At | P.Tensor | P.Formal
        ):
            yield path, value
        for name in value.__struct_fields__:
            if name not in _SKIPPED or (name == "name" and isinstance(value, P.Ref | E.At)):
                yield from places(getattr(value, name), (*path, name))


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key] if isinstance(key, int) else getattr(value, key)
    return value


def put(value: Any, path: Path, new: Any) -> Any:
    """The value with the part at a path replaced."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        return (*value[:key], put(value[key], rest, new), *value[key + 1 :])
    return replace(value, **{key: put(getattr(value, key), rest, new)})


def mutant(
    program: Program, rng: random.Random, found: list[tuple[Path, Any]] | None = None
) -> tuple[str, Program] | None:
    """One random edit, or None where the draw gives no different, decodable program."""
    found = found or list(places(program))
    path, value = rng.choice(found)
    new = _other(program, path, value, rng, found)
    if new is None or new == value:
        return None
    label = f"{_where(program, path)}: {_short(value)} -> {_short(new)}"
    try:
        changed = put(program, path, new)
        changed = replace(changed, graph_digest=graph_digest(changed), certificate=None)
        if msgspec.json.decode(msgspec.json.encode(changed), type=Program) != changed:
            return None
    except (ValueError, TypeError, KeyError, msgspec.ValidationError):
        return None
    return label, changed


def _where(program: Program, path: Path) -> str:
    parts, value = [], program
    for key in path:
        value = value[key] if isinstance(key, int) else getattr(value, key)
        named = getattr(value, "name", "") if isinstance(value, msgspec.Struct) else ""
        parts.append(
            f"{type(value).__name__}" + (f"({named})" if named else "") + (f"#{key}" if isinstance(key, int) else "")
        )
        if not isinstance(value, msgspec.Struct) and not isinstance(key, int):
            parts[-1] = str(key)
    return "/".join(parts)


def kind_of(label: str) -> str:
    """The class of an edit: the kinds of parts on its path, without names and numbers."""
    path = label.split(": ", 1)[0].split("/")
    return "/".join(p.split("(")[0].split("#")[0] for p in path[-3:])


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, Quasi | int | str | float) else msgspec.json.encode(value).decode()
    return text if len(text) < 160 else text[:160] + "..."


def _other(program: Program, path: Path, value: Any, rng: random.Random, found: list[tuple[Path, Any]]) -> Any:
    key = path[-1]
    if isinstance(value, Quasi):
        return _other_quasi(program, value, rng, found)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return max(-1, rng.choice((value + 1, value - 1, value * 2, value // 2, value + 32, value - 32, 0, 1)))
    if isinstance(value, float):
        return rng.choice((value + 1, value * 2, -value, 0.0, value * 1.001))
    if isinstance(value, str):
        return _other_name(program, path, key, value, rng)
    if isinstance(value, tuple):
        return _other_sequence(value, rng, found, path)
    return _other_part(value, rng, found)


def _other_quasi(program: Program, value: Quasi, rng: random.Random, found: list[tuple[Path, Any]]) -> Quasi:
    names = list(value.variables())
    variables = [
        *P.LOOP_VARIABLES[1:4],
        *P.GENERIC_VARIABLES,
        "SITE_X",
        "SITE_Y",
        "i0",
        "i1",
        "k0",
        *(s.name for s in program.symbols),
    ]
    draw = rng.random()
    if draw < 0.3:
        return value + rng.choice((1, -1, 32, -32, 16, 64))
    if draw < 0.45 and names:
        return value.substitute({rng.choice(names): rng.choice((quasi(0), quasi(1), *(quasi(n) for n in variables)))})
    if draw < 0.6 and names:
        name = rng.choice(names)
        return value.substitute({name: quasi(name) * rng.choice((2, -1)) + rng.choice((0, 1, -1))})
    if draw < 0.7:
        return value * rng.choice((2, 0, -1))
    if draw < 0.8:
        return value // rng.choice((2, 3, 32)) if rng.random() < 0.5 else value.ceil(2)
    if draw < 0.9:
        return value + quasi(rng.choice(variables)) * rng.choice((1, -1, 32))
    return rng.choice([v for _, v in found if isinstance(v, Quasi)])


def _other_name(program: Program, path: Path, key: Any, value: str, rng: random.Random) -> str | None:
    shape = program.shapes[path[1]] if path[0] == "shapes" else None
    if key in ("name",):
        return rng.choice([x.name for x in (*shape.fifos, *shape.carries, *shape.formals)]) if shape else None
    if key == "var":
        return rng.choice((*P.LOOP_VARIABLES, "k0", "k1"))
    if key == "engine":
        return rng.choice([w.engine for w in program.workers])
    if key == "tensor" and shape is not None:
        return rng.choice([f.name for f in shape.formals])
    if key == "process":
        return rng.choice([p.name for s in program.shapes for p in s.processes])
    if key in _NAMED:
        holder = shape if shape is not None and hasattr(shape, _NAMED[key]) else program
        listed = getattr(holder, _NAMED[key], ())
        return rng.choice([x.name for x in listed]) if listed else None
    return rng.choice(_CHOICES[key]) if key in _CHOICES else None


def _other_sequence(value: tuple, rng: random.Random, found: list[tuple[Path, Any]], path: Path) -> tuple:
    i, draw = rng.randrange(len(value)), rng.random()
    loops = [j for j, node in enumerate(value) if isinstance(node, P.Loop)]
    if loops and rng.random() < 0.5:
        return _through_loop(value, rng.choice(loops), rng)
    if draw < 0.35:
        return value[:i] + value[i + 1 :]
    if draw < 0.5:
        return value[: i + 1] + value[i:]
    if draw < 0.75 and len(value) > 1:
        j = min(i + 1, len(value) - 1) if rng.random() < 0.6 else rng.randrange(len(value))
        swapped = list(value)
        swapped[i], swapped[j] = swapped[j], swapped[i]
        return tuple(swapped)
    if draw < 0.9 and len(value) > 1:
        rest = list(value)
        rest.insert(rng.randrange(len(value)), rest.pop(i))
        return tuple(rest)
    others = [v for p, v in found if p and p[-1] == path[-1] and isinstance(v, tuple) and type(v[0]) is type(value[0])]
    donor = rng.choice(others)
    return (*value[:i], rng.choice(donor), *value[i:])


def _through_loop(value: tuple, at_: int, rng: random.Random) -> tuple:
    """Move or copy a step into the loop beside it or out of it, unwrap or split the loop, or wrap a step."""
    loop, draw = value[at_], rng.random()
    steps = list(value)
    if draw < 0.35 and len(value) > 1:
        i = rng.choice([j for j in range(len(value)) if j != at_])
        place = rng.choice((0, len(loop.body), rng.randrange(len(loop.body) + 1)))
        steps[at_] = replace(loop, body=(*loop.body[:place], value[i], *loop.body[place:]))
        if rng.random() < 0.7:
            del steps[i]
        return tuple(steps)
    if draw < 0.7 and len(loop.body) > 1:
        i = rng.randrange(len(loop.body))
        if rng.random() < 0.7:
            steps[at_] = replace(loop, body=loop.body[:i] + loop.body[i + 1 :])
        steps.insert(at_ + rng.randrange(2), loop.body[i])
        return tuple(steps)
    if draw < 0.8:
        return (*value[:at_], *loop.body, *value[at_ + 1 :])
    if draw < 0.9 and len(loop.body) > 1:
        cut = rng.randrange(1, len(loop.body))
        return (
            *value[:at_],
            replace(loop, body=loop.body[:cut]),
            replace(loop, body=loop.body[cut:]),
            *value[at_ + 1 :],
        )
    i = rng.randrange(len(value))
    wrapped = P.Loop(rng.choice(P.LOOP_VARIABLES), quasi(rng.choice((1, 1, 2))), (value[i],))
    return (*value[:i], wrapped, *value[i + 1 :])


def _other_part(value: Any, rng: random.Random, found: list[tuple[Path, Any]]) -> Any:
    if isinstance(value, P.Load) and rng.random() < 0.5:
        return replace(value, window=replace(value.window, row=rng.choice((-1, 0, 1, 2))))
    if isinstance(value, P.MatmulTiles):
        swapped = (replace(value, a=value.b, b=value.a), replace(value, rows=value.cols, cols=value.rows))
        return rng.choice((*swapped, replace(value, k=value.cols), replace(value, guard=())))
    if isinstance(value, P.Rect):
        x = (replace(value, x0=value.x0 + 1), replace(value, x1=value.x1 - 1))
        y = (replace(value, y0=value.y0 + 1), replace(value, y1=value.y1 - 1))
        return rng.choice((*x, *y, P.Rect(value.y0, value.y1, value.x0, value.x1)))
    if isinstance(value, E.Fn) and len(value.args) > 1:
        return rng.choice((replace(value, args=value.args[::-1]), value.args[0], value.args[1]))
    if isinstance(value, P.Tensor | P.Formal):
        return replace(value, fill=rng.choice((Floats(), Const(0.0), Ints(0, 5), Ints(-300, 300))))
    same = [v for _, v in found if type(v) is type(value)]
    return rng.choice(same)
