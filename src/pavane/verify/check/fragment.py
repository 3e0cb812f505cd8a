"""The fragment: which programs the checker reasons about at all. Everything else is refused with `OutsideFragment`.

`admit` re-decodes the program from its own canonical bytes, so that every later rule works on values of the grammar
and of their types, then checks structure: names resolve and are unique, sizes are bounded, loops have distinct
variables and symbolic extents of at least 1, every expression uses only variables that are in scope, windows and
references have the rank of what they name. After it no lookup of a name can fail. It proves nothing else.
"""

from __future__ import annotations

import re

import msgspec

from pavane.ir.digest import canonical_bytes
from pavane.ir.program import FORMAT_VERSION, Program, Run, Tensor
from pavane.ir.quasi import Domain
from pavane.ir.walk import symbol_domain
from pavane.reject import OutsideFragment
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.check.fragment_shape import admit_shape
from pavane.verify.check.scope import (
    MAX_INT,
    RESERVED,
    TOO_LARGE,
    admit_counter,
    admit_extents,
    admit_fill,
    admit_handshake,
    at_most,
    in_scope,
    integers,
    known,
    legible,
    one_to,
    scope_of,
    too_large,
    unique,
)

MAX_BYTES = 32 << 20
MAX_INSTANCES, MAX_SHAPES = 1 << 14, 256


def admit(program: Program, target: SpatialTarget) -> Program:
    """The same program, decoded afresh, with its structure checked. Raises OutsideFragment."""
    program = _decoded(program)
    try:
        _structure(program, target)
    except TOO_LARGE as error:
        raise too_large(error, f"program {program.name}") from error
    return program


def _structure(program: Program, target: SpatialTarget) -> None:
    engines = [process.engine for shape in program.shapes for process in shape.processes]
    engines += [counter.engine for shape in program.shapes for counter in shape.counters]
    legible((program.name, program.target, *(i.name for i in program.instances), *engines), "program")
    if program.version != FORMAT_VERSION:
        raise OutsideFragment(f"format version {program.version} is not {FORMAT_VERSION}", where=program.name)
    if program.phase not in ("PERSISTENT", "VERIFIED"):
        what = f"a program at {program.phase} has no written order yet"
        raise OutsideFragment(what, remedy="run the passes up to persist")
    _program_names(program)
    domain = _symbols(program)
    for tensor in program.tensors:
        _tensor(tensor, domain)
    for shape in program.shapes:
        admit_shape(shape, domain)
    _instances(program)
    _workers(program, target)


def _decoded(program: Program) -> Program:
    try:
        data = canonical_bytes(program)
        at_most(len(data), MAX_BYTES, "the program has too many bytes", "")
        return msgspec.json.decode(data, type=Program)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise OutsideFragment(f"the program is not a value of the grammar: {error}") from error


def _program_names(program: Program) -> None:
    where = f"program {program.name}"
    unique((t.name for t in program.tensors), "tensor", where, MAX_INSTANCES)
    unique((s.name for s in program.shapes), "shape", where, MAX_SHAPES)
    unique((c.name for c in program.counters), "counter", where)
    unique((w.name for w in program.workers), "worker", where)
    one_to(MAX_INSTANCES, len(program.instances), "a program has too many sections, or none", where)


def _symbols(program: Program) -> Domain:
    unique((s.name for s in program.symbols), "symbol", f"program {program.name}", 16)
    for symbol in program.symbols:
        if symbol.name in RESERVED or re.fullmatch(r"i[0-9]+", symbol.name):
            raise OutsideFragment(f"{symbol.name} cannot name a symbol: it is a variable of the grammar")
        if not -MAX_INT <= symbol.lo <= symbol.hi <= MAX_INT:
            raise OutsideFragment(f"symbol {symbol.name} has no usable range", needed=f"{symbol.lo} .. {symbol.hi}")
    return symbol_domain(program)


def _tensor(tensor: Tensor, domain: Domain) -> None:
    where = f"tensor {tensor.name}"
    admit_extents(tensor.shape, tensor.dtype, domain, where)
    admit_fill(tensor.fill, where)
    if tensor.role in ("WEIGHT", "STATE") and not all(extent.is_const for extent in tensor.shape):
        what = f"the extents of a {tensor.role} tensor change from launch to launch"
        raise OutsideFragment(what, where=where, needed="constants", available=", ".join(map(str, tensor.shape)))
    if tensor.offset != -1 and tensor.role != "SCRATCH" and tensor.home == "dram":
        raise OutsideFragment(f"a tensor of role {tensor.role} beside the chip has a place of its own", where=where)
    if tensor.transition is not None:
        in_scope((tensor.transition.row, tensor.transition.rows), scope_of(domain), where)
    integers((tensor.offset, tensor.shard_bytes, tensor.interleave_bytes), where)


# --- instances and workers --------------------------------------------------------------------------------------------


def _instances(program: Program) -> None:
    shapes = {s.name: s for s in program.shapes}
    tensors = {t.name for t in program.tensors}
    for number, instance in enumerate(program.instances):
        where = f"section {number} ({instance.name or instance.shape})"
        known(instance.shape, set(shapes), "shape", where)
        formals = sorted(f.name for f in shapes[instance.shape].formals)
        if sorted(b.formal for b in instance.bindings) != formals:
            raise OutsideFragment(
                "each formal is bound once and nothing else is", where=where, needed=", ".join(formals)
            )
        for binding in instance.bindings:
            known(binding.tensor, tensors, "tensor", where)


def _workers(program: Program, target: SpatialTarget) -> None:
    engines = {e.name for e in target.engines}
    counters = {c.name for c in program.counters}
    for worker in program.workers:
        where = f"worker {worker.name}"
        known(worker.engine, engines, "engine", where)
        for turn in worker.body:
            if isinstance(turn, Run):
                if not 0 <= turn.instance < len(program.instances):
                    raise OutsideFragment(f"there is no section {turn.instance}", where=where)
            else:
                known(turn.counter, counters, "counter", where)
                admit_handshake(turn, where)
    for counter in program.counters:
        admit_counter(counter, f"counter {counter.name}")
