"""The order of passes, as data, and the drivers that follow it. Nothing here decides anything.

`PASS_ORDER` takes one section from TEMPLATE to VERIFIED; `compile_sections` takes each distinct shape through it
once, composes, and verifies the whole. An observer sees every step and can change none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from pavane.ir.digest import digest, graph_digest
from pavane.ir.program import Phase, Program
from pavane.passes.compose import assemble, compose
from pavane.passes.fuse_generic import fuse_generic
from pavane.passes.fuse_readers import fuse_readers
from pavane.passes.persist import persist
from pavane.passes.place import place
from pavane.passes.section_shape import section_shape
from pavane.passes.size_buffers import size_buffers
from pavane.passes.synthesize_handshakes import synthesize_handshakes
from pavane.passes.tile import tile
from pavane.passes.verify import verify
from pavane.targets.descriptor import SpatialTarget
from pavane.validate import require_valid

Pass = Callable[[Program, SpatialTarget], Program]


class Entry(msgspec.Struct, frozen=True):
    """A pass, the phase that it leaves the program in, and why it stands where it stands."""

    name: str
    run: Pass
    phase: Phase
    because: str


PASS_ORDER: tuple[Entry, ...] = (
    Entry("tile", tile, "TILED", "every later choice is about blocks, so blocks come first"),
    Entry(
        "fuse_readers",
        fuse_readers,
        "FUSED",
        "who reads for whom depends on the blocks and decides which groups exist to be placed",
    ),
    Entry(
        "fuse_generic",
        fuse_generic,
        "FUSED",
        "a fused expression needs no carry, which placing and sizing then never see",
    ),
    Entry("place", place, "PLACED", "a buffer's site must be known before memory can be counted"),
    Entry("size_buffers", size_buffers, "SIZED", "handshakes count slots, so depths come before them"),
    Entry(
        "synthesize_handshakes",
        synthesize_handshakes,
        "SYNCHRONIZED",
        "it adds steps to stages, which persist then orders",
    ),
    Entry("persist", persist, "PERSISTENT", "the written order contains every step, so all steps must be there"),
    Entry("verify", verify, "VERIFIED", "it proves what will run, so nothing may change after it"),
)


class PassEvent(msgspec.Struct, frozen=True):
    """What an observer is told after each step: the section's name, the pass, its result, and how long it took."""

    section: str
    name: str
    program: Program
    seconds: float
    done: int
    total: int


Observer = Callable[[PassEvent], None]


def run_passes(
    program: Program, target: SpatialTarget, observer: Observer | None = None, done: int = 0, total: int = 1
) -> Program:
    """One section from TEMPLATE to VERIFIED. Raises SpatialReject."""
    require_valid(program, target)
    _tell(observer, PassEvent(program.name, "template", program, 0.0, done, total))
    for entry in PASS_ORDER:
        start = time.perf_counter()
        program = entry.run(program, target)
        require_valid(program, target)
        _tell(observer, PassEvent(program.name, entry.name, program, time.perf_counter() - start, done, total))
    return program


def compile_sections(
    name: str, sections: Sequence[Program], target: SpatialTarget, observer: Observer | None = None
) -> Program:
    """TEMPLATE sections, in order, as one VERIFIED program:

    each distinct shape is compiled once. Raises SpatialReject.
    """
    if len(sections) == 1:
        return run_passes(replace(sections[0], name=name), target, observer)
    keys = _shape_keys(sections)
    templates: dict[str, Program] = {}
    for key, section in zip(keys, sections, strict=True):
        templates.setdefault(key, section)
    total = len(templates) + 1
    compiled = {k: run_passes(t, target, observer, i, total) for i, (k, t) in enumerate(templates.items())}
    start = time.perf_counter()
    meant = assemble(name, [_instance_of(templates[k], s) for k, s in zip(keys, sections, strict=True)], target)
    whole = compose(name, [_instance_of(compiled[k], s) for k, s in zip(keys, sections, strict=True)], target)
    whole = replace(whole, graph_digest=graph_digest(meant))
    require_valid(whole, target)
    _tell(observer, PassEvent(name, "compose", whole, time.perf_counter() - start, total - 1, total))
    start = time.perf_counter()
    whole = verify(whole, target)
    _tell(observer, PassEvent(name, "verify", whole, time.perf_counter() - start, total, total))
    return whole


def _shape_keys(sections: Sequence[Program]) -> list[str]:
    """The `section_shape` of each section, computed once for sections that are equal to the letter."""
    known: dict[str, str] = {}
    keys = []
    for section in sections:
        letter = digest([section.phase, section.target_digest, section.symbols, section.shapes])
        if letter not in known:
            known[letter] = section_shape(section)
        keys.append(known[letter])
    return keys


def _instance_of(representative: Program, section: Program) -> Program:
    """`section` as an instance of the shape of an equal section with other names; formals correspond by position."""
    (shape,), (own,) = representative.shapes, section.shapes
    names = {mine.name: formal.name for mine, formal in zip(own.formals, shape.formals, strict=True)}
    (instance,) = section.instances
    bindings = tuple(replace(b, formal=names[b.formal]) for b in instance.bindings)
    return replace(
        representative,
        name=section.name,
        symbols=section.symbols,
        tensors=section.tensors,
        instances=(replace(instance, shape=shape.name, bindings=bindings),),
        certificate=None,
    )


def _tell(observer: Observer | None, event: PassEvent) -> None:
    if observer is not None:
        observer(event)
