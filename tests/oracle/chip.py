"""What the chip does not have: roles of engines, in-place memory, multicast, FIFOs, counters."""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.program import Compute, Init, Load, Loop, Process, Program, Send, Step, Store
from pavane.targets.descriptor import SpatialTarget
from tests.oracle.spaces import Fault

_ROLES: dict[type, str] = {Load: "reader", Send: "reader", Store: "writer", Compute: "compute", Init: "compute"}


def require_on_chip(program: Program, target: SpatialTarget) -> None:
    """Raise a Fault for the first thing that the descriptor does not have."""
    engines = {engine.name: engine for engine in target.engines}
    for shape in program.shapes:
        for process in shape.processes:
            if process.engine not in engines:
                raise Fault(f"chip: no engine {process.engine}")
            for step in steps_of(process.body):
                role = _ROLES.get(type(step))
                if role is not None and role not in engines[process.engine].roles:
                    raise Fault(f"chip: engine {process.engine} is no {role}")
                if isinstance(step, Send) and not target.noc.multicast and _members(process) > 1:
                    raise Fault("chip: no multicast")
        if len(shape.fifos) > target.fifos.per_site:
            raise Fault("chip: too many FIFOs")
        if not target.alias and any(f.kind == "ALIAS" for f in shape.fifos):
            raise Fault("chip: no memory in place")
    for counter in (*program.counters, *(c for s in program.shapes for c in s.counters)):
        if not 0 <= counter.id < target.counters.per_site or counter.bits != target.counters.bits:
            raise Fault(f"chip: no counter {counter.id} of {counter.bits} bits")


def steps_of(body: tuple) -> Iterator[Step]:
    for node in body:
        if isinstance(node, Loop):
            yield from steps_of(node.body)
        else:
            yield node


def _members(process: Process) -> int:
    """At most how many sites one send of the process reaches (its rectangles have constant widths)."""
    most = 0
    for step in steps_of(process.body):
        if isinstance(step, Send):
            width, height = step.to.x1 - step.to.x0, step.to.y1 - step.to.y0
            most = max(most, (width.const if width.is_const else 2) * (height.const if height.is_const else 2))
    return most
