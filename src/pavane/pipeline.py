"""The order of passes, as data, and the drivers that follow it. Nothing here decides anything.

`PASS_ORDER` takes one section from TEMPLATE to VERIFIED, `JOINING` says what looks at several: `compile_sections` lets
`reside`, `interleave`, `pack` and `forward` say where sections and their tensors go, takes each distinct shape through
PASS_ORDER once for each rectangle, composes, and verifies the whole. An observer sees every step and can change none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from pavane.ir.digest import graph_digest
from pavane.ir.program import Phase, Program
from pavane.passes.compose import assemble, compose
from pavane.passes.forward import Forwarded, forward
from pavane.passes.fuse_generic import fuse_generic
from pavane.passes.fuse_readers import fuse_readers
from pavane.passes.interleave import interleave
from pavane.passes.memory_beside import require_room
from pavane.passes.pack import Place, at_place, pack, part_of
from pavane.passes.persist import persist
from pavane.passes.place import place
from pavane.passes.planning import Planning
from pavane.passes.reside import Resident, reside
from pavane.passes.size_buffers import size_buffers
from pavane.passes.synthesize_handshakes import synthesize_handshakes
from pavane.passes.tile import tile
from pavane.passes.verify import verify
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.validate import require_valid

Key = tuple[str, Place]
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


class Joining(msgspec.Struct, frozen=True):
    """What takes many sections, and why it stands where it stands."""

    name: str
    because: str


JOINING: tuple[Joining, ...] = (
    Joining("reside", "what is resident on the sites takes memory that all sections then plan without, waves too"),
    Joining("interleave", "how weights lie decides who reads them fast, and is the same for every program on them"),
    Joining("pack", "which sections run at once says for how many sites each is tiled, so it comes before PASS_ORDER"),
    Joining("forward", "what lies on the sites takes memory that sections then plan without; lifetimes count waves"),
    Joining("compose", "counters, boundaries and arenas are of the whole program, after PASS_ORDER; `verify` follows"),
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
    name: str,
    sections: Sequence[Program],
    target: SpatialTarget,
    observer: Observer | None = None,
    beside: Sequence[Sequence[Program]] = (),
) -> Program:
    """TEMPLATE sections, in order, as one VERIFIED program. Raises SpatialReject.

    `beside`: the sections of the programs of one deployment, which find weights and caches at the same places.
    """
    planning = Planning()
    resident = reside(sections, beside, target, planning) if len(sections) > 1 else Resident(tuple(sections), target)
    require_room(name, resident.sections, target)
    lying = interleave(resident.sections, resident.target)
    if len(lying) == 1 and lying[0] == sections[0]:
        return run_passes(replace(sections[0], name=name), target, observer)
    packed = pack(lying, resident.target, planning)
    return compile_joined(name, forward(packed, resident.target, planning), target, planning, observer)


def compile_joined(
    name: str, forwarded: Forwarded, target: SpatialTarget, planning: Planning, observer: Observer | None = None
) -> Program:
    """Sections whose places and homes are decided, as one VERIFIED program.

    Each distinct shape is compiled once for each rectangle that it runs on. Raises SpatialReject.
    """
    packed = forwarded.packed
    keys = [(planning.key(section), place) for section, place in zip(packed.sections, packed.places, strict=True)]
    templates: dict[Key, Program] = {}
    for key, section in zip(keys, packed.sections, strict=True):
        templates.setdefault(key, section)
    total = len(templates) + 1
    compiled = _compiled_once(templates, forwarded.target, observer, total)
    start = time.perf_counter()
    parts = tuple(zip(keys, packed.sections, packed.shared_waves, strict=True))
    meant = assemble(name, [_instance_of(templates[key], section) for key, section, _ in parts], target)
    done = [at_place(_instance_of(compiled[key], section), key[1], wave, target) for key, section, wave in parts]
    whole = replace(compose(name, done, target), graph_digest=graph_digest(meant))
    require_valid(whole, target)
    _tell(observer, PassEvent(name, "compose", whole, time.perf_counter() - start, total - 1, total))
    start = time.perf_counter()
    whole = verify(whole, target)
    _tell(observer, PassEvent(name, "verify", whole, time.perf_counter() - start, total, total))
    return whole


def _compiled_once(
    templates: Mapping[Key, Program], target: SpatialTarget, observer: Observer | None, total: int
) -> dict[Key, Program]:
    """Each shape, VERIFIED for the rectangle that it runs on."""
    compiled: dict[Key, Program] = {}
    for key, template in templates.items():
        part = part_of(target, key[1])
        mine = replace(template, target_digest=target_digest(part))
        compiled[key] = run_passes(mine, part, observer, len(compiled), total)
    return compiled


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
