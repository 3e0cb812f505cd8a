"""A program that is ready to run: accepted, compiled or taken from the cache, its memory laid out, its threads
resident.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from pavane.ir.program import Program
from pavane.ir.walk import named
from pavane.native.cache import default_directory, object_key, read_object, write_object
from pavane.native.compile import Loaded, compile_object
from pavane.native.cpu import Cpu, host_cpu, require_supported
from pavane.native.guard import check_inputs, check_state, check_symbols, fill_faults, state_transitions
from pavane.native.kept import Place
from pavane.native.layout import (
    BINDINGS,
    CLOCKS,
    CONTROL_BYTES,
    COUNTERS,
    LOCALS,
    QUEUES,
    SCRATCH,
    SYMBOLS,
    Layout,
    clock_count,
    credits,
    program_layout,
)
from pavane.native.lower import lower_program
from pavane.native.memory import Memory, aligned
from pavane.native.packing import packed_formals, packed_weights
from pavane.native.threads import Crew
from pavane.reject import LaunchReject
from pavane.targets.descriptor import SpatialTarget, target_digest

Accept = Callable[[Program, SpatialTarget], object]


def load(
    program: Program,
    target: SpatialTarget,
    *,
    weights: Mapping[str, np.ndarray],
    share: NativeProgram | None = None,
    weights_digest: str = "",
    cache_dir: Path | None = None,
    accept: Accept | None = None,
    clocks: bool = False,
) -> NativeProgram:
    """Make an accepted program runnable on this processor.

    `weights`: one array a WEIGHT tensor (blocks as bytes), used in place; empty with `share`, whose WEIGHT and STATE
    bytes are used. `weights_digest`: of what they hold; with it their packed copies are kept on disk. `cache_dir`:
    where these and compiled objects are kept (default: the user's cache directory); an object is written only after
    the program was accepted, so a program that is found there is not checked again. `accept` replaces the checker;
    without a `cache_dir`, nothing is kept then. `clocks`: count cycles (see `NativeProgram.cycles`).
    Raises NotProven when the checker refuses, TargetReject for a processor that is too old, LaunchReject for weights,
    target or a program that is not finished.
    """
    _check_program(program, target)
    layout = program_layout(program, target)
    directory = _directory(cache_dir, accept)
    loaded = Loaded(_object(program, target, layout, directory, accept, clocks))
    place = Place(directory, weights_digest) if directory is not None and weights_digest else None
    memory = Memory(program, weights, None if share is None else share.memory, place)
    _check_weights(program, memory)
    return NativeProgram(program, layout, loaded, memory)


def _check_program(program: Program, target: SpatialTarget) -> None:
    if program.phase not in ("PERSISTENT", "VERIFIED"):
        raise LaunchReject(
            "the program is not finished",
            where=program.name,
            needed="phase PERSISTENT or VERIFIED",
            available=program.phase,
            remedy="let every pass run: pv.compile",
        )
    if program.target_digest != target_digest(target):
        raise LaunchReject(
            "the program is for another target",
            needed=program.target,
            available=target.name,
            remedy="compile it for this one",
        )


def _directory(cache_dir: Path | None, accept: Accept | None) -> Path | None:
    if cache_dir is None and accept is None:
        return default_directory()
    return cache_dir


def _object(
    program: Program, target: SpatialTarget, layout: Layout, directory: Path | None, accept: Accept | None, clocks: bool
) -> bytes:
    """From the cache, or accepted and compiled."""
    cpu = host_cpu()
    require_supported(cpu)
    key = object_key(program, cpu)
    directory = None if clocks else directory
    found = None if directory is None else read_object(directory, key)
    if found is not None:
        return found
    (_checker() if accept is None else accept)(program, target)
    made = compile_program(program, layout, cpu, clocks)
    if directory is not None:
        write_object(directory, key, made)
    return made


def _checker() -> Accept:
    from pavane.verify.check import check

    return check


def compile_program(program: Program, layout: Layout, cpu: Cpu, clocks: bool = False) -> bytes:
    """The object file of a program for a processor."""
    return compile_object(lower_program(program, layout, cpu, clocks), cpu)


def _check_weights(program: Program, memory: Memory) -> None:
    faults = [
        fault for t in program.tensors if t.role == "WEIGHT" for fault in fill_faults(t, memory.view(t.name, None))
    ]
    if faults:
        raise LaunchReject(
            "a weight holds values that the program does not expect",
            where=program.name,
            terms=faults,
            remedy="give the weights that the program was compiled for",
        )


class NativeProgram:
    """A resident program. One launch at a time, of all that share memory; `close` (or leaving the `with`) ends its
    threads.
    """

    def __init__(self, program: Program, layout: Layout, loaded: Loaded, memory: Memory) -> None:
        self.memory = memory
        self._program, self._loaded = program, loaded
        self._transitions = state_transitions(program)
        self._symbols: dict[str, int] | None = None
        self._symbol_values = np.zeros(max(len(program.symbols), 1), dtype=np.int64)
        memory.pack(packed_weights(program), loaded.pack, len(layout.threads))
        self._clocks = np.zeros((len(layout.threads), clock_count(program)), dtype=np.int64)
        self._control, self._areas = _areas(program, layout, memory, self._symbol_values, self._clocks)
        self._crew = Crew(loaded, self._control, len(layout.threads))
        self._closing = weakref.finalize(self, _release, self._crew, loaded, self._control, self._areas)

    def launch(self, symbols: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> None:
        """One epoch over copies of the inputs (one that is the program's own `input` is used where it is). Raises
        LaunchReject, and then nothing has changed.
        """
        with self.memory.lock:
            if not self._closing.alive:
                raise LaunchReject("the program is closed", where=self._program.name, remedy="load it again")
            values = check_symbols(self._program, symbols)
            check_inputs(self._program, values, inputs)
            written = self.memory.watermark
            after = check_state(self._transitions, values, written)
            _place({name: self.memory.view(name, values) for name in inputs}, inputs)
            self._symbol_values[: len(values)] = list(values.values())
            self._symbols = values
            # What may be counted on if a signal ends the launch here: whether the epoch has been run or not.
            written.update({name: min(written.get(name, 0), rows) for name, rows in after.items()})
            self._crew.run()
            written.update(after)

    def input(self, name: str, symbols: Mapping[str, int]) -> np.ndarray:
        """The place of an input at these symbols. A launch that is given this array copies nothing."""
        if self.memory.role(name) != "INPUT":
            raise LaunchReject("the program has no such input", where=name, remedy="name one of its INPUT tensors")
        return self.memory.view(name, check_symbols(self._program, symbols))

    def tensor(self, name: str) -> np.ndarray:
        """A view of a tensor's bytes, with its extents at the last launch; blocks as bytes."""
        if not self.memory.role(name):
            raise LaunchReject("the program has no such tensor", where=name, remedy="name one of its tensors")
        return self.memory.view(name, self._symbols)

    def cycles(self) -> np.ndarray:
        """Where it was loaded with `clocks`: cycles [thread, instance] of all launches so far; last, those in waits
        between sections.
        """
        return self._clocks[:, :-1].copy()

    def waited(self) -> np.ndarray:
        """Of every thread's time in launches so far, the part in which it waited for others between sections: what
        unequal shares cost, or threads that had no core.
        """
        return self._clocks[:, -2] / np.maximum(self._clocks[:, -1], 1)

    def close(self) -> None:
        """End the threads. Views of tensors stay valid."""
        with self.memory.lock:
            self._closing()

    def __enter__(self) -> NativeProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _place(places: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> None:
    """Copy each input to its place, as it was before any was copied: one may lie where another goes."""
    moved = {name: array for name, array in inputs.items() if not _is_same(array, places[name])}
    for name, array in moved.items():
        if any(np.may_share_memory(array, place) for place in places.values()):
            moved[name] = array.copy()
    for name, array in moved.items():
        places[name][...] = array


def _is_same(given: np.ndarray, place: np.ndarray) -> bool:
    """Whether both are the same bytes in the same order."""
    addresses = {array.__array_interface__["data"][0] for array in (given, place)}
    return len(addresses) == 1 and given.strides == place.strides


def _release(crew: Crew, *kept: object) -> None:
    """The threads end first; what they run on (`kept`) goes after."""
    crew.dismiss()


def _areas(
    program: Program, layout: Layout, memory: Memory, symbols: np.ndarray, clocks: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The control block and the areas it points to."""
    control = aligned(CONTROL_BYTES)
    sizes = {
        BINDINGS: layout.binding_bytes,
        LOCALS: layout.local_bytes * layout.sites,
        SCRATCH: layout.scratch_bytes * len(layout.threads),
        QUEUES: layout.queue_bytes,
        COUNTERS: layout.counter_bytes,
    }
    areas = {place: aligned(size) for place, size in sizes.items()}
    areas |= {SYMBOLS: symbols, CLOCKS: clocks}
    for place, area in areas.items():
        control[place : place + 8].view(np.int64)[0] = area.ctypes.data
    _bind(program, layout, memory, areas[BINDINGS])
    for offset, ahead in credits(program, layout):
        areas[COUNTERS][offset : offset + 4].view(np.int32)[0] = ahead
    return control, list(areas.values())


def _bind(program: Program, layout: Layout, memory: Memory, table: np.ndarray) -> None:
    """Every instance's formals, as addresses of the tensors they are bound to."""
    packed = {shape.name: packed_formals(program, shape) for shape in program.shapes}
    for instance, offset in zip(program.instances, layout.bindings, strict=True):
        bound = {b.formal: b.tensor for b in instance.bindings}
        shape = named(program.shapes, instance.shape)
        addresses = [memory.address(bound[f.name], f.name in packed[shape.name]) for f in shape.formals]
        table[offset : offset + 8 * len(addresses)].view(np.int64)[:] = addresses
