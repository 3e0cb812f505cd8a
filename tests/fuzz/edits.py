"""Edits of an artefact's bytes: of the file, of the text of its content, of the content's tree, and of the program.

`edited(case)` is a pure function of a `Case`, so a finding is reproduced by its few numbers. Where an edit leaves a
program, its digests are made anew, as one who forges a file would; else the first line's digest at least. Of the edits
of a tree that leave no program one in KEPT is kept: the reader refuses them all alike.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from pavane.artefact import Artefact, artefact_bytes
from tests.checker_oracle.mutants import mutant
from tests.fuzz.forms import Content, as_form, content_of, forged, signed, tree_of
from tests.fuzz.seeds import artefact

NUMBERS = (
    0, 1, -1, 2, 3, 31, 33, 255, 1 << 15, 1 << 31, -(1 << 31), 1 << 40, (1 << 40) + 1, 1 << 53, 1 << 56, 1 << 63,
    1 << 64, 10**30, -(10**30), 0.5, 1e308, -1e-308, True, None,
)  # fmt: skip
TEXTS = ("", "a" * 100_000, "\x00", "\ud7ff", "../x", "LV_ITEM_X", "LV_GEN_K", "SITE_X", "i0", "k0", "fn", "q8_0")
DEEPEST_TREE = 120
LARGEST_TREE = 1 << 21
KEPT = 8


@dataclass(frozen=True)
class Case:
    """`edits`: (kind, number that decides the rest)."""

    seed: str
    edits: tuple[tuple[str, int], ...]


def edited(case: Case) -> bytes:
    """The file's bytes."""
    found: Any = artefact(case.seed)
    for kind, number in case.edits:
        try:
            after = EDITS[kind](as_form(_FORMS[kind], found), random.Random(number))
        except RecursionError:  # a tree that is deeper than this interpreter follows: edited no further
            continue
        if _FORMS[kind] != "tree" or number % KEPT == 0 or isinstance(forged(after), Artefact):
            found = after
    return as_form("file", found)


# --- of the file, and of the content's text --------------------------------------------------------------------------


def _flip(data: bytes, rng: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 16))):
        if found:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _cut(data: bytes, rng: random.Random) -> bytes:
    start = rng.choice((0, 0, rng.randrange(len(data) + 1)))
    return data[start : rng.randrange(start, len(data) + 1)]


def _noise(data: bytes, rng: random.Random) -> bytes:
    place, size = rng.randrange(len(data) + 1), rng.choice((1, 4, 64, 4096))
    return data[:place] + rng.randbytes(size) + data[place + rng.choice((0, size)) :]


def _splice(data: bytes, rng: random.Random, other: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _splice_files(data: bytes, rng: random.Random) -> bytes:
    return _splice(data, rng, artefact_bytes(artefact(None, rng)))


def _on_text(change: Callable[[bytes, random.Random], bytes]) -> Callable[[Content, random.Random], Content]:
    return lambda content, rng: Content(change(content.text, rng))


def _splice_texts(text: bytes, rng: random.Random) -> bytes:
    return _splice(text, rng, content_of(artefact(None, rng)).text)


def _deep_text(text: bytes, rng: random.Random) -> bytes:
    """Brackets or expressions in each other, without end or whole."""
    depth, place = rng.choice((60, 500, 3000, 200_000)), rng.randrange(len(text) + 1)
    begin, end = rng.choice((
        (b"[", b"]"), (b'{"a":', b"}"), (b'{"type":"fn","op":"abs","args":[', b"]}"),
        (b'{"type":"loop","var":"LV_SUB_H","extent":[0,1,[]],"body":[', b"]}"), (b"[0,1,[[1,[", b",2]]]]"),
    ))  # fmt: skip
    holes = [i for i in range(len(text)) if text.startswith(begin[:12], i)][:2000] or [place]
    start = rng.choice(holes)
    if rng.random() < 0.3:
        return text[:start] + begin * depth + text[start:]
    stop = _closing(text, start)
    return text[:start] + begin * depth + text[start:stop] + end * depth + text[stop:]


def _closing(text: bytes, start: int) -> int:
    """Where the bracket at `start` ends."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] in b"[{") - (text[i] in b"]}")
        if depth == 0:
            return i + 1
    return len(text)


# --- of the content's tree -------------------------------------------------------------------------------------------

Place = tuple[Any, Any]


def _places(tree: Any) -> list[Place]:
    """Every (holder, key) of a tree."""
    found: list[Place] = []
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        for key in range(len(holder)) if isinstance(holder, list) else sorted(holder):
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def _on_tree(change: Callable[[list[Place], random.Random], None]) -> Callable[[Any, random.Random], Any]:
    def edit(tree: Any, rng: random.Random) -> Any:
        tree = json.loads(json.dumps(tree))  # a copy in which no two places hold one part
        places = _places(tree)
        if places:
            change(places, rng)
        return tree

    return edit


def _of_type(places: list[Place], *types: type) -> list[Place]:
    return [(h, k) for h, k in places if type(h[k]) in types] or places


def _number(places: list[Place], rng: random.Random) -> None:
    holder, key = rng.choice(_of_type(places, int, float))
    value = holder[key]
    near = [value + 1, value - 1, value * 2, -value, value // 2] if isinstance(value, int) else []
    holder[key] = rng.choice((*near, *near, *NUMBERS))


def _text(places: list[Place], rng: random.Random) -> None:
    texts = _of_type(places, str)
    holder, key = rng.choice(texts)
    other, place = rng.choice(texts)
    holder[key] = rng.choice((other[place], other[place], other[place], rng.choice(TEXTS)))


def _rename(places: list[Place], rng: random.Random) -> None:
    """One name becomes another everywhere, or two are exchanged: so things come to mean themselves."""
    texts = _of_type(places, str)
    (h1, k1), (h2, k2) = rng.choice(texts), rng.choice(texts)
    one, two, swap = h1[k1], h2[k2], rng.random() < 0.5
    for holder, key in texts:
        if holder[key] == one:
            holder[key] = two
        elif swap and holder[key] == two:
            holder[key] = one


def _remove(places: list[Place], rng: random.Random) -> None:
    holder, key = rng.choice(places)
    del holder[key]


def _repeat(places: list[Place], rng: random.Random) -> None:
    holder, key = rng.choice([(h, k) for h, k in places if isinstance(h, list)] or places)
    times = rng.choice((1, 1, 2, 40, 5000))
    if isinstance(holder, list) and times * len(json.dumps(holder[key])) < LARGEST_TREE:
        holder[key:key] = [holder[key]] * times


def _exchange(places: list[Place], rng: random.Random) -> None:
    (h1, k1), (h2, k2) = rng.choice(places), rng.choice(places)
    h1[k1], h2[k2] = copy.deepcopy(h2[k2]), copy.deepcopy(h1[k1])


def _graft(places: list[Place], rng: random.Random) -> None:
    """A part with the same key from elsewhere, or from another artefact."""
    holder, key = rng.choice(places)
    donors = places if rng.random() < 0.7 else _places(tree_of(artefact(None, rng)))
    same = [h[k] for h, k in donors if type(k) is type(key) and (k == key or isinstance(key, int))]
    alike = [value for value in same if type(value) is type(holder[key])]
    if alike:
        holder[key] = copy.deepcopy(rng.choice(alike))


def _retype(places: list[Place], rng: random.Random) -> None:
    holder, key = rng.choice(places)
    holder[key] = rng.choice((None, [], {}, "x", 7, [holder[key]], {"type": "loop"}, {"unknown": holder[key]}))


def _wrap(places: list[Place], rng: random.Random) -> None:
    """Loops, operators, floors or turns around a part that can stand in them."""
    wrappers = {
        "body": lambda v: [{"type": "loop", "var": "LV_SUB_H", "extent": [0, rng.choice((1, 2)), []], "body": v}],
        "expr": lambda v: {"type": "fn", "op": "add", "args": [v, v]},
        "extent": lambda v: [0, 1, [[1, [v, 2]]]],
        "args": lambda v: [{"type": "fn", "op": "abs", "args": [v[0]]}, *v[1:]] if v else v,
    }
    fitting = [(h, k) for h, k in places if isinstance(k, str) and k in wrappers and h[k]]
    if not fitting:
        return
    holder, key = rng.choice(fitting)
    for _ in range(rng.choice((1, 2, 5, 12, DEEPEST_TREE if key != "expr" else 30))):
        holder[key] = wrappers[key](holder[key])
        if len(json.dumps(holder[key])) > LARGEST_TREE:
            return


# --- of the program --------------------------------------------------------------------------------------------------


def _mutated(made: Any, rng: random.Random) -> Any:
    """An edit by the grammar (tests/checker_oracle/mutants.py)."""
    if not isinstance(made, Artefact):
        return made
    try:
        found = mutant(made.program, rng)
    except (IndexError, AttributeError):  # a program in which there is nothing of the kind to choose from
        return made
    if found is None:
        return made
    return signed(replace(made, program=replace(found[1], certificate=made.program.certificate)))


EDITS: dict[str, Callable[[Any, random.Random], Any]] = {
    "flip": _flip, "cut": _cut, "noise": _noise, "splice": _splice_files,
    "text flip": _on_text(_flip), "text cut": _on_text(_cut), "text noise": _on_text(_noise),
    "text splice": _on_text(_splice_texts), "text deep": _on_text(_deep_text),
    "number": _on_tree(_number), "text": _on_tree(_text), "rename": _on_tree(_rename), "remove": _on_tree(_remove),
    "repeat": _on_tree(_repeat), "exchange": _on_tree(_exchange), "graft": _on_tree(_graft),
    "retype": _on_tree(_retype), "wrap": _on_tree(_wrap),
    "mutant": _mutated,
}  # fmt: skip
_FORMS = {
    kind: "file" if kind in ("flip", "cut", "noise", "splice") else "content" if kind.startswith("text ") else "tree"
    for kind in EDITS
} | {"mutant": "artefact"}


def kinds() -> Iterator[str]:
    """The kinds of edits, those that leave a program most often first and most."""
    for kind in EDITS:
        often = {"mutant": 30, "graft": 10, "number": 6, "wrap": 4, "rename": 3, "text": 2}.get(kind, 1)
        yield from [kind] * often
